"""What of a round outlives the slot that it was computed on?  The gradients of the fragments that have arrived.

With one pass over the whole round (``compute == "stream"``) each fragment's gradient is computed at its arrival, and
the round's step is made of their sum in the order of environments or workers.  So a task can give its slot away between
two fragments and go on elsewhere: what it had computed travels as bytes, and the sum has the same bits.  A sweep over
the round again and again has nothing of the kind.
"""

import pickle
from collections.abc import Iterable
from typing import Any

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import off_policy, settings_of

__all__ = ["pack_part", "streams", "take_part"]


def streams(spec: TaskSpec) -> bool:
    """Return whether a task's gradients are computed as its fragments arrive.

    Raises
    ------
    ConfigError
        If a hyper-parameter is unknown or wrong.

    Examples
    --------
    >>> settings = {"n_steps": 8, "n_epochs": 1, "batch_size": 16}
    >>> one = {"name": "a", "env": "CartPole-v1", "total_timesteps": 1, "n_envs": 2, "hyperparameters": settings}
    >>> streams(TaskSpec(**one)), streams(TaskSpec(**one | {"n_envs": 3}))
    (True, False)
    """
    if off_policy(spec.algo):
        return False
    settings: Any = settings_of(spec)
    whole = settings.batch_size is None or settings.batch_size >= settings.n_steps * spec.n_envs
    return bool(settings.n_epochs == 1 and whole)


def pack_part(learner: Any, worker: int, env_indices: Iterable[int]) -> bytes:
    """Return what a learner has staged and computed of one fragment.

    Parameters
    ----------
    learner
        A learner whose ``compute`` is ``stream``, with the fragment staged.
    worker
        Collector that sent it.
    env_indices
        Environments in it.
    """
    staged = {int(index): learner._staged[int(index)] for index in env_indices}
    streamed = getattr(learner, "_streamed", None)  # where gradients are kept by worker, not by environment
    mine = {worker: streamed[worker]} if isinstance(streamed, dict) else {}
    return pickle.dumps((staged, mine), protocol=5)


def take_part(learner: Any, part: bytes) -> None:
    """Take in what :func:`pack_part` made, by this learner or by another one with the same parameters.

    Raises
    ------
    ValueError
        If one of its environments is staged already.
    """
    staged, streamed = pickle.loads(part)
    twice = sorted(staged.keys() & learner._staged.keys())
    if twice:
        raise ValueError(f"environments {twice} are staged already")
    learner._staged.update(staged)
    if streamed:
        learner._streamed.update(streamed)

"""Hold where a training stands between two rounds; join what collectors keep, and begin a new budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drlnb.records.base import Facts
from drlnb.records.episodes import Episode
from drlnb.rl.fragments import Fragment

__all__ = ["State", "Trained", "anew", "joined"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A task's parameters at one moment, and what its learner needs to go on from there."""

    #: What the learner published; uint8, shape ``(published_bytes,)``.
    published: np.ndarray
    #: The learner's plain data, see :meth:`drlnb.rl.algorithms.learner.Learner.state`; empty: only acting is possible.
    facts: Facts
    #: The learner's buffer; uint8, empty if there is none.
    buffer: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Where a training stands between two rounds: all that it needs to go on."""

    state: State
    #: Rounds finished; the published version is one more.
    n_rounds: int
    #: Environment steps of the present budget.
    n_timesteps: int
    #: Seconds of training so far.
    elapsed_s: float = 0.0
    #: The latest episodes, oldest first.
    episodes: tuple[Episode, ...] = ()
    #: Joined :meth:`drlnb.rl.collecting.collector.Collector.state` of all environments; None: they start anew.
    envs: Facts | None = None
    #: :meth:`drlnb.rl.algorithms.replay.Replay.state`; None: there is none, or it is filled anew.
    replay: Fragment | None = None


def joined(states: Sequence[Facts]) -> Facts:
    """Return the states of several collectors as one, from which any split of the environments can be restored."""
    envs = {index: env for state in states for index, env in state["envs"].items()}
    return {"round": max(int(state["round"]) for state in states), "envs": envs}


def anew(trained: Trained, n_envs: int) -> Trained:
    """Return a state whose budget begins: Stable-Baselines3's ``reset_num_timesteps=True``.

    Parameters, optimiser, statistics and replay stay.  Steps count from 0, so schedules and exploration begin again;
    environments begin new episodes, with seeds that no episode had before, because rounds count on.

    Parameters
    ----------
    trained
        Where the former budget ended.
    n_envs
        Environments of the task.
    """
    begun = {"snapshot": None, "fresh": True, "obs": b"", "discounted": 0.0, "return": 0.0, "length": 0}
    replay = trained.replay
    if replay is not None:  # a ring whose rows were made before vector step 0
        arrays = dict(replay.arrays)
        if "made" in arrays:
            arrays["made"] = arrays["made"] - trained.n_timesteps // n_envs
        replay = Fragment({**replay.header, "target_step": 0}, arrays)
    return replace(
        trained,
        state=replace(trained.state, facts={**trained.state.facts, "n_timesteps": 0}),
        n_timesteps=0,
        elapsed_s=0.0,
        episodes=(),
        envs={"round": trained.n_rounds + 1, "envs": {str(index): dict(begun) for index in range(n_envs)}},
        replay=replay,
    )

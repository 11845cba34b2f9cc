"""Freeze and thaw environments, and probe whether that is exact.

Most environments pickle well.  Classes built on ``EzPickle`` pickle *silently wrong*: only constructor arguments
travel, the thawed one starts anew.  So a probe freezes a throw-away environment in mid-episode and compares what both
do next, reset included.
"""

import pickle
from collections.abc import Iterable

import gymnasium
import numpy as np

from drlnb.records.base import Facts
from drlnb.rl.envs.make import Source, make_env
from drlnb.rl.envs.masks import allowed_action

__all__ = ["freeze", "restorable", "thaw"]

#: Random steps before the copy: deep enough that a start state shows as wrong.
_STEPS_BEFORE = 7
#: Equal actions that both copies must answer equally.
_STEPS_COMPARED = 5


def freeze(env: gymnasium.Env) -> bytes:
    """Return an environment, wrappers and random state included, as bytes."""
    try:
        return pickle.dumps(env, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class that came by value, from a notebook's cell
        import cloudpickle

        return cloudpickle.dumps(env, pickle.HIGHEST_PROTOCOL)


def thaw(snapshot: bytes) -> gymnasium.Env:
    """Rebuild an environment from :func:`freeze`; only for snapshots that this user wrote."""
    return pickle.loads(snapshot)


def _same(a: Iterable[object], b: Iterable[object]) -> bool:
    return all(np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True) for x, y in zip(a, b, strict=True))


def _behave_alike(first: gymnasium.Env, second: gymnasium.Env, info: Facts) -> bool:
    for _ in range(_STEPS_COMPARED):
        action = allowed_action(first, info)
        allowed_action(second, info)  # its action space may be part of what it does: both draw as often
        *a, info = first.step(action)
        if not _same(a, second.step(action)[:4]):
            return False
        if a[2] or a[3]:
            break
    return np.array_equal(first.reset()[0], second.reset()[0])


def restorable(source: Source, *, index: int = 0) -> bool:
    """Return whether snapshots of this environment can be trusted.

    Parameters
    ----------
    source, index
        As of :func:`drlnb.rl.envs.make.make_env`.

    Returns
    -------
    bool
        True if a copy taken after 7 random steps answers 5 equal actions and a reset exactly as the original does.
    """
    original = make_env(source, index=index)
    copy = None
    try:
        original.action_space.seed(0)
        _, info = original.reset(seed=0)
        for _ in range(_STEPS_BEFORE):
            *_, terminated, truncated, info = original.step(allowed_action(original, info))
            if terminated or truncated:
                _, info = original.reset()
        copy = thaw(freeze(original))
        return _behave_alike(original, copy, info)
    except Exception:  # noqa: BLE001 - foreign code; whatever fails means "cannot be restored", training reports it
        return False
    finally:
        original.close()
        if copy is not None:
            copy.close()

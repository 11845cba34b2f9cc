"""Read from an environment which actions are allowed now, as sb3-contrib's ``MaskablePPO`` does.

By a method ``action_masks()`` (of the environment or any of its wrappers), else by ``info["action_mask"]`` of each
``reset`` and ``step``.  A mask has a truth value per choice, for several decisions one after the other.  The outputs of
forbidden choices become -1e8, whose probability is exactly 0 in float32: then sampling, log-probability and entropy
need no further thought, and no gradient reaches those outputs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from drlnb.records.base import Facts
from drlnb.records.errors import EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.heads import Head

if TYPE_CHECKING:
    import gymnasium

__all__ = ["FORBIDDEN", "MaskSource", "allowed_action", "masked", "read_masks", "uses_masks"]

#: Output of a forbidden choice: sb3-contrib's value; infinity would make the entropy NaN.
FORBIDDEN = -1e8


def uses_masks(spec: RlWork) -> bool:
    """Return whether a task learns with action masks."""
    return bool(spec.hyperparameters.get("use_masking", False))


def masked(outputs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return outputs ``(..., width)`` with those of forbidden choices lowered; `allowed` is bool, of their shape."""
    return np.where(allowed, outputs, np.float32(FORBIDDEN))


def read_masks(given: object, head: Head) -> np.ndarray:
    """Return one mask as a bool array, shape ``(width,)``.

    Parameters
    ----------
    given
        A flat sequence of truth values, or one sequence per decision.
    head
        Of the action space.

    Raises
    ------
    ValueError
        If the length differs, a value is no truth value, or a decision is left without a choice.
    """
    parts = given if isinstance(given, list | tuple) and given else [np.asarray(given)]
    flat = np.concatenate([np.ravel(part) for part in parts])
    if flat.shape != (head.width,):
        raise ValueError(f"an action mask must hold {head.width} truth values, got {flat.size}")
    mask = flat.astype(np.bool_)
    if not np.array_equal(mask, flat):
        raise ValueError(f"an action mask must hold truth values, got {given!r:.200}")
    for number, part in enumerate(head.parts() if head.sizes else [slice(None)]):
        if not mask[part].any():
            which = f" for decision {number}" if head.sizes else ""
            raise ValueError(f"the action mask allows no action{which}")
    return mask


class MaskSource:
    """Read the masks of one environment.

    Parameters
    ----------
    env
        The environment.
    head
        Of its action space.
    """

    def __init__(self, env: "gymnasium.Env", head: Head) -> None:
        self._head, self._method = head, _method(env)

    def __call__(self, info: Facts) -> np.ndarray:
        """Return the mask that belongs to the newest observation, which came with `info`; bool, shape ``(width,)``.

        Raises
        ------
        EnvError
            If the environment gives none, or a wrong one.
        """
        if self._method is None and "action_mask" not in info:
            raise EnvError("gives no action mask: use_masking needs a method action_masks(), or info['action_mask']")
        try:
            return read_masks(info["action_mask"] if self._method is None else self._method(), self._head)
        except ValueError as error:
            raise EnvError(str(error)) from None


def _method(env: "gymnasium.Env") -> Callable[[], object] | None:
    try:
        return env.get_wrapper_attr("action_masks")
    except AttributeError:
        return None


def allowed_action(env: "gymnasium.Env", info: Facts) -> object:
    """Return a random action, an allowed one where the environment gives a mask."""
    from gymnasium import spaces  # not above: masks are read by agents too, which never load gymnasium

    space, method = env.action_space, _method(env)
    given = method() if method is not None else info.get("action_mask")
    if given is None or not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.sample()
    sizes = tuple(np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec).tolist())
    head = Head("multidiscrete", sum(sizes), sizes)
    try:
        mask = read_masks(given, head)
    except ValueError:
        return space.sample()  # what is wrong with it matters to tasks that learn with masks, which report it
    drawn = np.array([space.np_random.choice(np.flatnonzero(mask[part])) for part in head.parts()])
    return (drawn.reshape(space.shape) + space.start).astype(space.dtype)[()]

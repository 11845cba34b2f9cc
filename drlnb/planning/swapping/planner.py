"""Which rule says what is swapped out?"""

from typing import Protocol

__all__ = ["NoSwap", "SwapPlanner", "swap_planner"]


class SwapPlanner(Protocol):
    """Observation in, key of a plan out."""

    name: str

    def plan_key(self, *, round: int) -> str | None:
        """Return the key of the swap plan for this round, ``None`` for no swapping."""


class NoSwap:
    """Keep every tensor on the device."""

    name = "none"

    def plan_key(self, *, round: int) -> str | None:
        """Return ``None``, whatever the round."""
        del round
        return None


_PLANNERS: dict[str, type[SwapPlanner]] = {"none": NoSwap}


def swap_planner(name: str) -> SwapPlanner:
    """Return a swap planner by name.

    Raises
    ------
    ValueError
        If no planner has this name.
    """
    if name not in _PLANNERS:
        raise ValueError(f"swapping planner must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()

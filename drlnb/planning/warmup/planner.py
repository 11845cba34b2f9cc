"""Which rule says when a collector that has sent is started again?"""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Cold", "WarmupPlan", "WarmupPlanner", "warmup_planner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupPlan:
    """What becomes of a collector that has sent its experience."""

    #: ``cold``: it is woken by the arrival of the next parameters, never before.
    action: str
    reason: str


class WarmupPlanner(Protocol):
    """Observation in, plan out; no clock and no randomness of its own."""

    name: str

    def plan(self, *, collector: int, round: int) -> WarmupPlan:
        """Say what a collector does after it has sent the experience of `round`."""


class Cold:
    """Start at the arrival of the parameters: the baseline that never waits early and always pays the start."""

    name = "cold"

    def plan(self, *, collector: int, round: int) -> WarmupPlan:
        """Return the same answer for each collector and round."""
        del collector, round  # the cold rule looks at nothing
        return WarmupPlan(action="cold", reason="start at the arrival of the next parameters")


_PLANNERS: dict[str, type[WarmupPlanner]] = {"cold": Cold}


def warmup_planner(name: str) -> WarmupPlanner:
    """Return a warm-up planner by name.

    Raises
    ------
    ValueError
        If no planner has this name.
    """
    if name not in _PLANNERS:
        raise ValueError(f"warmup planner must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()

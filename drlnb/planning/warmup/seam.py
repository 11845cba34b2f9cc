"""What does the round machine ask until it hosts a :class:`~drlnb.planning.warmup.machine.WarmupMachine`?

Today's collectors stay up and are woken by the arrival of the parameters; a planner that plans starts would have no one
to carry them out, so only ``cold`` is accepted here.
"""

from typing import Protocol

from drlnb.planning.warmup.plan import WarmupPlan

__all__ = ["Cold", "RoundSeam", "warmup_planner"]


class RoundSeam(Protocol):
    """Collector and round in, plan out."""

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


_PLANNERS: dict[str, type[RoundSeam]] = {"cold": Cold}


def warmup_planner(name: str) -> RoundSeam:
    """Return what the round machine asks, by name.

    Raises
    ------
    ValueError
        If no planner has this name.
    """
    if name not in _PLANNERS:
        raise ValueError(f"warmup planner must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()

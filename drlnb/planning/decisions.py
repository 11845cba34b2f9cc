"""List the decisions of a round, and find, read and register their planners by name."""

from collections.abc import Callable, Mapping
from typing import Any

from drlnb.planning.batching import BATCHING
from drlnb.planning.distribution import DISTRIBUTION
from drlnb.planning.leasing import HOLD
from drlnb.planning.placement import PLACEMENT
from drlnb.planning.registry import Named, Planner, PlannerKind, nearest
from drlnb.planning.swapping import SWAPPING
from drlnb.planning.warmup import WARMUP
from drlnb.records.errors import ConfigError

__all__ = ["KINDS", "kind_of", "parse", "register"]

# The views and plans of different decisions have nothing in common, hence Any.
#: Decision -> its kind.
KINDS: Mapping[str, PlannerKind[Any, Any]] = {
    kind.decision: kind for kind in (HOLD, WARMUP, BATCHING, SWAPPING, DISTRIBUTION, PLACEMENT)
}


def kind_of(decision: str) -> PlannerKind[Any, Any]:
    """Return a decision's kind.

    Raises
    ------
    ConfigError
        If there is no such decision; the message names the nearest one, or all.
    """
    if decision not in KINDS:
        near = nearest(decision, KINDS) or f"; known are {', '.join(KINDS)}"
        raise ConfigError(f"unknown kind of planner {decision!r}{near}")
    return KINDS[decision]


def register(
    decision: str, name: str, make: Callable[..., Planner[Any, Any]], params: Mapping[str, type] | None = None
) -> None:
    """Add a planner to a decision, see :meth:`~drlnb.planning.registry.PlannerKind.register`."""
    kind_of(decision).register(name, make, params)


def parse(decision: str, text: str) -> Named:
    """Read a planner's name and parameters, see :meth:`~drlnb.planning.registry.PlannerKind.parse`."""
    return kind_of(decision).parse(text)

"""Which slots may a task use, and where do its collectors live?  (Seed 003; this rule is ours, the plainest one.)"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from drlnb.planning.placement.collectors import spread

__all__ = ["FirstPlacement", "Placement", "PlacementPlanner", "PlacementView", "placement_planner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """What a placement planner sees of the pool, for one task."""

    #: Live slot -> number of tasks whose home it is, this task not counted.
    homes: Mapping[str, int]
    #: Live node -> collectors that still fit there, this task's own not counted.
    free_collectors: Mapping[str, int]
    #: Node of the task's master.
    node: str
    n_collectors: int
    #: Where this attempt's collectors live so far; empty at its start.
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a task may compute and where its collectors live."""

    #: The slot that it should get if it can choose; None if there is no live slot.
    home: str | None
    #: The slots that it may use.
    allowed: tuple[str, ...]
    #: Node of each collector, by its number; shape ``(n_collectors,)``.
    collector_nodes: tuple[str, ...]


class PlacementPlanner(Protocol):
    """Something that places tasks."""

    name: ClassVar[str]

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task."""
        ...


class FirstPlacement:
    """Home = the first live slot, in the order of names, that is home to the fewest; every live slot is allowed."""

    name: ClassVar[str] = "first"

    def plan(self, view: PlacementView) -> Placement:
        """Return the placement of one task.

        Raises
        ------
        ValueError
            If there is no live node.
        """
        slots = sorted(view.homes)
        return Placement(
            home=min(slots, key=view.homes.__getitem__, default=None),
            allowed=tuple(slots),
            collector_nodes=spread(view.n_collectors, view.free_collectors, near=view.node, before=view.before),
        )


_PLANNERS: Mapping[str, type[PlacementPlanner]] = {FirstPlacement.name: FirstPlacement}


def placement_planner(name: str) -> PlacementPlanner:
    """Return the placement planner of a name.

    Raises
    ------
    ValueError
        If there is none; the message lists the names.
    """
    if name not in _PLANNERS:
        raise ValueError(f"placement must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()

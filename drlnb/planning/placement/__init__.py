"""Plan which slots a task may use and where its collectors live (the placement patent)."""

from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.pack import Pack
from drlnb.planning.placement.planner import PLACEMENT, FirstPlacement, Placement, PlacementView

__all__ = ["PLACEMENT", "FirstPlacement", "Pack", "Placement", "PlacementView", "spread"]

PLACEMENT.register("first", FirstPlacement)
PLACEMENT.register("pack", Pack)

"""Which slots may a task use, and where do its collectors live (seed 003)?"""

from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.planner import (
    FirstPlacement,
    Placement,
    PlacementPlanner,
    PlacementView,
    placement_planner,
)

__all__ = ["FirstPlacement", "Placement", "PlacementPlanner", "PlacementView", "placement_planner", "spread"]

"""Plan which slots a task or a job may use and where a task's collectors live (the placement patent)."""

from functools import partial

from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick, Terms
from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.ect import ect
from drlnb.planning.placement.gangs import GANGS
from drlnb.planning.placement.pack import Pack
from drlnb.planning.placement.planner import (
    PLACEMENT,
    FirstPlacement,
    Placement,
    PlacementView,
    place_tasks_by,
)
from drlnb.planning.placement.rules import (
    Rule,
    best_fit,
    first,
    healthiest,
    healthiest_packed,
    interference_aware,
    random_rule,
)

__all__ = [
    "GANGS",
    "PLACEMENT",
    "Cluster",
    "ClusterView",
    "FirstPlacement",
    "JobView",
    "Pack",
    "Pick",
    "Placement",
    "PlacementView",
    "Terms",
    "spread",
]

GANGS.register("random", random_rule, {"seed": 0})
for _choose in (first, best_fit, healthiest, healthiest_packed, interference_aware, ect):
    GANGS.register(_choose.__name__, partial(Rule, _choose.__name__, _choose))

PLACEMENT.register("first", FirstPlacement)
PLACEMENT.register("pack", Pack)
for _name in GANGS.names:
    if _name != "first":  # of tasks it is another rule
        place_tasks_by(_name)

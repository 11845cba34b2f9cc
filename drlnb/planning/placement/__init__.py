"""Plan which slots a task or a job may use and where a task's collectors live (the placement patent)."""

from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick, Terms
from drlnb.planning.placement.collectors import spread
from drlnb.planning.placement.ect import Ect
from drlnb.planning.placement.gangs import GANGS
from drlnb.planning.placement.pack import Pack
from drlnb.planning.placement.planner import PLACEMENT, FirstPlacement, Placement, PlacementView
from drlnb.planning.placement.rules import BestFit, First, Healthiest, HealthiestPacked, InterferenceAware, Random

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

PLACEMENT.register("first", FirstPlacement)
PLACEMENT.register("pack", Pack)

GANGS.register("first", First)
GANGS.register("random", Random, {"seed": 0})
GANGS.register("best_fit", BestFit)
GANGS.register("healthiest", Healthiest)
GANGS.register("healthiest_packed", HealthiestPacked)
GANGS.register("interference_aware", InterferenceAware)
GANGS.register("ect", Ect)

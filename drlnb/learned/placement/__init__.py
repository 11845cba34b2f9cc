"""Planners of gangs with networks.

`learned` serves any cluster, and chooses jobs, too; `patent` is the network that the placement patent describes,
trained for one cluster.
"""

from drlnb.learned.placement.planner import Learned, Patent
from drlnb.planning.placement import GANGS
from drlnb.planning.placement.planner import place_tasks_by

__all__ = ["Learned", "Patent"]

GANGS.register("learned", Learned, {"weights": "", "window": 1})
GANGS.register("patent", Patent, {"weights": ""})
place_tasks_by("learned")
place_tasks_by("patent")

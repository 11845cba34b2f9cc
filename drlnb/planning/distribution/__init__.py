"""How do parameters reach the hosts (seed 001)?"""

from drlnb.planning.distribution.planner import DistributionPlanner, Star, commands, distribution_planner
from drlnb.planning.distribution.relay_machine import Chunk, RelayAssembly, Taken
from drlnb.planning.distribution.trees import Hop, Plan, Send, cut, star

__all__ = [
    "Chunk",
    "DistributionPlanner",
    "Hop",
    "Plan",
    "RelayAssembly",
    "Send",
    "Star",
    "Taken",
    "commands",
    "cut",
    "distribution_planner",
    "star",
]

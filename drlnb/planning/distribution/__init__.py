"""Plan how parameters reach the hosts (seed 001)."""

from drlnb.planning.distribution.chain import Chain
from drlnb.planning.distribution.planner import DISTRIBUTION, DistributionView, Star, below, commands
from drlnb.planning.distribution.relay_machine import Chunk, RelayAssembly, Taken
from drlnb.planning.distribution.trees import Hop, Plan, Send, star

__all__ = [
    "DISTRIBUTION",
    "Chain",
    "Chunk",
    "DistributionView",
    "Hop",
    "Plan",
    "RelayAssembly",
    "Send",
    "Star",
    "Taken",
    "below",
    "commands",
    "star",
]

DISTRIBUTION.register("star", Star)
DISTRIBUTION.register("chain", Chain)

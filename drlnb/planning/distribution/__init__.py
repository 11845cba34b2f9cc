"""Plan how parameters reach the hosts (the distribution patent)."""

from drlnb.planning.distribution.cost import PRESETS, Cost, Link, bound_s
from drlnb.planning.distribution.machine import DistributionMachine
from drlnb.planning.distribution.planner import (
    DISTRIBUTION,
    DistributionView,
    Forecast,
    best,
    command,
    forecast,
)
from drlnb.planning.distribution.plans import LEARNER, Plan, Route, Send
from drlnb.planning.distribution.publication import Publication
from drlnb.planning.distribution.relay_machine import Chunk, RelayAssembly, Taken
from drlnb.planning.distribution.trees import STRATEGIES, binomial, chain, cut, multitree, relay, star, tree

__all__ = [
    "DISTRIBUTION",
    "LEARNER",
    "PRESETS",
    "STRATEGIES",
    "Chunk",
    "Cost",
    "DistributionMachine",
    "DistributionView",
    "Forecast",
    "Link",
    "Plan",
    "Publication",
    "RelayAssembly",
    "Route",
    "Send",
    "Taken",
    "best",
    "binomial",
    "bound_s",
    "chain",
    "command",
    "cut",
    "forecast",
    "multitree",
    "relay",
    "star",
    "tree",
]

"""Plan how many units each collector and learner takes, and whom to wait for (the batching patent)."""

from drlnb.planning.batching.collect import collect_members, collect_steps
from drlnb.planning.batching.equal import Equal
from drlnb.planning.batching.ewma import Ewma
from drlnb.planning.batching.jump_reset import JumpReset
from drlnb.planning.batching.planner import BATCHING, COLLECT, BatchPlan, BatchReport, BatchView, one_learner
from drlnb.planning.batching.proportional import Proportional
from drlnb.planning.batching.seasonal import Seasonal
from drlnb.planning.batching.shares import env_shares
from drlnb.planning.batching.split import Member, Split, plan_split
from drlnb.planning.batching.static import Static

__all__ = [
    "BATCHING",
    "COLLECT",
    "BatchPlan",
    "BatchReport",
    "BatchView",
    "Equal",
    "Ewma",
    "JumpReset",
    "Member",
    "Proportional",
    "Seasonal",
    "Split",
    "Static",
    "collect_members",
    "collect_steps",
    "env_shares",
    "one_learner",
    "plan_split",
]

BATCHING.register("equal", Equal)
BATCHING.register("proportional", Proportional)
BATCHING.register("static", Static)
BATCHING.register("ewma", Ewma)
BATCHING.register("jump-reset", JumpReset)
BATCHING.register("seasonal", Seasonal)

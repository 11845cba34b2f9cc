"""Plan how many samples each collector makes in a round (the batching patent)."""

from drlnb.planning.batching.planner import BATCHING, BatchPlan, BatchReport, BatchView, Equal
from drlnb.planning.batching.proportional import Proportional
from drlnb.planning.batching.shares import env_shares, learner_shares
from drlnb.planning.batching.split import Member, Split, plan_split

__all__ = [
    "BATCHING",
    "BatchPlan",
    "BatchReport",
    "BatchView",
    "Equal",
    "Member",
    "Proportional",
    "Split",
    "env_shares",
    "learner_shares",
    "plan_split",
]

BATCHING.register("equal", Equal)
BATCHING.register("proportional", Proportional)

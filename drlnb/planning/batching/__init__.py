"""Plan how many samples each collector makes in a round (the batching patent)."""

from drlnb.planning.batching.planner import BATCHING, BatchPlan, BatchReport, BatchView, Equal
from drlnb.planning.batching.proportional import Proportional
from drlnb.planning.batching.shares import env_shares, learner_shares

__all__ = ["BATCHING", "BatchPlan", "BatchReport", "BatchView", "Equal", "Proportional", "env_shares", "learner_shares"]

BATCHING.register("equal", Equal)
BATCHING.register("proportional", Proportional)

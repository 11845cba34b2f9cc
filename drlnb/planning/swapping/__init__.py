"""Plan what leaves the device's memory during a training step (the swapping patent)."""

from drlnb.planning.swapping import heuristics, learned
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile, facts

__all__ = ["SWAPPING", "SwapPlan", "SwapProfile", "SwapView", "facts", "heuristics", "learned"]

SWAPPING.register(
    "qtable", learned.TablePlanner, {"n_trials": 300, "alpha": 0.5, "gamma": 0.9, "epsilon": 0.2, "w": 0.5}
)

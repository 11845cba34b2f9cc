"""Plan what leaves the device's memory during a training step (the swapping patent)."""

from drlnb.planning.swapping import fine, heuristics, learned
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile, facts

__all__ = ["SWAPPING", "SwapPlan", "SwapProfile", "SwapView", "facts", "fine", "heuristics", "learned"]

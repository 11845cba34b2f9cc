"""Plan what leaves the device's memory during a training step (seed 004)."""

from drlnb.planning.swapping.planner import SWAPPING, NoSwap, SwapPlan, SwapView

__all__ = ["SWAPPING", "NoSwap", "SwapPlan", "SwapView"]

SWAPPING.register("none", NoSwap)

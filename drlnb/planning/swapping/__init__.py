"""What leaves the device's memory during a training step (seed 004)?"""

from drlnb.planning.swapping.planner import NoSwap, SwapPlanner, swap_planner

__all__ = ["NoSwap", "SwapPlanner", "swap_planner"]

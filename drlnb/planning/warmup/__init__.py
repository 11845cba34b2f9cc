"""When does each collector start again (seed 000, claims 7 and 8)?"""

from drlnb.planning.warmup.planner import Cold, WarmupPlan, WarmupPlanner, warmup_planner

__all__ = ["Cold", "WarmupPlan", "WarmupPlanner", "warmup_planner"]

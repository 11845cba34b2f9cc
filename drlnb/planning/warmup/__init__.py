"""Decide when each collector starts again (seed 000, claims 7 and 8)."""

from drlnb.planning.warmup.machine import WarmupMachine
from drlnb.planning.warmup.newsvendor import critical_quantile
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.planning.warmup.progress import Pace, remaining_s
from drlnb.planning.warmup.saa import saa_plan, stopping_pays
from drlnb.planning.warmup.settings import COLLECTOR_MODES, PLANNER_NAMES, START_MODES, WarmupSettings
from drlnb.planning.warmup.stability import Stability, stable_window

__all__ = [
    "COLLECTOR_MODES",
    "PLANNER_NAMES",
    "START_MODES",
    "WARMUP",
    "Pace",
    "Stability",
    "WarmupMachine",
    "WarmupPlan",
    "WarmupSettings",
    "WarmupView",
    "critical_quantile",
    "remaining_s",
    "saa_plan",
    "stable_window",
    "stopping_pays",
]

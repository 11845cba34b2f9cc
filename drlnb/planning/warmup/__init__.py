"""Decide when each collector starts again (the leasing patent, claims 7 and 8)."""

from drlnb.planning.warmup.machine import WarmupMachine
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.planning.warmup.saa import saa_plan
from drlnb.planning.warmup.settings import WarmupSettings
from drlnb.planning.warmup.stability import stable_window

__all__ = [
    "WARMUP",
    "WarmupMachine",
    "WarmupPlan",
    "WarmupSettings",
    "WarmupView",
    "saa_plan",
    "stable_window",
]

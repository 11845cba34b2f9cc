"""Lend slots to tasks, and decide when a task asks for one (the leasing patent)."""

from drlnb.planning.leasing.load import expected_load
from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.leasing.settings import LeasingSettings

__all__ = ["HOLD", "LeasingSettings", "expected_load"]

"""Lend slots to tasks, and decide when a task asks for one (seed 000)."""

from drlnb.planning.leasing.fence import FenceGate, StoreGate
from drlnb.planning.leasing.machine import LeaseTable
from drlnb.planning.leasing.planners import HOLD
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.leasing.theory import ExpectedLoad, bound, expected_load

__all__ = ["HOLD", "ExpectedLoad", "FenceGate", "LeaseTable", "LeasingSettings", "StoreGate", "bound", "expected_load"]

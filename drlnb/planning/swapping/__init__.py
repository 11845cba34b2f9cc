"""Plan what leaves the device's memory during a training step (seed 004)."""

from drlnb.planning.swapping.planner import SWAPPING, NoSwap, SwapView
from drlnb.planning.swapping.profile import (
    ACTIONS,
    BLOCK,
    DERIVE,
    KEEP,
    SQUEEZE,
    SWAP,
    SavedRow,
    SwapBlock,
    SwapLink,
    SwapPlan,
    SwapProfile,
    Tick,
    facts,
)

__all__ = [
    "ACTIONS",
    "BLOCK",
    "DERIVE",
    "KEEP",
    "SQUEEZE",
    "SWAP",
    "SWAPPING",
    "NoSwap",
    "SavedRow",
    "SwapBlock",
    "SwapLink",
    "SwapPlan",
    "SwapProfile",
    "SwapView",
    "Tick",
    "facts",
]

SWAPPING.register("none", NoSwap)

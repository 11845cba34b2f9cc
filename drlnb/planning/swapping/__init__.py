"""Plan what leaves the device's memory during a training step (seed 004)."""

from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.heuristics import portfolio
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
    "Prediction",
    "SavedRow",
    "SwapBlock",
    "SwapLink",
    "SwapPlan",
    "SwapProfile",
    "SwapView",
    "Tick",
    "facts",
    "portfolio",
    "predict",
]

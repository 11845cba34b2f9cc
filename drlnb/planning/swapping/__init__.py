"""Plan what leaves the device's memory during a training step (seed 004)."""

from drlnb.planning.swapping.capacity import batch_curve, max_batch
from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.heuristics import portfolio
from drlnb.planning.swapping.learned import QFine, QTable
from drlnb.planning.swapping.machine import SwapMachine
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
    "QFine",
    "QTable",
    "SavedRow",
    "SwapBlock",
    "SwapLink",
    "SwapMachine",
    "SwapPlan",
    "SwapProfile",
    "SwapView",
    "Tick",
    "batch_curve",
    "facts",
    "max_batch",
    "portfolio",
    "predict",
]

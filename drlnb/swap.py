"""Train any module under a budget of memory, with the gradients of plain PyTorch (the swapping patent).

Names load on first use: planning needs no torch, and nothing here needs Dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.planning.swapping.cost import Prediction
    from drlnb.planning.swapping.profile import SwapPlan, SwapProfile
    from drlnb.runtime.swapping.client.solve import BudgetTooSmall, max_batch, simulate, solve
    from drlnb.runtime.swapping.client.swapper import Swapper
    from drlnb.runtime.swapping.memory import fix_malloc
    from drlnb.runtime.swapping.report import BudgetExceeded, SwapReport, SwapStep
    from drlnb.runtime.swapping.torch_private import SwapUnavailable
    from drlnb.runtime.swapping.trace import trace

__all__ = [
    "BudgetExceeded", "BudgetTooSmall", "Prediction", "SwapPlan", "SwapProfile", "SwapReport", "SwapStep",
    "SwapUnavailable", "Swapper", "fix_malloc", "max_batch", "simulate", "solve", "trace",
]  # fmt: skip

_HOMES = {
    "BudgetExceeded": "drlnb.runtime.swapping.report",
    "BudgetTooSmall": "drlnb.runtime.swapping.client.solve",
    "Prediction": "drlnb.planning.swapping.cost",
    "SwapPlan": "drlnb.planning.swapping.profile",
    "SwapProfile": "drlnb.planning.swapping.profile",
    "SwapReport": "drlnb.runtime.swapping.report",
    "SwapStep": "drlnb.runtime.swapping.report",
    "SwapUnavailable": "drlnb.runtime.swapping.torch_private",
    "Swapper": "drlnb.runtime.swapping.client.swapper",
    "fix_malloc": "drlnb.runtime.swapping.memory",
    "max_batch": "drlnb.runtime.swapping.client.solve",
    "simulate": "drlnb.runtime.swapping.client.solve",
    "solve": "drlnb.runtime.swapping.client.solve",
    "trace": "drlnb.runtime.swapping.trace",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.swap' has no attribute {name!r}")

"""Find how large a batch a budget holds under a planner."""

import math
from collections.abc import Callable

from drlnb.planning.registry import Planner
from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile

__all__ = ["largest", "max_batch"]

#: No step has more samples.
_MOST_SAMPLES = 2**24


def largest(fits: Callable[[int], bool]) -> int:
    """Return the largest batch that fits, by bisection; 0 if not even one sample does.

    Examples
    --------
    >>> largest(lambda n: n <= 100)
    100
    """
    low, high = 0, 1
    while high <= _MOST_SAMPLES and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _predicted(
    profile: SwapProfile, planner: Planner[SwapView, SwapPlan], n_samples: int, memory_budget_bytes: float
) -> Prediction:
    view = SwapView(profile=profile, n_samples=n_samples, memory_budget_bytes=memory_budget_bytes)
    return predict(profile, SWAPPING.ask(planner, view), n_samples, memory_budget_bytes)


def max_batch(
    profile: SwapProfile, memory_budget_bytes: float, planner: str = "auto", min_throughput_frac: float = 0.8
) -> int:
    """Return the largest batch that fits a budget at a speed.

    Parameters
    ----------
    profile
        What the step saves.
    memory_budget_bytes
        Bytes that the step may use, what stays anyway included.
    planner
        Name of a planner of swapping.
    min_throughput_frac
        Samples per second, relative to those of the largest batch without a plan; 0: any speed.

    Returns
    -------
    int
        Samples; 0 if not even one fits.

    Raises
    ------
    ValueError
        If there is no planner of the name, or the share is below 0 or no number.
    """
    if not isinstance(min_throughput_frac, int | float) or not 0.0 <= min_throughput_frac < math.inf:
        raise ValueError(f"min_throughput_frac must be a number from 0 up, got {min_throughput_frac!r}")
    kept, chosen = SWAPPING.build("none"), SWAPPING.build(planner)
    plain = largest(lambda n: _predicted(profile, kept, n, memory_budget_bytes).fits)
    plain_s = _predicted(profile, kept, plain, memory_budget_bytes).step_s if plain else 0.0

    def fits(n_samples: int) -> bool:
        said = _predicted(profile, chosen, n_samples, memory_budget_bytes)
        quick = n_samples * plain_s >= min_throughput_frac * plain * said.step_s
        return n_samples <= plain or (said.fits and quick)

    return largest(fits)

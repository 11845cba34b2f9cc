"""Plan and predict for a profile, without a step being run: what ``drlnb.swap`` offers beside the swapper."""

from drlnb.planning.swapping import capacity
from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapPlan, SwapProfile
from drlnb.records.units import read_bytes, said_bytes

__all__ = ["BudgetTooSmall", "max_batch", "read_budget", "simulate", "solve"]


class BudgetTooSmall(ValueError):
    """No plan that was found fits.

    Parameters
    ----------
    smallest_bytes
        Peak of the one that needs the least.
    plan
        That plan.
    """

    def __init__(self, smallest_bytes: int, plan: SwapPlan, memory_budget_bytes: int) -> None:
        self.smallest_bytes, self.plan = smallest_bytes, plan
        least, given = said_bytes(smallest_bytes), said_bytes(memory_budget_bytes)
        super().__init__(f"the least that was found is {least}, got {given}")


def read_budget(budget: str | int) -> int:
    """Return a budget's bytes.

    Raises
    ------
    TypeError
        If it is neither a number nor a text.
    ValueError
        If it cannot be read.
    """
    if not isinstance(budget, str | int | float) or isinstance(budget, bool):
        raise TypeError(f"budget must be a number of bytes or a text such as 8GiB, got {budget!r}")
    try:
        return read_bytes(budget)
    except ValueError as problem:
        raise ValueError(f"budget: {problem}") from None


def _checked(profile: SwapProfile, n_samples: int = 1) -> int:
    """Return the number of samples, or raise in one line."""
    if not isinstance(profile, SwapProfile):
        raise TypeError(f"profile must be what Swapper.profile returns, got {type(profile).__name__}")
    if not isinstance(n_samples, int) or isinstance(n_samples, bool) or n_samples < 1:
        raise ValueError(f"n_samples must be a whole number from 1 up, got {n_samples!r}")
    return n_samples


def solve(profile: SwapProfile, *, n_samples: int, budget: str | int, planner: str = "auto", seed: int = 0) -> SwapPlan:
    """Return a planner's plan for a step.

    Parameters
    ----------
    profile
        What the step saves.
    n_samples
        Samples of the step.
    budget
        Bytes that it may use, or a text such as ``8GiB``; what stays anyway included.
    planner
        Name of a planner, with parameters.
    seed
        Of the planner's random moves.

    Raises
    ------
    TypeError
        If something is of a wrong kind.
    ValueError
        If the budget cannot be read, there is no sample, the planner is unknown, or (:class:`BudgetTooSmall`) its plan
        does not fit.
    """
    most = read_budget(budget)
    view = SwapView(profile=profile, n_samples=_checked(profile, n_samples), memory_budget_bytes=most, seed=seed)
    plan = SWAPPING.ask(SWAPPING.build(planner), view)
    said = predict(profile, plan, n_samples, most)
    if not said.fits:
        least = SWAPPING.ask(SWAPPING.build("all"), view)
        peaks = [(int(predict(profile, each, n_samples, most).peak_bytes), each) for each in (plan, least)]
        raise BudgetTooSmall(*min(peaks, key=lambda pair: pair[0]), most)
    return plan


def simulate(profile: SwapProfile, plan: SwapPlan, *, n_samples: int, budget: str | int | None = None) -> Prediction:
    """Return what the cost model expects of a step; parameters as for :func:`solve`, no budget: any number of bytes."""
    if not isinstance(plan, SwapPlan):
        raise TypeError(f"plan must be a SwapPlan, such as solve returns, got {type(plan).__name__}")
    return predict(profile, plan, _checked(profile, n_samples), None if budget is None else read_budget(budget))


def max_batch(
    profile: SwapProfile, *, budget: str | int, planner: str = "auto", min_throughput_frac: float = 0.8
) -> int:
    """Return the largest number of samples that fits at a speed; 0 if not even one does.

    Parameters
    ----------
    profile, budget, planner
        As for :func:`solve`.
    min_throughput_frac
        Samples per second, relative to those of the largest batch without a plan; 0: any speed.
    """
    _checked(profile)
    return capacity.max_batch(profile, read_budget(budget), planner, min_throughput_frac)

"""Pretend to make the gradient steps of a training under a plan: each is what the cost model expects."""

from collections.abc import Callable, Iterator
from functools import cache

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapProfile, SwapView, facts
from drlnb.planning.swapping.cost import Prediction, predict
from drlnb.planning.swapping.heuristics import searched
from drlnb.planning.swapping.machine import TRIAL_STEPS
from drlnb.planning.swapping.state import ALL
from drlnb.planning.swapping.trace import analytic
from drlnb.records import round as rounds
from drlnb.records.base import Event, Row
from drlnb.records.columns import swapping as words
from drlnb.sim.driver import Effects
from drlnb.sim.swapping.nets import net_trace

__all__ = ["PRETENDED", "SEARCH_S", "Steps", "kept_s", "least_bytes"]

#: Seconds of a search in another process.
SEARCH_S = 1.0
#: The pretended network, its device, and the samples of a minibatch.
_NET, _DEVICE, _N_SAMPLES = "impala", "2080ti", 256
#: The same in words.
PRETENDED = f"{_NET}, {_N_SAMPLES} samples, {_DEVICE}"


@cache
def _profile() -> SwapProfile:
    return analytic(net_trace(_NET), _DEVICE, _N_SAMPLES)


def least_bytes() -> float:
    """Return what a budget must be above: the bytes that stay anyway."""
    return _profile().fixed_bytes


def kept_s() -> float:
    """Return the seconds of a step that keeps everything."""
    return predict(_profile(), SwapPlan.keeping(_profile()), _N_SAMPLES).step_s


class Steps:
    """The steps of one task, and the plans that its executor knows; they never drift.

    Parameters
    ----------
    feed_after
        ``(seconds, kind, **fields)``: feeds the task's machine.
    """

    def __init__(self, feed_after: Callable[..., None]) -> None:
        self._feed_after, self._plans = feed_after, dict[str, SwapPlan]()

    @property
    def effects(self) -> Effects:
        """What carries out each kind of command."""
        return {words.ApplySwapPlan: self._apply, words.SearchSwapPlan: self._search}

    def _apply(self, command: words.ApplySwapPlan) -> None:
        plan = from_plain(SwapPlan, command.plan)
        self._plans[command.plan_key] = plan if plan.keys else SwapPlan.keeping(_profile())

    def _search(self, command: words.SearchSwapPlan) -> None:
        self._feed_after(SEARCH_S, words.SwapPlanFound, **searched(command))

    def _said(self, command: rounds.ComputeGradient | rounds.FinishRound) -> Prediction | None:
        """Return what is expected of a command's steps; None: they follow no plan."""
        if command.swap is None:
            return None
        key, memory_budget_bytes = command.swap.plan_key, command.swap.memory_budget_bytes
        view = SwapView(profile=_profile(), n_samples=_N_SAMPLES, memory_budget_bytes=memory_budget_bytes)
        plan = SWAPPING.ask(SWAPPING.build(ALL), view) if key == ALL else self._plans[key]
        return predict(_profile(), plan, _N_SAMPLES, memory_budget_bytes)

    def slower(self, command: rounds.ComputeGradient | rounds.FinishRound) -> float:
        """Return the time of a command's steps, relative to steps that keep everything."""
        said = self._said(command)
        return said.step_s / kept_s() if said else 1.0

    def made(self, command: rounds.ComputeGradient | rounds.FinishRound) -> Iterator[tuple[type[Event], Row]]:
        """Yield what an executor reports of a command's steps: kinds of events, and their fields."""
        said, order = self._said(command), command.swap
        if said is None or order is None:
            return
        step = {
            "plan_key": order.plan_key,
            "step_s": said.step_s,
            "peak_bytes": int(said.peak_bytes),
            "stall_s": said.stall_s,
        }
        for _ in range(1 + TRIAL_STEPS if order.report == "steps" else 1):
            yield words.SwapStepMeasured, step
        if order.report == "profile":
            yield words.SwapProfileTaken, {"profile": facts(_profile()), "n_samples": _N_SAMPLES}

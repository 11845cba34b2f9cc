"""Pretend to make the gradient steps of a training under a plan: each is what the cost model expects."""

from collections.abc import Callable, Iterator
from functools import cache

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapProfile, SwapView, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.heuristics import searched
from drlnb.planning.swapping.machine import TRIAL_STEPS
from drlnb.planning.swapping.state import ALL
from drlnb.planning.swapping.trace import analytic
from drlnb.records import round as rounds
from drlnb.records.base import Event, Row
from drlnb.records.columns import swapping as words
from drlnb.sim.driver import Effects
from drlnb.sim.swapping.nets import net_trace

__all__ = ["SEARCH_S", "Steps"]

#: Seconds of a search in another process.
SEARCH_S = 1.0
#: The pretended network, its device, and the samples of a minibatch.
_NET, _DEVICE, _N_SAMPLES = "impala", "2080ti", 256


@cache
def _profile() -> SwapProfile:
    return analytic(net_trace(_NET), _DEVICE, _N_SAMPLES)


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
        self._plans[command.plan_key] = from_plain(SwapPlan, command.plan)

    def _search(self, command: words.SearchSwapPlan) -> None:
        self._feed_after(SEARCH_S, words.SwapPlanFound, **searched(command))

    def made(self, command: rounds.ComputeGradient | rounds.FinishRound) -> Iterator[tuple[type[Event], Row]]:
        """Yield what an executor reports of a command's steps: kinds of events, and their fields."""
        key, budget_bytes = command.swap_plan_key, command.swap_budget_bytes
        if key is None:
            return
        view = SwapView(profile=_profile(), n_samples=_N_SAMPLES, budget_bytes=budget_bytes)
        plan = SWAPPING.ask(SWAPPING.build(ALL), view) if key == ALL else self._plans[key]
        said = predict(_profile(), plan, _N_SAMPLES, budget_bytes)
        step = {"plan_key": key, "step_s": said.step_s, "peak_bytes": int(said.peak_bytes), "stall_s": said.stall_s}
        for _ in range(1 + TRIAL_STEPS if command.swap_report == "steps" else 1):
            yield words.SwapStepMeasured, step
        if command.swap_report == "profile":
            yield words.SwapProfileTaken, {"profile": facts(_profile()), "n_samples": _N_SAMPLES}

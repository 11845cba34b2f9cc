"""Fold the training steps of one task under swap plans: measured and predicted, its plans, and what was set."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.records.base import Facts
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from drlnb.records.journal import StreamOpened
from drlnb.records.units import read_bytes
from drlnb.views.folds.entries import folds
from drlnb.views.folds.grow import Grow

__all__ = ["Learnt", "SwapFold"]

#: Steps that are kept, at most; of more every 2nd, 4th, ... of the older ones.
_MOST = 8_192
_UNKNOWN = (math.nan, math.nan)


@dataclass(slots=True)
class Learnt:
    """The table of a planner that learns by trials."""

    #: Columns: layer types, or units of rows.
    units: tuple[str, ...] = ()
    #: Row -> costs of its trials; (row, column) -> value; and the one that was changed last.
    costs: dict[str, list[float]] = field(default_factory=dict)
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    newest: tuple[str, str] = ("", "")
    #: Of each trial in their order.
    trials: list[float] = field(default_factory=list)
    n_explored: int = 0

    def add(self, decision: words.SwapLearned) -> None:
        """Count a trial."""
        self.units = decision.units
        self.trials.append(decision.cost)
        self.n_explored += decision.explored
        if decision.row:
            self.costs.setdefault(decision.row, []).append(decision.cost)
        if decision.unit:
            self.newest = (decision.row, decision.unit)
            self.values[self.newest] = decision.value


@folds()
@dataclass(slots=True)
class SwapFold:
    """Steps in their order; the plan that keeps everything has the key ``none``."""

    #: Facts of the profile that plans rest on, None before it is taken; and samples of a step.
    profile: Facts | None = None
    n_samples: int = 0
    #: NaN: no budget.
    memory_budget_bytes: float = math.nan
    planner: str = "auto"
    #: Row -> the action that the user wants.
    pins: Mapping[str, str] = field(default_factory=dict)
    #: Key -> facts of a plan.
    plans: dict[str, Facts] = field(default_factory=dict)
    running: str = "none"
    reason: str = ""
    #: Seconds and peak bytes that are expected of the plan that runs, and step after which it began.
    predicted: tuple[float, float] = _UNKNOWN
    since: int = 0
    #: Number from 1; seconds and bytes as measured (NaN: it did not fit) and as predicted; the budget then; 1: a trial.
    steps: Grow = field(
        default_factory=lambda: Grow(
            "step", "time", "peak", "swapped", "stall", "time_said", "peak_said", "budget", "trial"
        )
    )
    n_steps: int = 0
    #: Plan that is tried out; empty: none is.
    trial: str = ""
    learnt: Learnt = field(default_factory=Learnt)
    #: (step after which it happened, label, in words) of changes and of plans that were given up.
    marks: list[tuple[int, str, str]] = field(default_factory=list)
    #: Why nothing is swapped, or not enough; empty: nothing is in the way.
    unavailable: str = ""

    @property
    def active(self) -> bool:
        """Whether there is anything to see: rounds without swapping are not."""
        return self.profile is not None or self.n_steps > 0

    def _opened(self, header: StreamOpened, t: float) -> None:
        config = header.config or {}
        own, planners = config.get("swapping", {}), config.get("planners", {})
        budget = own.get("memory_budget_bytes", config.get("memory_budget_bytes"))
        if not self.active and budget is not None:
            self.memory_budget_bytes, self.pins = float(read_bytes(budget)), dict(own.get("pin") or {})
            self.planner = str(planners.get("swapping", config.get("planner", "auto")))

    def _profiled(self, event: words.SwapProfileTaken, t: float) -> None:
        self.profile, self.n_samples, self.unavailable = event.profile, event.n_samples, ""

    def _link(self, event: words.SwapLinkMeasured, t: float) -> None:
        self.profile = {**(self.profile or {}), "link": event.link}
        self._mark("link measured", "the rates of copies were measured anew")

    def _setting(self, event: SettingChanged, t: float) -> None:
        if event.key == "swapping.memory_budget_bytes":
            self.memory_budget_bytes = math.nan if event.value is None else float(read_bytes(event.value))
            self._mark("budget", f"{event.key}: {event.value}")
        elif event.key == "swapping.planner":
            if event.value == self.planner or str(event.value).partition(":")[0] != self.planner.partition(":")[0]:
                self.learnt = Learnt()
            self.planner = str(event.value)
            self._mark(f"planner: {event.value}", f"{event.key}: {event.value}")
        elif event.key == "swapping.pin":
            self.pins = dict(event.value or {})
            self._mark("pins", f"{event.key}: {len(self.pins)} rows")

    def _planned(self, decision: words.SwapPlanned, t: float) -> None:
        key = decision.plan_key or "none"
        if decision.plan is not None:
            self.plans[key] = decision.plan
        if decision.reason or key != self.running:  # else a round that goes on as before
            self.running, self.reason, self.trial, self.since = key, decision.reason, "", self.n_steps
            self.predicted = (decision.predicted_s, decision.predicted_bytes) if decision.predicted_s else _UNKNOWN

    def _trial(self, decision: words.SwapTrialStarted, t: float) -> None:
        self.trial = decision.plan_key

    def _step(self, event: words.SwapStepMeasured, t: float) -> None:
        self._add(event.plan_key, event.step_s, event.peak_bytes, event.swapped_bytes, event.stall_s)

    def _overflowed(self, event: words.SwapStepOverflowed, t: float) -> None:
        self._add(event.plan_key, *_UNKNOWN, 0, 0.0)
        self._mark("did not fit", f"a step under {event.plan_key} did not fit")

    def _add(self, plan: str, *measured: float) -> None:
        said = self.predicted if plan == self.running else _UNKNOWN
        self.n_steps += 1
        self.steps.append(self.n_steps, *measured, *said, self.memory_budget_bytes, float(plan == self.trial))
        self.steps.thin("step", _MOST)

    def _learned(self, decision: words.SwapLearned, t: float) -> None:
        if decision.units != self.learnt.units:
            self.learnt = Learnt()
        self.learnt.add(decision)

    def _kept(self, decision: words.SwapPlanKept, t: float) -> None:
        self.trial = ""
        self._mark("kept", f"{decision.plan_key} was the best of {decision.n_tried} plans that were tried")

    def _rolled_back(self, decision: words.SwapPlanRolledBack, t: float) -> None:
        self._mark("rolled back", f"{decision.plan_key} was given up for {decision.to_key}: {decision.reason}")

    def _unavailable(self, decision: words.SwapUnavailable, t: float) -> None:
        self.unavailable = decision.reason

    def _mark(self, label: str, said: str) -> None:
        self.marks.append((self.n_steps, label, said))

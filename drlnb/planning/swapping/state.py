"""Hold what is known of one task's steps and plans, and the small moves that the rules of its machine share."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.machine import Out
from drlnb.planning.registry import Planner
from drlnb.planning.swapping.cost import Prediction, predict, walker
from drlnb.planning.swapping.heuristics import RULES, Searched
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, SwapPlan, SwapProfile, facts
from drlnb.records.columns import swapping as words

__all__ = ["ALL", "NONE", "Swapping", "add", "forget", "meant", "quick", "report", "run", "view_of"]

#: Name of the plan that keeps everything.
NONE: Final = "none"
#: Name of the one that swaps what it can while there is no profile.
ALL: Final = "all"
#: Steps that show a drift.
_DRIFT_STEPS = 8


@dataclass(slots=True, kw_only=True)
class Swapping:
    """What is known of one task's steps, and which plan they follow."""

    build: Callable[[str], Planner[SwapView, SwapPlan]] = field(metadata=TRANSIENT)

    planner: str
    #: None: no limit, so nothing is swapped.
    memory_budget_bytes: float | None = None
    #: Why no step of this task can be swapped; empty if one can.
    never: str = ""
    seed: int = 0
    #: Name of a row -> the action that the user wants.
    pins: dict[str, str] = field(default_factory=dict)
    #: ``cold``, ``profiling``, ``quick`` (a search is under way), ``trialling``, ``settled`` or ``drifting``.
    phase: str = "cold"
    profile: SwapProfile | None = None
    n_samples: int = 0
    #: Name -> plan, of the present profile, budget and pins.
    plans: dict[str, SwapPlan] = field(default_factory=dict)
    running: str = NONE
    #: Names of the plans that are still to be tried.
    candidates: list[str] = field(default_factory=list)
    #: Name -> seconds of its steps within trials since the last change, the first of each left out; empty: it fits.
    steps_s: dict[str, list[float]] = field(default_factory=dict)
    #: Peaks of the present trial's steps.
    peaks: list[int] = field(default_factory=list)
    #: Name -> the greatest peak of its steps since the last change.
    most_bytes: dict[str, int] = field(default_factory=dict)
    #: What a planner that learns by trials knows; empty: nothing.
    learned: str = ""
    #: The running plan has made its first step.
    warm: bool = False
    #: Names of the plans that overflowed.
    overflowed: set[str] = field(default_factory=set)
    settled_s: float = 0.0
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_DRIFT_STEPS))
    #: It was reported that no plan keeps the budget.
    short: bool = False
    #: What was reported last of why nothing is swapped.
    said: str = ""
    t: float = 0.0

    @property
    def active(self) -> bool:
        """Whether steps are made under a plan."""
        return self.memory_budget_bytes is not None and self.planner != NONE and not self.never

    @property
    def order(self) -> words.SwapOrder | None:
        """What a command says whose steps begin now; None: there is no budget."""
        if not self.active or self.memory_budget_bytes is None:
            return None
        unknown = self.profile is None or self.phase == "profiling"
        asked = {"profiling": "profile", "drifting": "link", "trialling": "steps"}
        return words.SwapOrder(
            plan_key=ALL if unknown else self.running,
            memory_budget_bytes=int(self.memory_budget_bytes),
            report="profile" if self.profile is None else asked.get(self.phase, "median"),
            n_samples=0 if unknown else self.n_samples,
        )

    def predicted(self, name: str) -> Prediction | None:
        """Return what is expected of a plan; None without a profile."""
        if self.profile is None:
            return None
        budget = self.memory_budget_bytes if self.active else None
        return predict(self.profile, self.plans[name], self.n_samples, budget)

    def fits(self, name: str) -> bool:
        """Return whether a plan may be run: it was measured or is expected to fit, and never overflowed."""
        said = self.predicted(name)
        return name not in self.overflowed and (name in self.steps_s or said is None or said.fits)

    def danger(self, name: str) -> tuple[float, float, float]:
        """Return the peak of a plan, measured if it has run, the bytes that stay, and the seconds of a step."""
        said = self.predicted(name)
        if said is None or self.profile is None:
            return 0.0, 0.0, 0.0
        kept_bytes = walker(self.profile, self.n_samples).kept_bytes(self.plans[name].actions)
        return self.most_bytes.get(name, said.peak_bytes), kept_bytes, said.step_s

    def safest(self) -> str:
        """Return the plan of the smallest peak; of those that are alike the one that moves most."""
        return min(self.plans, key=self.danger)


def forget(state: Swapping) -> None:
    """Drop the plans: profile, budget, planner or pins are others now."""
    state.candidates.clear()
    state.steps_s.clear()
    state.most_bytes.clear()
    state.overflowed.clear()
    state.recent_s.clear()
    state.settled_s, state.short = 0.0, False
    state.plans = {NONE: _ruled(state, "all", "keep")}
    state.running = NONE


def meant(state: Swapping) -> dict[str, str]:
    """Return the pins that the profile's rows can obey; without a budget nothing is moved."""
    if state.profile is None or not state.active:
        return {}
    pins = {row.name: state.pins[row.name] for row in state.profile.rows if state.pins.get(row.name) in row.actions}
    for row in state.profile.rows:  # a pinned source that is not there whole is the stronger wish
        source = "{}#{}".format(*row.derive_from) if row.derive_from else ""
        if pins.get(row.name) == DERIVE and pins.get(source, KEEP) not in {KEEP, SWAP}:
            del pins[row.name]
    return pins


def view_of(state: Swapping) -> SwapView:
    """Return what a planner looks at."""
    return SwapView(
        profile=state.profile,
        n_samples=state.n_samples,
        memory_budget_bytes=state.memory_budget_bytes,
        seed=state.seed,
        pins=meant(state),
    )


def report(state: Swapping, reason: str, out: Out) -> None:
    """Report why nothing is swapped, or not enough, unless that was said last."""
    if reason != state.said:
        state.said = reason
        out.append(words.SwapUnavailable(reason=reason))


def _ruled(state: Swapping, rule: str, actions: str = "all") -> SwapPlan:
    """Return what a rule plans, with some actions."""
    return SWAPPING.ask(Searched(rule, RULES[rule], actions), view_of(state))


def add(state: Swapping, plan: SwapPlan) -> str:
    """Return the name of a plan that is known from now on."""
    name = next((name for name, known in state.plans.items() if known == plan), plan.key or NONE)
    state.plans[name] = plan
    return name


def run(state: Swapping, name: str, reason: str, out: Out) -> None:
    """Follow a plan from the next step on."""
    state.running, state.warm = name, False
    state.peaks.clear()
    said, plan = state.predicted(name), state.plans[name]
    out.append(
        words.SwapPlanned(
            planner=state.planner,
            plan_key=plan.key,
            plan=None if plan.key is None else facts(plan),
            reason=reason,
            predicted_s=said.step_s if said else 0.0,
            predicted_bytes=int(said.peak_bytes) if said else 0,
        )
    )
    out.append(words.ApplySwapPlan(plan_key=name, plan=facts(plan)))


def quick(state: Swapping) -> str:
    """Return a plan that fits, found by rules; the one of the smallest peak if none does."""
    rules = [NONE, *[add(state, _ruled(state, rule)) for rule in ("capuchin", "all")]]
    return next((each for each in rules if state.fits(each)), state.safest())

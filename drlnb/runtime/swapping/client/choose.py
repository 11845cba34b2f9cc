"""Choose the plans of a swapper that stands alone, by the machine of a training's master."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from drlnb.planning.codec import from_plain
from drlnb.planning.registry import Planner, PlannerFailed, Planners
from drlnb.planning.swapping.heuristics import searched
from drlnb.planning.swapping.learned import learning
from drlnb.planning.swapping.machine import BUDGET_KEY, NONE, SwapMachine
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapLink, SwapPlan, SwapProfile, facts, read, written
from drlnb.planning.swapping.state import ALL
from drlnb.records.base import Event, Record
from drlnb.records.columns import swapping as words
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.units import said_bytes
from drlnb.runtime.swapping.report import SwapStep, warn

__all__ = ["OwnChooser"]

#: What is above the budget -> what takes so many bytes; of other plans the machine says it.
_ABOVE: Final[Mapping[str, str]] = {
    NONE: "planner none keeps everything, which takes {}",
    ALL: "a step takes {} with everything swapped that can be",
    "given": "the plan that was given takes {}",
}


def _path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise TypeError(f"a plan's file is named by a path, got {path!r:.80}")
    return Path(path)


class OwnChooser:
    """Chooses for a swapper that stands alone, by the machine that chooses for a training's master.

    Planners ``none`` and ``all``, and a plan of the caller's, need no machine.

    Parameters
    ----------
    planner
        Name of a planner with parameters, or a planner of the user's own.
    seed
        Of searches.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If there is no planner of the name, or the seed is below 0.
    """

    def __init__(self, planner: str | Planner[SwapView, SwapPlan], seed: int) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed must be a whole number from 0 up, got {seed!r}")
        planners = Planners()
        if isinstance(planner, str):
            self.name = self._planner = planner
            #: Its plans come of trials, and what it learns there is saved.
            self._learns = learning(SWAPPING.build(planner)) is not None
        elif callable(getattr(planner, "plan", None)) and isinstance(getattr(planner, "name", None), str):
            SWAPPING.check_learns(planner)
            self.name, self._planner, self._learns = planner.name, planners.add(SWAPPING.decision, planner), False
        else:
            raise TypeError(f"planner must be a name such as auto, or have a name and plan(view), got {planner!r}")
        self._build = lambda name: planners.make(SWAPPING, name)
        self._seed = seed
        self._machine: SwapMachine | None = None
        self._running = ""  # the machine's name of the plan
        self._began_s, self._is_told = time.perf_counter(), False
        #: Storages beyond the plan that a step holds anyway, such as its input; None: the next step says that.
        self._n_others: int | None = 0
        self.memory_budget_bytes: int | None = None
        self.profile: SwapProfile | None = None
        #: None: nothing is known yet.
        self.plan: SwapPlan | None = None
        #: The caller gave the plan: no planner replaces it.
        self.is_given = False
        #: What was said of the budget: each cause once.
        self.said: dict[str, str] = {}

    @property
    def keeps_all(self) -> bool:
        """Whether the next step moves nothing; before there is a plan, all is swapped where there is a budget."""
        if self.plan is None:
            return self.name == NONE or (self.name != ALL and not self.memory_budget_bytes)
        return self.plan.key is None

    @property
    def needs_profile(self) -> bool:
        """Whether the planner waits for a profile."""
        waits = self.profile is None and not self.is_given and self.memory_budget_bytes is not None
        return waits and self.name not in {NONE, ALL}

    def take(self, profile: SwapProfile, n_samples: int | None) -> None:
        """Plan for a profile; of unknown samples a step counts as one, which is told once."""
        if n_samples is None and not self._is_told:
            self._is_told = True
            text = "the samples of a step cannot be seen, so each step counts as one: give step(n_samples=...)"
            warn(f"swapping: {text}")
        self.profile = profile
        self._machine = self._machine or self._new_machine()
        self._tell(words.SwapProfileTaken, profile=facts(profile), n_samples=n_samples or 1)

    def _new_machine(self) -> SwapMachine:
        config = {"planner": self._planner, "memory_budget_bytes": self.memory_budget_bytes, "seed": self._seed}
        return SwapMachine(config, self._build)

    def measured(self, step: SwapStep, link: SwapLink) -> None:
        """Learn from a step, and warn once of each reason for which the budget is not kept."""
        if self._machine is None or self.is_given or self.profile is None:
            cause = "given" if self.is_given else self.name
            if self.memory_budget_bytes is not None and step.peak_bytes > self.memory_budget_bytes and cause in _ABOVE:
                asked, takes = said_bytes(self.memory_budget_bytes), _ABOVE[cause].format(said_bytes(step.peak_bytes))
                way = "give it as much, or choose another planner or plan"
                self._say(cause, f"the budget of {asked} is not kept: {takes}; {way}")
            return
        if self._n_others is None:
            self._n_others = step.n_unknown
        if step.n_unknown > self._n_others:
            self._tell(words.SwapTraceChanged, shape_key=self.profile.shape_key)
            return
        of = {name: getattr(step, name) for name in ("step_s", "peak_bytes", "swapped_bytes", "stall_s", "n_saved")}
        answer = self._tell(words.SwapStepMeasured, plan_key=self._running, **of)
        if any(isinstance(record, words.MeasureSwapLink) for record in answer):
            self.profile = replace(self.profile, link=link)
            self._tell(words.SwapLinkMeasured, link=facts(link))

    def _say(self, cause: str, text: str) -> None:
        if cause not in self.said:
            warn(f"swapping: {text}")
        self.said[cause] = text

    def overflowed(self) -> None:
        """Learn that a step did not fit."""
        self.is_given = False
        if self._machine is not None and self.profile is not None:
            self._tell(words.SwapStepOverflowed, plan_key=self._running)
        else:
            self.plan = self.profile = None

    def set_budget(self, memory_budget_bytes: int | None) -> None:
        """Plan for another budget.

        Raises
        ------
        ValueError
            If it is below what stays on the device whatever is swapped.
        """
        if memory_budget_bytes == self.memory_budget_bytes:
            return
        if self._machine is not None:
            for record in self._tell(SettingChanged, key=BUDGET_KEY, value=memory_budget_bytes, task=None):
                if isinstance(record, RequestRefused):
                    raise ValueError(record.reason)
        self.memory_budget_bytes = memory_budget_bytes
        self.said.clear()

    def give(self, plan: SwapPlan) -> None:
        """Follow a plan of the caller's.

        Raises
        ------
        TypeError
            If it is no plan.
        ValueError
            If it does not fit to the profile.
        """
        if not isinstance(plan, SwapPlan):
            raise TypeError(f"plan must be a SwapPlan, such as swap.solve returns, got {plan!r}")
        if self.profile and (problem := plan.problem(self.profile)):
            raise ValueError(problem)
        self.plan, self.is_given = plan, True

    def save(self, path: str | Path) -> None:
        """Write profile and plan, and what was learned, a line of JSON each.

        Raises
        ------
        ValueError
            If there is no profile yet.
        """
        if self.profile is None:
            raise ValueError("there is no profile to save yet: run two steps, or profile()")
        known = json.dumps(self._machine.snapshot()) if self._machine is not None and self._learns else ""
        _path(path).write_text(
            f"{written(self.profile)}\n{written(self.plan or SwapPlan())}\n{known}\n", encoding="utf-8"
        )

    def load(self, path: str | Path, shape_key: str) -> None:
        """Follow a saved plan; where trials were saved, go on with them.

        Raises
        ------
        ValueError
            If the file cannot be read, or is of another module.
        """
        file = _path(path)
        try:
            profile_text, plan_text, known = [*file.read_text(encoding="utf-8").split("\n"), "", ""][:3]
            profile, plan = read(SwapProfile, profile_text), read(SwapPlan, plan_text)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{path} was not written by Swapper.save: {problem}") from None
        if profile.shape_key != shape_key:
            raise ValueError(f"{path} is a plan of module {profile.shape_key}, this one is {shape_key}")
        self.profile = profile
        if not known or not self._learns:
            self.give(plan)
            return
        self._machine = self._new_machine()
        self._n_others = None
        self._obey(self._machine.resume({**json.loads(known), "t": 0.0}))

    def _tell(self, kind: type[Event], **fields: object) -> Iterable[Record]:
        """Give the machine an event, and carry out what it commands."""
        event = kind(t=time.perf_counter() - self._began_s, **fields)
        records = self._machine.handle(event) if self._machine is not None else ()
        self._obey(records)
        return records

    def _obey(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, words.ApplySwapPlan):
                self._running = record.plan_key
                self.plan = from_plain(SwapPlan, record.plan)
            elif isinstance(record, words.SwapUnavailable) and self._machine is not None and self._machine.state.short:
                self._say("machine", record.reason)
            elif isinstance(record, words.TakeSwapProfile):
                self.profile = self.plan = None
            elif isinstance(record, words.SearchSwapPlan):
                self._search(record)

    def _search(self, command: words.SearchSwapPlan) -> None:
        try:
            found = searched(command)
        except PlannerFailed as problem:  # what a rule has found at once goes on
            self._say("search", f"{problem}; until the budget or the planner is another, a simple rule plans instead")
        else:
            self._tell(words.SwapPlanFound, **found)

"""Choose the plan of a swapper's next step: by a planner, or by the machine that tries plans out."""

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from drlnb.planning.codec import from_plain
from drlnb.planning.registry import Planner
from drlnb.planning.swapping.heuristics import searched
from drlnb.planning.swapping.machine import BUDGET_KEY, SwapMachine
from drlnb.planning.swapping.planner import SWAPPING, SwapView
from drlnb.planning.swapping.profile import SwapLink, SwapPlan, SwapProfile, facts, read, written
from drlnb.records.base import Event, Record
from drlnb.records.columns import swapping as words
from drlnb.records.common import SettingChanged
from drlnb.runtime.swapping.report import SwapStep

__all__ = ["Chooser"]


def _path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise TypeError(f"a plan's file is named by a path, got {path!r:.80}")
    return Path(path)


class Chooser:
    """Knows the profile and the plan of one module's steps.

    Parameters
    ----------
    planner
        Name of a planner with parameters, or a planner of the user's own.
    seed
        Of searches.

    Raises
    ------
    ValueError
        If there is no planner of the name.
    """

    #: No swap where a storage is needed again within that many times its copy, as long as no plan knows better.
    gap_copies = 2.0

    def __init__(self, planner: str | Planner[SwapView, SwapPlan], seed: int) -> None:
        self._planner = SWAPPING.build(planner) if isinstance(planner, str) else planner
        self.name, self._seed = str(getattr(self._planner, "name", planner)), seed
        #: Its plans come of trials, and what it learns there is saved.
        self._learns = isinstance(planner, str) and hasattr(self._planner, "learner")
        self._machine: SwapMachine | None = None
        self._running = ""  # the machine's name of the plan
        self._began_s = time.perf_counter()
        self._n_samples = 0
        #: Storages beyond the plan that a step holds anyway, such as its input; None: the next step says that.
        self._n_others: int | None = 0
        self.budget_bytes: int | None = None
        self.profile: SwapProfile | None = None
        #: None: nothing is known yet.
        self.plan: SwapPlan | None = None
        #: The caller gave the plan: no planner replaces it.
        self.is_given = False

    @property
    def current(self) -> SwapPlan:
        """The plan; an empty one while there is none."""
        return self.plan or SwapPlan()

    @property
    def keeps_all(self) -> bool:
        """Whether the next step moves nothing; before there is a plan, all is swapped where there is a budget."""
        if self.plan is None:
            return self.name == "none" or (self.name != "all" and not self.budget_bytes)
        return self.plan.key is None

    @property
    def needs_profile(self) -> bool:
        """Whether the planner waits for a profile."""
        waits = self.profile is None and not self.is_given and self.budget_bytes is not None
        return waits and self.name not in {"none", "all"}

    def take(self, profile: SwapProfile, n_samples: int) -> None:
        """Plan for a profile."""
        self.profile, self._n_samples = profile, n_samples
        if self.name != "auto" and not self._learns:
            self._solve()
            return
        self._machine = self._machine or self._new_machine()
        self._tell(words.SwapProfileTaken, profile=facts(profile), n_samples=n_samples)

    def _new_machine(self) -> SwapMachine:
        return SwapMachine({"planner": self.name, "budget_bytes": self.budget_bytes, "seed": self._seed})

    def _solve(self) -> None:
        if self.profile is not None and not self.is_given:
            view = SwapView(
                profile=self.profile, n_samples=self._n_samples, budget_bytes=self.budget_bytes, seed=self._seed
            )
            self.plan = SWAPPING.ask(self._planner, view)

    def measured(self, step: SwapStep, link: SwapLink) -> None:
        """Learn from a step."""
        if self._machine is None or self.is_given or self.profile is None:
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

    def overflowed(self) -> None:
        """Learn that a step did not fit."""
        self.is_given = False
        if self._machine is not None and self.profile is not None:
            self._tell(words.SwapStepOverflowed, plan_key=self._running)
        else:
            self.plan = self.profile = None

    def set_budget(self, budget_bytes: int | None) -> None:
        """Plan for another budget."""
        if budget_bytes == self.budget_bytes:
            return
        self.budget_bytes = budget_bytes
        if self._machine is not None:
            self._tell(SettingChanged, key=BUDGET_KEY, value=budget_bytes, task=None)
        else:
            self._solve()

    def give(self, plan: SwapPlan) -> None:
        """Follow a plan of the caller's.

        Raises
        ------
        ValueError
            If it does not fit to the profile, or cuts the minibatch, which the step must do itself.
        """
        problem = plan.problem(self.profile) if self.profile else ""
        if problem or plan.n_micro > 1:
            raise ValueError(problem or f"a swapper cannot cut a step into n_micro = {plan.n_micro} parts")
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
        try:
            profile_text, plan_text, known = [*_path(path).read_text(encoding="utf-8").split("\n"), "", ""][:3]
            profile = read(SwapProfile, profile_text)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} is no plan that save has written: {error}") from None
        if profile.shape_key != shape_key:
            raise ValueError(f"{path} is a plan of module {profile.shape_key}, this one is {shape_key}")
        self.profile = profile
        if not known or not self._learns:
            self.give(read(SwapPlan, plan_text))
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
            elif isinstance(record, words.TakeSwapProfile):
                self.profile = self.plan = None
            elif isinstance(record, words.SearchSwapPlan):
                self._tell(words.SwapPlanFound, **searched(record))

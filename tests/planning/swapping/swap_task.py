"""A swapping machine, and an executor that does as it is told."""

from drlnb.planning.swapping import SwapView, facts
from drlnb.planning.swapping.heuristics import candidates
from drlnb.planning.swapping.machine import SwapMachine
from drlnb.planning.swapping.profile import SwapLink
from drlnb.records.columns import swapping as words
from tests.planning.swapping.swap_words import wide

#: Six rows of ten bytes do not fit into it, some plans do.
TIGHT = 45.0
OF = wide(6, link=SwapLink.of(2.0))


class Task:
    """A machine, and an executor that does as it is told."""

    def __init__(self, budget=TIGHT, planner="auto", of=OF, n_samples=1, **more):
        self.config = {"planner": planner, "memory_budget_bytes": budget, "seed": 0, **more}
        self.machine, self.of, self.n_samples = SwapMachine(self.config), of, n_samples
        self.records = []
        self.t = 0.0

    def feed(self, kind, **values):
        """Feed an event a second after the last one; return the answer."""
        self.t += 1.0
        event = kind(t=self.t, **values)
        answer = self.machine.handle(event)
        self.records += [event, *answer]
        self.machine.check()
        return answer

    @property
    def state(self):
        return self.machine.state

    def profiled(self):
        return self.feed(words.SwapProfileTaken, profile=facts(self.of), n_samples=self.n_samples)

    def found(self, *plans, **more):
        """Answer the last search, with its own plans or with others."""
        (asked,) = [each for each in self.records if isinstance(each, words.SearchSwapPlan)][-1:]
        view = SwapView(profile=self.of, n_samples=asked.n_samples, memory_budget_bytes=asked.memory_budget_bytes,
                        pins=asked.pins)  # fmt: skip
        plans = plans or candidates(asked.planner, view)
        said = {"profile_key": self.of.key, "memory_budget_bytes": asked.memory_budget_bytes} | more
        return self.feed(words.SwapPlanFound, plans=tuple(map(facts, plans)), **said)

    def step(self, step_s=None, peak_bytes=None, name=None):
        name = name or self.state.running
        said = self.state.predicted(name)
        seconds = said.step_s if step_s is None else step_s
        peak = said.peak_bytes if peak_bytes is None else peak_bytes
        return self.feed(words.SwapStepMeasured, plan_key=name, step_s=seconds, peak_bytes=int(peak))

    def settle(self, **seconds):
        """Make the steps of all trials; a plan takes as long as is said, or as is expected."""
        while self.state.phase == "trialling":
            answer = self.step(seconds.get(self.state.running))
        return answer

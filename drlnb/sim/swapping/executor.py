"""Pretend to make training steps under the plans that a task's machine decides, on the virtual clock."""

from collections.abc import Callable

import numpy as np

from drlnb.planning.codec import from_plain
from drlnb.planning.swapping import SwapPlan, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.heuristics import searched
from drlnb.planning.swapping.machine import SwapMachine
from drlnb.planning.swapping.profile import SWAP, SwapProfile
from drlnb.records.base import Facts, Row
from drlnb.records.columns import swapping as words
from drlnb.records.journal import Stream
from drlnb.sim.driver import Clock, Effects, Hosted
from drlnb.sim.swapping.steps import SEARCH_S

__all__ = ["simulate_steps"]


class _Executor:
    """One executor that makes step after step; its device is what a profile says, which may change."""

    def __init__(
        self, clock: Clock, config: Facts, profile_at: Callable[[int], SwapProfile], n_samples: int, noise_frac: float
    ) -> None:
        machine, self.clock, self._config = SwapMachine(config), clock, config
        self._profile_at, self._n_samples, self._noise_frac = profile_at, n_samples, noise_frac
        self._generator = np.random.default_rng(config["seed"])
        self._name, self._plan, self._done = "none", SwapPlan(), 0
        effects: Effects = {
            words.ApplySwapPlan: self._apply,
            words.SearchSwapPlan: self._search,
            words.TakeSwapProfile: self._profile,
            words.MeasureSwapLink: self._link,
        }
        self.hosted = Hosted(
            clock, machine, kind="swapping", config=config, stream="swapping", effects=effects, validate=True
        )

    def _apply(self, command: words.ApplySwapPlan) -> None:
        self._name, self._plan = command.plan_key, from_plain(SwapPlan, command.plan)

    def _profile(self, command: words.TakeSwapProfile) -> None:
        profile = facts(self._profile_at(self._done))
        self.hosted.feed_after(0.0, words.SwapProfileTaken, profile=profile, n_samples=self._n_samples)

    def _link(self, command: words.MeasureSwapLink) -> None:
        self.hosted.feed_after(0.0, words.SwapLinkMeasured, link=facts(self._profile_at(self._done).link))

    def _search(self, command: words.SearchSwapPlan) -> None:
        self.hosted.feed_after(SEARCH_S, words.SwapPlanFound, **searched(command))

    def step(self, left: int) -> None:
        """Make a step under the plan in force, and so many more after it."""
        profile = self._profile_at(self._done)
        plan = self._plan if self._plan.keys else SwapPlan.keeping(profile)
        said = predict(profile, plan, self._n_samples, self._config["memory_budget_bytes"])
        step_s = said.step_s * float(np.exp(self._noise_frac * self._generator.standard_normal()))
        swapped = sum(row.bytes(self._n_samples) for row in profile.rows if plan.action_of[row.key] == SWAP)
        fields = {"step_s": step_s, "peak_bytes": int(said.peak_bytes), "swapped_bytes": int(swapped)}
        fields |= {"stall_s": said.stall_s, "n_saved": len(profile.rows)}
        self.clock.after(step_s, self._end, self._name, fields if said.fits else None, left)

    def _end(self, name: str, fields: Row | None, left: int) -> None:
        self._done += 1
        if fields is not None:
            self.hosted.feed(words.SwapStepMeasured, plan_key=name, **fields)
        else:
            self.hosted.feed(words.SwapStepOverflowed, plan_key=name)
        if left:
            self.step(left - 1)


def simulate_steps(
    profile_at: Callable[[int], SwapProfile],
    n_samples: int,
    memory_budget_bytes: float,
    *,
    n_steps: int = 60,
    planner: str = "auto",
    noise_frac: float = 0.02,
    seed: int = 0,
) -> Stream:
    """Make pretended steps under a machine of a real task; return its journal.

    Parameters
    ----------
    profile_at
        Steps made so far -> what the device is like then; a change is a drift.
    n_samples
        Samples of each step.
    memory_budget_bytes
        What a step may use.
    n_steps
        Number of steps.
    planner
        Name of a planner of swapping.
    noise_frac
        Spread of the steps' times, relative to them.
    seed
        Of the noise and of searches.
    """
    clock = Clock()
    config = {"planner": planner, "memory_budget_bytes": memory_budget_bytes, "seed": seed}
    executor = _Executor(clock, config, profile_at, n_samples, noise_frac)
    executor.hosted.feed(words.SwapTraceChanged, shape_key=profile_at(0).shape_key)
    executor.step(n_steps - 1)
    clock.run()
    return executor.hosted.stream

"""Ask the cost model and the simulator what training steps under a byte budget would cost."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from drlnb.planning.codec import from_plain
from drlnb.planning.registry import Named, PlannerFailed
from drlnb.planning.settings import setting_problem
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView
from drlnb.planning.swapping.capacity import largest
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.learned import learning, practice, predicted_cost, swapped_types
from drlnb.planning.swapping.profile import BLOCK, SWAP, SwapProfile
from drlnb.planning.swapping.search import Search
from drlnb.planning.swapping.table import plan_rows
from drlnb.planning.swapping.trace import DEVICES, analytic
from drlnb.records.base import Row
from drlnb.records.columns.swapping import SwapLearned
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.records.units import read_bytes
from drlnb.sim.swapping.executor import simulate_steps
from drlnb.sim.swapping.nets import net_names, net_trace, plain_batch
from drlnb.views.drawing.payload import Floats
from drlnb.views.folds.swapping import Learnt, SwapFold
from drlnb.views.swapping.computed import Explained

__all__ = [
    "COMPARED", "NETS", "PRESETS", "Case", "Explained", "compare", "drifting", "explain", "extremes", "front",
    "in_force", "learns", "learnt", "net_case", "parameters", "pins_of", "setting_problem", "step_case", "sweep",
    "task_case", "turned", "usual_batch",
]  # fmt: skip

#: Networks that travel with the package, and devices.
NETS, PRESETS = net_names(), tuple(DEVICES)
#: Planners that are compared, and those of a sweep with its multiples.
COMPARED = ("none", "all", "vdnn_conv", "vdnn_all", "capuchin", "qtable", "greedy", "hybrid")
_SWEPT, _MULTIPLES = ("all", "capuchin", "hybrid:actions=swap", "auto"), (1.0, 1.4, 1.7, 2.0, 3.0)
#: Planners of a front beside the case's own, and its budgets.
_FRONT, _BUDGETS = ("none", "all", "vdnn_all", "capuchin", "auto"), 12
#: Memory of the device that a usual batch is too large for, and by how much.
_USUAL_BYTES, _USUAL = 11 * 2**30, 1.4
#: Layer types of which the best set is found by trying them all.
_MOST_TYPES = 12
_FREE: Mapping[str, str] = MappingProxyType({})


class Case(NamedTuple):
    """One training step that is to be planned."""

    #: Of what, in words.
    of: str
    profile: SwapProfile
    n_samples: int
    #: None: any number.
    memory_budget_bytes: int | None
    planner: str
    #: Row -> the action that the user wants.
    pins: Mapping[str, str] = _FREE

    @property
    def view(self) -> SwapView:
        """What a planner sees of it: pins that no row can obey are left out."""
        known = {row.name: row.actions for row in self.profile.rows}
        pins = {name: action for name, action in self.pins.items() if action in known.get(name, ())}
        most = self.memory_budget_bytes
        return SwapView(profile=self.profile, n_samples=self.n_samples, memory_budget_bytes=most, pins=pins)

    def plan(self) -> SwapPlan:
        """Return the planner's plan; ConfigError if there is no such planner, or it cannot plan this."""
        try:
            return SWAPPING.ask(SWAPPING.build(self.planner), self.view)
        except (ValueError, PlannerFailed) as error:
            raise ConfigError(str(error)) from None

    def having(self, key: str, value: Any) -> "Case":
        """Return the case with another value of a setting, ``swapping.planner`` say, which is checked.

        Raises
        ------
        ConfigError
            If the setting cannot have the value, or nobody knows what would come of it.
        """
        if problem := setting_problem(key, value):
            raise ConfigError(problem)
        if key == "swapping.memory_budget_bytes":
            return self._replace(memory_budget_bytes=None if value is None else read_bytes(value))
        if key == "swapping.planner":
            return self._replace(planner=value)
        return self._replace(pins=value or {})


def parameters(planner: str) -> dict[str, float]:
    """Return name -> value of each number that a planner of a name takes; none of one that is unknown or refused."""
    with suppress(ValueError):
        named = SWAPPING.parse(planner)
        known = {**SWAPPING.parameters(named.name), **named.params}
        return {name: value for name, value in known.items() if isinstance(value, int | float)}
    return {}


def turned(planner: str, name: str, value: float) -> str:
    """Return a planner's name with another value of a parameter; ConfigError if it cannot have it."""
    try:
        named = SWAPPING.parse(planner)
        text = str(Named(named.name, {**named.params, name: value if isinstance(value, int) else round(value, 6)}))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        SWAPPING.build(text)
    except ValueError as error:
        raise ConfigError(str(error).partition(": ")[2] or str(error)) from None
    return text


@cache
def usual_batch(net: str) -> int:
    """Return the batch to begin with: two fifths more samples than 11 GiB of a 2080 Ti hold without a plan."""
    return max(1, int(_USUAL * plain_batch(net_trace(net), "2080ti", _USUAL_BYTES)))


def step_case(
    net: str,
    n_samples: int,
    memory_budget_bytes: int,
    preset: str,
    planner: str = "auto",
    pins: Mapping[str, str] = _FREE,
) -> Case:
    """Return a step of a known network on a device that is not there.

    Parameters
    ----------
    net, preset
        Names of :data:`NETS` and :data:`PRESETS`.
    n_samples
        Batch, at least 1; it is the same whatever the budget.
    memory_budget_bytes
        What the step may use.
    planner, pins
        As of the case.

    Raises
    ------
    ConfigError
        If not even one sample fits.
    """
    case = Case(
        f"{net}, {n_samples:,} samples", _profile(net, preset, n_samples), n_samples, memory_budget_bytes, planner, pins
    )
    if memory_budget_bytes < extremes(case)[0]:
        raise ConfigError(f"the budget must hold {net} and one sample, got {memory_budget_bytes / 2**20:.4g} MiB")
    return case


@lru_cache(maxsize=8)
def _profile(net: str, preset: str, n_samples: int) -> SwapProfile:
    """Return a profile once: a budget that is moved asks for the same one again and again."""
    return analytic(net_trace(net), preset, n_samples)


def net_case(net: str, multiple: float, memory_budget_bytes: int, preset: str) -> Case:
    """Return a step whose batch is a multiple of the largest that fits the budget without a plan; as of `step_case`."""
    plain = plain_batch(net_trace(net), preset, memory_budget_bytes)
    case = step_case(net, max(1, int(plain * multiple)), memory_budget_bytes, preset)
    return case._replace(of=f"{net} x{multiple:g}")


def extremes(case: Case) -> tuple[int, int]:
    """Return the bytes of a step with one sample, and of one that keeps all: less cannot be, more changes nothing."""
    keep = SwapPlan.keeping(case.profile)
    least, most = (predict(case.profile, keep, n).peak_bytes for n in (1, case.n_samples))
    return math.ceil(least), math.ceil(most)


def front(case: Case) -> dict[str, tuple[Floats, Floats]]:
    """Return budgets (bytes) and seconds of a step under each, for several planners; the batch is the same.

    Parameters
    ----------
    case
        The step; its budget does not matter.

    Returns
    -------
    dict
        Planner -> budgets from one sample to keeping all, shape ``(n,)``, and seconds, NaN where its plan does not fit.
    """
    budgets = np.linspace(*extremes(case), _BUDGETS).round()
    lines = {}
    for name in dict.fromkeys([*_FRONT, case.planner]):
        times = []
        for budget in budgets.astype(np.int64).tolist():
            with suppress(ConfigError):
                plan = case._replace(planner=name, memory_budget_bytes=budget).plan()
                said = predict(case.profile, plan, case.n_samples, budget)
                times.append(said.step_s if said.fits else math.nan)
        if len(times) == len(budgets):
            lines[name] = (budgets, np.array(times))
    return lines


def task_case(name: str, of: SwapFold) -> Case:
    """Return the step of a task as its journal knows it; ConfigError before it was profiled."""
    if of.profile is None:
        raise ConfigError("no step has been profiled yet: that takes a memory budget and two steps")
    memory_budget_bytes = None if math.isnan(of.memory_budget_bytes) else int(of.memory_budget_bytes)
    return Case(name, from_plain(SwapProfile, of.profile), of.n_samples, memory_budget_bytes, of.planner, of.pins)


def in_force(case: Case, of: SwapFold) -> SwapPlan:
    """Return the plan that a task's steps follow, as its journal says, or what its planner would plan."""
    known = of.plans.get(of.running)
    if known is not None:
        return from_plain(SwapPlan, known)
    return SwapPlan.keeping(case.profile) if of.running == "none" else case.plan()


def explain(case: Case, plan: SwapPlan) -> Explained:
    """Return what the cost model says of a plan."""
    profile, n, budget = case.profile, case.n_samples, case.memory_budget_bytes
    said, kept = predict(profile, plan, n, budget, lanes=True), predict(profile, SwapPlan.keeping(profile), n)
    numbers = {"step": said.step_s, "slower": said.step_s / kept.step_s, "peak": said.peak_bytes / 2**20,
               "plain": kept.peak_bytes / 2**20, "stall": said.stall_s}  # fmt: skip
    return Explained(
        of=f"{case.of}, {case.planner}", memory_budget_bytes=math.nan if budget is None else budget, fits=said.fits,
        rows=plan_rows(profile, plan, n), pins=case.pins, numbers=numbers, lanes=said.lanes,
        memory=said.memory,
    )  # fmt: skip


def compare(case: Case) -> list[Row]:
    """Return what each planner would do with a step, as ``choices`` draws it; what cannot be planned is left out."""
    rows: list[Row] = []
    for name in dict.fromkeys([*COMPARED, case.planner]):
        with suppress(ConfigError):
            plan = case._replace(planner=name).plan()
            of = explain(case, plan)
            most = of.memory_budget_bytes / 2**20
            rows.append({
                "planner": name, "time": of.numbers["step"], "slower": of.numbers["slower"],
                "peak": of.numbers["peak"], "fits": "yes" if of.fits else "no", "budget": most,
                "state": "blocks that are made again cannot be pinned" if plan.blocks else "",
                "counts": ", ".join(f"{a} {plan.actions.count(a)}" for a in dict.fromkeys(plan.actions)),
                "pins": pins_of(of),
            })  # fmt: skip
    return rows


def pins_of(of: Explained) -> dict[str, str]:
    """Return row -> action, by which a plan is held as it is; rows within blocks are free."""
    return {str(row["layer"]): str(row["action"]) for row in of.rows if row["action"] != BLOCK}


def sweep(case: Case) -> dict[str, tuple[Floats, Floats]]:
    """Return multiples of the largest batch without a plan, and throughput relative to it, for several planners.

    Raises
    ------
    ConfigError
        If there is no budget, or not even one sample fits.
    """
    profile, budget, kept = case.profile, case.memory_budget_bytes, SwapPlan.keeping(case.profile)
    plain = largest(lambda n: predict(profile, kept, n, budget).fits) if budget else 0
    if budget is None or not plain:
        raise ConfigError(f"there must be a budget that holds one sample of {case.of}, got {budget}")
    curves: dict[str, list[float]] = {name: [] for name in dict.fromkeys([*_SWEPT, case.planner])}
    for multiple in _MULTIPLES:
        n = int(plain * multiple)
        for name, curve in curves.items():
            said = predict(profile, case._replace(n_samples=n, planner=name).plan(), n, budget)
            curve.append(n / said.step_s if said.fits else math.nan)
    base = plain / predict(profile, kept, plain).step_s
    return {name: (np.array(_MULTIPLES), np.array(curve) / base) for name, curve in curves.items()}


def learnt(case: Case, seed: int = 0) -> tuple[Learnt, str, float]:
    """Run the patent's learner on the cost model, with the parameters of the case's planner if that is ``qtable``.

    Parameters
    ----------
    case
        The step, with a budget.
    seed
        Of exploration.

    Returns
    -------
    tuple
        The table, what was learned in words, and the least cost of any set of layer types.

    Raises
    ------
    ConfigError
        If there is no budget, or there are more sets than can all be tried.
    """
    n = len(case.profile.types)
    if case.memory_budget_bytes is None or n > _MOST_TYPES:
        raise ConfigError(f"there must be a budget and at most {_MOST_TYPES} layer types, got {n}")
    view = replace(case._replace(pins={}).view, seed=seed)
    name = case.planner if case.planner.partition(":")[0] == "qtable" else "qtable"
    planner, search, of = learning(SWAPPING.build(name)), Search(view, (SWAP,)), Learnt()
    assert planner is not None, "the patent's planner learns"
    least = min(predicted_cost(search, swapped_types(search, bits), planner.w) for bits in range(2**n))
    for said in practice(planner.learner(view, "", planner.start(view)), search, planner.w):
        of.add(SwapLearned(plan_key="", **said))
    return of, f"{case.of}, {2**n} sets, w = {planner.w:g}", least


def learns(planner: str) -> bool:
    """Return whether a planner of a name learns by trials; false of one that is unknown or refused."""
    with suppress(ValueError):
        return learning(SWAPPING.build(planner)) is not None
    return False


def drifting(case: Case, slower: float = 4.0, n_steps: int = 80, seed: int = 0) -> Journal:
    """Return the journal of pretended steps of which the second half has a slower link.

    Parameters
    ----------
    case
        The step, with a budget.
    slower
        So many times longer takes each copy from the middle on.
    n_steps, seed
        Number of steps, and of their noise.

    Raises
    ------
    ConfigError
        If there is no budget.
    """
    if case.memory_budget_bytes is None:
        raise ConfigError("there must be a budget: nothing is swapped without one")
    late = replace(case.profile, link=case.profile.link.changed(lambda rate: rate / slower))
    stream = simulate_steps(
        lambda n: case.profile if n < n_steps // 2 else late, case.n_samples, case.memory_budget_bytes, n_steps=n_steps,
        planner=case.planner, seed=seed,
    )  # fmt: skip
    return Journal(streams={"swapping": stream})

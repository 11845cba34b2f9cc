"""Plan for the networks that travel with the package by every planner, and by what knows nothing (C7)."""

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.efforts import Swapping
from benchmarks.frame.rows import Bar, Row, pair_up
from benchmarks.swapping.rivals import planner_of
from benchmarks.swapping.trials import learn
from drlnb.planning.swapping import SWAPPING, SwapView
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.learned import QTable, predicted_cost, swapped_types
from drlnb.planning.swapping.profile import SWAP, SwapProfile
from drlnb.planning.swapping.search import Search
from drlnb.planning.swapping.trace import GIB, analytic
from drlnb.sim.swapping.nets import net_names, net_trace, plain_batch

__all__ = ["CONTESTS", "contest", "costs_of_types", "first_met", "gray_sweep", "random_walk", "table", "view_of"]

_BUDGET = 11 * GIB
#: Network -> multiples of the batch that fits without a plan.
CONTESTS = {"resnet50_32": (1.4, 1.7, 2.0, 3.0), "resnet50_224": (1.4, 2.0), "inception_v3_32": (1.4, 2.0),
            "vgg16_224": (1.4, 1.7), "alexnet_224": (1.4, 1.6), "impala": (1.4, 2.0),
            "transformer": (1.4, 2.0)}  # fmt: skip
_RIVALS = ("all", "vdnn_conv", "vdnn_all", "types_exhaustive", "capuchin", "capuchin:actions=swap", "greedy", "qtable")
#: Networks of so few rows can have all their swap plans walked.
_FEW_ROWS = 16
_SEEDS, _TRIALS = 100, 300
#: Networks and multiples at which sets of layer types are learned.
_TABLES = {"resnet50_32": 1.7, "vgg16_224": 1.4, "alexnet_224": 1.4, "inception_v3_32": 2.0,
           "impala": 1.6, "transformer": 1.5}  # fmt: skip


def view_of(name: str, multiple: float, device: str = "2080ti", **more: object) -> tuple[SwapProfile, SwapView]:
    """Return the step of a network at a multiple of the batch that fits a device without a plan."""
    n = int(multiple * plain_batch(net_trace(name), device, _BUDGET))
    profile = analytic(net_trace(name), device, n)
    return profile, SwapView(profile=profile, n_samples=n, memory_budget_bytes=_BUDGET, **more)  # type: ignore[arg-type]


def _speed(step: tuple[SwapProfile, SwapView], planner: str) -> float:
    """Return samples per second under a planner's plan; 0 if it does not fit."""
    profile, view = step
    said = predict(profile, SWAPPING.ask(planner_of(planner), view), view.n_samples, view.memory_budget_bytes)
    return view.n_samples / said.step_s if said.fits else 0.0


def contest(effort: Swapping) -> Iterator[Row]:
    """Compare the search with every other planner, and with all plans."""
    bar = Bar("worst", at_least=1.0 - 1e-9)
    for name, multiples in CONTESTS.items():
        steps = [view_of(name, multiple) for multiple in multiples]
        mine = [_speed(step, "hybrid") for step in steps]
        best = [max(_speed(step, each) for each in _RIVALS) for step in steps]
        shares = [a / b for a, b in zip(mine, best, strict=True) if b]  # where nothing fits there is no contest
        title = f"speed of hybrid on {name} at x{', x'.join(map(str, multiples))}"
        yield _simulated(f"contest-{name}", title, shares, f"the best of {len(_RIVALS)} other planners at each", bar)
    small = [name for name in net_names() if len(net_trace(name).rows) <= _FEW_ROWS]
    steps = [view_of(name, multiple) for name in small for multiple in (1.2, 1.4, 1.6)]
    pairs = [[_speed(step, f"{each}:actions=swap") for each in ("hybrid", "oracle")] for step in steps]
    title, bar = f"speed of hybrid, swapping alone, on {', '.join(small)}", Bar("worst", at_least=1 / 1.02)
    yield _simulated("oracle", title, [a / b for a, b in pairs if b], "the best of all plans", bar)


def _simulated(id: str, title: str, shares: list[float], against: str, bar: Bar) -> Row:
    return Row(id, title, shares, "x", against, (1.0,), bar=bar, origin="simulated")


def costs_of_types(step: tuple[SwapProfile, SwapView], w: float = 0.5) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the number of layer types, and the cost of each set of them that is swapped."""
    search, n_types = Search(step[1], (SWAP,)), len(step[0].types)
    return n_types, np.array([predicted_cost(search, swapped_types(search, bits), w) for bits in range(2**n_types)])


def first_met(plans: Iterable[int], costs: npt.NDArray[np.float64]) -> float:
    """Return the number of trials, from 1, until a plan of the least cost is met; 300 if none is."""
    least = costs.min() + 1e-12
    return next((float(i) for i, bits in enumerate(plans, 1) if costs[bits] <= least), float(_TRIALS))


def random_walk(n_types: int, n_trials: int, generator: "np.random.Generator") -> Iterator[int]:
    """Toggle a random type at each trial."""
    bits = 0
    for _ in range(n_trials):
        yield bits
        bits ^= 1 << int(generator.integers(n_types))


def gray_sweep(n_types: int) -> Iterator[int]:
    """Meet every set once, a type at a time."""
    return (i ^ i >> 1 for i in range(2**n_types))


def table(effort: Swapping) -> Iterator[Row]:
    """Count the seeds with which the patent's table meets the best set of layer types, and trials until then."""
    for name, multiple in _TABLES.items():
        n_types, costs = costs_of_types(view_of(name, multiple))
        values, least = costs.tolist(), costs.min() + 1e-12
        dice = [np.random.default_rng(seed) for seed in range(_SEEDS)]
        runs = [learn(QTable(n_types=n_types), values.__getitem__, _TRIALS, each) for each in dice]
        for kind, at_least in (("best", 95.0), ("chosen", None)):
            n_met = float(sum(costs[getattr(each, kind)] <= least for each in runs))
            title = (
                f"seeds of {_SEEDS} with which the {kind} set of {n_types} types of {name} x{multiple} is the optimum"
            )
            bar = None if at_least is None else Bar("value", at_least=at_least)
            yield Row(f"table-{name}-{kind}", title, (n_met,), "seeds", bar=bar, origin="simulated")
        walks = [first_met(random_walk(n_types, _TRIALS, each), costs) for each in dice]
        rivals = {"random toggling": walks, "a Gray-code sweep": [first_met(gray_sweep(n_types), costs)] * _SEEDS}
        for against, trials in rivals.items():
            title, pairs = (
                f"trials until the optimum of {name} runs",
                pair_up([float(each.found_at) for each in runs], trials),
            )
            yield Row(
                f"table-{name}-v-{against.split()[1]}",
                title,
                unit="trials",
                against=against,
                origin="simulated",
                **pairs,
            )

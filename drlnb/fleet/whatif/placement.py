"""Compare planners of gangs on the same jobs and faults, and say what failure awareness is worth."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from statistics import fmean

import numpy as np

from drlnb.planning.placement import GANGS, Cluster, ClusterView, Pick
from drlnb.planning.placement.closed_form import n_checkpoints
from drlnb.planning.placement.order import ORDERS
from drlnb.planning.registry import Planner
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import Conditions, FaultModel, FaultPath, Outcome, Trace, Window, load_trace, simulate
from drlnb.sim.placement.traces import FAMILIES
from drlnb.views.drawing import words
from drlnb.views.placement.compared import Came, Cell, Health, Interval, Scored
from drlnb.views.placement.gangs import Gang, Placed

__all__ = [
    "CHECKPOINTS",
    "FAMILIES",
    "ORDERS",
    "PLANNERS",
    "Case",
    "Compared",
    "Conditions",
    "FaultModel",
    "case_of",
]

#: Planners that are compared, the one that knows nothing first.
PLANNERS = ("random", *(name for name in GANGS.names if name != "random"))
#: Name of an interval between checkpoints -> seconds of work.
CHECKPOINTS: Mapping[str, float | None] = {"none": None, "4 h": 4 * 3600.0, "1 h": 3600.0}
#: Days between failures of a slot in the map of regimes; the last one was published.
_DAYS = (7.0, 20.0, 60.0, 337.0)
#: Least and most disjoint windows that are played; paths of faults of each, and in the map of regimes.
_FEWEST, _MOST, _PATHS, _IN_MAP = 2, 24, 3, 2
#: Random placements whose best one is known only afterwards; means over so many samples of windows.
_HINDSIGHT, _SAMPLES = 8, 2000
#: Strength of the prior of a slot's rate: that of a coefficient of variation of 1.12, as Titan's cards had.
_PRIOR = 0.8
#: Jobs that a user places.
_BY_HAND = 4
_DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True)  # no slots: its paths are kept
class Case:
    """Jobs on a cluster whose slots fail."""

    windows: tuple[Window, ...]
    model: FaultModel
    conditions: Conditions
    cluster: Cluster
    seed: int = 0

    @cached_property
    def paths(self) -> list[list[FaultPath]]:
        """Paths of faults, some for each window; nobody who plays them changes them."""
        return [
            [
                self.model.path(self.model.rates(self.cluster, seed=seed), seed=seed)
                for seed in range(first, first + _PATHS)
            ]
            for first in range(self.seed, self.seed + _PATHS * len(self.windows), _PATHS)
        ]

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots, each with its node and its number there."""
        nodes = self.cluster.node_of
        return tuple(f"n{node}/{nodes[:slot].count(node)}" for slot, node in enumerate(nodes))

    def play(self, planner: str | Planner[ClusterView, Pick | None], window: int = 0, path: int = 0) -> Outcome:
        """Play a window on a path of its faults."""
        how = {name: getattr(self.conditions, name) for name in Conditions.declared()}
        return simulate(self.cluster, self.windows[window], planner, self.paths[window][path], **how)

    def placed(self, planner: str | Planner[ClusterView, Pick | None]) -> Placed:
        """Return what became of the first window's gangs."""
        outcome, path = self.play(planner), self.paths[0][0]
        return Placed(
            slots=self.slots,
            nodes=tuple(f"n{node}" for node in self.cluster.node_of),
            gangs=list(self._gangs(outcome)),
            away=[
                (i, *span, "failed") for i, _ in enumerate(self.slots) for span in _outages(path, i, outcome.makespan_s)
            ],
            end_s=outcome.makespan_s,
            rate_hz=path.rate_hz,
        )

    def _gangs(self, outcome: Outcome) -> Iterator[Gang]:
        """Yield the attempts of all jobs, with their checkpoints and what was lost."""
        terms, left_s = self.conditions.terms, {job.job: job.work_s for job in self.windows[0]}
        starts = defaultdict[str, int](int)
        for each in outcome.attempts:
            job, nodes = each.job, len({self.cluster.node_of[slot] for slot in each.slots})
            slowdown = terms.slowdown(nodes, self.cluster.least_nodes(len(each.slots)))
            begun_s = each.started_s + (terms.restart_s if starts[job] else 0.0)
            starts[job] += 1
            every_s = (terms.checkpoint_s or 0.0) * slowdown + terms.checkpoint_cost_s
            n = n_checkpoints(left_s[job], terms.checkpoint_s)
            n = n if each.finished or not terms.checkpoint_s else round(each.kept_s / terms.checkpoint_s)
            saved = tuple(begun_s + every_s * i for i in range(1, n + 1))
            left_s[job] -= each.kept_s
            yield Gang(
                owner=job,
                number=starts[job],
                slots=each.slots,
                start=each.started_s,
                stop=each.ended_s,
                lost_s=0.0 if each.finished else each.ended_s - (saved[-1] if saved else each.started_s),
                saved=saved,
                fate="done" if each.finished else "failed",
            )

    def compare(self, against: str, planners: Sequence[str] = PLANNERS) -> "Compared":
        """Play all windows under each planner, and the best of some random placements on the same faults."""
        names = dict.fromkeys((*planners, against, "random", "healthiest"))
        played = {name: self._all(name, _PATHS) for name in names}
        hindsight = f"best of {_HINDSIGHT} random"
        played[hindsight] = [
            [
                min((self.play(f"random:seed={seed}", i, k) for seed in range(_HINDSIGHT)), key=_makespan_s)
                for k in range(_PATHS)
            ]
            for i in range(len(self.windows))
        ]
        base = played[against]
        came = [
            Came(
                planner=name,
                ratio=_ratio(outcomes, base),
                makespan_s=_mean(outcomes, "makespan_s"),
                lost_slot_s=_mean(outcomes, "lost_gpu_s"),
                hindsight=name == hindsight,
            )
            for name, outcomes in played.items()
        ]
        bounds = [fmean(math.log(each.bound_s / each.makespan_s) for each in some) for some in base]
        awareness = _ratio(played["random"], played["healthiest"])
        return Compared(came=came, awareness=awareness, bound=math.exp(fmean(bounds)))

    def _all(self, planner: str, n_paths: int) -> list[list[Outcome]]:
        return [[self.play(planner, i, k) for k in range(n_paths)] for i in range(len(self.windows))]

    def regimes(self) -> list[Cell]:
        """Return what failure awareness is worth by the days between failures and the interval of checkpoints."""
        return [
            Cell(
                mtbf_days=days,
                checkpoint=name,
                ratio=_ratio(case._all("random", _IN_MAP), case._all("healthiest", _IN_MAP)),
            )
            for name, seconds in CHECKPOINTS.items()
            for days in _DAYS
            for case in [
                replace(
                    self,
                    model=replace(self.model, mtbf_days=days),
                    conditions=replace(self.conditions, checkpoint_s=seconds),
                )
            ]
        ]

    def by_hand(self, slots: str, planner: str) -> tuple[list[Scored], list[str]]:
        """Return what four jobs come to on slots that a user, a planner and chance have chosen; and the jobs.

        A job that has no slots by hand, or whose slots are not free when it starts (again), has those of the planner.

        Parameters
        ----------
        slots
            Of each job, apart by commas: ``n0/0-3, n1/0 n1/1``.
        planner
            Name of the planner.
        """
        jobs = self.windows[0].jobs[:_BY_HAND]
        case = replace(self, windows=(replace(self.windows[0], jobs=jobs),))
        chosen = dict(zip((job.job for job in jobs), self._read(slots, [job.n_slots for job in jobs]), strict=False))
        drawn = min((case.play(f"random:seed={seed}") for seed in range(_HINDSIGHT)), key=_makespan_s)
        played = {"by hand": case.play(_ByHand(chosen, GANGS.build(planner))), planner: case.play(planner)}
        scored = [
            Scored(who=who, makespan_s=of.makespan_s, ratio=of.makespan_s / drawn.makespan_s, n_restarts=of.n_restarts)
            for who, of in {**played, f"best of {_HINDSIGHT} random": drawn}.items()
        ]
        return scored, [f"{words.plural(job.n_slots, 'slot')} for {words.duration(job.work_s)}" for job in jobs]

    def _read(self, text: str, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the slots that a user has typed, by jobs."""
        typed = [part.split() for part in text.split(",")] if text.strip() else []
        if len(typed) > len(sizes):
            raise ConfigError(f"there are {len(sizes)} jobs to place, got slots for {len(typed)}")
        found = list[tuple[int, ...]]()
        for names, n in zip(typed, sizes, strict=False):
            slots = [slot for name in names for slot in self._named(name)]
            if slots and len(set(slots)) != n:
                raise ConfigError(f"job {len(found) + 1} needs {n} different slots, got {' '.join(names)}")
            found.append(tuple(slots))
        return found

    def _named(self, name: str) -> list[int]:
        node, _, numbers = name.partition("/")
        first, _, last = numbers.partition("-")
        ends = [int(end) for end in (first, last or first) if end.isdecimal()]
        is_range = len(ends) == 2 and 0 <= ends[1] - ends[0] < len(self.slots)
        names = [f"{node}/{i}" for i in range(ends[0], ends[1] + 1)] if is_range else [name]
        if unknown := [each for each in names if each not in self.slots]:
            raise ConfigError(f"slots are {self.slots[0]} to {self.slots[-1]}, several as n0/0-3, got {unknown[0]!r}")
        return [self.slots.index(each) for each in names]

    def health(self, days: float) -> list[Health]:
        """Return what is known of each slot's rate once it was watched for so long: a posterior of gammas."""
        path, until_s = self.paths[0][0], days * _DAY_S
        seen = [list(_outages(path, slot, until_s)) for slot in range(self.cluster.n_slots)]
        up_s = [until_s - sum(min(back, until_s) - fails for fails, back in some) for some in seen]
        usual_hz = max(1, sum(map(len, seen))) / sum(up_s)
        rows = []
        for slot, (some, exposure_s) in enumerate(zip(seen, up_s, strict=True)):
            shape, scale_s = _PRIOR + len(some), _PRIOR / usual_hz + exposure_s
            low, high = _quantiles(shape, (0.05, 0.95))
            rates = {"mean_hz": shape / scale_s, "low_hz": low / scale_s, "high_hz": high / scale_s}
            rows.append(Health(slot=self.slots[slot], **rates, true_hz=path.rate_hz[slot], n_seen=len(some)))
        return rows


class _ByHand:
    """Slots that a user has chosen, each once and if they are free; else a planner's."""

    name = "by hand"

    def __init__(self, chosen: dict[str, tuple[int, ...]], other: Planner[ClusterView, Pick | None]) -> None:
        self._chosen, self._other = chosen, other

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the first job of the window with its slots."""
        slots = self._chosen.pop(view.window[0].job, ())
        if slots and all(view.state[slot] == "free" for slot in slots):
            return Pick(view.window[0].job, slots)
        return self._other.plan(view)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What planners came to on the same jobs and faults."""

    came: list[Came]
    #: Random to healthiest.
    awareness: Interval
    #: Below which no planner could have been, whatever fails.
    bound: float


def case_of(
    trace: str | None,
    family: str,
    n_jobs: int,
    start: int,
    model: FaultModel,
    conditions: Conditions,
    cluster: Cluster | None = None,
) -> Case:
    """Return the disjoint windows of a trace from a job on, at most some, on a cluster of 8 nodes with 8 slots.

    Parameters
    ----------
    trace
        A CSV file; None: the sample that is part of the package.
    family, n_jobs, start
        As of :meth:`~drlnb.sim.placement.traces.Trace.window`.
    model, conditions
        How slots fail, and what holds for all jobs.
    cluster
        Another one.

    Raises
    ------
    ConfigError
        If the trace cannot be read, or has fewer than two windows from there.
    """
    of = _trace(trace)
    first = of.window(start, n_jobs, family)
    starts = range(start, len(of.families[family]) - n_jobs + 1, n_jobs)[:_MOST]
    if len(starts) < _FEWEST:
        raise ConfigError(f"{of.name} must have two windows of {n_jobs} jobs of family {family} from job {start} on")
    windows = (first, *(of.window(at, n_jobs, family) for at in starts[1:]))
    return Case(windows=windows, model=model, conditions=conditions, cluster=cluster or Cluster.uniform(8, 8))


@lru_cache(maxsize=2)
def _trace(path: str | None) -> Trace:
    return load_trace(path)


def _makespan_s(outcome: Outcome) -> float:
    return outcome.makespan_s


def _mean(outcomes: Sequence[Sequence[Outcome]], name: str) -> float:
    return fmean(getattr(each, name) for some in outcomes for each in some)


def _ratio(of: Sequence[Sequence[Outcome]], to: Sequence[Sequence[Outcome]]) -> Interval:
    """Return the geometric mean of makespans beside others', and its 95 % interval over windows (bootstrap)."""
    logs = np.array([
        fmean(math.log(a.makespan_s / b.makespan_s) for a, b in zip(mine, others, strict=True))
        for mine, others in zip(of, to, strict=True)
    ])
    drawn = np.random.default_rng(0).choice(logs, (_SAMPLES, len(logs))).mean(axis=1)
    ratio, low, high = np.exp([logs.mean(), *np.quantile(drawn, (0.025, 0.975))]).tolist()
    return Interval(ratio, low, high)


def _outages(path: FaultPath, slot: int, until_s: float) -> Iterator[tuple[float, float]]:
    k = 0
    while (span := path.outage(slot, k))[0] < until_s:
        yield span
        k += 1


def _quantiles(shape: float, at: Sequence[float]) -> list[float]:
    """Return quantiles of a gamma distribution of scale 1, by summing up its density over logarithms."""
    x = np.geomspace(1e-6, 40.0 + 4 * shape, 4000)
    logs = shape * np.log(x) - x
    density = np.exp(logs - logs.max())
    mass = np.cumsum(density) - density / 2
    quantiles: list[float] = np.interp(at, mass / mass[-1], x).tolist()
    return quantiles

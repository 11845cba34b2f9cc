"""Compare planners of gangs on the same jobs and faults, and say what failure awareness is worth."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache, partial
from statistics import fmean

import numpy as np

from drlnb.learned.placement import Patent
from drlnb.planning.placement import GANGS, Cluster, ClusterView, Pick
from drlnb.planning.placement.closed_form import n_checkpoints
from drlnb.planning.placement.order import ORDERS
from drlnb.planning.placement.rules import rate_of
from drlnb.planning.registry import Planner
from drlnb.records.columns.placement import Weighed
from drlnb.records.errors import ConfigError
from drlnb.sim.placement.attempts import Conditions, Outcome
from drlnb.sim.placement.compare import Played, Windows, ratio_of, side_by_side
from drlnb.sim.placement.faults import FaultModel, FaultPath
from drlnb.sim.placement.play import simulate
from drlnb.sim.placement.traces import FAMILIES, TraceJob, load_trace
from drlnb.views.drawing import words
from drlnb.views.placement.choice import Choice
from drlnb.views.placement.compared import Cell, Health, PlannerRatio, Ratio, Scored
from drlnb.views.placement.gangs import Gang, Placed

__all__ = ["CHECKPOINTS", "FAMILIES", "ORDERS", "PLANNERS", "Case", "Conditions", "FaultModel", "Windows"]

_BLIND, _BASE = "random", "healthiest"
#: Planners that are compared, the one that knows nothing first; not the patent's, which is of one cluster.
PLANNERS = (_BLIND, *(name for name in GANGS.names if name not in {_BLIND, Patent.name}))
#: Name of an interval between checkpoints -> seconds of work.
CHECKPOINTS: Mapping[str, float | None] = {"none": None, "4 h": 4 * 3600.0, "1 h": 3600.0}
#: Days between failures of a slot in the map of regimes; the last one was published.
_DAYS = (7.0, 20.0, 60.0, 337.0)
#: Random placements whose best one is known only afterwards.
_HINDSIGHT = 8
#: Strength of the prior of a slot's rate: that of a coefficient of variation of 1.12, as Titan's cards had.
_PRIOR = 0.8
#: Jobs that a user places.
_BY_HAND = 4
_DAY_S = 86_400.0

load = lru_cache(maxsize=2)(load_trace)


@dataclass(frozen=True, kw_only=True)  # no slots: its jobs and faults are kept
class Case:
    """Jobs of a trace on 8 nodes of 8 slots that fail.

    Raises
    ------
    ConfigError
        Where its jobs are asked for, if the trace cannot be read or has no such window.
    """

    #: A CSV file; None: the sample that is part of the package.
    trace: str | None = None
    windows: Windows = field(default_factory=Windows)
    model: FaultModel = field(default_factory=FaultModel)
    conditions: Conditions = field(default_factory=Conditions)
    #: Number of the window that is drawn, and placed by hand.
    number: int = 0
    cluster: Cluster = field(default_factory=lambda: Cluster.uniform(8, 8))

    @cached_property
    def jobs(self) -> tuple[TraceJob, ...]:
        """Jobs of the window that is drawn."""
        windows = self.windows
        return load(self.trace).window(self.number * windows.n_jobs, windows.n_jobs, windows.family).jobs

    @cached_property
    def path(self) -> FaultPath:
        """Faults of the window that is drawn; whoever plays them changes nothing."""
        rates = self.model.rates(self.cluster, seed=self.number)
        return self.model.path(rates, seed=self.number, cluster=self.cluster)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots, each with its node and its number there."""
        nodes = self.cluster.node_of
        return tuple(f"n{node}/{nodes[:slot].count(node)}" for slot, node in enumerate(nodes))

    def play(self, planner: str | Planner[ClusterView, Pick | None], n_jobs: int | None = None) -> Outcome:
        """Play the window that is drawn, or its first jobs."""
        return simulate(self.cluster, self.jobs[:n_jobs], planner, self.path, **asdict(self.conditions))

    def placed(self, planner: str) -> Placed:
        """Return what became of the window's gangs, and what each plan of a planner chose among."""
        watched = _Watched(GANGS.build(planner))
        outcome = self.play(watched)
        end_s = outcome.makespan_s
        return Placed(
            slots=self.slots,
            nodes=tuple(f"n{node}" for node in self.cluster.node_of),
            gangs=list(self._gangs(outcome)),
            away=[(i, *span, "failed") for i in range(len(self.slots)) for span in _outages(self.path, i, end_s)],
            end_s=end_s,
            rate_hz=self.path.rate_hz,
            choices=[(view.t, partial(self._choice, planner, view, pick)) for view, pick in watched.plans],
        )

    def _choice(self, planner: str, view: ClusterView, pick: Pick) -> Choice:
        """Return a plan with the slots that it could have been."""
        chances, names = dict(pick.chances), self.slots
        return Choice(
            title=f"job {pick.job}, {f'after {words.duration(view.t)}' if view.t else 'at the start'},",
            planner=planner,
            there=names,
            slots=[names[slot] for slot in pick.slots],
            weighed=[Weighed(names[slot], view.rate_hz[slot], chances.get(slot)) for slot in view.free()],
        )

    def _gangs(self, outcome: Outcome) -> Iterator[Gang]:
        """Yield the attempts of all jobs, with their checkpoints and what was lost."""
        if self.conditions.interference_frac:
            raise ConfigError("gangs are drawn as if each had one speed: interference_frac must be 0")
        left_s, starts = {job.job: job.work_s for job in self.jobs}, defaultdict[str, int](int)
        for each in outcome.attempts:
            terms = self.conditions.terms.of(rate_of(self.path.rate_hz, each.slots))
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

    def _played(self, planners: Sequence[str]) -> Played:
        """Return what all windows come to under planners."""
        ways = {name: (name, asdict(self.conditions)) for name in planners}
        return side_by_side(load(self.trace), self.cluster, self.model, self.windows, ways)

    def compare(self, against: str, planners: Sequence[str] = PLANNERS) -> tuple[list[PlannerRatio], Ratio, float]:
        """Play all windows under planners.

        Returns
        -------
        list of PlannerRatio
            What each came to beside `against`; last the best of some random placements on the same faults.
        Ratio
            Random beside healthiest: what failure awareness is worth.
        float
            Beside `against`, too: what no planner could have been below, whatever fails.
        """
        names, drawn = [*dict.fromkeys((*planners, against, _BLIND, _BASE))], f"best of {_HINDSIGHT} random"
        chances = [f"{_BLIND}:seed={seed}" for seed in range(_HINDSIGHT)]
        played = [
            {**of, drawn: [min(some, key=_makespan_s) for some in zip(*(of[name] for name in chances), strict=True)]}
            for of in self._played([*names, *chances])
        ]
        bounds = [{"bound": [replace(each, makespan_s=each.bound_s) for each in of[against]], **of} for of in played]
        came = [
            PlannerRatio(
                planner=name,
                ratio=ratio_of(played, name, against),
                makespan_s=fmean(each.makespan_s for of in played for each in of[name]),
                lost_slot_s=fmean(each.lost_gpu_s for of in played for each in of[name]),
                hindsight=name == drawn,
            )
            for name in (*names, drawn)
        ]
        return came, ratio_of(played, _BLIND, _BASE), ratio_of(bounds, "bound", against).mean

    def regimes(self) -> list[Cell]:
        """Return what failure awareness is worth by the days between failures and the interval of checkpoints."""
        return [
            Cell(mtbf_days=days, checkpoint=name, ratio=ratio_of(case._played([_BLIND, _BASE]), _BLIND, _BASE))
            for name, seconds in CHECKPOINTS.items()
            for terms in [replace(self.conditions, checkpoint_s=seconds)]
            for days in _DAYS
            for case in [replace(self, conditions=terms, model=replace(self.model, mtbf_days=days))]
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
        jobs, found = self.jobs[:_BY_HAND], self._read(slots)
        for i, (of, job) in enumerate(zip(found, jobs, strict=False), 1):
            if of and len(set(of)) != job.n_slots:
                names = " ".join(self.slots[slot] for slot in of)
                raise ConfigError(f"job {i} needs {job.n_slots} different slots, got {names}")
        chosen = dict(zip((job.job for job in jobs), found, strict=False))
        best = min((self.play(f"{_BLIND}:seed={seed}", _BY_HAND) for seed in range(_HINDSIGHT)), key=_makespan_s)
        hand = self.play(_ByHand(chosen, GANGS.build(planner)), _BY_HAND)
        played = {"by hand": hand, planner: self.play(planner, _BY_HAND), f"best of {_HINDSIGHT} random": best}
        scored = [
            Scored(who=who, makespan_s=of.makespan_s, ratio=of.makespan_s / best.makespan_s, n_restarts=of.n_restarts)
            for who, of in played.items()
        ]
        return scored, [f"{words.plural(job.n_slots, 'slot')} for {words.duration(job.work_s)}" for job in jobs]

    def seats(self, slots: str) -> Placed:
        """Return the jobs on the slots that a user has chosen so far, as of :meth:`by_hand`."""
        gangs = [
            Gang(owner=f"job {i}", number=1, slots=of, start=0.0, stop=math.nan)
            for i, of in enumerate(self._read(slots), 1)
        ]
        nodes = tuple(f"n{node}" for node in self.cluster.node_of)
        return Placed(slots=self.slots, nodes=nodes, gangs=gangs, away=(), end_s=0.0, rate_hz=self.path.rate_hz)

    def missing(self, slots: str) -> list[int]:
        """Return how many slots each job still lacks by hand."""
        return [max(0, job.n_slots - len(set(of))) for job, of in zip(self.jobs, self._read(slots), strict=False)]

    def toggled(self, slots: str, slot: str) -> str:
        """Return a user's slots without one that was among them, or with it for the first job that lacks one.

        Raises
        ------
        ConfigError
            If no job lacks one.
        """
        found = [list(of) for of in self._read(slots)]
        (number,) = self._named(slot)
        holders = [of for of in found if number in of]
        if not holders:
            lacking = [of for of, n in zip(found, self.missing(slots), strict=True) if n]
            if not lacking:
                raise ConfigError(f"all {len(found)} jobs have their slots: click one of them to take it back")
            lacking[0].append(number)
        for of in holders:
            of.remove(number)
        return ", ".join(" ".join(self.slots[i] for i in of) for of in found).rstrip(", ")

    def _read(self, text: str) -> list[tuple[int, ...]]:
        """Return the slots that a user has typed for each job."""
        typed = [part.split() for part in text.split(",")] if text.strip() else []
        n_jobs = min(_BY_HAND, len(self.jobs))
        if len(typed) > n_jobs:
            raise ConfigError(f"there are {n_jobs} jobs to place, got slots for {len(typed)}")
        typed += [[]] * (n_jobs - len(typed))
        return [tuple([slot for name in names for slot in self._named(name)]) for names in typed]

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
        path, until_s = self.path, days * _DAY_S
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


class _Watched:
    """A planner whose plans are kept, each with its view."""

    def __init__(self, planner: Planner[ClusterView, Pick | None]) -> None:
        self.name, self._planner, self.plans = planner.name, planner, list[tuple[ClusterView, Pick]]()
        self.window, self.history = (GANGS.trait(planner, trait) for trait in ("window", "history"))

    def plan(self, view: ClusterView) -> Pick | None:
        """Return the planner's plan."""
        if pick := self._planner.plan(view):
            self.plans.append((view, pick))
        return pick


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


def _makespan_s(outcome: Outcome) -> float:
    return outcome.makespan_s


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

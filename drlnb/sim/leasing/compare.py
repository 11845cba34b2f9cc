"""Compare hold planners on the same workload: utilisation beside its bound, and the price in round time.

Every planner sees the same durations (one generator per seed and task), and every task is measured alone on the same
seed: its duty ``d`` and its round time are what the bound and the inflation refer to.  Start offsets are spread over
one round, the first tenth of the run is discarded, and the window ends with the first task that does, so that all of
them are there all the time.  Three ways to share stand side by side: **exclusive** (one task per slot to its end),
**co-located** (all at once, no lease, the device's time shared out) and **leased**.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from drlnb.planning.leasing.load import bound, expected_load
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import GradientsRestored, LeaseExpired, LeaseGranted
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream
from drlnb.records.round import GradientComputed, MetricsRecorded, ParametersReady
from drlnb.records.settings import ANYTHING, NOT_NEGATIVE, SECONDS, Declared, count, setting
from drlnb.sim.costs import Costs
from drlnb.sim.faults import FAULT_KINDS, poisson_faults, rate_problems
from drlnb.sim.leases import SlotUse, inside, leases
from drlnb.sim.leasing.colocated import colocated_rounds_hz
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.task import Task

__all__ = [
    "FAULTS",
    "Alone",
    "LeasingResult",
    "LeasingWorkload",
    "alone",
    "simulate_leasing",
    "tasks_for_load",
]

#: Share of a run that is discarded at its beginning.
_WARM_UP = 0.1
#: What may go wrong where all is on one node, which must stay.
FAULTS = tuple(kind for kind in FAULT_KINDS if kind != "node")
#: A run with faults may last so many times as long as its tasks in sequence.
_PATIENCE = 20.0
#: Rounds of each task that a result rests on at least.
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingWorkload(Declared):
    """Tasks that share slots; the numbers are those of the prototype's table."""

    n_tasks: int = setting(8, count(1, 1000))
    n_slots: int = setting(2, count(1, 1000))
    #: Collectors of each task, one batch each.
    n_workers: int = setting(4, count(1, 256))
    #: Gradient of one batch, in seconds.
    compute_s: float = setting(0.25, SECONDS)
    #: Mean time of one collector for one round, in seconds.
    collect_mean_s: float = setting(4.0, SECONDS)
    #: Coefficient of variation of it, dimensionless.
    collect_cv: float = setting(0.2, NOT_NEGATIVE)
    #: Making a slot ready for another task, in seconds.
    switch_s: float = setting(0.0, NOT_NEGATIVE)
    #: Sending new parameters out, in seconds.
    publish_s: float = setting(0.01, NOT_NEGATIVE)
    #: Tasks differ: collecting takes the i-th of them up to so much longer, in a ramp; dimensionless.
    unequal_frac: float = setting(0.0, NOT_NEGATIVE)
    n_rounds: int = setting(60, count(1, 100_000))
    seed: int = setting(0, count(0))
    #: (kind, times per hour) of what goes wrong; a task alone is always spared.
    faults: tuple[tuple[str, float], ...] = setting((), ANYTHING)

    @classmethod
    def together(cls, values: Mapping[str, Any], wrong: Collection[str]) -> list[str]:
        """Return what is wrong with the rates of the faults."""
        return rate_problems(dict(values["faults"]), FAULTS)

    def costs(self, i: int) -> Costs:
        """Return the durations of the i-th task."""
        slower = 1.0 + self.unequal_frac * (i / max(1, self.n_tasks - 1))
        return Costs(
            collect_s=self.collect_mean_s * slower,
            compute_s=self.compute_s * self.n_workers,
            publish_s=self.publish_s,
            switch_s=self.switch_s,
            collect_cv=self.collect_cv,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One task with a slot of its own."""

    #: Slot compute over round time, dimensionless.
    d: float
    #: Mean round time in seconds, without the first tenth.
    round_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasingResult(SlotUse):
    """The figures of a planner on a workload, in the window in which all tasks are there."""

    hold: str
    d_mean: float
    #: What queueing theory expects of utilisation, and of inflation, for the mean duty.
    expected_utilisation_frac: float
    expected_inflation: float
    rounds_hz: float
    #: Rounds per second of one task per slot to its end, tasks in sequence.
    exclusive_hz: float
    #: Rounds per second of all tasks at once on the devices, without leases.
    colocated_hz: float
    grants_per_round: float
    #: Slot seconds held in the window, by task.
    held_s: tuple[float, ...]
    wait_p50_s: float
    wait_p95_s: float
    #: Longest wait for a slot, by task.
    wait_max_s: tuple[float, ...]
    longest_hold_s: float
    #: Faults that struck, leases that expired, and attempts at tasks after their first ones, in the whole run.
    n_faults: int = 0
    n_expired: int = 0
    n_restarts: int = 0
    #: Rounds that were made once more / rounds made: those since a checkpoint are lost with their master.
    redone_frac: float = 0.0
    #: Tasks that failed, as one does whose executor dies three times in a round.
    n_failed: int = 0

    @property
    def of_bound(self) -> float:
        """Utilisation over its bound, dimensionless."""
        return self.utilisation_frac / self.bound_frac


def tasks_for_load(load: float, workload: LeasingWorkload) -> LeasingWorkload:
    """Return the workload with as many tasks as make this load: ``T = max(1, floor(load K / d + 1/2))``.

    `d` is the duty of the mean task: where tasks differ, that of the first one would make too few.
    """
    d = alone(_mean_task(workload), 0).d
    return replace(workload, n_tasks=max(1, math.floor(load * workload.n_slots / d + 0.5)))


def _mean_task(workload: LeasingWorkload) -> LeasingWorkload:
    """Return one task in the middle of the ramp, with a slot of its own."""
    collect_s = workload.collect_mean_s * (1.0 + 0.5 * workload.unequal_frac)
    return replace(workload, n_tasks=1, unequal_frac=0.0, n_slots=1, switch_s=0.0, faults=(), collect_mean_s=collect_s)


@cache
def alone(workload: LeasingWorkload, i: int) -> Alone:
    """Measure the i-th task of a workload alone, with the hold planner ``round`` and a slot of its own."""
    _, (task,) = run_tasks(
        [i],
        n_slots=1,
        n_rounds=workload.n_rounds,
        n_collectors=workload.n_workers,
        hold="round",
        seed=workload.seed,
        costs={i: workload.costs(i)},
    )
    ends = _ends(task)
    first = ends[int(_WARM_UP * len(ends))]
    computed_s = sum(elapsed_s for t, elapsed_s in _computing(task) if first < t <= ends[-1])
    n = len(ends) - 1 - int(_WARM_UP * len(ends))
    return Alone(d=computed_s / (ends[-1] - first), round_s=(ends[-1] - first) / n)


def simulate_leasing(
    workload: LeasingWorkload,
    hold: str = "yield",
    *,
    settings: LeasingSettings | None = None,
    priorities: Mapping[int, int] | None = None,
    streams: bool = True,
    validate: bool = False,
) -> LeasingResult:
    """Run a workload under a hold planner, beside exclusive and co-located use of the same slots.

    Parameters
    ----------
    workload
        The tasks and their durations.
    hold
        Hold planner of every task.
    settings
        Settings of leasing; None for the defaults.
    priorities
        Index of a task -> its priority.
    streams
        Gradients are computed at arrival (else a slot cannot be given away in a round).
    validate
        Check every machine after each event, and replay every stream at the end.

    Raises
    ------
    AssertionError
        If `validate` finds a broken law, or a stream that does not replay.
    ConfigError
        If the workload's faults are too many for its tasks to end.
    """
    lone = _lone(workload)
    round_s = sum(each.round_s for each in lone) / len(lone)
    step_s = round_s / workload.n_tasks
    until_s = _PATIENCE * workload.n_rounds * workload.n_tasks * round_s if workload.faults else math.inf
    pool, tasks = run_tasks(
        range(workload.n_tasks),
        n_slots=workload.n_slots,
        n_rounds=workload.n_rounds,
        n_collectors=workload.n_workers,
        hold=hold,
        seed=workload.seed,
        costs={i: workload.costs(i) for i in range(workload.n_tasks)},
        offsets_s={i: i * step_s for i in range(workload.n_tasks)},
        settings=replace(settings or LeasingSettings(), hold=hold),
        priorities=priorities,
        streams=streams,
        validate=validate,
        faults=poisson_faults(dict(workload.faults), seed=workload.seed),
        until_s=until_s,
    )
    if workload.faults and not all(task.end and len(_ends(task)) >= _FEWEST for task in tasks):
        raise ConfigError(f"faults: too many for each of {workload.n_tasks} tasks to end, or to make {_FEWEST} rounds")
    if validate:
        _check_replay([pool.host.stream, *[stream for task in tasks for stream in task.streams]])
    return _result(workload, hold, pool.host.stream, tasks, lone, len(pool.struck))


def _lone(workload: LeasingWorkload) -> list[Alone]:
    """Measure each task alone: there is nobody to switch with, and tasks that are alike are the same."""
    n_unlike = workload.n_tasks if workload.unequal_frac else 1
    solo = replace(workload, switch_s=0.0, n_slots=1, n_tasks=n_unlike, faults=())
    return [alone(solo, i) for i in range(workload.n_tasks)]


def _check_replay(streams: Sequence[Stream]) -> None:
    for stream in streams:
        difference = replay(stream).difference
        if difference is not None:
            raise AssertionError(difference)


def _result(
    workload: LeasingWorkload, hold: str, pool: Stream, tasks: Sequence[Task], lone: Sequence[Alone], n_faults: int
) -> LeasingResult:
    ends = [_ends(task) for task in tasks]
    stop = min(each[-1] for each in ends)
    start = _WARM_UP * stop
    short = [
        task.name for task, each in zip(tasks, ends, strict=True) if sum(start < t <= stop for t in each) < _FEWEST
    ]
    if short:
        raise ConfigError(
            f"{', '.join(short)}: fewer than {_FEWEST} rounds while all tasks train; more rounds are needed"
        )
    capacity_s = workload.n_slots * (stop - start)
    computed_s = sum(inside(t - took_s, t, start, stop) for task in tasks for t, took_s in _computing(task))
    inflations = [_mean_round(rounds, start, stop) / each.round_s for rounds, each in zip(ends, lone, strict=True)]
    held = {task.name: 0.0 for task in tasks}
    longest_hold_s = 0.0
    for lease in leases(pool):
        granted_t = lease.ended_t - lease.end.held_s
        if lease.ended_t > start and granted_t < stop:
            held[lease.grant.task] += inside(granted_t, lease.ended_t, start, stop)
            longest_hold_s = max(longest_hold_s, lease.ended_t - granted_t)
    waits: dict[str, list[float]] = {name: [] for name in held}
    for t, grant in pool.timed(LeaseGranted):
        if start < t <= stop:
            waits[grant.task].append(grant.waited_s)
    every = [wait for each in waits.values() for wait in each]
    n_rounds = sum(start < t <= stop for each in ends for t in each)
    d = sum(each.d for each in lone) / len(lone)
    expected = expected_load(len(tasks), workload.n_slots, d)
    return LeasingResult(
        hold=hold,
        utilisation_frac=computed_s / capacity_s,
        held_frac=sum(held.values()) / capacity_s,
        bound_frac=bound([each.d for each in lone], workload.n_slots),
        inflation=sum(inflations) / len(inflations),
        expected_utilisation_frac=expected.utilisation_frac,
        expected_inflation=expected.inflation,
        d_mean=d,
        rounds_hz=n_rounds / (stop - start),
        exclusive_hz=workload.n_slots * len(lone) / sum(each.round_s for each in lone),
        colocated_hz=colocated_rounds_hz(
            [task.durations for task in tasks],
            n_devices=workload.n_slots,
            n_rounds=workload.n_rounds,
            warm_up=_WARM_UP,
        ),
        grants_per_round=len(every) / max(1, n_rounds),
        held_s=tuple(held.values()),
        wait_p50_s=float(np.quantile(every, 0.5)),
        wait_p95_s=float(np.quantile(every, 0.95)),
        wait_max_s=tuple(max(each, default=0.0) for each in waits.values()),
        longest_hold_s=longest_hold_s,
        n_faults=n_faults,
        n_expired=len(pool.of(LeaseExpired)),
        n_restarts=sum(len(task.attempts) - 1 for task in tasks),
        redone_frac=1.0 - sum(map(len, ends)) / max(1, sum(len(_rounds(task)) for task in tasks)),
        n_failed=sum(task.end is not None and task.end.state == "failed" for task in tasks),
    )


# -------------------------------------------------------------------- reading journals
def _rounds(task: Task) -> list[tuple[float, int]]:
    """Return time and number of each round that a task committed, those that were lost later, too."""
    return [(t, record.round) for stream in task.streams for t, record in stream.timed(MetricsRecorded)]


def _ends(task: Task) -> list[float]:
    """Return when each round of a task was committed for the first time."""
    ends: list[float] = []
    for t, round_ in _rounds(task):
        if round_ > len(ends):
            ends.append(t)
    return ends


def _computing(task: Task) -> Iterator[tuple[float, float]]:
    """Yield end and length of each piece of work of a task on a slot."""
    for stream in task.streams:
        for event in stream.records:
            if isinstance(event, GradientComputed | ParametersReady | GradientsRestored):
                yield event.t, event.elapsed_s


def _mean_round(ends: Sequence[float], start: float, stop: float) -> float:
    inside = [t for t in ends if start < t <= stop]
    return (inside[-1] - inside[0]) / max(1, len(inside) - 1)

"""Run jobs of a trace on workers that are killed by a path of faults, beside the simulator on the same path."""

import itertools
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from distributed import Client, LocalCluster

from benchmarks.efforts import PlacementLive
from benchmarks.frame.rows import Bar, Row, pair_up
from drlnb.placement import Cluster, FaultModel, Job, Member, load_trace, place, simulate
from drlnb.records.columns.placement import GangBroken, JobFinished, JobStarted, JobSubmitted, StartGang
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Stream
from drlnb.sim.placement import FaultPath, TraceJob

__all__ = ["makespan"]

_N_WORKERS, _N_JOBS, _MOST_SLOTS, _LONGEST_S = 8, 16, 4, 600.0
#: A second stands for an hour: seconds of the trace in one, of work in a step, and steps between checkpoints (an hour).
_HOUR_S, _STEP_S, _EVERY = 3600.0, 180.0, 20
#: Longer jobs are cut.
_CAP_S = 8 * _HOUR_S
#: Slots fail once in two days, some more often, and are away for six hours.  The planner is blind to that: the
#: simulator is told the rates, and a cluster has to find them out.
_MODEL, _PLANNER = FaultModel(mtbf_days=2.0, node_spread=0.0, mttr_s=6 * _HOUR_S), "best_fit"
#: Faults are injected as far as they could matter, in makespans of the simulator.
_FAR = 3.0
_BAR = Bar("value", at_least=0.95, at_most=1.20)


class _Run(NamedTuple):
    """What one path came to: seconds of the trace."""

    live_s: float
    simulated_s: float
    restarts: int
    simulated_restarts: int
    #: Real seconds from the plan of each gang until all its members ran.
    starts_s: list[float]


def _work(m: Member, n: int) -> int:
    """Make steps, and save every few."""
    saved = m.load()
    step = saved if isinstance(saved, int) else 0
    while step < n and not m.should_stop():
        time.sleep(_STEP_S / _HOUR_S)
        step += 1
        if step % _EVERY == 0:
            m.save(step, step)
    return step


def makespan(effort: PlacementLive) -> Iterator[Row]:
    """Play a window of a trace on paths of faults, on eight workers and in the simulator."""
    runs = [_run(effort.seed + k) for k in range(effort.paths)]
    title = f"{_N_JOBS} jobs of a trace on {_N_WORKERS} workers that are killed, a second for an hour: "
    ratios = [run.live_s / run.simulated_s for run in runs]
    yield Row("makespan-ratio", title + "until all are over, beside the simulator", ratios, "x", bar=_BAR)
    pairs = pair_up([run.live_s / _HOUR_S for run in runs], [run.simulated_s / _HOUR_S for run in runs])
    yield Row("makespan", title + "until all are over", against="the simulator on the same faults", **pairs)
    restarts = pair_up([float(run.restarts) for run in runs], [float(run.simulated_restarts) for run in runs])
    yield Row("makespan-restarts", title + "gangs lost", unit="", against="the simulator", **restarts)
    starts_s = list(itertools.chain.from_iterable(run.starts_s for run in runs))
    yield Row("makespan-starts", title + "a gang's plan until all its members run", starts_s)


def _run(seed: int) -> _Run:
    """Run a window on both."""
    # In whole steps, as they are made.
    chosen = load_trace().window(seed * _N_JOBS, _N_JOBS, cap_s=_CAP_S, max_gpus=_MOST_SLOTS)
    jobs = [job._replace(work_s=max(1, round(job.work_s / _STEP_S)) * _STEP_S) for job in chosen]
    cluster = Cluster.uniform(n_nodes=1, slots_per_node=_N_WORKERS)
    path = _MODEL.path(_MODEL.rates(cluster, seed=seed), seed=seed)
    simulated = simulate(cluster, jobs, _PLANNER, path)
    stream = _live(jobs, path, _FAR * simulated.makespan_s)
    ends = list(stream.timed(JobFinished))
    if len(ends) != len(jobs):
        raise TrainingFailed(f"{len(ends)} of {len(jobs)} jobs have ended within {_LONGEST_S:.0f} s")
    began_t, _ = next(stream.timed(JobSubmitted))
    return _Run(
        (ends[-1][0] - began_t) * _HOUR_S,
        simulated.makespan_s,
        len(stream.of(GangBroken)),
        simulated.n_restarts,
        _starts_s(stream),
    )


def _live(jobs: list[TraceJob], path: FaultPath, until_s: float) -> Stream:
    """Run jobs while workers are killed; return the journal."""
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-") as folder,
        LocalCluster(n_workers=_N_WORKERS, threads_per_worker=1, dashboard_address=None) as workers,
        Client(workers) as client,
    ):
        work = [
            Job(
                partial(_work, n=round(job.work_s / _STEP_S)),
                job.n_slots,
                job.work_s / _HOUR_S,
                Path(folder) / job.job,
                job.job,
            )
            for job in jobs
        ]
        with place(work, client, planner=_PLANNER, hold_s=0.0) as placing:
            slots = placing.slots
            placing.inject([
                (fails_s / _HOUR_S, slot, (back_s - fails_s) / _HOUR_S)
                for i, slot in enumerate(slots)
                for fails_s, back_s in itertools.takewhile(lambda each: each[0] < until_s, _outages(path, i))
            ])
            placing.wait(_LONGEST_S)
            return placing.journal().streams["placement"]


def _outages(path: FaultPath, slot: int) -> Iterator[tuple[float, float]]:
    return (path.outage(slot, k) for k in itertools.count())


def _starts_s(stream: Stream) -> list[float]:
    """Return the seconds from the command to start a gang until all its members ran, of gangs that came so far."""
    starts = {(each.job, each.gang_version): (t, len(each.slots)) for t, each in stream.timed(StartGang)}
    heard: dict[tuple[str, int], list[float]] = {gang: [] for gang in starts}
    for t, each in stream.timed(JobStarted):
        heard[each.job, each.gang_version].append(t)
    return [max(heard[gang]) - t for gang, (t, n) in starts.items() if len(heard[gang]) == n]

"""Kill workers under gangs of jobs, and executors under a task's gang, in real processes."""

import itertools
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import psutil
from distributed import Client, LocalCluster

from benchmarks.batching.live import task
from benchmarks.efforts import PlacementLive
from benchmarks.frame.journals import round_ends, round_stream
from benchmarks.frame.rows import Bar, Row
from benchmarks.frame.stage import Stage, open_stage, parameters
from drlnb.placement import Job, Member, Placing, place
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns.leasing import SlotFailed
from drlnb.records.columns.placement import GangPlanned, GangStopped, JobFinished
from drlnb.records.errors import TrainingFailed

__all__ = ["gang", "kills"]

_N_WORKERS, _N_JOBS, _GANG = 8, 6, 4
#: Steps of a member, seconds of each, and steps between two checkpoints.
_STEPS, _STEP_S, _EVERY = 400, 0.02, 10
_UP_S, _LONGEST_S = 60.0, 600.0
#: Bars: seconds of a median, intervals between checkpoints, rounds per kill.
_SECONDS, _INTERVALS, _ROUNDS = 1.0, 1.0, 1.0


# -------------------------------------------------------------------- jobs on any Dask cluster
def _count(m: Member, folder: str) -> int:
    """Count in short steps, note each one, and save every few."""
    saved = m.load()
    step = saved if isinstance(saved, int) else 0
    log = Path(folder) / f"{m.attempt}-{m.rank}"
    with log.open("w") as file:
        file.write(f"{step}\n")
        while step < _STEPS and not m.should_stop():
            time.sleep(_STEP_S)
            step += 1
            file.write(f"{step}\n")
            file.flush()
            if step % _EVERY == 0:
                m.save(step, step)
    return step


def kills(effort: PlacementLive) -> Iterator[Row]:
    """Kill workers of eight, one after the other, while six gangs of four run on them."""
    draw = Random(effort.seed)
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-") as folder,
        LocalCluster(n_workers=_N_WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        jobs = []
        for i in range(_N_JOBS):
            (Path(folder) / f"log-{i}").mkdir()
            counted = partial(_count, folder=str(Path(folder) / f"log-{i}"))
            jobs.append(Job(counted, _GANG, _STEPS * _STEP_S, Path(folder) / f"saved-{i}"))
        placing = place(jobs, client, hold_s=0.5)
        seen_s: list[float] = []
        try:
            for _ in range(effort.kills):
                if (killed := _kill_one(placing, client, draw)) is None:
                    break
                seen_s.append(killed)
            over = placing.wait(_LONGEST_S)
        finally:
            placing.stop()
        stream = placing.journal().streams["placement"]
        redone = _redone([Path(folder) / f"log-{i}" for i in range(_N_JOBS)])
    failed_t = [t for t, _ in stream.timed(SlotFailed)]
    stopped_s = [t - max(each for each in failed_t if each <= t) for t, _ in stream.timed(GangStopped)]
    done = sum(result == [_STEPS] * _GANG for result in placing.results.values())
    gangs = Counter(plan.job for plan in stream.of(GangPlanned))
    title = f"of {_N_JOBS} gangs of {_GANG} on {_N_WORKERS} workers, {len(seen_s)} of which were killed: "
    yield Row(
        "kills-done", title + "ended, all steps made", [float(done)], "", bar=Bar("worst", at_least=float(_N_JOBS))
    )
    yield Row("kills-hang", title + "not over", [0.0 if over else 1.0], "", bar=Bar("value", 0.0))
    yield Row("kills-seen", title + "SIGKILL until it is known", seen_s, bar=Bar("value", _SECONDS))
    yield Row(
        "kills-stopped", title + "loss known until the survivors have stopped", stopped_s, bar=Bar("value", _SECONDS)
    )
    yield Row("kills-redone", title + "work redone per loss, in intervals", redone, "", bar=Bar("value", _INTERVALS))
    yield Row("kills-gangs", title + "starts of a job", [float(n) for n in gangs.values()], "")
    differs = 0.0 if replay(stream).difference is None else 1.0
    yield Row("kills-replay", title + "replays that decide something else", [differs], "", bar=Bar("value", 0.0))
    assert len(stream.of(JobFinished)) == done, "finished jobs have results"


def _kill_one(placing: Placing, client: Client, draw: Random) -> float | None:
    """Kill a worker under a gang; return the seconds until that is known; None: all jobs are over."""
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline and not placing.wait(0.0):
        state = placing._placer.host.machine.state
        busy = sorted(slot for slot, of in state.slots.items() if of.job and of.up and slot in placing.slots)
        if len(busy) >= _GANG:
            time.sleep(draw.uniform(0.4, 1.2))
            slot = draw.choice(busy)
            worker = placing._placer.workers.get(slot)
            if worker is None:
                continue
            pid = client.run(os.getpid, workers=[worker.address], on_error="ignore").get(worker.address)
            if not isinstance(pid, int):
                continue
            before, n = placing._placer.host.now, _n_failed(placing)
            os.kill(pid, signal.SIGKILL)
            while _n_failed(placing) == n:
                if time.monotonic() > deadline:
                    raise TrainingFailed(f"the loss of slot {slot} was not seen within {_UP_S:.0f} s")
                time.sleep(0.005)
            return max(t for t, _ in placing.journal().streams["placement"].timed(SlotFailed)) - before
        time.sleep(0.05)
    return None


def _n_failed(placing: Placing) -> int:
    return len(placing.journal().streams["placement"].of(SlotFailed))


def _redone(folders: list[Path]) -> list[float]:
    """Return the steps that each new attempt made again, in intervals between checkpoints.

    Members count each for themselves, and the slowest one's steps are the gang's: what others are ahead of it is no
    work that a gang which waits for all would have had.
    """
    redone = []
    for folder in folders:
        attempts: dict[int, list[list[int]]] = {}
        for log in folder.iterdir():
            attempt = int(log.name.partition("-")[0])
            attempts.setdefault(attempt, []).append([int(line) for line in log.read_text().split()])
        for before, after in itertools.pairwise(sorted(attempts)):
            furthest = min(steps[-1] for steps in attempts[before] if steps)
            begun = min(steps[0] for steps in attempts[after] if steps)
            redone.append((furthest - begun) / _EVERY)
    return redone


# -------------------------------------------------------------------- a task of a fleet
def gang(effort: PlacementLive) -> Iterator[Row]:
    """Train a task with two learners, an executor killed now and then, and without."""
    with open_stage(slots=2) as stage:
        spared = _trained(stage, "spared", effort, 0)
        killed = _trained(stage, "killed", effort, effort.gang_kills)
    title = f"GPF with two learners, an executor killed every {effort.every_s:g} s, {killed.n_killed} times: "
    rates_hz = [killed.rate_hz], "rounds/s", "nobody killed", [spared.rate_hz]
    yield Row("gang-rounds", title + "rounds per second", *rates_hz)
    lost = [killed.again / killed.n_killed] if killed.n_killed else []
    yield Row("gang-lost", title + "rounds begun again per kill", lost, "", bar=Bar("value", _ROUNDS))
    same = float(killed.parameters == spared.parameters)
    yield Row(
        "gang-same", title + "parameters are those without, bit by bit", [same], "", bar=Bar("worst", at_least=1.0)
    )


class _Trained(NamedTuple):
    """A training that is over."""

    #: Rounds per second, rounds begun again, and executors that were killed before the end.
    rate_hz: float
    again: int
    n_killed: int
    parameters: bytes


def _trained(stage: Stage, name: str, effort: PlacementLive, n_kills: int) -> _Trained:
    """Train while executors are killed."""
    ended, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=_kill_executors, args=(effort, n_kills, ended, killed))
    killer.start()
    try:
        journal = stage.train([task(2, effort.rounds)], name)
    finally:
        ended.set()
        killer.join()
    stream = round_stream(journal)
    ends = round_ends(stream)
    asked = Counter(command.round for command in stream.of(words.RequestSlot))
    again = sum(n - 1 for n in asked.values())
    return _Trained(len(ends) / (ends[-1] - ends[0]), again, len(killed), parameters(stage.folder / name, "a"))


def _kill_executors(effort: PlacementLive, n_kills: int, ended: threading.Event, killed: list[int]) -> None:
    """Kill executors of the cluster in turn, and note their processes."""
    own = psutil.Process()
    for turn in range(n_kills):
        if ended.wait(effort.every_s):
            return
        executors = sorted(
            (each for each in own.children(recursive=True) if "drlnb executor" in " ".join(_words(each))),
            key=lambda each: " ".join(_words(each)),
        )
        if executors:
            executors[turn % len(executors)].kill()
            killed.append(executors[turn % len(executors)].pid)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []

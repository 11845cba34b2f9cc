"""Measure what follows SIGKILL: when the next task has a dead holder's slot, and when a task's next attempt lives."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from functools import partial

from distributed import Client, Scheduler, Semaphore

from benchmarks.efforts import Runtime
from benchmarks.frame.rows import Bar, Row, pair_up
from benchmarks.frame.stage import open_stage, until
from benchmarks.runtime.turns import turns_in_worker
from drlnb.fleet.tasks.task import Task
from drlnb.runtime.protocol import BROKER

__all__ = ["failover", "reclaim"]

#: Longest wait for the semaphore: its lease lasts 30 s and is looked at every 10 s.
_SEMAPHORE_S = 90.0
#: Longest wait for our grant, for a task to get going, and for a killed worker to be back, in seconds.
_GRANT_S, _GOING_S, _BACK_S = 30.0, 60.0, 60.0
#: The waiter asks before the kill; its request has this long to reach the scheduler, in seconds.
_QUEUED_S = 0.5
_SEMAPHORE = "reclaim"


# ------------------------------------------------------------------ a slot
def reclaim(effort: Runtime) -> tuple[Row, ...]:
    """Measure until the next task has the slot; Dask's semaphore once in between, for it takes half a minute."""
    samples, baseline = [], []
    with open_stage(2) as stage:
        for turn in range(effort.repeats):
            samples.append(stage.client.sync(_lease_once, stage.client, turn))
            if turn == (effort.repeats - 1) // 2 and not effort.quick:
                baseline.append(stage.client.sync(_semaphore_once, stage.client))
    return (
        Row(
            "reclaim",
            "kill -9 of the worker that holds the slot until the next task has its grant",
            samples,
            against="distributed.Semaphore at its defaults, the same kill",
            baseline_samples=baseline,
            bar=Bar("ratio", 1 / 30),
            not_measured="the baseline, left out by --quick" if effort.quick else "",
            skipped=effort.quick,
        ),
    )


async def _parts(client: Client) -> tuple[str, str, int]:
    """Return (address of the slot's worker, address of the other one, its pid), once both are up."""

    async def ask() -> tuple[str, str, int] | None:
        pool = await client.scheduler.drlnb_nodes()
        known = set((await client.scheduler.identity())["workers"])
        homes = {slot["node"] for slot in pool["slots"] if slot["up"]}
        here = [row for row in pool["nodes"] if row["address"] in known]
        home, other = ([row for row in here if (row["node"] in homes) is at_home] for at_home in (True, False))
        return (home[0]["address"], other[0]["address"], int(other[0]["pid"])) if home and other else None

    return await until(ask, timeout_s=_BACK_S, awaited="2 workers and their slot up")


async def _lease_once(client: Client, turn: int) -> float:
    """Lease the slot to a worker without slots, kill it, and wait for the other's grant."""
    home, holder, pid = await _parts(client)
    await client.run(turns_in_worker, f"bench/holder-{turn}", 1, 0.0, True, workers=[holder])
    waiting = asyncio.ensure_future(client.run(turns_in_worker, f"bench/waiter-{turn}", 1, 0.0, False, workers=[home]))
    await asyncio.sleep(_QUEUED_S)
    if waiting.done():
        raise RuntimeError("the waiter had a slot before the holder was killed")
    killed_t = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ((hold,),) = (await asyncio.wait_for(waiting, _GRANT_S)).values()
    return float(hold.got_t - killed_t)


async def _semaphore_once(client: Client) -> float:
    """Do the same with Dask's semaphore, used in tasks as its documentation shows."""
    home, holder, pid = await _parts(client)
    held = client.submit(_hold_semaphore, 10 * _SEMAPHORE_S, pure=False, workers=[holder])
    is_held = partial(client.run_on_scheduler, _semaphore_leases)
    await until(is_held, timeout_s=_GRANT_S, awaited="the semaphore's holder")
    waiting = client.submit(_semaphore_t, _SEMAPHORE_S, pure=False, workers=[home])
    await asyncio.sleep(_QUEUED_S)
    killed_t = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    try:
        got_t = await asyncio.wait_for(waiting.result(), _SEMAPHORE_S + 10.0)
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            await client.cancel([held, waiting], force=True)
    if got_t is None:
        raise TimeoutError(f"the semaphore was not free within {_SEMAPHORE_S:g} s")
    return float(got_t - killed_t)


def _semaphore_leases(dask_scheduler: Scheduler) -> int:
    return len(dask_scheduler.extensions["semaphores"].leases.get(_SEMAPHORE, ()))


def _hold_semaphore(seconds: float) -> None:
    """Hold the semaphore; a Dask task, killed with its worker."""
    with Semaphore(max_leases=1, name=_SEMAPHORE):
        time.sleep(seconds)


def _semaphore_t(limit_s: float) -> float | None:
    """Wait for the semaphore and return when it was there; a Dask task."""
    semaphore = Semaphore(max_leases=1, name=_SEMAPHORE)
    if not semaphore.acquire(timeout=limit_s):
        return None
    got_t = time.monotonic()
    semaphore.release()
    return got_t


# ------------------------------------------------------------------ a task
def failover(effort: Runtime) -> tuple[Row, ...]:
    """Measure from the kill of the master's worker to the next attempt, and to the nanny's new worker."""
    times = []
    with open_stage(2) as stage:
        for turn in range(effort.repeats):
            task = Task("CartPole-v1", name="a", total_timesteps=10**8, n_collectors=1)
            run = stage.fleet.train([task], out=stage.folder / f"failover-{turn}")
            try:
                times.append(stage.client.sync(_fail, stage.client, run.id))
            finally:
                run.stop(now=True)
    title = "kill -9 of the worker that hosts a task's master until its next attempt attached, on the other worker"
    against = "the nanny's new worker known to the scheduler, after the same kill"
    return (Row("failover", title, against=against, bar=Bar("ratio", 1 / 2), **pair_up(*zip(*times, strict=True))),)


async def _fail(client: Client, run: str) -> tuple[float, float]:
    """Kill the worker of the master once steps are made; return (attempt attached, worker back) in seconds after it."""

    async def going() -> tuple[int, Mapping[str, str]] | None:
        page = await client.scheduler.drlnb_rows(run=run, since=0, wait_s=1.0)
        nodes = {node["node"]: node for node in (await client.scheduler.drlnb_nodes())["nodes"]}
        task = page["tasks"]["a"]
        return (task["attempt"], nodes[task["node"]]) if task["n_timesteps"] and len(nodes) == 2 else None

    attempt, node = await until(going, timeout_s=_GOING_S, awaited="steps of a task with 2 workers up")
    watching = asyncio.ensure_future(
        client.run_on_scheduler(_watch_failover, run, attempt, node["node"], node["address"], wait_s=_BACK_S)
    )
    await asyncio.sleep(_QUEUED_S)
    killed_t = time.monotonic()
    os.kill(int(node["pid"]), signal.SIGKILL)
    attached_t, back_t = await watching
    return attached_t - killed_t, back_t - killed_t


async def _watch_failover(
    run: str, attempt: int, node: str, address: str, wait_s: float, dask_scheduler: Scheduler
) -> tuple[float, float]:
    """Return when a later attempt was attached and when a worker of the same name came back; runs in the scheduler."""
    tasks = dask_scheduler.plugins[BROKER].runs.live[run].tasks
    attached_t = back_t = 0.0
    deadline = time.monotonic() + wait_s
    while not (attached_t and back_t):
        now = time.monotonic()
        if not attached_t and tasks["a"]["attempt"] > attempt:
            attached_t = now
        workers = dask_scheduler.workers.values()
        if not back_t and any(str(w.name) == node and w.address != address for w in workers):
            back_t = now
        if now > deadline:
            raise TimeoutError(f"attempt attached: {bool(attached_t)}, worker back: {bool(back_t)} within {wait_s:g} s")
        await asyncio.sleep(0.001)
    return attached_t, back_t

"""A holder is killed with SIGKILL: when has the next one the slot?  Ours against Dask's own semaphore."""

import asyncio
import contextlib
import os
import signal
import time
from functools import partial
from typing import Any

from distributed import Client, Semaphore

from drlnb.bench.report import Bar, Row
from drlnb.bench.runtime import Effort
from drlnb.bench.stage import in_loop, open_stage, until

__all__ = ["reclaim"]

#: Longest wait for the semaphore: its lease lasts 30 s and is looked at every 10 s.
_SEMAPHORE_S = 90.0
#: Longest wait for our grant, and for a killed worker to be back.
_GRANT_S, _BACK_S = 30.0, 60.0
#: The waiter asks before the kill; its request has this long to reach the scheduler, in seconds.
_QUEUED_S = 0.5

_ID = "reclaim"
_WHAT = "kill -9 of the worker that holds the slot until the next task has its grant"
_AGAINST = "distributed.Semaphore at its defaults, the same kill"


def reclaim(effort: Effort) -> tuple[Row, ...]:
    """Measure both; the semaphore once, for it takes half a minute."""
    baseline: tuple[float, ...] = ()
    with open_stage(2) as stage:
        half = max(1, effort.repeats // 2)
        samples = [in_loop(stage.address, partial(_lease_once, turn=i)) for i in range(half)]
        if not effort.quick:
            baseline = (in_loop(stage.address, _semaphore_once),)
        rest = range(half, effort.repeats)
        samples += [in_loop(stage.address, partial(_lease_once, turn=i)) for i in rest]
    return (
        Row(
            id=_ID,
            what=_WHAT,
            samples=tuple(samples),
            against=_AGAINST,
            baseline_samples=baseline,
            bar=Bar("ratio", 1 / 30),
            not_measured="the baseline, left out by --quick" if effort.quick else "",
            skipped=effort.quick,
        ),
    )


async def _parts(client: Client) -> tuple[str, str, int]:
    """Return (address of the slot's worker, address of the other one, its pid), once both are up."""

    async def ask() -> Any:
        found = await client.scheduler.drlnb_nodes()
        known = set((await client.scheduler.identity())["workers"])
        rows = {row["node"]: row for row in found["nodes"] if row["address"] in known}
        return (rows, found["slots"]) if len(rows) == 2 and all(slot["up"] for slot in found["slots"]) else None

    rows, slots = await until(ask, timeout_s=_BACK_S, what="2 workers and their slot up")
    home = slots[0]["node"]
    other = next(row for node, row in rows.items() if node != home)
    return rows[home]["address"], other["address"], int(other["pid"])


async def _lease_once(client: Client, turn: int) -> float:
    """Let a worker without slots hold the slot, kill it, and wait for the other's grant."""
    home, holder, pid = await _parts(client)
    await client.run(grant_t, f"bench/holder-{turn}", workers=[holder])
    waiting = asyncio.ensure_future(client.run(grant_t, f"bench/waiter-{turn}", workers=[home]))
    await asyncio.sleep(_QUEUED_S)
    if waiting.done():
        raise RuntimeError("the waiter had a slot before the holder was killed")
    killed_t = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    fence, got_t = next(iter((await asyncio.wait_for(waiting, _GRANT_S)).values()))
    await client.scheduler.drlnb_release(fence=tuple(fence), clean=True, computed_s=0.0)
    return float(got_t - killed_t)


async def grant_t(task: str, dask_worker: Any) -> tuple[Any, float]:
    """Ask for the slot and return (fence, time of its grant); runs in a worker."""
    known = False
    while True:
        reply = await dask_worker.scheduler.drlnb_acquire(
            request_id=f"{task}/0", task=task, attempt=1, round=0, node=str(dask_worker.name), known=known
        )
        if "refused" in reply:
            raise RuntimeError(f"the broker refused {task}: {reply['refused']}")
        if not reply.get("pending"):
            return reply["fence"], time.monotonic()
        known = True


async def _semaphore_once(client: Client) -> float:
    """Do the same with Dask's semaphore, used in tasks as its documentation shows."""
    home, holder, pid = await _parts(client)
    held = client.submit(hold_semaphore, 10 * _SEMAPHORE_S, pure=False, workers=[holder])
    await until(lambda: _semaphore_held(client), timeout_s=_GRANT_S, what="the semaphore's holder")
    waiting = client.submit(semaphore_t, _SEMAPHORE_S, pure=False, workers=[home])
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


async def _semaphore_held(client: Client) -> bool:
    return bool(await client.run_on_scheduler(semaphore_leases))


def semaphore_leases(dask_scheduler: Any) -> int:
    """Count the leases of the bench's semaphore; runs in the scheduler."""
    return len(dask_scheduler.extensions["semaphores"].leases.get(_ID, ()))


def hold_semaphore(seconds: float) -> None:
    """Hold the semaphore; a Dask task, killed with its worker."""
    with Semaphore(max_leases=1, name=_ID):
        time.sleep(seconds)


def semaphore_t(limit_s: float) -> float | None:
    """Wait for the semaphore and return when it was had; a Dask task."""
    semaphore = Semaphore(max_leases=1, name=_ID)
    if not semaphore.acquire(timeout=limit_s):
        return None
    got_t = time.monotonic()
    semaphore.release()
    return got_t

"""Lease the pool's slot by hand, inside a Dask worker or the scheduler, and note when what happened.

Time is the monotonic clock, which on one machine is the same in every process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from distributed import Client, Scheduler, Worker

__all__ = ["WARM", "Hold", "gaps", "on_one", "turns_in_scheduler", "turns_in_worker"]

#: Turns at a block's start that are not counted: connections are opened, the first request finds a free slot.
WARM = 4
T = TypeVar("T")
_Ask = Callable[..., Awaitable[Mapping[str, object]]]


class Hold(NamedTuple):
    """One turn of a slot, or of a token."""

    #: Grows from turn to turn, over all holders.
    token: int
    holder: str
    asked_t: float
    got_t: float
    left_t: float


async def turns_in_worker(task: str, n: int, hold_s: float, keep: bool, dask_worker: Worker) -> list[Hold]:
    """Lease the slot `n` times, each for some seconds; with `keep`, never give the last lease back."""
    broker = dask_worker.scheduler
    return await _turns(broker.drlnb_acquire, broker.drlnb_release, task, str(dask_worker.name), n, hold_s, keep)


async def turns_in_scheduler(task: str, n: int, dask_scheduler: Scheduler) -> list[Hold]:
    """Lease the slot `n` times from within the scheduler's process, without a pause."""
    acquire, release = (dask_scheduler.handlers[op] for op in ("drlnb_acquire", "drlnb_release"))
    return await _turns(acquire, release, task, "", n, 0.0, keep=False)


async def _turns(acquire: _Ask, release: _Ask, task: str, node: str, n: int, hold_s: float, keep: bool) -> list[Hold]:
    holds = []
    for turn in range(n):
        asked_t, reply = time.monotonic(), await _granted(acquire, task, node, turn)
        got_t = time.monotonic()
        if hold_s:
            await asyncio.sleep(hold_s)
        fence = reply["fence"]
        holds.append(Hold(fence[1], task, asked_t, got_t, time.monotonic()))
        if not keep or turn < n - 1:
            await release(fence=tuple(fence), clean=True, computed_s=(0.0,))
    return holds


async def _granted(acquire: _Ask, task: str, node: str, turn: int) -> Mapping[str, list[int]]:
    """Ask for the slot until it is granted; return the reply."""
    names = {"request_id": f"{task}/{turn}", "task": task, "attempt": 1, "round": turn, "node": node}
    while True:
        reply: Mapping[str, list[int]] = await acquire(**names)  # type: ignore[assignment]
        if "refused" in reply:
            raise RuntimeError(f"the broker refused {task}: {reply['refused']}")
        if not reply.get("pending"):
            return reply


def gaps(holds: Sequence[Hold]) -> list[float]:
    """Return the seconds from each holder's leaving to the next one's turn, but for the first and the last turns."""
    ordered = sorted(holds)
    return [new.got_t - old.left_t for old, new in pairwise(ordered) if old.holder != new.holder][WARM:-1]


def on_one(client: Client, function: Callable[..., Awaitable[list[T]]], *arguments: object) -> list[T]:
    """Run a coroutine function on the first of the workers."""
    first = min(client.scheduler_info()["workers"])
    answer: list[T] = client.run(function, *arguments, workers=[first])[first]
    return answer

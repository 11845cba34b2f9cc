"""Measure messages: a request to the broker and back, and a slot that goes from one task to another."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import partial

from distributed import Client, Scheduler, Worker

from benchmarks.efforts import Runtime
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import open_stage
from benchmarks.runtime.turns import WARM, Hold, gaps, on_one, turns_in_worker
from drlnb.runtime.protocol import PROTOCOL

__all__ = ["handover", "hops"]

#: Messages per block, and blocks per repeat: a block is short, so that both sides see the same load.
_BLOCK, _BLOCKS = 20, 4
#: How long each holder keeps its turn, in seconds: short rounds, as those that a stream's batching slows down (Dask's
#: send at once after a pause, but wait 2 ms (worker) and 5 ms (scheduler) after their last message).
_HOLD_S = 0.001


# ------------------------------------------------------------------ hops
def hops(effort: Runtime) -> tuple[Row, ...]:
    """Measure a worker's request to the scheduler against a Dask task's round trip."""
    with open_stage() as stage:
        client = stage.client
        ways = {"mine": lambda: on_one(client, _hello_times, _BLOCK), "theirs": lambda: _submit_times(client, _BLOCK)}
        in_turn(1, ways)  # connections are opened
        times = in_turn(_BLOCKS * effort.repeats, ways)
    title, against = "RPC from a worker to the broker and back", "client.submit(abs, i).result()"
    return (Row("hops", title, against=against, bar=Bar("ratio", 1 / 10), **pair_up(times["mine"], times["theirs"])),)


async def _hello_times(n: int, dask_worker: Worker) -> list[float]:
    times = []
    for _ in range(n):
        began = time.perf_counter()
        await dask_worker.scheduler.drlnb_hello(protocol=PROTOCOL)
        times.append(time.perf_counter() - began)
    return times


def _submit_times(client: Client, n: int) -> list[float]:
    times = []
    for i in range(n):
        began = time.perf_counter()
        client.submit(abs, i, pure=False).result()
        times.append(time.perf_counter() - began)
    return times


# ------------------------------------------------------------------ hand-over
def handover(effort: Runtime) -> Iterator[Row]:
    """Measure how long a slot is idle between two tasks, against a request on Dask's streams and its answer."""
    with open_stage(2) as stage:
        client = stage.client
        client.run_on_scheduler(_install_push)
        ways = {"lease": partial(_lease_block, client), "echo": partial(on_one, client, _echo_times, _BLOCK)}
        in_turn(1, ways)  # connections are opened
        blocks = in_turn(_BLOCKS * effort.repeats, ways)
    title = (
        f"slot released by one worker's task until the other's long poll has its grant; holds of {_HOLD_S * 1e3:g} ms"
    )
    against = "request on the worker's stream, pushed back to it by a scheduler's stream handler, back to back"
    paired = pair_up(blocks["lease"], blocks["echo"])
    yield Row("handover", title, against=against, bar=Bar("ratio", 1 / 3), **paired)
    yield Row("handover-p50", f"{title}, p50", paired["samples"], bar=Bar("value", 0.005))


def _lease_block(client: Client) -> list[float]:
    """Lease the one slot to a task of either worker in turn; return the gap of each hand-over."""
    # Asked for here: within a coroutine the client answers with what it knew before.
    block, workers = time.monotonic_ns(), list(client.scheduler_info()["workers"])

    async def run() -> list[Mapping[str, list[Hold]]]:
        turns = ((f"bench/{n}-{block}", at) for n, at in enumerate(workers))
        asked = [client.run(turns_in_worker, name, _BLOCK + WARM, _HOLD_S, False, workers=[at]) for name, at in turns]
        return list(await asyncio.gather(*asked))

    return gaps([Hold(*hold) for answer in client.sync(run) for holds in answer.values() for hold in holds])


async def _install_push(dask_scheduler: Scheduler) -> None:
    """Give the scheduler a stream handler that pushes a message back to a worker."""

    def push(to: str, **others: object) -> None:
        del others
        dask_scheduler.stream_comms[to].send({"op": "bench-pushed"})

    dask_scheduler.stream_handlers["bench-push"] = push


async def _echo_times(n: int, dask_worker: Worker) -> list[float]:
    """Send a message `n` times that the scheduler pushes back, without a pause; return the time of each way."""
    pushed: asyncio.Queue[float] = asyncio.Queue()

    def note(**others: object) -> None:
        del others
        pushed.put_nowait(time.monotonic())

    dask_worker.stream_handlers["bench-pushed"] = note
    times = []
    for _ in range(n):
        sent_t = time.monotonic()
        dask_worker.batched_stream.send({"op": "bench-push", "to": dask_worker.address})
        times.append(await asyncio.wait_for(pushed.get(), 10.0) - sent_t)
    return times

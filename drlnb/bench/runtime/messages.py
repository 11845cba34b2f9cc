"""Measure messages: a request to the broker and back, and a slot that goes from one task to another."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from distributed import Client, Scheduler, Worker

from drlnb.bench.benches import Runtime
from drlnb.bench.frame.rows import Bar, Row, in_turn, pair_up
from drlnb.bench.frame.stage import open_stage
from drlnb.bench.runtime.turns import WARM, Hold, gaps, on_one, turns_in_worker
from drlnb.runtime.protocol import PROTOCOL

__all__ = ["handover", "hops"]

#: Messages per block, and blocks per repeat: a block is short, so that both sides see the same load.
_BLOCK, _BLOCKS = 20, 4
#: How long each holder keeps its turn, in seconds.  Dask's streams send at once after a pause, but wait 2 ms (worker)
#: and 5 ms (scheduler) after their last message: a turn above and one below that.
_HOLDS_S = {"handover": 0.01, "handover-busy": 0.001}


# ------------------------------------------------------------------ hops
def hops(effort: Runtime) -> tuple[Row, ...]:
    """Measure a worker's request to the scheduler against a Dask task's round trip."""
    with open_stage() as stage:
        client = stage.client
        ways = {"mine": lambda: on_one(client, _hello_times, _BLOCK), "theirs": lambda: _submit_times(client, _BLOCK)}
        in_turn(1, ways)  # connections are opened
        times = in_turn(_BLOCKS * effort.repeats, ways)
    title, against = "RPC from a worker to the broker and back", "client.submit(inc).result()"
    return (Row("hops", title, against=against, bar=Bar("ratio", 1 / 10), **pair_up(times["mine"], times["theirs"])),)


async def _hello_times(n: int, dask_worker: Worker) -> list[float]:
    times = []
    for _ in range(n):
        began = time.perf_counter()
        await dask_worker.scheduler.drlnb_hello(protocol=PROTOCOL)
        times.append(time.perf_counter() - began)
    return times


def _increment(number: int) -> int:
    return number + 1


def _submit_times(client: Client, n: int) -> list[float]:
    times = []
    for i in range(n):
        began = time.perf_counter()
        client.submit(_increment, i, pure=False).result()
        times.append(time.perf_counter() - began)
    return times


# ------------------------------------------------------------------ hand-over
def handover(effort: Runtime) -> Iterator[Row]:
    """Measure how long a slot is idle between two tasks, against a request on Dask's streams."""
    with open_stage(2) as stage:
        client = stage.client
        client.run_on_scheduler(_install_push)
        ways = {"echo": partial(_echo_block, client)}
        for row, hold_s in _HOLDS_S.items():
            ways |= {f"lease {row}": partial(_lease_block, client, row, hold_s)}
            ways |= {f"stream {row}": partial(_stream_block, client, hold_s)}
        blocks = in_turn(_BLOCKS * effort.repeats, ways)
    title = "slot released by one worker's task until the other's long poll has its grant"
    against = "message on the worker's stream, pushed on by a scheduler's stream handler"
    third = Bar("ratio", 1 / 3)
    for row, hold_s in _HOLDS_S.items():
        paired = pair_up(blocks[f"lease {row}"], blocks[f"stream {row}"])
        words = f"{title}; holds of {hold_s * 1e3:g} ms"
        yield Row(row, words, against=against, bar=third, binding=False, **paired)  # docs/decisions/0002
        if row == "handover":
            yield Row("handover-p50", f"{title}, p50", paired["samples"], bar=Bar("value", 0.005))
    echoed = "request on the worker's stream, pushed back to it by a scheduler's stream handler, back to back"
    paired = pair_up(blocks["lease handover-busy"], blocks["echo"])
    yield Row("handover-echo", f"{title}; holds of 1 ms", against=echoed, bar=third, **paired)


def _by_two(client: Client, function: object, arguments: Mapping[str, Sequence[object]]) -> list[float]:
    """Run a coroutine function on both workers at once; return the gaps between their turns."""

    async def run() -> list[list[Hold]]:
        asked = [client.run(function, *words, workers=[address]) for address, words in arguments.items()]
        return [holds for answer in await asyncio.gather(*asked) for holds in answer.values()]

    holds: list[list[Hold]] = client.sync(run)
    return gaps([Hold(*hold) for held in holds for hold in held])


def _workers(client: Client) -> list[str]:
    return list(client.scheduler_info()["workers"])


def _lease_block(client: Client, row: str, hold_s: float) -> list[float]:
    """Lease the one slot to a task of either worker in turn; return the gap of each hand-over."""
    block = f"{row}-{time.monotonic_ns()}"
    words = {at: (f"bench/{n}-{block}", _BLOCK + WARM, hold_s, False) for n, at in enumerate(_workers(client))}
    return _by_two(client, turns_in_worker, words)


def _stream_block(client: Client, hold_s: float) -> list[float]:
    """Pass a token between two workers over Dask's streams; return the time of each pass."""
    first, second = _workers(client)
    words = {first: (second, _BLOCK + WARM, hold_s, True), second: (first, _BLOCK + WARM, hold_s, False)}
    return _by_two(client, _pass_token, words)


def _echo_block(client: Client) -> list[float]:
    """Push a token back to the worker that sent it, without a pause; return the time of each pass."""
    holds = [Hold._make(hold) for hold in on_one(client, _pass_token, "", _BLOCK, 0.0, True)]
    return [new.got_t - old.left_t for old, new in pairwise(holds)]


async def _install_push(dask_scheduler: Scheduler) -> None:
    """Give the scheduler a stream handler that pushes a token on to a worker."""

    def push(to: str, number: int, **others: object) -> None:
        del others
        dask_scheduler.stream_comms[to].send({"op": "bench-token", "number": number})

    dask_scheduler.stream_handlers["bench-push"] = push


async def _pass_token(to: str, n: int, hold_s: float, first: bool, dask_worker: Worker) -> list[Hold]:
    """Hold the token `n` times and pass it on each time, to this worker itself where there is no other."""
    queue: asyncio.Queue[tuple[int, float]] = asyncio.Queue()

    def token(number: int, **others: object) -> None:
        del others
        queue.put_nowait((number, time.monotonic()))

    dask_worker.stream_handlers["bench-token"] = token
    # The other worker must have its handler, too, before the first token is on its way.
    await asyncio.sleep(0.2)
    if first:
        token(0)
    holds = []
    for _ in range(n):
        number, got_t = await asyncio.wait_for(queue.get(), 10.0)
        if hold_s:
            await asyncio.sleep(hold_s)
        holds.append(Hold(number, dask_worker.address, got_t, got_t, time.monotonic()))
        message = {"op": "bench-push", "to": to or dask_worker.address, "number": number + 1}
        dask_worker.batched_stream.send(message)
    return holds

"""What does a message cost: a question to the broker, and a slot that goes from one task to another?

The coroutines here run inside Dask workers, on the loop where node agents live.  Time is the monotonic clock, which on
one machine is the same in every process.
"""

import asyncio
import time
from functools import partial
from itertools import pairwise
from typing import Any

from distributed import Client

from drlnb.bench.report import Bar, Row, pair_up, quantile
from drlnb.bench.runtime import Effort
from drlnb.bench.stage import in_loop, open_stage
from drlnb.runtime.protocol import PROTOCOL

__all__ = ["handover", "hops"]

#: Messages per block, and blocks per repeat: a block is short, so that both sides see the same load.
_BLOCK, _BLOCKS = 20, 4
#: How long each holder keeps its turn, in seconds.  Dask's streams send at once after a pause, but wait 2 ms (worker)
#: and 5 ms (scheduler) after their last message: a turn above and one below that.
_HOLDS_S = {"handover": 0.01, "handover-busy": 0.001}
#: Turns of a block that are not counted: connections are opened, the first request finds a free slot.
_WARM = 4


# ------------------------------------------------------------------ hops
def hops(effort: Effort) -> tuple[Row, ...]:
    """Measure a worker's question to the scheduler against a Dask task's round trip."""
    mine, theirs = [], []
    with open_stage(1) as stage:
        client = stage.client
        client.run(hello_times, _BLOCK)
        _submit_times(client, _BLOCK)
        for _ in range(_BLOCKS * effort.repeats):
            mine.append(next(iter(client.run(hello_times, _BLOCK).values())))
            theirs.append(_submit_times(client, _BLOCK))
    return (
        Row(
            id="hops",
            what="RPC from a worker to the broker and back",
            against="client.submit(inc).result()",
            bar=Bar("ratio", 1 / 10),
            **pair_up(mine, theirs),
        ),
    )


async def hello_times(n: int, dask_worker: Any) -> list[float]:
    """Ask the broker `n` times; runs in a worker."""
    times = []
    for _ in range(n):
        began = time.perf_counter()
        await dask_worker.scheduler.drlnb_hello(protocol=PROTOCOL)
        times.append(time.perf_counter() - began)
    return times


def increment(number: int) -> int:
    """Add 1: the task of the baseline."""
    return number + 1


def _submit_times(client: Client, n: int) -> list[float]:
    times = []
    for i in range(n):
        began = time.perf_counter()
        client.submit(increment, i, pure=False).result()
        times.append(time.perf_counter() - began)
    return times


# ------------------------------------------------------------------ hand-over
def handover(effort: Effort) -> tuple[Row, ...]:
    """Measure how long a slot is idle between two tasks, against a request on Dask's streams."""
    mine: dict[str, list[list[float]]] = {row: [] for row in (*_HOLDS_S, "acquire")}
    theirs: dict[str, list[list[float]]] = {row: [] for row in mine}
    with open_stage(2) as stage:
        for block in range(_BLOCKS * effort.repeats):
            for row, hold_s in _HOLDS_S.items():
                name = f"{row}-{block}"
                mine[row].append(in_loop(stage.address, partial(_lease_block, name=name, hold_s=hold_s)))
                theirs[row].append(in_loop(stage.address, partial(_stream_block, hold_s=hold_s)))
            mine["acquire"].append(_on_one(stage.client, ask_alone, f"alone-{block}", _BLOCK))
            theirs["acquire"].append(_on_one(stage.client, echo, "bench-echo", _BLOCK))
    what = "slot released by one worker's task until the other's long poll has its grant"
    against = "message on the worker's stream, pushed on by a scheduler's stream handler"
    echoed = "request on the worker's stream, pushed back to it by a scheduler's stream handler, back to back"
    rows = [
        Row(
            id=row,
            what=f"{what}; holds of {hold_s * 1e3:g} ms",
            against=against,
            bar=Bar("ratio", 1 / 3),
            binding=False,  # docs/decisions/0002
            **pair_up(mine[row], theirs[row]),
        )
        for row, hold_s in _HOLDS_S.items()
    ]
    samples = rows[0].samples
    return (
        *rows,
        Row(id="handover-p50", what=f"{what}, p50", samples=samples, bar=Bar("value", 0.005)),
        Row(id="handover-p90", what=f"{what}, p90", samples=(quantile(samples, 0.9),)),
        Row(
            id="handover-echo",
            what=f"{what}; holds of 1 ms",
            against=echoed,
            bar=Bar("ratio", 1 / 3),
            binding=True,
            **pair_up(mine["handover-busy"], theirs["acquire"]),
        ),
        Row(
            id="acquire",
            what="free slot asked for by RPC until granted, back to back",
            against=echoed,
            **pair_up(mine["acquire"], theirs["acquire"]),
        ),
    )


def _on_one(client: Client, function: Any, *arguments: Any) -> list[float]:
    """Run a coroutine function on the first of the workers."""
    first = min(client.scheduler_info()["workers"])
    times: list[float] = client.run(function, *arguments, workers=[first])[first]
    return times


async def ask_alone(name: str, n: int, dask_worker: Any) -> list[float]:
    """Lease and release the free slot `n` times, without a pause; runs in a worker."""
    times = []
    for turn in range(n):
        began = time.monotonic()
        reply = await dask_worker.scheduler.drlnb_acquire(
            request_id=f"bench/{name}/{turn}", task=f"bench/{name}", attempt=1, round=turn, node=str(dask_worker.name)
        )
        times.append(time.monotonic() - began)
        await dask_worker.scheduler.drlnb_release(fence=reply["fence"], clean=True, computed_s=0.0)
    return times


async def echo(op: str, n: int, dask_worker: Any) -> list[float]:
    """Have `n` messages on this worker's stream pushed back to it, without a pause; runs in a worker."""
    queue: asyncio.Queue[float] = asyncio.Queue()

    def back(**kwargs: Any) -> None:
        del kwargs
        queue.put_nowait(time.monotonic())

    dask_worker.stream_handlers[op] = back
    times = []
    for number in range(n):
        began = time.monotonic()
        dask_worker.batched_stream.send({"op": "bench-push", "to": dask_worker.address, "number": number, "as_op": op})
        times.append(await asyncio.wait_for(queue.get(), 10.0) - began)
    return times


async def _lease_block(client: Client, name: str, hold_s: float) -> list[float]:
    """Let two workers take the one slot in turn; return the gap of each hand-over."""
    found = await client.scheduler.drlnb_nodes()
    nodes = {row["address"]: row["node"] for row in found["nodes"]}
    turns = _BLOCK + _WARM
    asked = [
        client.run(take_turns, f"bench/{node}-{name}", node, turns, hold_s, workers=[address])
        for address, node in nodes.items()
    ]
    holds = [tuple(hold) for answer in await asyncio.gather(*asked) for held in answer.values() for hold in held]
    return _gaps(holds)


def _gaps(holds: list[tuple[int, str, float, float]]) -> list[float]:
    """Return release -> next grant for each pair of successive holds (token, holder, got, released) of two holders."""
    holds.sort()
    gaps = [after[2] - before[3] for before, after in pairwise(holds) if before[1] != after[1]]
    return gaps[_WARM:-1]


async def take_turns(
    task: str, node: str, n: int, hold_s: float, dask_worker: Any
) -> list[tuple[int, str, float, float]]:
    """Lease the slot `n` times, each for a moment; runs in a worker."""
    holds = []
    broker = dask_worker.scheduler
    for turn in range(n):
        known = False
        while True:
            reply = await broker.drlnb_acquire(
                request_id=f"{task}/{turn}", task=task, attempt=1, round=turn, node=node, known=known
            )
            got_t = time.monotonic()
            if "refused" in reply:
                raise RuntimeError(f"the broker refused {task}: {reply['refused']}")
            if not reply.get("pending"):
                break
            known = True
        await asyncio.sleep(hold_s)
        released_t = time.monotonic()
        fence = (int(reply["fence"][0]), int(reply["fence"][1]))
        await broker.drlnb_release(fence=fence, clean=True, computed_s=0.0)
        holds.append((fence[1], task, got_t, released_t))
    return holds


async def _stream_block(client: Client, hold_s: float) -> list[float]:
    """Pass a token between two workers over Dask's streams; return the time of each pass."""
    await client.run_on_scheduler(install_push)
    addresses = list((await client.scheduler.identity())["workers"])
    turns = _BLOCK + _WARM
    asked = [
        client.run(pass_token, addresses[1 - i], turns, hold_s, i == 0, workers=[address])
        for i, address in enumerate(addresses)
    ]
    holds = [tuple(hold) for answer in await asyncio.gather(*asked) for held in answer.values() for hold in held]
    return _gaps(holds)


async def install_push(dask_scheduler: Any) -> None:
    """Give the scheduler a stream handler that pushes a message on to another worker."""

    def push(to: str, number: int, as_op: str = "bench-token", **kwargs: Any) -> None:
        del kwargs
        dask_scheduler.stream_comms[to].send({"op": as_op, "number": number})

    dask_scheduler.stream_handlers["bench-push"] = push


async def pass_token(
    to: str, n: int, hold_s: float, first: bool, dask_worker: Any
) -> list[tuple[int, str, float, float]]:
    """Hold the token `n` times and pass it on each time; runs in a worker."""
    queue: asyncio.Queue[tuple[int, float]] = asyncio.Queue()

    def token(number: int, **kwargs: Any) -> None:
        del kwargs
        queue.put_nowait((number, time.monotonic()))

    dask_worker.stream_handlers["bench-token"] = token
    # The other worker must have its handler, too, before the first token is on its way.
    await asyncio.sleep(0.2)
    if first:
        token(0)
    holds = []
    for _ in range(n):
        number, got_t = await asyncio.wait_for(queue.get(), 10.0)
        await asyncio.sleep(hold_s)
        sent_t = time.monotonic()
        dask_worker.batched_stream.send({"op": "bench-push", "to": to, "number": number + 1})
        holds.append((number, dask_worker.address, got_t, sent_t))
    return holds

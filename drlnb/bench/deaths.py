"""Measure how soon a task's next attempt lives after kill -9 of its worker."""

import asyncio
import os
import signal
import time
from typing import Any

from distributed import Client

from drlnb.bench.report import Bar, Row, pair_up
from drlnb.bench.runtime import Effort
from drlnb.bench.stage import Stage, in_loop, open_stage, until
from drlnb.bench.training import cartpole, start_run
from drlnb.runtime.client import install
from drlnb.runtime.protocol import BROKER

__all__ = ["failover"]

#: A budget that no bench reaches: these runs end by being stopped.
_ENDLESS = 100_000_000
#: Longest wait for a task to get going, and for what was killed to be back, in seconds.
_GOING_S, _BACK_S = 60.0, 60.0


# ------------------------------------------------------------------ fail-over
def failover(effort: Effort) -> tuple[Row, ...]:
    """Measure from the kill of the master's worker to the next attempt, and to the nanny's new worker."""
    rows = []
    for n_workers, name, what, bar in (
        (2, "failover", "its next attempt attached, on the other worker", Bar("ratio", 1 / 2)),
        (1, "failover-alone", "its next attempt attached, where that is the only worker", None),
    ):
        mine, theirs = [], []
        with open_stage(n_workers) as stage:
            for turn in range(effort.repeats):
                attached_s, back_s = _fail_once(stage, f"failover-{turn}", n_workers)
                mine.append([attached_s])
                theirs.append([back_s])
        rows.append(
            Row(
                id=name,
                what=f"kill -9 of the worker that hosts a task's master until {what}",
                against="the nanny's new worker known to the scheduler, after the same kill",
                bar=bar,
                **pair_up(mine, theirs),
            )
        )
    return tuple(rows)


def _fail_once(stage: Stage, run: str, n_workers: int) -> tuple[float, float]:
    spec = cartpole(stage, n_collectors=1, steps=_ENDLESS)
    start_run(stage, spec, run)
    try:
        return in_loop(stage.address, lambda client: _fail(client, run, spec.name, n_workers))
    finally:
        install.control(stage.client, run, "kill")


async def _fail(client: Client, run: str, task: str, n_workers: int) -> tuple[float, float]:
    """Kill the worker of the master once steps are made; return (attempt attached, worker back) in seconds after it."""

    async def going() -> Any:
        page = await client.scheduler.drlnb_rows(run=run, since=0, wait_s=1.0)
        found = await client.scheduler.drlnb_nodes()
        row = page["tasks"][task]
        nodes = {node["node"]: node for node in found["nodes"]}
        return (row, nodes[row["node"]]) if row["n_timesteps"] and len(nodes) == n_workers else None

    row, node = await until(going, timeout_s=_GOING_S, what=f"steps of {task} with {n_workers} workers up")
    watching = asyncio.ensure_future(
        client.run_on_scheduler(
            watch_failover, run, task, row["attempt"], node["node"], node["address"], wait_s=_BACK_S
        )
    )
    await asyncio.sleep(0.5)
    killed_t = time.monotonic()
    os.kill(int(node["pid"]), signal.SIGKILL)
    attached_t, back_t = await watching
    return attached_t - killed_t, back_t - killed_t


async def watch_failover(
    run: str, task: str, attempt: int, node: str, address: str, wait_s: float, dask_scheduler: Any
) -> tuple[float, float]:
    """Return when a later attempt was attached and when a worker of the same name came back; runs in the scheduler.

    Raises
    ------
    TimeoutError
        If either is not within `wait_s`.
    """
    tasks = dask_scheduler.plugins[BROKER].runs.live[run].tasks
    attached_t = back_t = 0.0
    deadline = time.monotonic() + wait_s
    while not (attached_t and back_t):
        now = time.monotonic()
        if not attached_t and tasks[task]["attempt"] > attempt:
            attached_t = now
        workers = dask_scheduler.workers.values()
        if not back_t and any(str(w.name) == node and w.address != address for w in workers):
            back_t = now
        if now > deadline:
            raise TimeoutError(f"attempt attached: {bool(attached_t)}, worker back: {bool(back_t)} within {wait_s:g} s")
        await asyncio.sleep(0.001)
    return attached_t, back_t

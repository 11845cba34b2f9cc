"""What happens after kill -9: how soon does a task's next attempt live, and what is left of the dead party?"""

import asyncio
import os
import signal
import time
from typing import Any

import psutil
from distributed import Client

from drlnb.bench.report import Bar, Row, pair_up
from drlnb.bench.runtime import Effort
from drlnb.bench.stage import Stage, in_loop, open_stage, survivors, until
from drlnb.bench.training import cartpole, start_run
from drlnb.runtime.client import install
from drlnb.runtime.protocol import AGENT, BROKER

__all__ = ["Family", "failover", "orphans"]

#: A budget that no bench reaches: these runs end by being stopped.
_ENDLESS = 100_000_000
#: Longest wait for a task to get going, and for what was killed to be back, in seconds.
_GOING_S, _BACK_S = 60.0, 60.0
#: When the dead are counted, in seconds after the kill.
_COUNT_S = 5.0
#: Parties that are killed one after the other while a task trains, the last one with all that it holds.
_PARTIES = ("collector", "zygote", "executor", "worker", "supervisor")


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


# ------------------------------------------------------------------ orphans
def orphans(effort: Effort) -> tuple[Row, ...]:
    """Count what is left 5 s after each kind of kill, and after a cluster's stop in good order."""
    del effort  # a count, not a time: once is enough
    with open_stage(1) as stage:
        start_run(stage, cartpole(stage, n_collectors=2, steps=_ENDLESS), "orphans")
        family = Family(stage.handle.pid, stage.client)
        rows = [_row(f"kill -9 of the {party}", party, family.after_kill(party)) for party in _PARTIES]
    with open_stage(1) as stage:
        start_run(stage, cartpole(stage, n_collectors=2, steps=_ENDLESS), "orphans")
        family = Family(stage.handle.pid, stage.client)
        family.find("collector")
    time.sleep(_COUNT_S)
    rows.append(_row("a cluster was stopped while a task trained", "stop", len(family.strays())))
    return tuple(rows)


def _row(what: str, party: str, n_left: int) -> Row:
    return Row(
        id=f"orphans-{party}",
        what=f"processes that nobody owns {_COUNT_S:g} s after {what}",
        unit="processes",
        samples=(float(n_left),),
        bar=Bar("value", 0.0),
    )


class Family:
    """Every process of a stage that was ever seen.

    Parameters
    ----------
    pid
        The supervisor's process.
    client
        Of its cluster, while it lives.

    Notes
    -----
    A stray is one of them that lives, is not below the living supervisor, and that no node agent talks to.  (Collectors
    whose zygote was killed live on in the agent's hands: they are no strays.)
    """

    def __init__(self, pid: int, client: Client) -> None:
        self.root, self.client = psutil.Process(pid), client
        self.seen: set[psutil.Process] = set()

    def look(self) -> list[psutil.Process]:
        """Return what lives below the supervisor, and it; remember it."""
        if not survivors([self.root]):
            return []
        found = [self.root, *self.root.children(recursive=True)]
        self.seen.update(found)
        return found

    def find(self, party: str) -> psutil.Process:
        """Return a process of a party, once a collector and an executor are up, too."""
        deadline = time.monotonic() + _GOING_S
        while time.monotonic() < deadline:
            by_party = {title.split()[1]: process for process in self._known() if (title := _title(process))}
            if {party, "collector", "executor", "worker"} <= by_party.keys():
                return by_party[party]
            time.sleep(0.1)
        raise TimeoutError(f"no {party}, collector and executor within {_GOING_S:g} s")

    def _known(self) -> list[psutil.Process]:
        self.look()
        return survivors(sorted(self.seen, key=lambda process: process.pid))

    def after_kill(self, party: str) -> int:
        """Kill a process of a party and count strays a while later."""
        victim = self.find(party)
        # Let a new party take up its work: a kill in the middle of a start is another test.
        time.sleep(1.0)
        self.look()
        victim.send_signal(signal.SIGKILL)
        time.sleep(_COUNT_S)
        return len(self.strays())

    def strays(self) -> list[psutil.Process]:
        """Return the strays of this moment."""
        owned = set(self.look())
        alive = [process for process in survivors(list(self.seen)) if process not in owned]
        if not alive or not owned:
            return alive
        held = {pid for pids in self.client.run(children_pids).values() for pid in pids}
        return [process for process in survivors(alive) if process.pid not in held]


def _title(process: psutil.Process) -> str:
    """Return a process's title if it is one of ours: ``drlnb PARTY ...``."""
    try:
        title = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
    return title if title.startswith("drlnb ") else ""


def children_pids(dask_worker: Any) -> list[int]:
    """Return the processes that a node agent talks to; runs in the worker."""
    agent = dask_worker.plugins[AGENT]
    pids = [live.pid for live in agent.collectors.live.values()]
    return pids + [pid for executor in agent.executors.values() for pid in executor.pids]

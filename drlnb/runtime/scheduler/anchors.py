"""Watch over the anchors, and submit those again whose Dask task is gone.

An anchor keeps a master alive: one tiny Dask task per training task, which blocks on the master's coroutine.  It also
protects the worker from idle time-outs and down-scaling, and it is what a user sees in Dask's dashboard.

Dask runs an anchor again when its worker dies, and that is all it does: a restart of the cluster, a cancel, or a master
that ended without a report leave a task that nobody runs.  Each such task goes on as a new attempt, or ends openly.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from distributed import Client, Reschedule, Security, fire_and_forget, get_worker, secede

from drlnb.runtime.protocol import AGENT, anchor_key
from drlnb.runtime.scheduler.run import becomes

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin
    from drlnb.runtime.scheduler.runs import LiveRun

__all__ = ["Anchors", "anchor", "submit_anchor"]

#: Pause before an anchor is moved when its worker has no agent (yet), in seconds.
_NO_AGENT_S = 1.0

#: Times in a row that a master may end without a report, with no further step in between, before its task fails.
_MOST_LOST = 5
#: Longest wait for the workers of before a restart to go, in seconds: twice what Dask itself gives their nannies.
_LEAVE_S = 60.0
#: Pause between two looks at what the scheduler knows, in seconds.
_LOOK_S = 0.05
#: Longest time that the scheduler may take to accept anchors, in seconds.
_ACCEPT_S = 15.0
_CANCELLED = "its Dask task was cancelled"


def anchor(run: str, task: str) -> str:
    """Block until the master of a task has ended; return how.  It secedes, so it occupies no thread of the worker.

    Raises
    ------
    Reschedule
        If this worker has no agent: Dask tries another one.
    """
    worker = get_worker()
    agent = worker.plugins.get(AGENT)
    if why := getattr(agent, "why", ""):
        return str(why)  # the broker has it started on another worker
    if agent is None or not hasattr(agent, "masters"):
        time.sleep(_NO_AGENT_S)
        raise Reschedule
    secede()
    future = asyncio.run_coroutine_threadsafe(agent.masters.run(run, task), worker.loop.asyncio_loop)
    return str(future.result())


def submit_anchor(client: Client, run: str, task: str, key: str, addresses: Collection[str] = ()) -> None:
    """Submit an anchor, to some workers where they are named.

    Dask runs a task with such a wish elsewhere when these are gone, but not on a worker that joins only then.
    """
    soft = {"workers": list(addresses), "allow_other_workers": True} if addresses else {}
    fire_and_forget(client.submit(anchor, run, task, key=key, pure=False, retries=0, **soft))


class Anchors:
    """The anchors of one cluster's tasks.

    Parameters
    ----------
    broker
        Whose runs they serve.
    """

    def __init__(self, broker: "BrokerPlugin") -> None:
        self._broker = broker
        #: (run, task) -> key of the anchor that it relies on.
        self._keys: dict[tuple[str, str], str] = {}
        #: Keys that Dask has forgotten in this turn of the loop: cancelled, if no restart of the cluster follows.
        self._forgotten: set[str] = set()
        #: (run, task) -> masters that ended without a report since it had made so many steps, the most so far.
        self._lost: dict[tuple[str, str], tuple[int, int]] = {}
        #: (run, task) whose anchor was sent to certain workers, since it had come to one without an agent.
        self._sent_on: set[tuple[str, str]] = set()
        self._n_made = 0
        self._restarting: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End with the scheduler."""
        self._closed = True
        if self._restarting is not None:
            self._restarting.cancel()

    # ------------------------------------------------------------------ which anchor is a task's
    def expect(self, run: str, task: str, attempt: int) -> str:
        """Return the key under which a client submits the anchor of an attempt; former ones count no more."""
        key = self._keys[run, task] = anchor_key(run, task, attempt)
        return key

    def _open(self, key: str) -> "tuple[LiveRun, str] | None":
        """Return the run and the task that rely on an anchor, if the task is not over."""
        run, task = next((name for name, known in self._keys.items() if known == key), ("", ""))
        live = self._broker.runs.live.get(run)
        return None if live is None or live.is_over(task) else (live, task)

    # ------------------------------------------------------------------ what Dask says
    def transition(self, key: str, finish: str, why: str, worker: str = "") -> None:
        """Record what became of a Dask task; runs inside the scheduler's transitions, so it does nothing else."""
        meant = self._open(key)
        if meant is None:
            return
        live, task = meant
        if finish in ("erred", "memory") and worker in self._broker.nodes.unused:
            self._keys[live.run, task] = f"{key} is over"
            self._broker.host.spawn(self._elsewhere(live, task))
        elif finish == "erred":
            self._end(live, task, "failed", f"Dask gave up on its master ({why})")
        elif finish == "memory":
            self._keys[live.run, task] = f"{key} is over"  # it is forgotten next, which is no cancel then
            self._broker.host.spawn(self._lost_master(live, task))
        elif finish == "forgotten":
            # A restart of the cluster forgets every task first and calls plugins then, in one turn of this loop.
            self._forgotten.add(key)
            asyncio.get_running_loop().call_soon(self._judge)

    def restarted(self) -> None:
        """Go on with open tasks where workers come up: Dask has forgotten every task and restarts them."""
        self._forgotten.clear()
        if self._restarting is not None:
            self._restarting.cancel()
        workers = set(self._broker.scheduler.workers)
        self._restarting = self._broker.host.spawn(self._go_on_without(workers))

    def left_alone(self, live: "LiveRun", task: str) -> None:
        """End a task whose master's node is gone if it has no anchor: nobody else would go on with it."""
        if self._broker.nodes.unused or (live.run, task) in self._sent_on:
            self._broker.host.spawn(self._elsewhere(live, task))
        elif (live.run, task) not in self._keys and not live.is_over(task):
            self._end(live, task, "stopped", f"{_CANCELLED}, and the node of its master was lost")

    def _judge(self) -> None:
        """Stop the tasks whose anchors somebody cancelled."""
        keys, self._forgotten = self._forgotten, set()
        for key in keys:
            meant = self._open(key)
            if meant is None:
                continue
            live, task = meant
            del self._keys[live.run, task]
            if live.tasks[task]["node"]:
                self._broker.host.spawn(self._broker.runs.run_control(live.run, "stop", task, reason=_CANCELLED))
            else:
                self._end(live, task, "stopped", _CANCELLED)

    def _end(self, live: "LiveRun", task: str, state: str, why: str) -> None:
        self._broker.runs.end_here(live, task, state, f"{why}; go on with: drlnb resume {live.out}")

    # ------------------------------------------------------------------ submitting
    async def _lost_master(self, live: "LiveRun", task: str) -> None:
        """Go on with a task whose anchor came back though it is not over, but not for ever without a step between."""
        n_timesteps = live.tasks[task]["n_timesteps"]
        n, most = self._lost.get((live.run, task), (0, n_timesteps))
        n = n + 1 if n_timesteps <= most else 1
        self._lost[live.run, task] = (n, max(most, n_timesteps))
        if n > _MOST_LOST:
            self._end(live, task, "failed", f"its master ended {n} times without a word")
        else:
            await self._submit([(live, task)])

    async def _elsewhere(self, live: "LiveRun", task: str) -> None:
        """Submit an anchor again that Dask gave to a worker without an agent, once there is one with it."""
        await asyncio.sleep(_NO_AGENT_S)
        while not await self._broker.nodes.becomes(lambda: bool(self._broker.nodes.rows), _LEAVE_S):
            if live.is_over(task):
                return
        self._sent_on.add((live.run, task))
        await self._submit([(live, task)], self._broker.nodes.addresses.values())

    async def _go_on_without(self, workers: set[str]) -> None:
        """Submit the anchors of every open task once the workers of before the restart are gone, with their masters."""
        await becomes(lambda: workers.isdisjoint(self._broker.scheduler.workers), _LEAVE_S, _LOOK_S)
        runs = self._broker.runs.live.values()
        await self._submit([(live, task) for live in runs for task in live.tasks])

    async def _submit(self, tasks: "Sequence[tuple[LiveRun, str]]", addresses: Collection[str] = ()) -> None:
        """Submit anchors of tasks that are not over; whom the scheduler does not take on fails in the open."""
        if self._closed or all(live.is_over(task) for live, task in tasks):
            return
        there = self._broker.scheduler
        made: list[str] = []
        try:
            security = _client_security(there.security)
            client = Client(
                there.address, asynchronous=True, set_as_default=False, security=security, timeout=_ACCEPT_S
            )
            async with client:
                for live, task in tasks:
                    if live.is_over(task):
                        continue
                    self._n_made += 1
                    key = f"{anchor_key(live.run, task, live.tasks[task]['attempt'] + 1)}.{self._n_made}"
                    self._keys[live.run, task] = key
                    made.append(key)
                    submit_anchor(client, live.run, task, key, addresses)
                await self._accepted(made)
        except (OSError, TimeoutError) as error:
            for live, task in tasks if not self._closed else ():
                self._end(live, task, "failed", f"Dask lost its master and takes no new one ({error})")

    async def _accepted(self, keys: Iterable[str]) -> None:
        """Wait until the scheduler knows these tasks, or their tasks are over already.

        Raises
        ------
        TimeoutError
            If it does not in time.
        """

        def missing() -> list[str]:
            return [key for key in keys if key not in self._broker.scheduler.tasks and self._open(key)]

        if not await becomes(lambda: not missing(), _ACCEPT_S, _LOOK_S):
            raise TimeoutError(f"{len(missing())} tasks were not accepted in {_ACCEPT_S:g} s")


def _client_security(security: Security) -> Security:
    """Return a client's view of a scheduler's security: a scheduler may have been given no certificate but its own."""
    own = copy(security)
    own.tls_client_cert = security.tls_client_cert or security.tls_scheduler_cert
    own.tls_client_key = security.tls_client_key or security.tls_scheduler_key
    return own

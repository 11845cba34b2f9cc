"""How does a collector's process begin, end between two rounds, and begin again?"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from drlnb.records import warmup
from drlnb.records.base import Command
from drlnb.runtime.checkpoint_effects import envs_for

if TYPE_CHECKING:
    from drlnb.runtime.master import Master

__all__ = ["CollectorEffects"]

#: Time for starting a collector's process beside making its environments, in seconds.
_START_S = 60.0


class CollectorEffects:
    """Carries out starts, stops and revocations, each collector's in the order of the commands.

    Parameters
    ----------
    master
        Whose.
    """

    def __init__(self, master: "Master") -> None:
        self.m = master
        #: Collector -> number of the newest command about its start.
        self._starts: Counter[int] = Counter()
        #: Collector -> round that it was started for last.
        self._begun: dict[int, int] = {}
        #: Keeps a collector's start and its end apart.
        self._lives: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            warmup.StartCollector: self._start_collector,
            warmup.StopCollector: self._stop_collector,
            warmup.RevokeStart: self._revoke_start,
        }

    async def _start_collector(self, command: warmup.StartCollector) -> None:
        if command.round and self._begun.get(command.collector) == command.round:
            return  # it was started for this round: another time changes nothing
        self._starts[command.collector] += 1
        number = self._starts[command.collector]
        if command.after_s > 0:
            await asyncio.sleep(command.after_s)
            if self._starts[command.collector] != number:
                return  # another time was set, or the start was taken back
        self._begun[command.collector] = command.round
        async with self._lives[command.collector]:
            await self._start_now(command, number)

    async def _start_now(self, command: warmup.StartCollector, number: int) -> None:
        m, node = self.m, command.node
        machine: Any = m.host.machine
        m.agent.stores.heard(m.run, m.task, m.agent.worker.address)
        try:
            reply = await m.agent.call(
                m.addresses.get(node, ""),
                "drlnb_collector_start",
                timeout_s=None if m.quiet_s is None else m.quiet_s + _START_S,
                payload=self._env_states(command),
                quiet_s=m.quiet_s,
                mode=machine.warmup.settings.start_mode,
                attempt=m.attempt,
                collector=command.collector,
                spec=m.spec_plain,
                env_indices=list(command.env_indices),
                out=str(m.out),
                run=m.run,
                task=m.task,
            )
        except (OSError, ValueError) as error:
            reply = {"failed": f"node {node} does not answer: {error}"}
        if self._starts[command.collector] != number:
            return  # taken back meanwhile: its end is on the way
        if "failed" in reply:
            reason, _, detail = str(reply["failed"]).partition("\n")
            m.collector_lost(collector=command.collector, node=node, reason=reason, detail=detail)
            return
        m.host.feed(
            warmup.CollectorReady,
            collector=command.collector,
            node=node,
            start_s=reply["start_s"],
            n_starting=reply["n_starting"],
            start_mode=reply["mode"],
            episodes_lost=int(reply["episodes_lost"]),
            round=command.round,
        )

    async def _stop_collector(self, command: warmup.StopCollector) -> None:
        """End a process; its environments' states stay at its node, for the next one (seed 000, claim 2)."""
        self._begun.pop(command.collector, None)
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def _revoke_start(self, command: warmup.RevokeStart) -> None:
        """Take a start back: what waits for its time never happens, what has happened ends again."""
        self._starts[command.collector] += 1
        self._begun.pop(command.collector, None)
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def _end_process(self, collector: int, node: str) -> None:
        m = self.m
        with contextlib.suppress(OSError, ValueError):  # a node that is gone has ended it already
            await m.agent.call(
                m.addresses.get(node, ""),
                "drlnb_collector_stop",
                timeout_s=None if m.quiet_s is None else m.quiet_s + _START_S,
                attempt=m.attempt,
                collector=collector,
                quiet_s=m.quiet_s,
                run=m.run,
                task=m.task,
            )

    def _env_states(self, command: warmup.StartCollector) -> bytes:
        """Return the checkpoint's state of a collector's environments at its first start; nothing later."""
        m = self.m
        if m.envs is None or command.collector in m.restored:
            return b""
        m.restored.add(command.collector)
        return envs_for(m.envs, command.env_indices)

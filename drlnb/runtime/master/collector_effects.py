"""Start a collector's process, end it between two rounds, and start it again."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from drlnb.planning.warmup.settings import PARK
from drlnb.records.base import Command
from drlnb.records.columns import warmup
from drlnb.runtime.master.checkpoint_effects import envs_for
from drlnb.runtime.protocol import RPC_TIMEOUT_S

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

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
        #: Collector -> latest round that it was woken for.
        self._woken: dict[int, int] = {}
        #: Collectors that hold their CPU slots until they act again.
        self._keepers: set[int] = set()
        #: Keeps a collector's start and its end apart.
        self._lives: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.table: Mapping[type[Command], Callable[[Any], Coroutine[Any, Any, None]]] = {
            warmup.StartCollector: self._start_collector,
            warmup.StopCollector: self._stop_collector,
            warmup.ParkCollector: self._park_collector,
            warmup.RevokeStart: self._revoke_start,
        }

    def wakes(self, collector: int, round_: int) -> None:
        """Record that a collector is woken: its wake asks for the CPU slot that is not asked for yet."""
        self._woken[collector] = round_

    def acted(self, collector: int, *, keeps_cpu: bool) -> None:
        """Record whether a collector that has acted has kept its CPU slot."""
        (self._keepers.add if keeps_cpu else self._keepers.discard)(collector)

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
        if command.parked:
            await self._ask_for_slot(command, number)
            return
        async with self._lives[command.collector]:
            await self._start_now(command, number)

    async def _ask_for_slot(self, command: warmup.StartCollector, number: int) -> None:
        """Ask for a parked collector's CPU slot ahead of its parameters; feed the event when it has one."""
        if self._woken.get(command.collector, 0) >= command.round:
            return  # the parameters came first
        reply = await self._ask_node(
            command.node, "drlnb_collector_queue", None, command.collector, attempt=self.m.attempt, round=command.round
        )
        if "queued_s" not in reply or self._starts[command.collector] != number:
            return
        self.m.host.feed(
            warmup.CollectorReady,
            collector=command.collector,
            node=command.node,
            start_s=reply["queued_s"],
            n_starting=reply["n_starting"],
            start_mode=PARK,
            round=command.round,
            queued_s=reply["queued_s"],
        )

    async def _start_now(self, command: warmup.StartCollector, number: int) -> None:
        m, node = self.m, command.node
        begun = m.losses.begins(command.collector)
        try:
            reply = await m.agent.call(
                m.addresses.get(node, ""),
                "drlnb_collector_start",
                # One that is started for a round may wait long for a CPU slot before.
                timeout_s=None if m.quiet_s is None or command.round else m.quiet_s + _START_S,
                payload=self._env_states(command),
                quiet_s=m.quiet_s,
                mode=command.start_mode,
                collector=command.collector,
                spec=m.spec_plain,
                env_indices=list(command.env_indices),
                out=str(m.out),
                round=command.round,
                number=begun,
                **m.ids,
                master=m.agent.address,
            )
        except (OSError, ValueError) as error:
            reply = {"failed": f"node {node} does not answer: {error}"}
        if self._starts[command.collector] != number:
            return  # taken back meanwhile: its end is on the way
        if "failed" in reply:
            reason, _, detail = str(reply["failed"]).partition("\n")
            m.collector_lost(collector=command.collector, node=node, reason=reason, detail=detail, number=begun)
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
            queued_s=reply["queued_s"],
        )

    async def _stop_collector(self, command: warmup.StopCollector) -> None:
        """End a process; its environments' states stay at its node, for the next one (seed 000, claim 2)."""
        self._begun.pop(command.collector, None)
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def _park_collector(self, command: warmup.ParkCollector) -> None:
        """Have a CPU slot given back that was kept; else nothing is to be done: it was given back with the sending."""
        if command.collector in self._keepers:
            self._keepers.discard(command.collector)
            await self._ask_node(command.node, "drlnb_collector_unqueue", RPC_TIMEOUT_S, command.collector)

    async def _revoke_start(self, command: warmup.RevokeStart) -> None:
        """Revoke a start: what waits for its time never happens, what has happened ends again."""
        self._starts[command.collector] += 1
        self._begun.pop(command.collector, None)
        if command.parked:
            await self._ask_node(command.node, "drlnb_collector_unqueue", RPC_TIMEOUT_S, command.collector)
            return
        async with self._lives[command.collector]:
            await self._end_process(command.collector, command.node)

    async def _end_process(self, collector: int, node: str) -> None:
        m = self.m
        timeout_s = None if m.quiet_s is None else m.quiet_s + _START_S
        await self._ask_node(node, "drlnb_collector_stop", timeout_s, collector, attempt=m.attempt, quiet_s=m.quiet_s)

    async def _ask_node(
        self, node: str, op: str, timeout_s: float | None, collector: int, **message: Any
    ) -> dict[str, Any]:
        """Ask a node about a collector of ours; nothing if it is gone: its processes have ended with it."""
        m = self.m
        with contextlib.suppress(OSError, ValueError):
            return await m.agent.call(
                m.addresses.get(node, ""),
                op,
                timeout_s=timeout_s,
                collector=collector,
                run=m.run,
                task=m.task,
                **message,
            )
        return {}

    def _env_states(self, command: warmup.StartCollector) -> bytes:
        """Return the checkpoint's state of a collector's environments at its first start; nothing later."""
        m = self.m
        if m.envs is None or command.collector in m.restored:
            return b""
        m.restored.add(command.collector)
        return envs_for(m.envs, command.env_indices)

"""Register the agents of a cluster, and pass messages on to them, for the broker."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from drlnb.planning.placement.cpu_slots import cpu_share
from drlnb.records.columns import leasing, placement
from drlnb.records.ids import Fence
from drlnb.runtime.protocol import RPC_TIMEOUT_S, SOON_S, Handler, Plain, Refusal, probe_patience_s, table
from drlnb.runtime.scheduler.pool_devices import PoolDevices

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["Nodes"]

#: Pause before a node that did not answer is asked once more to free a slot, in seconds.
_REVOKE_AGAIN_S = 1.0

#: Pauses before a message is sent again that a node did not answer, in seconds.
_AGAIN_S = (0.5, 2.0, 5.0)


class Nodes:
    """The broker's agents by node name (the Dask worker's: it survives a nanny's restart, the address does not)."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        #: Node -> what its agent reported of it, while it is here.
        self.rows: dict[str, Plain] = {}
        self.pool = PoolDevices(self.rows)
        #: Address of a worker without an agent -> why it has none.
        self.unused: dict[str, str] = {}
        #: Node -> slots given to it, by slot name.
        self.given = self.pool.given
        #: Every node that has been here.
        self._known: set[str] = set()
        self._changed = asyncio.Event()
        #: Numbers the messages about CPU slots, for one may overtake another on its way.
        self._numbers = itertools.count(1)

    def handlers(self) -> dict[str, Handler]:
        """Return the messages served here."""
        return table(
            self, "agent_up", "slot_up", "slot_down", "tenant_lost", "nodes", "open_slots", "same_devices", "probe"
        )

    @property
    def addresses(self) -> dict[str, str]:
        """Node -> address of its worker."""
        return {node: row["address"] for node, row in self.rows.items()}

    async def undrained(self, slot: str) -> None:
        """Wake who waits for any slot, and have an executor that rests after deaths started now."""
        self.wake()
        node = self.slot_row(slot)["node"]
        if not self.given[node][slot]["up"]:
            await self.broker.ask_node(node, "drlnb_slot_hurry", SOON_S, slot=slot)

    def slot_row(self, slot: str) -> Plain:
        """Return where a slot is."""
        for node, slots in self.given.items():
            if slot in slots:
                address = self.addresses.get(node, "")
                return {"slot": slot, "node": node, "address": address, "device": slots[slot]["device"]}
        return {"slot": slot, "node": "", "address": "", "device": "cpu"}

    async def agent_up(self, node: str, address: str, **row: object) -> Plain:
        """Register a node; the reply names the slots that it serves."""
        if node in self.rows and self.rows[node]["server_id"] != row["server_id"]:
            self.lost(self.rows[node]["address"], "its worker was started anew")
        self.unused.pop(address, None)
        self.rows[node] = {"node": node, "address": address, **row}
        self._share_cpus(self.rows[node]["host"], added=node)
        if self.pool.opened and node not in self._known:
            self.pool.lend_later(node)
            if not self.pool.can_grow:
                self.broker.host.feed(leasing.SlotsOpened, slots=tuple(self.pool.slot_names))
        self._known.add(node)
        self.wake()
        return {"epoch": self.broker.epoch, "slots": self.pool.slots_of(node), "cpu_slots": self.cpu_slots(node)}

    async def slot_up(self, node: str, slot: str, device: str, device_name: str, executor_epoch: int) -> None:
        """Add a slot whose executor is up (again) to the pool."""
        known = self.given.get(node, {}).get(slot)
        if known is None:
            raise Refusal(f"slot {slot} was not given to {node}")
        known.update(up=True, device_name=device_name)
        # Epochs of a restarted node begin at 1 again: go on from the highest seen.
        known["epoch"] = max(known.get("epoch", 0) + 1, executor_epoch)
        self.broker.host.feed(leasing.SlotAdded, slot=slot, node=node, device=device, executor_epoch=known["epoch"])
        self.wake()

    async def becomes(self, holds: Callable[[], bool], wait_s: float) -> bool:
        """Wait until something holds that changes with nodes and slots; false if the time is up first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not holds():
                    await self._changed.wait()
        return holds()

    def wake(self) -> None:
        """Have those look again who wait for nodes or slots."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def slot_down(self, node: str, slot: str, reason: str) -> None:
        """Remove the slot of an executor that is gone from the pool, until the next one is up."""
        known = self.given.get(node, {}).get(slot)
        if known is not None and known["up"]:
            known["up"] = False
            self.broker.host.feed(leasing.SlotFailed, slot=slot, reason=f"executor {reason}")

    async def tenant_lost(self, node: str, slot: str, task: str, fence: Fence | None, reason: str) -> None:
        """Report that the process of one task is gone from a slot that keeps its tasks apart: the slot serves on."""
        if slot in self.given.get(node, {}):
            self.broker.host.feed(leasing.TenantLost, slot=slot, task=task, fence=fence, reason=reason)

    def lost(self, address: str, reason: str) -> None:
        """Forget the node at an address, and report its loss to the pool and every master."""
        self.unused.pop(address, None)
        node = next((name for name, row in self.rows.items() if row["address"] == address), None)
        if node is None:
            return
        host = self.rows.pop(node)["host"]
        for slot in self.given.get(node, {}).values():
            slot["up"] = False
        self.broker.host.feed(placement.NodeLost, node=node, reason=reason)
        self._share_cpus(host)
        self.broker.runs.node_lost(node)
        self._send_to_all("drlnb_node_lost", node=node, reason=reason, address=address)

    # ------------------------------------------------------------------ the CPU slots that agents lend to collectors
    def cpu_slots(self, node: str) -> dict[str, int]:
        """Return the message to a node about its CPU slots."""
        return {
            "n_slots": self.broker.pool.state.placement.cpu_slots or self._n_cpu_slots(node),
            "number": next(self._numbers),
        }

    async def send_cpu_slots(self, nodes: Sequence[str]) -> None:
        """Send nodes their number; one that is not reached is gone, or gets it as it comes up again."""
        ask = self.broker.ask_node
        await asyncio.gather(*(ask(node, "drlnb_cpu_slots", SOON_S, **self.cpu_slots(node)) for node in nodes))

    def _n_cpu_slots(self, node: str) -> int:
        """Return a node's share of the CPUs of its host."""
        row = self.rows[node]
        return cpu_share(row["n_cpus"], sum(other["host"] == row["host"] for other in self.rows.values()))

    def _share_cpus(self, host: str, added: str = "") -> None:
        """Share the CPUs of a host anew among its agents; one that is added gets its number with its answer."""
        others = [node for node, row in self.rows.items() if row["host"] == host and node != added]
        for node in (added, *others) if added else others:
            n_slots = self._n_cpu_slots(node)
            self.broker.host.feed(placement.NodeAdded, node=node, host=host, n_collector_slots=n_slots)
        if others:
            self.broker.host.spawn(self.send_cpu_slots(others))

    # ------------------------------------------------------------------ messages to agents
    def end_task(self, run: str, task: str, attempt: int) -> None:
        """Have every node end what it still has of a task's attempts up to this one; harmless where nothing is left.

        Its master did so where it knew of something.  It knows neither the nodes of former attempts nor those that were
        lost and came back, and it may have died.
        """
        self._send_to_all("drlnb_end_task", run=run, task=task, attempt=attempt)

    def _send_to_all(self, op: str, /, **message: object) -> None:
        for node in list(self.rows):
            self.broker.host.spawn(self._send_again(node, op, message))

    async def _send_again(self, node: str, op: str, message: Mapping[str, object]) -> None:
        """Send a node a message, again for a while if it does not answer, as long as it is the same node."""
        server_id = self.rows[node]["server_id"]
        for pause_s in (0.0, *_AGAIN_S):
            await asyncio.sleep(pause_s)
            if self.rows.get(node, {}).get("server_id") != server_id:
                return
            if await self.broker.ask_node(node, op, RPC_TIMEOUT_S, **message) is not None:
                return

    async def send_to_masters(self, op: str, /, **message: object) -> None:
        """Send a message to every node's masters; who cannot be reached finds out by itself."""
        await asyncio.gather(*(self.broker.ask_node(node, op, SOON_S, **message) for node in list(self.rows)))

    async def revoke(self, slot: str, fence: Fence, grace_s: float) -> bool:
        """Make the executor of a slot stop the work of a fence; true if it is idle and lives.

        A node that does not answer is asked again for as long as it is one of ours: its loop may only stand still, and
        no other word than its own frees the slot.
        """
        node = self.slot_row(slot)["node"]
        while node in self.rows:
            reply = await self.broker.ask_node(
                node, "drlnb_revoke", grace_s + 15.0, slot=slot, fence=fence, grace_s=grace_s
            )
            if reply is not None:
                return bool(reply["idle"])
            await asyncio.sleep(_REVOKE_AGAIN_S)
        return False

    # ------------------------------------------------------------------ for clients
    async def nodes(self, at_least: int = 0, wait_s: float = 0.0) -> Plain:
        """Return nodes and slots, once so many workers have reported or the time is up."""
        await self.becomes(lambda: len(self.rows) + len(self.unused) >= at_least, wait_s)
        slots = [{**slot, "node": node} for node, given in self.given.items() for slot in given.values()]
        plain = self.pool.to_plain()
        unused = [f"worker {address} {why}: it is not used" for address, why in self.unused.items()]
        there = {"nodes": list(self.rows.values()), "unused": self.unused, "slots": slots}
        return {**there, **plain, "notices": [*plain["notices"], *unused]}

    async def open_slots(
        self,
        n_slots: int | None,
        seats: int = 1,
        names: Sequence[str] = (),
        isolation: str = "shared",
    ) -> None:
        """Decide once which slots the pool has, as :meth:`PoolDevices.open` does, and have their executors started."""
        if not self.pool.open(n_slots, seats, names, isolation):
            return
        if not self.pool.can_grow:
            self.broker.host.feed(leasing.SlotsOpened, slots=tuple(self.pool.slot_names))
        for node in self.given:
            await self.broker.ask_node(node, "drlnb_slots", 15.0, slots=self.pool.slots_of(node))

    async def same_devices(self, names: Sequence[str]) -> Plain:
        """Return whether the pool's devices are those of some names; refuse names that mean none."""
        return {"same": self.pool.is_of(names)}

    async def probe(self, env: str | Mapping[str, str], env_timeout_s: float | None) -> Plain:
        """Have a node build an environment once and describe its spaces."""
        patience_s = probe_patience_s(env_timeout_s, RPC_TIMEOUT_S)
        for node in sorted(self.rows):
            reply = await self.broker.ask_node(
                node, "drlnb_probe_env", patience_s, env=env, env_timeout_s=env_timeout_s
            )
            if reply is not None:
                return reply
        raise Refusal("no node with drlnb answers")

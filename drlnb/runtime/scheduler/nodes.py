"""Which nodes and slots does the cluster have?  The broker's register of agents."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drlnb.planning.placement.devices import named_devices
from drlnb.planning.seats.rules import isolation_problem, n_seats_problem
from drlnb.records.columns import leasing, placement
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.runtime.protocol import RPC_TIMEOUT_S, SEATS, refused
from drlnb.runtime.scheduler.cpu_shares import CpuShares
from drlnb.runtime.scheduler.pool_devices import PoolDevices

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["Nodes"]

#: Pause before a node that did not answer is asked once more to free a slot, in seconds.
_REVOKE_AGAIN_S = 1.0

#: Pauses before a node is told again what it did not answer, in seconds.
_TELL_AGAIN_S = (0.5, 2.0, 5.0)


class Nodes(PoolDevices):
    """Agents by node name (the Dask worker's name: it survives a nanny's restart, the address does not)."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        super().__init__()
        self.broker = broker
        self.opened = False
        #: Every node that has been here.
        self._known: set[str] = set()
        self._changed = asyncio.Event()
        self.cpus = CpuShares(self)

    def handlers(self) -> dict[str, Any]:
        """Return the messages served here."""
        return {
            "drlnb_agent_up": self.agent_up,
            "drlnb_slot_up": self.slot_up,
            "drlnb_slot_down": self.slot_down,
            "drlnb_tenant_lost": self.tenant_lost,
            "drlnb_nodes": self.nodes,
            "drlnb_open_slots": self.open_slots,
            "drlnb_same_devices": self.same_devices,
            "drlnb_probe": self.probe,
        }

    @property
    def addresses(self) -> dict[str, str]:
        """Node -> address of its worker."""
        return {node: row["address"] for node, row in self.rows.items()}

    @property
    def slot_names(self) -> list[str]:
        """Names of the slots that are given to nodes."""
        return [slot for slots in self.given.values() for slot in slots]

    def drain_problem(self, key: str, slot: str) -> str:
        """Return why a slot of ours cannot be drained, or taken back, by hand; empty if it can."""
        if slot not in self.broker.pool.slots:
            return f"{key}: the executor of {slot} is not up yet; try again in a moment"
        if self.seats != "auto" or key != "slot.drain":
            return ""
        device = slot.rpartition("/")[0]
        return (
            f"slot.drain: how many seats {device} has is found out while tasks train (seats='auto'), and that needs "
            "all of them; a fleet with a number of seats can drain each"
        )

    async def undrained(self, slot: str) -> None:
        """Let who waits for any slot look again, and have an executor that rests after deaths started now."""
        self._note_change()
        node = self.slot_row(slot)["node"]
        if not self.given[node][slot]["up"]:
            await self.broker.ask_node(node, "drlnb_slot_hurry", 5.0, slot=slot)

    def slot_row(self, slot: str) -> dict[str, Any]:
        """Return where a slot is."""
        for node, slots in self.given.items():
            if slot in slots:
                return {"slot": slot, "node": node, "address": self.addresses.get(node, "")}
        return {"slot": slot, "node": "", "address": ""}

    async def agent_up(self, node: str, address: str, **row: Any) -> dict[str, Any]:
        """Take a node in; the reply says which slots it serves."""
        if node in self.rows and self.rows[node]["server_id"] != row["server_id"]:
            self.lost(self.rows[node]["address"], "its worker was started anew")
        self.rows[node] = {"node": node, "address": address, **row}
        self.cpus.added(node)
        if self.opened and node not in self._known:
            self._lend_later(node)
        self._known.add(node)
        self._note_change()
        return {"epoch": self.broker.epoch, "slots": self._rows(node), "cpu_slots": self.cpus.word(node)}

    def _rows(self, node: str) -> list[dict[str, Any]]:
        """Return what a node must know of its slots."""
        return [{**row, "isolation": self.isolation} for row in self.given.get(node, {}).values()]

    async def slot_up(self, node: str, slot: str, device: str, device_name: str, executor_epoch: int) -> dict[str, Any]:
        """Hear that an executor serves its slot (again)."""
        known = self.given.get(node, {}).get(slot)
        if known is None:
            return refused("unknown", f"slot {slot} was not given to {node}")
        known.update(up=True, device_name=device_name)
        # Epochs of a restarted node begin at 1 again: go on from the highest seen.
        known["epoch"] = max(known.get("epoch", 0) + 1, executor_epoch)
        self.broker.host.feed(leasing.SlotAdded, slot=slot, node=node, device=device, executor_epoch=known["epoch"])
        self._note_change()
        return {"ok": True}

    async def any_slot(self, wait_s: float) -> bool:
        """Wait until the pool has a slot that is up; false if the time is up first."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while not self.broker.pool.has_slots:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
        return True

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def slot_down(self, node: str, slot: str, reason: str) -> dict[str, Any]:
        """Hear that an executor is gone: its slot is out of the pool until the next one is up."""
        known = self.given.get(node, {}).get(slot)
        if known is not None and known["up"]:
            known["up"] = False
            self.broker.host.feed(leasing.SlotFailed, slot=slot, reason=f"executor {reason}")
        return {"ok": True}

    async def tenant_lost(
        self, node: str, slot: str, task: str, fence: tuple[int, int] | None, reason: str
    ) -> dict[str, Any]:
        """Hear that the process of one task is gone from a slot that keeps its tasks apart: the slot serves on."""
        if slot in self.given.get(node, {}):
            known = None if fence is None else Fence(epoch=fence[0], token=fence[1])
            self.broker.host.feed(leasing.TenantLost, slot=slot, task=task, fence=known, reason=reason)
        return {"ok": True}

    def lost(self, address: str, reason: str) -> None:
        """Forget the node at an address and tell the pool and every master."""
        node = next((name for name, row in self.rows.items() if row["address"] == address), None)
        if node is None:
            return
        host = self.rows.pop(node)["host"]
        for slot in self.given.get(node, {}).values():
            slot["up"] = False
        self.broker.host.feed(placement.NodeLost, node=node, reason=reason)
        self.cpus.lost(host)
        self.broker.runs.node_lost(node)
        self._tell_all("drlnb_node_lost", node=node, reason=reason, address=address)

    def end_task(self, run: str, task: str, attempt: int) -> None:
        """Let every node end what it still has of a task's attempts up to this one; harmless where nothing is left.

        Its master did so where it knew of something.  It knows neither the nodes of former attempts nor those that were
        lost and came back, and it may have died.
        """
        self._tell_all("drlnb_end_task", run=run, task=task, attempt=attempt)

    def _tell_all(self, op: str, /, **message: Any) -> None:
        for node in list(self.rows):
            self.broker.runs.keep(asyncio.ensure_future(self._tell_again(node, op, message)))

    async def _tell_again(self, node: str, op: str, message: Mapping[str, Any]) -> None:
        """Tell a node something, again for a while if it does not answer, as long as it is the same node."""
        server_id = self.rows[node]["server_id"]
        for pause_s in (0.0, *_TELL_AGAIN_S):
            await asyncio.sleep(pause_s)
            if self.rows.get(node, {}).get("server_id") != server_id:
                return
            if await self.broker.ask_node(node, op, RPC_TIMEOUT_S, **message) is not None:
                return

    async def tell_masters(self, op: str, /, **message: Any) -> None:
        """Tell every node's masters something; who cannot be reached finds out by itself."""
        await asyncio.gather(*(self.broker.ask_node(node, op, 5.0, **message) for node in list(self.rows)))

    async def revoke(self, slot: str, fence: tuple[int, int], grace_s: float) -> bool:
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
    async def nodes(self, at_least: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
        """Return nodes and slots, once there are `at_least` nodes or the time is up."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while len(self.rows) < at_least:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                break
        slots = [{**slot, "node": node} for node, given in self.given.items() for slot in given.values()]
        pool = {"opened": self.opened, "notices": self.notices, "n_devices": self.n_devices, "seats": self.seats}
        pool |= {"names": self.names, "isolation": self.isolation}
        return {"nodes": list(self.rows.values()), "slots": slots, **pool}

    async def open_slots(
        self,
        n_slots: int | None,
        seats: int | str = 1,
        names: Sequence[str] = (),
        isolation: str = "shared",
    ) -> dict[str, Any]:
        """Decide once which slots the pool has, and have their executors started.

        Parameters
        ----------
        n_slots
            How many devices; None: every CUDA device, or 2 virtual ones.
        seats
            Slots of each device.
        names
            The devices by name, instead of `n_slots`; empty: no names.
        isolation
            Whether a slot's tasks share a process, or have one each.
        """
        try:
            named = named_devices(names, self._there()) if names else ()
            if self.opened:
                self._check_opened(n_slots, seats, named, isolation)
                return {"ok": True}
            devices = named or self._first_devices(n_slots)
            virtual = devices[0].seen.startswith("cpu:")
            limits = self._limits(devices, virtual=virtual)
            problem = n_seats_problem(seats) or _too_many(seats, limits) or isolation_problem(isolation, seats)
            if problem:
                raise ConfigError(problem)
        except ConfigError as error:
            return refused("ConfigError", str(error))
        self._give_seats(devices, seats)
        self.opened, self.n_devices, self.seats, self.names = True, len(devices), seats, tuple(names)
        self.devices, self.isolation = {device.name: device for device in devices}, isolation
        self.counted = not names and (virtual or n_slots is not None)
        if virtual and not named:
            self._note_virtual(len(devices), seats)
        for node in self.given:
            await self.broker.ask_node(node, "drlnb_slots", 15.0, slots=self._rows(node))
        if seats == "auto":
            rows = [(device.node, device.name, device.seen) for device in devices]
            self.broker.scheduler.plugins[SEATS].open(rows, limits)
        return {"ok": True}

    async def same_devices(self, names: Sequence[str]) -> dict[str, Any]:
        """Say whether the pool's devices are those of some names; refuse names that mean none."""
        try:
            named = named_devices(names, self._there())
        except ConfigError as error:
            return refused("ConfigError", str(error))
        return {"same": {device.name for device in named} == self.devices.keys()}

    async def probe(self, env: str | Mapping[str, Any]) -> dict[str, Any]:
        """Let a node build an environment once and describe its spaces."""
        for node in sorted(self.rows):
            reply = await self.broker.ask_node(node, "drlnb_probe_env", 60.0, env=env)
            if reply is not None:
                return reply
        return refused("PeerError", "no node with drlnb answers")


def _too_many(seats: int | str, limits: Mapping[str, tuple[int, str]]) -> str:
    """Return the complaint about more seats than a device can have; empty if there is none."""
    few, why = min(limits.values(), default=(0, ""))
    return f"seats {seats}: a device here has room for {few} ({why})" if isinstance(seats, int) and seats > few else ""

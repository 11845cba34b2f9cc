"""Which nodes and slots does the cluster have?  The broker's register of agents."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drlnb.planning.placement.devices import Device, NodeDevices, named_devices
from drlnb.planning.seat_rules import SeatsSettings, isolation_problem, n_seats_problem, virtual_limit
from drlnb.records import leasing, placement
from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.runtime.cpu_shares import CpuShares
from drlnb.runtime.protocol import RPC_TIMEOUT_S, SEATS, refused

if TYPE_CHECKING:
    from drlnb.runtime.broker import BrokerPlugin

__all__ = ["DEFAULT_VIRTUAL_SLOTS", "Nodes"]

#: Pause before a node that did not answer is asked once more to free a slot, in seconds.
_REVOKE_AGAIN_S = 1.0

#: Virtual slots where nobody asked for a number and no CUDA device was found.
DEFAULT_VIRTUAL_SLOTS = 2

#: Pauses before a node is told again what it did not answer, in seconds.
_TELL_AGAIN_S = (0.5, 2.0, 5.0)


class Nodes:
    """Agents by node name (the Dask worker's name: it survives a nanny's restart, the address does not)."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        self.rows: dict[str, dict[str, Any]] = {}
        #: Node -> slots given to it, by slot name; kept over a restart of the node.
        self.given: dict[str, dict[str, dict[str, Any]]] = {}
        self.opened = False
        #: What was asked for when it was opened.
        self.n_devices = 0
        self.names: tuple[str, ...] = ()
        self.seats: int | str = 1
        self.isolation = "shared"
        #: Names of the devices that carry the slots.
        self.devices: frozenset[str] = frozenset()
        self.notices: list[str] = []
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
        self.devices, self.isolation = frozenset(device.name for device in devices), isolation
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
        return {"same": {device.name for device in named} == self.devices}

    def _there(self) -> list[NodeDevices]:
        """Return what the nodes have, in their order."""
        return [
            NodeDevices(
                node=node,
                host=row["host"],
                n_cpus=row["n_cpus"],
                cuda=tuple((device["index"], device["uuid"]) for device in row["devices"]),
                why_no_cuda=row["why_no_cuda"],
            )
            for node, row in sorted(self.rows.items())
        ]

    def _first_devices(self, n_slots: int | None) -> tuple[Device, ...]:
        """Return the first CUDA devices, or virtual ones where there are none."""
        there = self._there()
        seen: dict[str, Device] = {}
        for node in there:
            for index, uuid in node.cuda:
                seen.setdefault(uuid, Device(node=node.node, name=f"{node.node}/gpu{index}", seen=f"cuda:{uuid}"))
        cuda = tuple(seen.values())
        n_cpus = sum({node.host: node.n_cpus for node in there}.values())
        most = len(cuda) or n_cpus
        wanted = n_slots if n_slots is not None else (len(cuda) or min(DEFAULT_VIRTUAL_SLOTS, n_cpus))
        if wanted > most:
            what = "CUDA devices" if cuda else "CPU cores for virtual slots"
            raise ConfigError(f"--gpus {wanted}: the cluster has {most} {what}")
        return cuda[:wanted] or self._virtual(wanted)

    def _check_opened(self, n_slots: int | None, seats: int | str, named: Sequence[Device], isolation: str) -> None:
        """Refuse what this pool is not; somebody who names no numbers takes it as it is.

        Raises
        ------
        ConfigError
            If other devices or seats, or another isolation, are asked for.
        """
        if isolation not in {"shared", self.isolation}:
            raise ConfigError(
                isolation_problem(isolation, self.seats)
                or f"this cluster's pool has isolation {self.isolation!r} already; {isolation!r} asks for another"
            )
        if named and {device.name for device in named} != self.devices:
            asked = ", ".join(device.name for device in named)
            raise ConfigError(
                f"this cluster's pool has {', '.join(sorted(self.devices))} already; slots asks for {asked}"
            )
        if n_slots not in (None, self.n_devices):
            what = "slots" if self.seats == 1 else f"devices (seats: {self.seats})"
            raise ConfigError(
                f"this cluster's pool has {self.n_devices} {what} already; --gpus {n_slots} asks for another"
            )
        if seats not in (1, self.seats):
            raise ConfigError(
                n_seats_problem(seats)
                or f"this cluster's pool has seats {self.seats} already; seats {seats} asks for another"
            )

    def _virtual(self, n_devices: int) -> tuple[Device, ...]:
        """Spread virtual devices over the nodes."""
        here = dict.fromkeys(sorted(self.rows), 0)
        devices = []
        for _ in range(n_devices):
            node = min(here, key=lambda name: (here[name], name))
            devices.append(Device(node=node, name=f"{node}/cpu{here[node]}", seen=f"cpu:{here[node]}"))
            here[node] += 1
        return tuple(devices)

    def _limits(self, devices: Sequence[Device], *, virtual: bool) -> dict[str, tuple[int, str]]:
        """Return the most seats of each device by its name, and why no more."""
        n_most = SeatsSettings().n_most
        if not virtual:
            return {device.name: (n_most, f"at most {n_most} seats") for device in devices}
        hosts = {node: row["host"] for node, row in self.rows.items()}
        n_on = Counter(hosts[device.node] for device in devices)
        n_cpus = {row["host"]: row["n_cpus"] for row in self.rows.values()}
        on = {device.name: hosts[device.node] for device in devices}
        return {name: virtual_limit(n_cpus[host], n_on[host], n_most) for name, host in on.items()}

    def _give_seats(self, devices: Sequence[Device], seats: int | str) -> None:
        """Make the slots: one per device, named as it, or one per seat with its number behind."""
        for device in devices:
            if seats == 1:
                self.give(device.node, device.name, device.seen if device.seen.startswith("cuda:") else "cpu")
            else:
                for seat in range(1 if seats == "auto" else int(seats)):
                    self.give(device.node, f"{device.name}/{seat}", device.seen)

    def _note_virtual(self, n_devices: int, seats: int | str) -> None:
        why = "; ".join(dict.fromkeys(row["why_no_cuda"] for row in self.rows.values() if row["why_no_cuda"]))
        plural = "s" if n_devices > 1 else ""
        what = f"virtual CPU slot{plural}" if seats == 1 else f"virtual CPU device{plural} with seats: {seats}"
        self.notices.append(f"no CUDA device ({why}): training on {n_devices} {what}")

    def give(self, node: str, slot: str, device: str, epoch: int = 0) -> None:
        """Let a slot belong to a node; it is in the pool once its executor is up."""
        self.given.setdefault(node, {})[slot] = {"slot": slot, "device": device, "up": False, "epoch": epoch}

    def take(self, slot: str) -> dict[str, Any]:
        """Let a slot belong to nobody any more, and return its row."""
        given = next(slots for slots in self.given.values() if slot in slots)
        return given.pop(slot)

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

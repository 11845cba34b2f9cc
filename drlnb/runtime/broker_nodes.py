"""Which nodes and slots does the cluster have?  The broker's register of agents."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drlnb.records import leasing, placement
from drlnb.runtime.protocol import refused

if TYPE_CHECKING:
    from drlnb.runtime.broker import BrokerPlugin

__all__ = ["DEFAULT_VIRTUAL_SLOTS", "Nodes"]

#: Virtual slots where nobody asked for a number and no CUDA device was found.
DEFAULT_VIRTUAL_SLOTS = 2


class Nodes:
    """Agents by node name (the Dask worker's name: it survives a nanny's restart, the address does not)."""

    def __init__(self, broker: "BrokerPlugin") -> None:
        self.broker = broker
        self.rows: dict[str, dict[str, Any]] = {}
        #: Node -> slots given to it, by slot name; kept over a restart of the node.
        self.given: dict[str, dict[str, dict[str, Any]]] = {}
        self.opened = False
        self.notices: list[str] = []
        self._changed = asyncio.Event()

    def handlers(self) -> dict[str, Any]:
        """Return the messages served here."""
        return {
            "drlnb_agent_up": self.agent_up,
            "drlnb_slot_up": self.slot_up,
            "drlnb_slot_down": self.slot_down,
            "drlnb_nodes": self.nodes,
            "drlnb_open_slots": self.open_slots,
            "drlnb_probe": self.probe,
        }

    @property
    def addresses(self) -> dict[str, str]:
        """Node -> address of its worker."""
        return {node: row["address"] for node, row in self.rows.items()}

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
        self.broker.host.feed(
            placement.NodeAdded, node=node, host=row["host"], n_collector_slots=row["n_collector_slots"]
        )
        self._note_change()
        return {"epoch": self.broker.epoch, "slots": list(self.given.get(node, {}).values())}

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
                await asyncio.wait_for(asyncio.shield(self._changed.wait()), left_s)
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

    def lost(self, address: str, reason: str) -> None:
        """Forget the node at an address and tell the pool and every master."""
        node = next((name for name, row in self.rows.items() if row["address"] == address), None)
        if node is None:
            return
        del self.rows[node]
        for slot in self.given.get(node, {}).values():
            slot["up"] = False
        self.broker.host.feed(placement.NodeLost, node=node, reason=reason)
        self.broker.runs.node_lost(node)
        task = asyncio.ensure_future(self.tell_masters("drlnb_node_lost", node=node, reason=reason))
        self.broker.runs.keep(task)

    async def tell_masters(self, op: str, /, **message: Any) -> None:
        """Tell every node's masters something; who cannot be reached finds out by itself."""
        await asyncio.gather(*(self.broker.ask_node(node, op, 5.0, **message) for node in list(self.rows)))

    async def revoke(self, slot: str, fence: tuple[int, int], grace_s: float) -> bool:
        """Make the executor of a slot stop the work of a fence; true if it is idle and lives."""
        node = self.slot_row(slot)["node"]
        reply = await self.broker.ask_node(
            node, "drlnb_revoke", grace_s + 15.0, slot=slot, fence=fence, grace_s=grace_s
        )
        return bool(reply and reply.get("idle"))

    # ------------------------------------------------------------------ for clients
    async def nodes(self, at_least: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
        """Return nodes and slots, once there are `at_least` nodes or the time is up."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while len(self.rows) < at_least:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            try:
                await asyncio.wait_for(asyncio.shield(self._changed.wait()), left_s)
            except TimeoutError:
                break
        slots = [{**slot, "node": node} for node, given in self.given.items() for slot in given.values()]
        return {"nodes": list(self.rows.values()), "slots": slots, "opened": self.opened, "notices": self.notices}

    async def open_slots(self, n_slots: int | None) -> dict[str, Any]:
        """Decide once which slots the pool has, and have their executors started."""
        if self.opened:
            have = sum(len(given) for given in self.given.values())
            if n_slots is not None and n_slots != have:
                return refused(
                    "ConfigError", f"this cluster's pool has {have} slots already; --gpus {n_slots} asks for another"
                )
            return {"ok": True}
        cuda = [(node, device) for node, row in sorted(self.rows.items()) for device in row["devices"]]
        cuda = list({device["uuid"]: (node, device) for node, device in reversed(cuda)}.values())[::-1]
        n_cpus = sum({row["host"]: row["n_cpus"] for row in self.rows.values()}.values())
        most = len(cuda) or n_cpus
        wanted = n_slots if n_slots is not None else (len(cuda) or min(DEFAULT_VIRTUAL_SLOTS, n_cpus))
        if wanted > most:
            what = "CUDA devices" if cuda else "CPU cores for virtual slots"
            return refused("ConfigError", f"--gpus {wanted}: the cluster has {most} {what}")
        if cuda:
            for node, device in cuda[:wanted]:
                self._give(node, f"{node}/gpu{device['index']}", f"cuda:{device['uuid']}")
        else:
            for _ in range(wanted):
                node = min(self.rows, key=lambda name: (len(self.given.get(name, {})), name))
                self._give(node, f"{node}/cpu{len(self.given.get(node, {}))}", "cpu")
        self.opened = True
        why = "; ".join(dict.fromkeys(row["why_no_cuda"] for row in self.rows.values() if row["why_no_cuda"]))
        if not cuda:
            plural = "s" if wanted > 1 else ""
            self.notices.append(f"no CUDA device ({why}): training on {wanted} virtual CPU slot{plural}")
        for node, given in self.given.items():
            await self.broker.ask_node(node, "drlnb_slots", 15.0, slots=list(given.values()))
        return {"ok": True}

    def _give(self, node: str, slot: str, device: str) -> None:
        self.given.setdefault(node, {})[slot] = {"slot": slot, "device": device, "up": False, "epoch": 0}

    async def probe(self, env: str | Mapping[str, Any]) -> dict[str, Any]:
        """Let a node build an environment once and describe its spaces."""
        for node in sorted(self.rows):
            reply = await self.broker.ask_node(node, "drlnb_probe_env", 60.0, env=env)
            if reply is not None:
                return reply
        return refused("PeerError", "no node with drlnb answers")

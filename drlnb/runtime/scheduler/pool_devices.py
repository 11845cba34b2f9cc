"""Choose the devices that carry the slots of a pool, and the slots of each node; also when nodes come and go."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from drlnb.planning.placement.devices import Device, NodeDevices, named_devices
from drlnb.planning.placement.seats import ISOLATION, MAX_SEATS, SEATS, virtual_limit
from drlnb.records.errors import ConfigError
from drlnb.runtime.protocol import Plain

__all__ = ["DEFAULT_VIRTUAL_SLOTS", "PoolDevices"]

#: Virtual slots where nobody asked for a number and no CUDA device was found.
DEFAULT_VIRTUAL_SLOTS = 2


class PoolDevices:
    """The devices of a pool, their slots, and the nodes that have them.

    Parameters
    ----------
    rows
        Node -> what its agent reported of it, while it is here.
    """

    def __init__(self, rows: Mapping[str, Plain]) -> None:
        self.rows = rows
        #: Node -> slots given to it, by slot name; kept over a restart of the node.
        self.given: dict[str, dict[str, Plain]] = {}
        self.opened = False
        #: There was a fleet on a cluster of somebody else's: workers may join.
        self.shared = False
        #: What was asked for when it was opened.
        self.n_devices = 0
        self.names: tuple[str, ...] = ()
        self.seats = 1
        self.isolation = "shared"
        #: The devices that carry the slots, by name, and whether they are a number of devices, not all or some by name.
        self.devices: dict[str, Device] = {}
        self.counted = True
        self.notices: list[str] = []

    def to_plain(self) -> Plain:
        """Return what was opened, for clients."""
        names = ("opened", "notices", "n_devices", "seats", "names", "isolation")
        return {name: getattr(self, name) for name in names}

    @property
    def slot_names(self) -> list[str]:
        """Names of the slots that are given to nodes."""
        return [slot for slots in self.given.values() for slot in slots]

    @property
    def can_grow(self) -> bool:
        """Whether workers that come later may bring further slots: it is made of what every node has."""
        of_every_node = not self.names or any(name.startswith(("cuda:", "cpu:")) for name in self.names)
        return self.shared and not self.counted and of_every_node

    def slots_of(self, node: str) -> list[Plain]:
        """Return what a node must know of its slots."""
        return [{**row, "isolation": self.isolation} for row in self.given.get(node, {}).values()]

    def open(self, n_slots: int | None, seats: int, names: Sequence[str], isolation: str) -> bool:
        """Decide once which slots the pool has; return whether that is now, false if it was open and is like this.

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

        Raises
        ------
        ConfigError
            If there are no such devices, or the pool is open and another one is asked for.
        """
        named = named_devices(names, self._there()) if names else ()
        if self.opened:
            self._check_opened(n_slots, seats, named, isolation)
            return False
        devices = named or self._first_devices(n_slots)
        virtual = devices[0].seen.startswith("cpu:")
        if (
            problem := SEATS.problem("seats", seats)
            or self._too_many(seats, devices)
            or ISOLATION.problem("isolation", isolation)
        ):
            raise ConfigError(problem)
        self._give_seats(devices, seats)
        self.opened, self.n_devices, self.seats, self.names = True, len(devices), seats, tuple(names)
        self.devices, self.isolation = {device.name: device for device in devices}, isolation
        self.counted = not names and (virtual or n_slots is not None)
        if virtual and not named:
            why = "; ".join(dict.fromkeys(row["why_no_cuda"] for row in self.rows.values() if row["why_no_cuda"]))
            plural = "s" if len(devices) > 1 else ""
            kind = f"virtual CPU slot{plural}" if seats == 1 else f"virtual CPU device{plural} with seats: {seats}"
            self.notices.append(f"no CUDA device ({why}): training on {len(devices)} {kind}")
        return True

    def is_of(self, names: Sequence[str]) -> bool:
        """Return whether the devices are those of some names.

        Raises
        ------
        ConfigError
            If a name means no device.
        """
        return {device.name for device in named_devices(names, self._there())} == self.devices.keys()

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
        cuda = self._cuda()
        n_cpus = sum({node.host: node.n_cpus for node in self._there()}.values())
        most = len(cuda) or n_cpus
        wanted = n_slots if n_slots is not None else (len(cuda) or min(DEFAULT_VIRTUAL_SLOTS, n_cpus))
        if wanted > most:
            kind = "CUDA devices" if cuda else "CPU cores for virtual slots"
            raise ConfigError(f"slots={wanted}: the cluster has {most} {kind}")
        return cuda[:wanted] or self._virtual(wanted)

    def _cuda(self) -> tuple[Device, ...]:
        """Return every CUDA device once, at the first node that sees it."""
        seen: dict[str, Device] = {}
        for node in self._there():
            for index, uuid in node.cuda:
                seen.setdefault(uuid, Device(node=node.node, name=f"{node.node}/gpu{index}", seen=f"cuda:{uuid}"))
        return tuple(seen.values())

    def lend_later(self, node: str) -> None:
        """Add what the pool is made of from a node that came after it was opened.

        Of all CUDA devices, or of devices by name, those that it has; of a number, what is missing of it since other
        nodes are gone, which bring that no more.
        """
        live = {device.key for device in self.devices.values() if device.node in self.rows}
        added = [device for device in self._meant(node) if device.key not in live]
        if self.counted:
            added = added[: max(0, self.n_devices - len(live))]
        gone = [device for device in self.devices.values() if device.node not in self.rows]
        keys = {device.key for device in added}
        for old in gone[: len(added)] if self.counted else [device for device in gone if device.key in keys]:
            del self.devices[old.name]
            slots = self.given[old.node]
            self.given[old.node] = {slot: row for slot, row in slots.items() if not _carries(old, slot)}
        self.devices |= {device.name: device for device in added}
        self.n_devices = self.n_devices if self.counted else len(self.devices)
        self._give_seats(added, self.seats)

    def _meant(self, node: str) -> list[Device]:
        """Return the devices of a node that a pool like this one is made of."""
        if self.names:
            try:
                meant = named_devices(self.names, self._there())
            except ConfigError:  # another one is gone that was named, too
                meant = ()
        elif any(device.seen.startswith("cuda:") for device in self.devices.values()):
            meant = self._cuda()
        else:
            meant = tuple(_virtual_device(node, k) for k in range(self.rows[node]["n_cpus"]))
        return [device for device in meant if device.node == node]

    def _check_opened(self, n_slots: int | None, seats: int, named: Sequence[Device], isolation: str) -> None:
        """Refuse what this pool is not; somebody who names no numbers takes it as it is.

        Raises
        ------
        ConfigError
            If other devices or seats, or another isolation, are asked for.
        """
        if isolation not in {"shared", self.isolation}:
            raise ConfigError(
                ISOLATION.problem("isolation", isolation)
                or f"this cluster's pool has isolation {self.isolation!r} already; {isolation!r} asks for another"
            )
        if named and {device.name for device in named} != self.devices.keys():
            asked = ", ".join(device.name for device in named)
            raise ConfigError(
                f"this cluster's pool has {', '.join(sorted(self.devices))} already; slots asks for {asked}"
            )
        if n_slots not in (None, self.n_devices):
            kind = "slots" if self.seats == 1 else f"devices (seats: {self.seats})"
            raise ConfigError(
                f"this cluster's pool has {self.n_devices} {kind} already; slots={n_slots} asks for another"
            )
        if seats not in (1, self.seats):
            raise ConfigError(
                SEATS.problem("seats", seats)
                or f"this cluster's pool has seats {self.seats} already; seats {seats} asks for another"
            )

    def _virtual(self, n_devices: int) -> tuple[Device, ...]:
        """Spread virtual devices over the nodes."""
        turns = itertools.product(range(n_devices), sorted(self.rows))  # one device of each node, then the next
        return tuple(_virtual_device(node, k) for k, node in itertools.islice(turns, n_devices))

    def _too_many(self, seats: int, devices: Sequence[Device]) -> str:
        """Return the complaint about more seats than a virtual device can have; empty if there is none."""
        rows = [self.rows[device.node] for device in devices if device.seen.startswith("cpu:")]
        n_on = Counter(row["host"] for row in rows)
        limits = (virtual_limit(row["n_cpus"], n_on[row["host"]]) for row in rows)
        few, why = min(limits, default=(MAX_SEATS, ""))
        return f"seats {seats}: a device here has room for {few} ({why})" if seats > few else ""

    def _give_seats(self, devices: Sequence[Device], seats: int) -> None:
        """Make the slots: one per device, named as it, or one per seat with its number behind."""
        for device in devices:
            if seats == 1:
                self.give(device.node, device.name, device.seen if device.seen.startswith("cuda:") else "cpu")
            else:
                for seat in range(seats):
                    self.give(device.node, f"{device.name}/{seat}", device.seen)

    def give(self, node: str, slot: str, device: str) -> None:
        """Give a slot to a node; it is in the pool once its executor is up."""
        self.given.setdefault(node, {})[slot] = {"slot": slot, "device": device, "up": False, "epoch": 0}


def _virtual_device(node: str, k: int) -> Device:
    return Device(node=node, name=f"{node}/cpu{k}", seen=f"cpu:{k}")


def _carries(device: Device, slot: str) -> bool:
    """Whether a slot is a device's: named as it, or with the number of a seat behind."""
    return slot == device.name or slot.rpartition("/")[0] == device.name

"""Change the number of a device's seats while tasks train: a scheduler plugin beside the broker.

It hosts the machine of the seats, feeds it with what the pool says, and carries its commands out.  A probe is a holder
like any other: it asks the pool for the device's slots, and while it holds them nobody else computes there.  A seat is
closed by the same means: first its slot is held, then it leaves the pool.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin

from drlnb.planning.placement.devices import Device
from drlnb.planning.seats.machine import SeatsMachine
from drlnb.planning.seats.rules import SeatsSettings
from drlnb.records import seats
from drlnb.records.base import Event, Record
from drlnb.records.columns import leasing, placement
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.runtime.machine_host import EffectTable, MachineHost, by_class
from drlnb.runtime.protocol import BROKER, SEATS, Plain, split_pool_task
from drlnb.runtime.scheduler.run import becomes
from drlnb.runtime.seats.leases import SeatLeases

if TYPE_CHECKING:
    from distributed import Scheduler

    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["SeatsPlugin"]

#: Longest wait for an executor's start and for one level of a probe, in seconds.
_RAISE_S, _MEASURE_S, _END_S = 90.0, 110.0, 30.0
#: Longest wait for a first recorded round, and for one of every task, in seconds.
_RECORD_S, _ALL_S = 60.0, 10.0


class _ProbeEnds(Exception):
    """A part of a probe cannot be carried out."""


class SeatsPlugin(SchedulerPlugin):  # type: ignore[misc]
    """Seats of the devices of one cluster; needs the broker on the same scheduler.

    Parameters
    ----------
    settings
        Settings of seats, plain data.
    """

    name = SEATS
    idempotent = True

    def __init__(self, settings: Plain | None = None) -> None:
        self._settings = dict(settings or {})

    async def start(self, scheduler: "Scheduler") -> None:
        """Begin; called by the scheduler."""
        self.broker: BrokerPlugin = scheduler.plugins[BROKER]
        self.machine = SeatsMachine(SeatsSettings(**self._settings))
        effects: EffectTable = {
            seats.RaiseSeats: lambda command: self._guarded(command.device, self._raise(command)),
            seats.MeasureSeats: lambda command: self._guarded(command.device, self._measure(command)),
            seats.SetSeats: self._set,
        }
        self.host = MachineHost(self.machine, by_class(effects), [self._write], t0=self.broker.host._t0)
        self.host.on_defect = self.broker.runs.defect
        self.leases = SeatLeases(self.broker)
        #: The devices by name.
        self.devices: dict[str, Device] = {}
        #: Slot that was closed -> its row, whose epoch goes on.
        self._closed: dict[str, Plain] = {}
        #: Task -> seconds computed in its round so far; fence -> task of a lease whose round counts.
        self._computed: dict[str, float] = {}
        self._counted: dict[Fence, str] = {}
        self.broker.host.sinks.append(self._on_record)

    async def close(self) -> None:
        """End with the scheduler."""
        await self.host.close()
        self.leases.close()

    def open(self, devices: Iterable[Device], limits: Mapping[str, tuple[int, str]]) -> None:
        """Begin with devices; most seats of each by its name, and why no more."""
        for device in devices:
            self.devices[device.name] = device
            n_most, limit = limits[device.name]
            self.host.feed(seats.SeatsOpened, device=device.name, node=device.node, n_most=n_most, limit=limit)

    def _write(self, record: Record) -> None:
        """Write what becomes of the seats into the journal of every run that lives, in a stream of its own."""
        for run in self.broker.runs.live.values():
            if "pool" not in run.streams:
                continue
            if "seats" not in run.streams and isinstance(record, Event):  # before the machine takes it in
                run.open_stream("seats", f"seats-e{self.broker.epoch}", self.machine)
            if "seats" in run.streams:
                run.write("seats", record)

    # ------------------------------------------------------------------ what the pool decides
    def _on_record(self, record: Record) -> None:
        self.leases.on_record(record)
        if isinstance(record, leasing.LeaseGranted):
            # Round 0 makes the first parameters: that is no computing of experience.
            if record.round > 0 and self._device_of(record.slots[0]) is not None and self._is_task(record.task):
                self._counted[record.fence] = record.task
        elif isinstance(record, leasing.LeaseReleased):
            self._released(record)
        elif isinstance(record, leasing.LeaseExpired):
            self._counted.pop(record.fence, None)
            self._computed.pop(record.task, None)
        elif isinstance(record, placement.TaskStopped):
            self._computed.pop(record.task, None)
            self.host.feed(seats.TaskLeft, task=record.task)

    def _is_task(self, name: str) -> bool:
        """Whether a holder is a task of a run: what a user's own loop computes is like no other time."""
        return split_pool_task(name)[0] in self.broker.runs.live

    def _released(self, record: leasing.LeaseReleased) -> None:
        """Count a round that has been computed, perhaps under several leases."""
        task = self._counted.pop(record.fence, None)
        if task is None:
            return
        if record.reason not in {"returned", "yielded"}:
            self._computed.pop(task, None)
            return
        computed_s = self._computed.pop(task, 0.0) + sum(record.computed_s)
        if record.reason == "yielded":
            self._computed[task] = computed_s
        elif computed_s > 0:
            device = self._device_of(record.slots[0])
            self.host.feed(seats.ComputeMeasured, device=device, task=task, compute_s=computed_s)

    def _device_of(self, slot: str) -> str | None:
        device, _, seat = slot.rpartition("/")
        return device if device in self.devices and seat.isdigit() else None

    # ------------------------------------------------------------------ what the machine wants
    async def _guarded(self, device: str, effect: Coroutine[object, object, None]) -> None:
        """Carry a part of a probe out; what goes wrong ends the probe, in the open."""
        try:
            await effect
        except _ProbeEnds as error:
            self.host.feed(seats.ProbeFailed, device=device, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a defect of the probe must not end the training
            self.broker.runs.defect(traceback.format_exc())
            self.host.feed(seats.ProbeFailed, device=device, reason=f"{type(error).__name__}: {error}")

    def _slots(self, device: str) -> list[str]:
        """Return the slots of a device that the pool lends, by their seats."""
        given = self.broker.nodes.given.get(self.devices[device].node, {})
        return sorted((slot for slot in given if self._device_of(slot) == device), key=_seat)

    def _rows(self, device: str, n_seats: int) -> list[dict[str, str]]:
        """Return so many slots of a device, those that the pool lends first."""
        lent = self._slots(device)
        free = (f"{device}/{seat}" for seat in range(n_seats + len(lent)))
        names = [*lent, *(name for name in free if name not in lent)][:n_seats]
        return [{"slot": name, "device": self.devices[device].seen} for name in names]

    async def _raise(self, command: seats.RaiseSeats) -> None:
        rows = self._rows(command.device, command.n_seats)
        reply = await self._ask(command.device, "drlnb_seats_raise", _RAISE_S, slots=rows)
        self.host.feed(seats.SeatsUp, device=command.device, n_seats=command.n_seats, **reply)

    async def _measure(self, command: seats.MeasureSeats) -> None:
        device, lent = command.device, self._slots(command.device)
        if not self.leases.holds(lent):
            await self._recorded(device, lent)
            await self.leases.take(device, lent)
        slots = [row["slot"] for row in self._rows(device, command.n_seats)]
        message = {"lent": lent, "slots": slots, "fences": self.leases.fences(lent), "measure_s": command.measure_s}
        reply = await self._ask(device, "drlnb_seats_measure", _MEASURE_S, **message)
        if not self.leases.holds(lent):
            raise _ProbeEnds("the pool took its leases away")
        measured = reply | {key: tuple(reply[key]) for key in ("elapsed_s", "n_rounds")}
        self.host.feed(seats.SeatsMeasured, device=device, n_seats=command.n_seats, **measured)

    async def _recorded(self, device: str, lent: Sequence[str]) -> None:
        """Wait until the device's executors have recorded a round of every task, or after a while of some."""
        loop = asyncio.get_running_loop()
        began_t = loop.time()
        while True:
            reply = await self._ask(device, "drlnb_seats_record", _RECORD_S, slots=lent)
            n_tasks, waited_s = len(reply["tasks"]), loop.time() - began_t
            if n_tasks >= self.machine.n_tasks(device) or (n_tasks and waited_s > _ALL_S):
                return
            if waited_s > _RECORD_S:
                raise _ProbeEnds(f"no task computed a whole round in {_RECORD_S:g} s")
            await asyncio.sleep(0.2)

    async def _set(self, command: seats.SetSeats) -> None:
        """Bring the pool to so many seats: adopt executors of the probe, or close slots once they are held by us."""
        device, lent = command.device, self._slots(command.device)
        try:
            close = lent[command.n_seats :]
            if close and not self.leases.holds(close):
                await self.leases.take(device, close)
            fences = self.leases.fences(lent)
            for slot in close:
                await self._close_seat(slot)
            adopt = [row["slot"] for row in self._rows(device, command.n_seats) if row["slot"] not in lent]
            for slot in adopt:
                self._give(device, slot)
            keep = [slot for slot in lent if slot not in close]
            # Any executor of the device beyond these ends, whether the pool knew it or not.
            others = [f"{device}/{seat}" for seat in range(self.machine.settings.n_most)]
            ends = [slot for slot in others if slot not in keep and slot not in adopt]
            with contextlib.suppress(_ProbeEnds):  # its node is gone, or another one serves the device soon
                await self._ask(device, "drlnb_seats_end", _END_S, lent=keep, adopt=adopt, ends=ends, fences=fences)
            await self._reopened(adopt)
        except Exception:  # noqa: BLE001 - told in the open; the seats are counted below
            self.broker.runs.defect(traceback.format_exc())
        finally:
            await self.leases.give_back(device)
            self.host.feed(seats.SeatsSet, device=device, n_seats=max(1, len(self._slots(device))))

    async def _close_seat(self, slot: str) -> None:
        """Remove a slot that we hold from the pool."""
        self.broker.host.feed(SettingChanged, key="slot.drain", value=slot, task=None)
        await self.leases.give_back_slot(slot)
        self.broker.host.feed(leasing.SlotFailed, slot=slot, reason="seat closed")
        self._closed[slot] = self.broker.nodes.pool.take(slot)
        self.broker.host.feed(leasing.SlotsOpened, slots=tuple(self.broker.nodes.pool.slot_names))

    def _give(self, device: str, slot: str) -> None:
        epoch = self._closed.get(slot, {}).get("epoch", 0)
        self.broker.nodes.pool.give(self.devices[device].node, slot, self.devices[device].seen, epoch=epoch)
        self.broker.host.feed(leasing.SlotsOpened, slots=tuple(self.broker.nodes.pool.slot_names))

    async def _reopened(self, slots: Sequence[str]) -> None:
        """Wait until adopted slots are in the pool; take back that they were closed."""
        for slot in slots:
            await becomes(partial(self._is_up, slot), _END_S)
            if self._closed.pop(slot, None) is not None:
                self.broker.host.feed(SettingChanged, key="slot.undrain", value=slot, task=None)

    def _is_up(self, slot: str) -> bool:
        return any(given[slot]["up"] for given in self.broker.nodes.given.values() if slot in given)

    async def _ask(self, device: str, op: str, timeout_s: float, /, **message: object) -> Plain:
        node = self.devices[device].node
        reply: Plain | None = None
        with contextlib.suppress(OSError):
            reply = await self.broker.ask_node(node, op, timeout_s, **message)
        if reply is None:
            raise _ProbeEnds(f"node {node} does not answer")
        if "refused" in reply:
            raise _ProbeEnds(str(reply["refused"]))
        return reply


def _seat(slot: str) -> int:
    return int(slot.rpartition("/")[2])

"""Change the number of a device's seats while tasks train: a scheduler plugin beside the broker.

It hosts the machine of the seats, feeds it with what the pool says, and carries its commands out.  A probe is a holder
like any other: it asks the pool for the device's slots, and while it holds them nobody else computes there.  A seat is
closed by the same means: first its slot is held, then it leaves the pool.
"""

import asyncio
import contextlib
import traceback
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin

from drlnb.planning.seats.machine import SeatsMachine
from drlnb.planning.seats.rules import SeatsSettings
from drlnb.records import seats
from drlnb.records.base import Command, Record
from drlnb.records.columns import leasing, placement
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.runtime.machine_host import MachineHost
from drlnb.runtime.protocol import BROKER, SEATS, Plain, split_pool_task
from drlnb.runtime.seats.journal import SeatStreams
from drlnb.runtime.seats.leases import SeatLeases

if TYPE_CHECKING:
    from distributed import Scheduler

    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["SeatsPlugin"]

#: Longest wait for an executor's start and for one level of a probe, in seconds.
_RAISE_S, _MEASURE_S, _END_S = 90.0, 110.0, 30.0
#: Longest wait for a first recorded round, and for one of every task, in seconds.
_RECORD_S, _ALL_S = 60.0, 10.0


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
        self.streams = SeatStreams(self.broker, self.machine)
        self.host = MachineHost(self.machine, self._effect, [self.streams.write], t0=self.broker.host._t0)
        self.host.on_defect = self.broker.runs.defect
        self.leases = SeatLeases(self.broker)
        #: Device -> (its node, what its executors see of it).
        self.devices: dict[str, tuple[str, str]] = {}
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
        self.streams.close()

    def open(self, devices: Sequence[tuple[str, str, str]], limits: Mapping[str, tuple[int, str]]) -> None:
        """Begin with devices: (node, name, what executors see) of each; most seats by name, and why no more."""
        for node, name, device in devices:
            self.devices[name] = (node, device)
            n_most, limit = limits[name]
            self.host.feed(seats.SeatsOpened, device=name, node=node, n_most=n_most, limit=limit)

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
            self.streams.sweep_soon()

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
        computed_s = self._computed.pop(task, 0.0) + record.computed_s
        if record.reason == "yielded":
            self._computed[task] = computed_s
        elif computed_s > 0:
            device = self._device_of(record.slots[0])
            self.host.feed(seats.ComputeMeasured, device=device, task=task, compute_s=computed_s)

    def _device_of(self, slot: str) -> str | None:
        device, _, seat = slot.rpartition("/")
        return device if device in self.devices and seat.isdigit() else None

    # ------------------------------------------------------------------ what the machine wants
    def _effect(self, command: Command) -> Coroutine[object, object, None]:
        if isinstance(command, seats.RaiseSeats):
            return self._guarded(command.device, self._raise(command))
        if isinstance(command, seats.MeasureSeats):
            return self._guarded(command.device, self._measure(command))
        if isinstance(command, seats.SetSeats):
            return self._set(command)
        raise TypeError(f"no effect for {type(command).__name__}")

    async def _guarded(self, device: str, effect: Coroutine[object, object, str]) -> None:
        """Carry a part of a probe out; what goes wrong ends the probe, in the open."""
        try:
            failure = await effect
        except Exception as error:  # noqa: BLE001 - a defect of the probe must not end the training
            self.broker.runs.defect(traceback.format_exc())
            failure = f"{type(error).__name__}: {error}"
        if failure:
            self.host.feed(seats.ProbeFailed, device=device, reason=failure)

    def _slots(self, device: str) -> list[str]:
        """Return the slots of a device that the pool lends, by their seats."""
        given = self.broker.nodes.given.get(self.devices[device][0], {})
        return sorted((slot for slot in given if self._device_of(slot) == device), key=_seat)

    def _rows(self, device: str, n_seats: int) -> list[dict[str, str]]:
        """Return so many slots of a device, those that the pool lends first."""
        lent = self._slots(device)
        free = (f"{device}/{seat}" for seat in range(n_seats + len(lent)))
        names = [*lent, *(name for name in free if name not in lent)][:n_seats]
        return [{"slot": name, "device": self.devices[device][1]} for name in names]

    async def _raise(self, command: seats.RaiseSeats) -> str:
        rows = self._rows(command.device, command.n_seats)
        reply = await self._ask(command.device, "drlnb_seats_raise", _RAISE_S, slots=rows)
        if "failed" not in reply:
            self.host.feed(seats.SeatsUp, device=command.device, n_seats=command.n_seats, **reply)
        return str(reply.get("failed", ""))

    async def _measure(self, command: seats.MeasureSeats) -> str:
        device, lent = command.device, self._slots(command.device)
        if not self.leases.holds(lent):
            failure = await self._recorded(device, lent)
            if failure:
                return failure
            await self.leases.take(device, lent)
        slots = [row["slot"] for row in self._rows(device, command.n_seats)]
        message = {"lent": lent, "slots": slots, "fences": self.leases.fences(lent), "measure_s": command.measure_s}
        reply = await self._ask(device, "drlnb_seats_measure", _MEASURE_S, **message)
        if "failed" in reply:
            return str(reply["failed"])
        if not self.leases.holds(lent):
            return "the pool took its leases away"
        fields = {"elapsed_s": tuple(reply["elapsed_s"]), "n_rounds": tuple(reply["n_rounds"])}
        times = {key: reply[key] for key in ("compute_p50_s", "compute_p95_s")}
        self.host.feed(seats.SeatsMeasured, device=device, n_seats=command.n_seats, **fields, **times)
        return ""

    async def _recorded(self, device: str, lent: Sequence[str]) -> str:
        """Wait until the device's executors have recorded a round of every task, or of some; why not, if not."""
        loop = asyncio.get_running_loop()
        began_t = loop.time()
        while True:
            reply = await self._ask(device, "drlnb_seats_record", _RECORD_S, slots=lent)
            if "failed" in reply:
                return str(reply["failed"])
            n_tasks, waited_s = len(reply["tasks"]), loop.time() - began_t
            if n_tasks >= self.machine.n_tasks(device) or (n_tasks and waited_s > _ALL_S):
                return ""
            if waited_s > _RECORD_S:
                return f"no task computed a whole round in {_RECORD_S:g} s"
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

    def _give(self, device: str, slot: str) -> None:
        node, seen = self.devices[device]
        self.broker.nodes.pool.give(node, slot, seen, epoch=self._closed.get(slot, {}).get("epoch", 0))

    async def _reopened(self, slots: Sequence[str]) -> None:
        """Wait until adopted slots are in the pool; take back that they were closed."""
        for slot in slots:
            row = next(given[slot] for given in self.broker.nodes.given.values() if slot in given)
            deadline = asyncio.get_running_loop().time() + _END_S
            while not row["up"] and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.01)
            if self._closed.pop(slot, None) is not None:
                self.broker.host.feed(SettingChanged, key="slot.undrain", value=slot, task=None)

    async def _ask(self, device: str, op: str, timeout_s: float, /, **message: object) -> Plain:
        reply: Plain | None = None
        with contextlib.suppress(OSError):
            reply = await self.broker.ask_node(self.devices[device][0], op, timeout_s, **message)
        return {"failed": f"node {self.devices[device][0]} does not answer"} if reply is None else reply


def _seat(slot: str) -> int:
    return int(slot.rpartition("/")[2])

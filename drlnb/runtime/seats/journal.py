"""Write what becomes of the seats into the journal of every run that lives, in a stream of its own."""

import asyncio
from typing import TYPE_CHECKING

from drlnb.planning.seats.machine import SeatsMachine
from drlnb.records.base import Event, Record
from drlnb.runtime.machine_host import JournalWriter, stream_header
from drlnb.runtime.scheduler.run import LiveRun, free_stream

if TYPE_CHECKING:
    from drlnb.runtime.scheduler.plugin import BrokerPlugin

__all__ = ["SeatStreams"]

#: Time from a task's end until its run's state is looked at, in seconds.
_SWEEP_S = 1.0


class SeatStreams:
    """The seats' records, for every run that lives; each stream begins with the machine as it is then.

    Parameters
    ----------
    broker
        Whose runs.
    machine
        Whose records; its time is that of the broker's pool.
    """

    def __init__(self, broker: "BrokerPlugin", machine: SeatsMachine) -> None:
        self._broker, self._machine = broker, machine
        #: Run and the broker's stream in it -> (name of our stream, its writer).
        self._open: dict[tuple[str, str], tuple[str, JournalWriter]] = {}

    def write(self, record: Record) -> None:
        """Write a record into every live run's journal."""
        for run in self._broker.runs.live.values():
            if run.state != "running":
                continue
            key = (run.run, run.stream)
            if key not in self._open:
                if not isinstance(record, Event):
                    continue  # a stream begins with an event, before the machine takes it in
                self._begin(key, run)
            name, writer = self._open[key]
            writer.write(record)
            run.add([{"s": name, **record.to_row()}])

    def _begin(self, key: tuple[str, str], run: LiveRun) -> None:
        folder = run.out / "journal"
        name = free_stream(folder, f"seats-e{self._broker.epoch}")
        writer = JournalWriter(folder / f"{name}.jsonl")
        header = stream_header(name, "seats", self._machine)
        self._open[key] = (name, writer)
        writer.write(header)
        run.add([{"s": name, **header.to_row()}])

    def sweep_soon(self) -> None:
        """Close the streams of runs that have ended, once their last task's end is recorded."""
        asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        live = {(run.run, run.stream) for run in self._broker.runs.live.values() if run.state == "running"}
        for key in self._open.keys() - live:
            _, writer = self._open.pop(key)
            # Its thread may wait for the disk: not in this loop.
            self._broker.runs.keep(asyncio.ensure_future(asyncio.to_thread(writer.close)))

    def close(self) -> None:
        """Close every stream."""
        for _, writer in self._open.values():
            writer.close()
        self._open.clear()

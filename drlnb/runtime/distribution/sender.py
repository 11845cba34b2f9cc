"""Carry out the commands of a publication: send ranges along their routes, ask hosts what they miss, hear what came."""

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence

from drlnb.planning.distribution import Route
from drlnb.planning.distribution.changes import Ranges
from drlnb.planning.distribution.trees import cut
from drlnb.records.columns import distribution as words
from drlnb.runtime.distribution.compare import changed
from drlnb.runtime.distribution.outbox import Outbox, pack_hosts, ways
from drlnb.runtime.distribution.probe import measure
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import SOON_S, Payload, Plain

__all__ = ["REPORTS", "Sender", "send_along"]

#: What hosts say of a version: its readers find it, its actors have applied it, a message was not taken, what was to be
#: kept of a former one is not there.
REPORTS = ("arrived", "applied", "lost", "lacks")

#: Longest message: who receives one holds it twice for a moment, and does nothing else while it is copied.
_MESSAGE_BYTES = 64 << 20
#: Longest wait for a host that was dropped and may be back, in seconds.
_ANSWER_S = 1.0


def send_along(
    outbox: Outbox,
    fields: Plain,
    payload: Payload,
    *,
    hosts: bytes,
    routes: Sequence[Route],
    sends: Sequence[tuple[int, int, int]],
    left_s: float,
) -> None:
    """Send ranges of a version along their routes, in their order, in messages of `_MESSAGE_BYTES` at most.

    Parameters
    ----------
    outbox
        Of the version, at the host that holds it.
    fields
        ``task``, ``chunk`` (attempt, version, total, again), ``report``, ``confirm_s`` and ``keeps`` of each
        message.
    payload
        The version.
    hosts
        Table of the hosts of the routes.
    routes, sends
        As of :class:`~drlnb.records.columns.distribution.SendParameters`.
    left_s
        Seconds until nobody waits for it any more.
    """
    view = memoryview(payload).cast("B")
    outbox.until = max(outbox.until, asyncio.get_running_loop().time() + left_s)
    first = [ways(route, hosts) for route in routes]
    for start, stop, route in sends:
        for low, high in cut(stop - start, -(-(stop - start) // _MESSAGE_BYTES)):
            chunk = fields["chunk"] | {"start": start + low, "stop": start + high}
            for way in first[route]:
                outbox.put(way, fields | {"chunk": chunk}, view[start + low : start + high])


class Sender:
    """Sends one task's versions from a node.

    Parameters
    ----------
    link
        Speaks for the node.
    task, attempt
        (run, task) of the parameters, and the attempt that publishes them.
    payload
        Returns the version that is published now.
    addresses
        Host -> address of its agent.
    feed
        Feeds an event to the machine.
    """

    def __init__(
        self,
        link: Link,
        task: tuple[str, str],
        attempt: int,
        payload: Callable[[], Payload],
        addresses: Callable[[], Mapping[str, str]],
        feed: Callable[..., object],
    ) -> None:
        self._link, self._task, self.attempt = link, task, attempt
        self._payload, self._addresses, self._feed = payload, addresses, feed
        #: Version that is sent, its bytes, their CRC-32 once it is needed, and when its first message was.
        self._version, self._crc, self._begun = 0, -1, 0.0
        self._sent: Payload = b""
        #: Version -> what sends it from here; of the newest one alone.
        self._outbox: dict[int, Outbox] = {}

    def changes(self, payload: Payload) -> tuple[int, Ranges]:
        """Return the version that was sent last, and the ranges in which `payload` may differ from it.

        0 and none where all of it must be sent.
        """
        ranges = changed(self._sent, payload)
        return (self._version, ranges) if ranges else (0, ())

    def send(self, command: words.SendParameters) -> None:
        """Send ranges along their routes."""
        payload = self._payload()
        if command.version != self._version:
            self._version, self._begun = command.version, asyncio.get_running_loop().time()
            self._sent, self._crc = payload, -1
        addresses = self._addresses()
        where: Plain = {
            "hosts": pack_hosts([(host, addresses.get(host, "")) for host in command.hosts]),
            "routes": command.routes,
            "sends": command.sends,
            "left_s": command.deadline_s,
        }
        n_bytes = len(payload)
        chunk = {"attempt": self.attempt, "version": command.version, "total": n_bytes, "again": command.again}
        fields: Plain = {"task": self._task, "chunk": chunk, "report": self._link.address}
        fields["confirm_s"], fields["keeps"] = command.confirm_s, self._keeps(command, payload)
        if command.source:
            self._link.keep(self._delegate(command, addresses.get(command.source, ""), fields, where))
        else:
            send_along(self._of_version(command), fields, payload, **where)

    def _keeps(self, command: words.SendParameters, payload: Payload) -> Plain:
        """Return what hosts must know who are to keep a part of what they hold; nothing where all is sent."""
        if not command.base:
            return {}
        if self._crc < 0:
            self._crc = zlib.crc32(payload)
        return {"base": command.base, "changed": command.changed, "crc": self._crc}

    def _of_version(self, command: words.SendParameters) -> Outbox:
        """Return the outbox of a version; those of former ones send nothing more."""
        if command.version not in self._outbox:
            self._clear()
            until = asyncio.get_running_loop().time() + command.deadline_s
            self._outbox[command.version] = Outbox(self._link, command.n_in_flight, until, "", self.lost)
        return self._outbox[command.version]

    def _clear(self) -> None:
        for outbox in self._outbox.values():
            outbox.clear()
        self._outbox.clear()

    async def _delegate(self, command: words.SendParameters, address: str, fields: Plain, where: Plain) -> None:
        reply = await self._link.call(address, "drlnb_forward", **fields, **where)
        if reply.get("refused"):
            why = str(reply["refused"])
            self._feed(words.HostUnreachable, host=command.source, version=command.version, reason=why, sends=True)

    async def ask(self, command: words.AskMissing) -> None:
        """Ask hosts what they miss."""
        addresses, total = self._addresses(), len(self._payload())
        await asyncio.gather(*[
            self._ask(host, addresses.get(host, ""), command.version, total) for host in command.hosts
        ])

    async def _ask(self, host: str, address: str, version: int, total: int) -> None:
        reply = await self._missing(address, version, total, SOON_S)
        if reply.get("refused"):
            self._feed(words.HostUnreachable, host=host, version=version, reason=str(reply["refused"]))
        elif reply["missing"] or not reply["current"]:
            missing = tuple([(start, stop) for start, stop in reply["missing"]])
            self._feed(words.RangesMissing, host=host, version=version, missing=missing)
        else:  # its report was lost
            self._feed(words.HostCompleted, host=host, version=version, n_bytes=total, publish_s=0.0)

    async def _missing(self, address: str, version: int, total: int, within_s: float) -> Plain:
        run, task = self._task
        about: Plain = {"run": run, "task": task, "attempt": self.attempt, "version": version, "total": total}
        return await self._link.call(address, "drlnb_missing", **about, timeout_s=within_s)

    async def answers(self, address: str) -> bool:
        """Return whether a host answers soon, and would take versions from here."""
        return not (await self._missing(address, 0, 0, _ANSWER_S)).get("refused")

    async def measure(self, command: words.MeasureLink) -> None:
        """Measure the network, as far as that is possible."""
        addresses = self._addresses()
        taking_part, figures = await measure(self._link, {host: addresses.get(host, "") for host in command.hosts})
        self._feed(words.LinkMeasured, hosts=taking_part, figures=figures)

    def forget(self, address: str) -> None:
        """Have nobody wait for an agent that is gone, here or at any other host."""
        for outbox in self._outbox.values():
            outbox.forget(address)
        run, task = self._task
        about: Plain = {"run": run, "task": task, "attempt": self.attempt, "address": address}
        for other in self._addresses().values():
            self._link.keep(self._link.call(other, "drlnb_gone", **about))

    # ------------------------------------------------------------------ what came of it
    def heard(self, what: str, message: Plain) -> None:
        """Feed what a host says, one of :data:`REPORTS`."""
        if what == "lost":
            self.lost(message)
        else:
            getattr(self, what)(**message)

    def arrived(self, version: int, host: str, arrival_s: float, pause_s: float = 0.0) -> None:
        """Feed that a host holds a version."""
        if version == self._version:
            publish_s = asyncio.get_running_loop().time() - self._begun
            n_bytes = len(self._payload())
            times = {"publish_s": publish_s, "arrival_s": arrival_s, "pause_s": pause_s}
            self._feed(words.HostCompleted, host=host, version=version, n_bytes=n_bytes, **times)

    def applied(self, version: int, **about: object) -> None:
        """Feed what a host's actors have applied: fields of :class:`ActorsInstalled`."""
        if version == self._version:
            publish_s = asyncio.get_running_loop().time() - self._begun
            self._feed(words.ActorsInstalled, version=version, publish_s=publish_s, **about)

    def lacks(self, version: int, host: str, missing: Sequence[tuple[int, int]]) -> None:
        """Feed that a host cannot keep what it was to keep."""
        self._feed(
            words.BaseMissing, host=host, version=version, missing=tuple([(start, stop) for start, stop in missing])
        )

    def lost(self, message: Plain) -> None:
        """Feed that a host did not take a message: fields of :class:`MessageLost`."""
        self._feed(words.MessageLost, **message)

    def close(self) -> None:
        """Send nothing more."""
        self._clear()

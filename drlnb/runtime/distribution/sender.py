"""Carry out the commands of a publication: send ranges along their routes, ask hosts what they miss, hear what came."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass

from drlnb.planning.distribution import Route
from drlnb.records.base import Record
from drlnb.records.columns.distribution import (
    AskMissing,
    HostCompleted,
    HostUnreachable,
    MessageLost,
    RangesMissing,
    SendParameters,
)
from drlnb.runtime.distribution.outbox import Outbox, ways
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import SOON_S, Payload, Plain

__all__ = ["Sender", "send_along"]


def send_along(
    link: Link,
    fields: Plain,
    payload: Payload,
    lost: Callable[[Plain], None],
    *,
    sender: str = "",
    hosts: Sequence[tuple[str, str]],
    routes: Sequence[Route],
    sends: Sequence[tuple[int, int, int]],
    n_in_flight: int,
    left_s: float,
) -> Outbox:
    """Send ranges of a version along their routes, in their order.

    Parameters
    ----------
    link
        Speaks for the host that holds the version.
    fields
        ``task``, ``chunk`` (attempt, version, total) and ``report`` of each message.
    payload
        The version.
    lost
        Called with the fields of a :class:`~drlnb.records.columns.distribution.MessageLost`.
    sender
        Name of the host; empty: the learner.
    hosts
        (name, address) of each host of the routes.
    routes, sends, n_in_flight
        As of :class:`~drlnb.records.columns.distribution.SendParameters`.
    left_s
        Seconds until nobody waits for it any more.
    """
    view = memoryview(payload).cast("B")
    outbox = Outbox(link, n_in_flight, asyncio.get_running_loop().time() + left_s, sender, lost)
    first = [ways(route, hosts) for route in routes]
    for start, stop, route in sends:
        for way in first[route]:
            chunk = fields["chunk"] | {"start": start, "stop": stop}
            outbox.put(way, fields | {"chunk": chunk}, view[start:stop])
    return outbox


@dataclass(slots=True)
class _Open:
    """One command under way."""

    command: SendParameters
    begun: float
    hosts: set[str]
    outbox: Outbox | None = None
    timer: asyncio.TimerHandle | None = None


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
        feed: Callable[..., tuple[Record, ...]],
    ) -> None:
        self._link, self._task, self.attempt = link, task, attempt
        self._payload, self._addresses, self._feed = payload, addresses, feed
        self._open: list[_Open] = []

    def send(self, command: SendParameters) -> None:
        """Send ranges along their routes; every host of these ends in an event of its own."""
        loop, payload = asyncio.get_running_loop(), self._payload()
        reached = {command.hosts[number] for route in command.routes for _, number in route}
        now = _Open(command, loop.time(), reached)
        self._take_over(reached)
        self._open = [each for each in self._open if each.hosts and each.command.version == command.version] + [now]
        now.timer = loop.call_later(command.deadline_s, self._expire, now)
        addresses = self._addresses()
        where: Plain = {
            "hosts": [(host, addresses.get(host, "")) for host in command.hosts],
            "routes": command.routes,
            "sends": command.sends,
            "n_in_flight": command.n_in_flight,
            "left_s": command.deadline_s,
        }
        n_bytes = len(payload)
        chunk = {"attempt": self.attempt, "version": command.version, "total": n_bytes, "again": command.again}
        fields: Plain = {"task": self._task, "chunk": chunk, "report": self._link.address}
        if command.source:
            self._link.keep(self._delegate(command, addresses.get(command.source, ""), fields, where))
        else:
            now.outbox = send_along(self._link, fields, payload, self.lost, **where)

    async def _delegate(self, command: SendParameters, address: str, fields: Plain, where: Plain) -> None:
        reply = await self._link.call(address, "drlnb_forward", **fields, **where)
        if reply.get("refused"):
            why = str(reply["refused"])
            self._feed(HostUnreachable, host=command.source, version=command.version, reason=why)

    def ask(self, command: AskMissing) -> Coroutine[object, object, None]:
        """Ask hosts what they miss; they have no deadline meanwhile."""
        self._take_over(command.hosts)
        return self._ask_all(command)

    def _take_over(self, hosts: Iterable[str]) -> None:
        """Forget earlier deadlines of hosts: the newest command has its own."""
        for each in self._open:
            for host in hosts:
                self._close(each, host)

    async def _ask_all(self, command: AskMissing) -> None:
        addresses, total = self._addresses(), len(self._payload())
        await asyncio.gather(*[
            self._ask(host, addresses.get(host, ""), command.version, total) for host in command.hosts
        ])

    async def _ask(self, host: str, address: str, version: int, total: int) -> None:
        run, task = self._task
        about: Plain = {"run": run, "task": task, "attempt": self.attempt, "version": version, "total": total}
        reply = await self._link.call(address, "drlnb_missing", **about, timeout_s=SOON_S)
        if reply.get("refused"):
            self._feed(HostUnreachable, host=host, version=version, reason=str(reply["refused"]))
        elif reply["missing"]:
            missing = tuple([(start, stop) for start, stop in reply["missing"]])
            self._feed(RangesMissing, host=host, version=version, missing=missing)
        else:  # its report was lost
            self._feed(HostCompleted, host=host, version=version, n_bytes=total, publish_s=0.0)

    # ------------------------------------------------------------------ what came of it
    def arrived(self, version: int, host: str, arrival_s: float) -> None:
        """Note that a host holds a version."""
        waiting = [each for each in self._open if host in each.hosts and each.command.version == version]
        for each in waiting:
            self._close(each, host)
        if waiting:
            publish_s = asyncio.get_running_loop().time() - waiting[0].begun
            n_bytes = len(self._payload())
            self._feed(
                HostCompleted, host=host, version=version, n_bytes=n_bytes, publish_s=publish_s, arrival_s=arrival_s
            )

    def lost(self, message: Plain) -> None:
        """Note that a host did not take a message: fields of :class:`MessageLost`."""
        self._feed(MessageLost, **message)

    def _close(self, each: _Open, host: str) -> None:
        each.hosts.discard(host)
        if not each.hosts and each.timer is not None:
            each.timer.cancel()

    def _expire(self, each: _Open) -> None:
        reason = f"not there after {each.command.deadline_s:g} s"
        for host in sorted(each.hosts):
            self._feed(HostUnreachable, host=host, version=each.command.version, reason=reason)

    def close(self) -> None:
        """Forget what is under way."""
        for each in self._open:
            if each.timer is not None:
                each.timer.cancel()
            if each.outbox is not None:
                each.outbox.clear()
        self._open.clear()

"""Send a host's messages of one version in their order, so many at a time, never two to the same host at once."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drlnb.planning.distribution import LEARNER, Route
from drlnb.runtime.distribution.emulated import Card
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Outbox", "Way", "next_ways", "ways"]


@dataclass(frozen=True, slots=True)
class Way:
    """The hosts that a message reaches, the receiver first, and who of them sends to whom."""

    #: (name, address of the agent).
    hosts: tuple[tuple[str, str], ...]
    #: Pairs of numbers of hosts, each sender's in the order of its sending.
    edges: Route = ()

    @property
    def names(self) -> list[str]:
        """Names of the hosts, the receiver first."""
        return [name for name, _ in self.hosts]


def ways(route: Route, hosts: Sequence[tuple[str, str]]) -> list[Way]:
    """Return the ways of the messages that the learner sends along a route."""
    return _split(LEARNER, route, hosts)


def next_ways(way: Way) -> list[Way]:
    """Return the ways of the messages that the receiver forwards."""
    return _split(0, way.edges, way.hosts)


def _split(root: int, edges: Route, hosts: Sequence[tuple[str, str]]) -> list[Way]:
    """Cut a tree at its root."""
    #: Host -> (number of its part, number within the part).
    place: dict[int, tuple[int, int]] = {}
    parts: list[tuple[list[tuple[str, str]], list[tuple[int, int]]]] = []
    for sender, receiver in edges:
        if sender == root:
            place[receiver] = len(parts), 0
            parts.append(([hosts[receiver]], []))
        else:
            part, within = place[sender]
            those, pairs = parts[part]
            place[receiver] = part, len(those)
            pairs.append((within, len(those)))
            those.append(hosts[receiver])
    return [Way(tuple(those), tuple(pairs)) for those, pairs in parts]


@dataclass(frozen=True, slots=True)
class _Message:
    way: Way
    fields: Plain
    payload: Payload


class Outbox:
    """Messages of one version at one host.

    Parameters
    ----------
    link
        Speaks for the host.
    n_in_flight
        Messages that may be without an answer.
    until
        Time of the event loop after which nothing is sent any more, in seconds.
    sender
        Name of the host; empty: the learner.
    lost
        Called with the fields of a :class:`~drlnb.records.columns.distribution.MessageLost` if a receiver does not take
        a message.
    card
        The host's, where messages say that it is emulated.
    """

    def __init__(
        self, link: Link, n_in_flight: int, until: float, sender: str, lost: Callable[[Plain], None], card: Card
    ) -> None:
        self._link, self._limit, self.until = link, n_in_flight, until
        self._sender, self._lost, self._card = sender, lost, card
        self._queue: deque[_Message] = deque()
        self._busy: set[str] = set()

    def put(self, way: Way, fields: Plain, payload: Payload) -> None:
        """Send a range along a way when its turn comes."""
        self._queue.append(_Message(way, fields, payload))
        self._start()

    def clear(self) -> None:
        """Send nothing more: a newer version has come."""
        self._queue.clear()

    def _start(self) -> None:
        """Start the first messages whose receivers are not busy."""
        for message in list(self._queue):
            if len(self._busy) >= self._limit:
                return
            if message.way.hosts[0][1] not in self._busy:
                self._queue.remove(message)
                self._busy.add(message.way.hosts[0][1])
                self._link.keep(self._deliver(message))

    async def _deliver(self, message: _Message) -> None:
        _, address = message.way.hosts[0]
        cards = await self._card.send(len(message.payload), message.fields.get("cards", {}))
        left_s = self.until - asyncio.get_running_loop().time()
        try:
            reply = await self._link.call(
                address,
                "drlnb_chunk",
                timeout_s=max(0.0, left_s),
                payload=message.payload,
                hosts=message.way.hosts,
                edges=message.way.edges,
                left_s=left_s,
                n_in_flight=self._limit,
                **(message.fields | cards),
            )
        except Exception as error:  # noqa: BLE001 - of the receiver's handler, too: nobody else would hear of it
            reply = {"refused": f"{type(error).__name__}: {error}"}
        finally:
            self._busy.discard(address)
        if reply.get("refused"):
            chunk, (host, *orphans) = message.fields["chunk"], message.way.names
            about = {key: chunk[key] for key in ("version", "start", "stop", "again")}
            why = str(reply["refused"])
            self._lost(about | {"sender": self._sender, "host": host, "orphans": tuple(orphans), "reason": why})
        self._start()

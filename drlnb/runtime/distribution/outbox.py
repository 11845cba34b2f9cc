"""Send a host's messages of one version in their order, so many at a time, never two to the same host at once."""

import asyncio
import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from drlnb.planning.distribution import LEARNER, Route
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["Outbox", "Way", "next_ways", "pack_hosts", "ways"]


@dataclass(frozen=True, slots=True)
class Way:
    """The hosts that a message reaches, as it carries them; its sender and they use the numbers of one table."""

    #: A table of :func:`pack_hosts`.
    hosts: bytes
    #: (number of a sender, number of a receiver), 16 bits each; first the message itself, then whatever follows from
    #: it, each sender's in the order of its sending.
    edges: bytes
    #: Address of the receiver's agent.
    address: str

    @property
    def names(self) -> list[str]:
        """Names of the hosts, the receiver first."""
        hosts = _unpack_hosts(self.hosts)
        return [hosts[receiver][0] for _, receiver in _unpack_edges(self.edges)]


def pack_hosts(hosts: Sequence[tuple[str, str]]) -> bytes:
    """Return a table of names and addresses of agents: small, since it goes along with each message."""
    return zlib.compress(json.dumps(hosts).encode())


@lru_cache(maxsize=64)
def _unpack_hosts(table: bytes) -> tuple[tuple[str, str], ...]:
    return tuple([(name, address) for name, address in json.loads(zlib.decompress(table))])


def _unpack_edges(edges: bytes) -> Route:
    return tuple([(sender, receiver) for sender, receiver in np.frombuffer(edges, "<i2").reshape(-1, 2).tolist()])


def ways(route: Route, hosts: bytes) -> tuple[Way, ...]:
    """Return the ways of the messages that the learner sends along a route."""
    return _split(LEARNER, route, hosts)


@lru_cache(maxsize=4096)
def next_ways(hosts: bytes, edges: bytes) -> tuple[Way, ...]:
    """Return the ways of the messages that the receiver of a message forwards: the same ones for each of its chunks."""
    (_, receiver), *onward = _unpack_edges(edges)
    return _split(receiver, onward, hosts)


def _split(root: int, edges: Iterable[tuple[int, int]], table: bytes) -> tuple[Way, ...]:
    """Cut a tree at its root."""
    #: Host -> the one of the root's receivers that it is behind; and what lies behind each of these.
    behind: dict[int, int] = {}
    parts: dict[int, list[tuple[int, int]]] = {}
    for sender, receiver in edges:
        first = behind[receiver] = receiver if sender == root else behind[sender]
        parts.setdefault(first, []).append((sender, receiver))
    hosts = _unpack_hosts(table)
    return tuple([Way(table, np.array(pairs, "<i2").tobytes(), hosts[first][1]) for first, pairs in parts.items()])


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
    """

    def __init__(self, link: Link, n_in_flight: int, until: float, sender: str, lost: Callable[[Plain], None]) -> None:
        self._link, self._limit, self.until = link, n_in_flight, until
        self._sender, self._lost = sender, lost
        self._queue: deque[_Message] = deque()
        self._busy: set[str] = set()
        #: Addresses of receivers that are gone.
        self._gone: set[str] = set()

    def put(self, way: Way, fields: Plain, payload: Payload) -> None:
        """Send a range along a way when its turn comes."""
        self._queue.append(_Message(way, fields, payload))
        self._start()

    def forget(self, address: str) -> None:
        """Count what is, or would be, on its way to an address as not taken: no agent is there any more."""
        self._gone.add(address)
        self._link.cut(address)

    def clear(self) -> None:
        """Send nothing more: a newer version has come."""
        self._queue.clear()

    def _start(self) -> None:
        """Start the first messages whose receivers are not busy."""
        for message in list(self._queue):
            if len(self._busy) >= self._limit:
                return
            if message.way.address not in self._busy:
                self._queue.remove(message)
                self._busy.add(message.way.address)
                self._link.keep(self._deliver(message))

    async def _deliver(self, message: _Message) -> None:
        address = message.way.address
        left_s = self.until - asyncio.get_running_loop().time()
        try:
            if address in self._gone:
                raise ConnectionError(f"{address} is gone")
            reply = await self._link.call(
                address,
                "drlnb_chunk",
                timeout_s=max(0.0, left_s),
                payload=message.payload,
                hosts=message.way.hosts,
                edges=message.way.edges,
                left_s=left_s,
                n_in_flight=self._limit,
                **message.fields,
            )
        except Exception as error:  # noqa: BLE001 - of the receiver's handler, too: nobody else would hear of it
            reply = {"refused": f"{type(error).__name__}: {error}"}
        finally:
            self._busy.discard(address)
        if reply.get("refused"):
            # Where there is no room for this message, there is none for the others of its version.
            full, why = "no_room" in reply, str(reply["refused"])
            more = [each for each in self._queue if full and each.way.address == address]
            self._queue = deque(each for each in self._queue if not (full and each.way.address == address))
            for each in (message, *more):
                chunk, (host, *orphans) = each.fields["chunk"], each.way.names
                about = {key: chunk[key] for key in ("version", "start", "stop")} | {"again": chunk["again"] or full}
                self._lost(about | {"sender": self._sender, "host": host, "orphans": tuple(orphans), "reason": why})
        self._start()

"""Define the records of distribution: how parameters reach the hosts' stores (seed 001)."""

from typing import Any

from drlnb.records.base import Command, Decision, Event

#: Pairs (host, children) to forward to, each again the same shape, which no annotation of plain data can say.
Route = tuple[Any, ...]


class DistributionPlanned(Decision):
    """Who sends which byte range to whom, as decided for one version."""

    version: int
    planner: str
    hosts: tuple[str, ...]
    n_bytes: int
    n_messages: int
    #: Short hash of the whole plan.
    digest: str


class SendChunk(Command):
    """Send bytes [start, stop) of a version to `host`, which forwards them along `children` (nested routes)."""

    version: int
    start: int
    stop: int
    host: str
    #: Tuple of ``(host, children)`` pairs, each again the same shape: the message carries its whole route.
    children: Route


class HostCompleted(Event):
    """A host's store holds the whole version."""

    host: str
    version: int
    #: Bytes of the version.
    n_bytes: int
    #: Seconds from the first send of this version to the acknowledgement, at the sender.
    publish_s: float


class HostUnreachable(Event):
    """A send failed or ran out of time; the host's collectors cannot act on this version.

    Each host of a route has an event of its own: the relay that died, and the hosts that are cut off below it.
    """

    host: str
    version: int
    reason: str
    #: The relay that could not be reached, if this host is cut off below it; empty: it is this host.
    relay: str = ""


class HostDropped(Decision):
    """The host takes no part any more until it comes back as a new node."""

    host: str
    reason: str


class VersionPublished(Decision):
    """Every host that lives holds the version."""

    version: int
    publish_s: float
    n_hosts: int

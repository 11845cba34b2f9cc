"""Define the records of distribution: how parameters reach the hosts' stores (the distribution patent)."""

from collections.abc import Mapping

from drlnb.records.base import Command, Decision, Event

#: Pairs (sender, receiver) of numbers of hosts, each sender's in the order of its sending; the first is the learner's.
Route = tuple[tuple[int, int], ...]
#: Stands for the learner, or for whoever sends in its place, in a route.
LEARNER = -1


class PublishAsked(Event):
    """A publisher has a new version."""

    version: int
    n_bytes: int
    #: Name of the planner from now on; empty: as before.
    planner: str = ""
    #: Version that was sent last, and the ranges (start, stop) of bytes in which this one may differ from it; 0 and
    #: none: all of it is new.
    base: int = 0
    changed: tuple[tuple[int, int], ...] = ()


class HostsChanged(Event):
    """These are the hosts now."""

    hosts: tuple[str, ...]


class MeasureLink(Command):
    """Measure the network between the learner and these hosts; what came of it is an event, soon."""

    hosts: tuple[str, ...]


class LinkMeasured(Event):
    """The network was measured, as far as it could be, and is planned with from the next version on."""

    #: Hosts that took part.
    hosts: tuple[str, ...]
    #: Field of :class:`~drlnb.planning.distribution.cost.Link` -> its value; what is not here stays as it was.
    figures: Mapping[str, float | bool]


class DistributionPlanned(Decision):
    """Who sends which byte range to whom, as decided for one version."""

    version: int
    planner: str
    hosts: tuple[str, ...]
    n_bytes: int
    n_messages: int
    #: Short hash of the whole plan.
    digest: str
    #: Seconds that the planner expects it to take; 0: it does not say.
    predicted_s: float = 0.0
    #: What the planner chose, such as ``relay:m=4``; empty: a plan of a user's own, or what is sent once more.
    plan: str = ""
    #: How many times `predicted_s` versions took by such plans so far: what is expected is the product.
    correction: float = 1.0
    #: Bytes of the version that do not travel: each of the hosts copies them from a version that it holds.
    kept_bytes: int = 0


class SendParameters(Command):
    """Send ranges of a version along their routes; each host that holds it then, and each message lost, is an event."""

    version: int
    #: Host that holds what is sent; empty: the learner.
    source: str
    #: Host i of the routes.
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    #: (start, stop, number of the route) of each message, in the order of sending.
    sends: tuple[tuple[int, int, int], ...]
    #: Messages that a host may have sent without an answer, never more than one to the same host.
    n_in_flight: int
    #: Seconds until nobody waits for these messages any more.
    deadline_s: float
    #: Not the first message with these ranges: they are forwarded even by hosts to which they have come meanwhile.
    again: bool = False
    #: Seconds for which a host that holds the version waits until its actors have applied it, and reports; 0: it does
    #: neither.
    confirm_s: float = 0.0
    #: Version from which a host that holds it copies what is outside of the ranges (start, stop) `changed`; one that
    #: does not hold it, or has other bytes in the end, says so.  0: all of the version is sent.
    base: int = 0
    changed: tuple[tuple[int, int], ...] = ()


class AskMissing(Command):
    """Ask hosts which bytes of a version they miss; one that does not answer was not reached."""

    version: int
    hosts: tuple[str, ...]


class HostCompleted(Event):
    """A host's store holds the whole version."""

    host: str
    version: int
    #: Bytes of the version.
    n_bytes: int
    #: Seconds from the first send of this version until the sender knew.
    publish_s: float
    #: Seconds from the first byte at the host to the last one, at the host.
    arrival_s: float = 0.0
    #: Longest time for which a reader there could not act when it went on to the version that it had until now, in
    #: seconds.
    pause_s: float = 0.0


class ActorsInstalled(Event):
    """The actors of a host have applied a version or a newer one, or are waited for no longer there."""

    host: str
    version: int
    #: Actors that are attached to the host's store, and those of them that have not applied it.
    n_actors: int
    n_late: int
    #: Seconds from the first send of this version until the sender knew.
    publish_s: float
    #: Seconds since the host's store held it, at the host.
    applied_s: float
    #: Longest time for which one of them could not act since it went on to the version, in seconds.
    pause_s: float = 0.0


class RangesMissing(Event):
    """A host that lives has said which bytes of a version it misses; none: readers hold every slot of its store."""

    host: str
    version: int
    #: (start, stop) of each, ascending.
    missing: tuple[tuple[int, int], ...]


class BaseMissing(Event):
    """A host does not hold the version from which it was to copy a part, or had other bytes in the end."""

    host: str
    #: The newer one.
    version: int
    #: (start, stop) of what it must be sent therefore.
    missing: tuple[tuple[int, int], ...]


class MessageLost(Event):
    """A host did not take a range, so nor was it forwarded to the hosts behind it."""

    version: int
    #: Who had it to send; empty: the learner.
    sender: str
    host: str
    start: int
    stop: int
    #: Hosts that were to get it by way of this one, each before those behind it.
    orphans: tuple[str, ...]
    #: It was not the first message with this range, or another one would be in vain.
    again: bool
    reason: str


class HostUnreachable(Event):
    """A host does not answer what it misses of a version, or cannot send what it was to send in the learner's place."""

    host: str
    version: int
    reason: str
    #: It was to send.
    sends: bool = False


class HostDropped(Decision):
    """The host takes no part any more until it comes back as a new node."""

    host: str
    reason: str


class VersionPublished(Decision):
    """Every host that lives holds the version, and its actors have applied it where they are waited for."""

    version: int
    publish_s: float
    n_hosts: int
    #: Hosts that live, and whose actors were in the way past a deadline: they have not applied it, or hold every slot.
    late: tuple[str, ...] = ()


class VersionFailed(Decision):
    """The planner made no plan that fits: the version is not sent."""

    version: int
    reason: str


class VersionSuperseded(Decision):
    """A version that waited for the one before is never sent: a newer one has come."""

    version: int

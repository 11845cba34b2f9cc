"""Publish versions to hosts, one at a time: the machine behind a publisher that has no training round around it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.distribution.changes import Ranges
from drlnb.planning.distribution.cost import Link
from drlnb.planning.distribution.planner import DISTRIBUTION
from drlnb.planning.distribution.publication import Publication
from drlnb.planning.machine import Machine, Out, Rules
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.records.base import Facts
from drlnb.records.columns import distribution as words
from drlnb.records.common import DeadlinePassed, SetDeadline

__all__ = ["ACTORS", "HOSTS", "RULES", "DistributionMachine", "Publishing"]

#: Name of the deadline of actors; it passes that many seconds after the last host has stopped waiting for its own.
ACTORS, _GRACE_S = "actors", 1.0
#: Name of the deadline of a version that finds no host: so many seconds have those that were dropped to come back.
HOSTS, _BACK_S = "hosts", 2.0


@dataclass(slots=True, kw_only=True)
class Publishing:
    """What goes out, and what waits."""

    planners: Planners = field(metadata=TRANSIENT)
    planner: str
    publication: Publication = field(default_factory=Publication)
    #: A version is under way.
    busy: bool = False
    #: (version, bytes, base, changed ranges) of the version that goes out next; the newest one wins.
    pending: tuple[int, int, int, Ranges] | None = None
    #: Host to which the version was sent and whose actors are not known to have it -> they are waited for no longer.
    actors: dict[str, bool] = field(default_factory=dict)
    #: Every host holds the version, and the deadline of actors has been set.
    actors_due: bool = False
    #: The version has found no host, and waits for one until a deadline.
    hostless: bool = False
    t: float = 0.0


class DistributionMachine(Machine[Publishing]):
    """Publishes one version after another, the newest first, to whatever hosts there are.

    Parameters
    ----------
    config
        ``planner``: name of the planner, such as ``relay:m=4``; ``link``: fields of
        :class:`~drlnb.planning.distribution.cost.Link`, where the network is known; ``deadline_s``: seconds until hosts
        are asked what they miss, where that is not left to the prediction; ``confirm``: ``actors`` if a version is
        published once they have applied it, at most as long after the hosts hold it as its own deadline.
    planners
        What makes planners of their names.

    Raises
    ------
    ValueError
        If there is no planner of the name.
    """

    def __init__(self, config: Facts, planners: Planners | None = None) -> None:
        state = Publishing(planners=planners or Planners(), planner=config["planner"])
        state.planners.make(DISTRIBUTION, state.planner)  # a wrong name is refused now
        if "link" in config:
            state.publication.know(Link.from_mapping(config["link"]))
        state.publication.deadline_s = config.get("deadline_s")
        state.publication.confirms = config.get("confirm") == "actors"
        super().__init__("DistributionMachine", state, RULES)
        self.config = config

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        state = self.state
        publication = state.publication
        yield max(publication.hosts.values(), default=0) <= publication.version, "no host holds what was not sent"
        yield state.pending is None or state.busy, "a version waits only for another one"
        yield state.pending is None or state.pending[0] > publication.version, "what waits is newer"
        hosts = publication.hosts
        yield (
            all(hosts.get(host, publication.version) < publication.version for host in publication.waiting),
            "who waits does not hold it",
        )
        asked = {*publication.asked, *publication.missing, *publication.late}
        yield asked <= set(publication.waiting) <= hosts.keys(), "who is asked waits, and who waits is a host"
        yield state.actors.keys() <= (hosts.keys() if state.busy else set()), "actors of hosts are waited for"
        yield not (state.actors_due and publication.waiting), "actors are late once every host holds the version"
        yield not state.hostless or (state.busy and not hosts), "a version waits for a host where there is none"


def _publish_asked(state: Publishing, event: words.PublishAsked, out: Out) -> None:
    """Send a version, or put it in place of the one that waits."""
    state.planner = event.planner or state.planner
    if state.busy:
        if state.pending is not None:
            out.append(words.VersionSuperseded(version=state.pending[0]))
        state.pending = event.version, event.n_bytes, event.base, event.changed
    else:
        _begin(state, event.version, event.n_bytes, out, event.base, event.changed)


def _begin(state: Publishing, version: int, n_bytes: int, out: Out, base: int = 0, changed: Ranges = ()) -> None:
    state.busy, state.actors_due = True, False
    publication = state.publication
    planner, n_before = state.planners.make(DISTRIBUTION, state.planner), len(publication.waiting)
    try:
        publication.begin(version, n_bytes, planner, state.t, out, base=base, changed=changed)
    except PlannerFailed as error:
        state.busy = bool(publication.waiting)
        out.append(words.VersionFailed(version=version, reason=str(error)))
    if not publication.hosts:
        state.hostless = True
        out.append(SetDeadline(name=HOSTS, after_s=_BACK_S))
    if publication.confirms:
        state.actors.update(dict.fromkeys(publication.waiting[n_before:], False))
    _go_on(state, out)


def _go_on(state: Publishing, out: Out) -> None:
    """Once every host holds the version or was dropped, and no actor is waited for, send the next one.

    Where none waits, have the network measured.
    """
    publication = state.publication
    if publication.waiting or state.hostless:
        return
    if state.busy:
        if not all(state.actors.values()):
            if not state.actors_due:
                state.actors_due = True
                out.append(SetDeadline(name=ACTORS, after_s=publication.confirm_s + _GRACE_S))
            return
        if publication.confirms:
            publication.publish_s = round(state.t - publication.begun_t, 6)
        version, publish_s = publication.version, publication.publish_s
        n_hosts = len(publication.hosts) - len(publication.behind(version))
        out.append(
            words.VersionPublished(version=version, publish_s=publish_s, n_hosts=n_hosts, late=tuple(state.actors))
        )
        state.busy, state.actors = False, {}
    if state.pending is not None:
        (version, n_bytes, base, changed), state.pending = state.pending, None
        _begin(state, version, n_bytes, out, base, changed)
    publication.measure(state.planners.make(DISTRIBUTION, state.planner), out)


def _drop(state: Publishing, host: str, reason: str, out: Out) -> None:
    out.append(words.HostDropped(host=host, reason=reason))
    state.actors.pop(host, None)
    state.publication.gone(host, out)


def _hosts_changed(state: Publishing, event: words.HostsChanged, out: Out) -> None:
    """Forget hosts that are gone; send the newest version to those that have come."""
    publication = state.publication
    for host in sorted(publication.hosts.keys() - set(event.hosts)):
        _drop(state, host, "it is gone", out)
    publication.placed(event.hosts)
    state.hostless = state.hostless and not publication.hosts
    if publication.version and publication.behind(publication.version):
        _begin(state, publication.version, publication.n_bytes, out)
    else:
        _go_on(state, out)


def _completed(state: Publishing, event: words.HostCompleted, out: Out) -> None:
    """Count a host in that holds the version."""
    state.publication.completed(event, out)
    _go_on(state, out)


def _actors_installed(state: Publishing, event: words.ActorsInstalled, out: Out) -> None:
    """Count a host's actors in, or as late."""
    if event.version == state.publication.version and event.host in state.actors:
        state.actors[event.host] = True
        if not event.n_late:
            del state.actors[event.host]
        _go_on(state, out)


def _message_lost(state: Publishing, event: words.MessageLost, out: Out) -> None:
    """Send again what a host did not take; drop it if it did not take it a second time."""
    if state.publication.message_lost(event, out):
        _drop(state, event.host, event.reason, out)
    _go_on(state, out)


def _base_missing(state: Publishing, event: words.BaseMissing, out: Out) -> None:
    """Send a host what it was to keep of the former version, and does not hold."""
    state.publication.base_missing(event, out)


def _unreachable(state: Publishing, event: words.HostUnreachable, out: Out) -> None:
    """Drop a host that does not answer; have others send where it cannot."""
    if state.publication.unreachable(event, out):
        _drop(state, event.host, event.reason, out)
    _go_on(state, out)


def _deadline_passed(state: Publishing, event: DeadlinePassed, out: Out) -> None:
    """Mend a version that is late; wait no longer for hosts whose actors are, or for any host where none comes."""
    publication = state.publication
    if event.name == ACTORS and state.actors_due:
        state.actors = dict.fromkeys(state.actors, True)
    state.hostless = state.hostless and event.name != HOSTS
    for host in publication.deadline_passed(event, out):
        if publication.full.get(host):
            publication.over(host)
            state.actors[host] = True
        else:
            _drop(state, host, "late too often", out)
    _go_on(state, out)


def _misses(state: Publishing, event: words.RangesMissing, out: Out) -> None:
    """Send hosts what they miss once all that were asked have answered."""
    state.publication.misses(event, out)


def _link_measured(state: Publishing, event: words.LinkMeasured, out: Out) -> None:
    """Plan the next version with what was measured."""
    state.publication.measured(event)


#: Event -> its rule.
RULES: Rules[Publishing] = {
    words.PublishAsked: _publish_asked,
    words.HostsChanged: _hosts_changed,
    words.HostCompleted: _completed,
    words.ActorsInstalled: _actors_installed,
    words.HostUnreachable: _unreachable,
    words.BaseMissing: _base_missing,
    words.MessageLost: _message_lost,
    words.RangesMissing: _misses,
    DeadlinePassed: _deadline_passed,
    words.LinkMeasured: _link_measured,
}

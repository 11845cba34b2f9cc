"""Publish versions to hosts, one at a time: the machine behind a publisher that has no training round around it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.distribution.cost import Link
from drlnb.planning.distribution.planner import DISTRIBUTION
from drlnb.planning.distribution.publication import Publication
from drlnb.planning.machine import Machine, Out, Rules
from drlnb.planning.registry import Planners
from drlnb.records.base import Facts
from drlnb.records.columns.distribution import (
    HostCompleted,
    HostDropped,
    HostsChanged,
    HostUnreachable,
    LinkMeasured,
    MessageLost,
    PublishAsked,
    RangesMissing,
    VersionPublished,
    VersionSuperseded,
)
from drlnb.records.common import DeadlinePassed

__all__ = ["RULES", "DistributionMachine", "Publishing"]


@dataclass(slots=True, kw_only=True)
class Publishing:
    """What goes out, and what waits."""

    planners: Planners = field(metadata=TRANSIENT)
    planner: str
    publication: Publication = field(default_factory=Publication)
    #: A version is under way.
    busy: bool = False
    #: (version, bytes) of the version that goes out next; the newest one wins.
    pending: tuple[int, int] | None = None
    t: float = 0.0


class DistributionMachine(Machine[Publishing]):
    """Publishes one version after another, the newest first, to whatever hosts there are.

    Parameters
    ----------
    config
        ``planner``: name of the planner, such as ``relay:m=4``; ``link``: fields of
        :class:`~drlnb.planning.distribution.cost.Link`, where the network is known; ``deadline_s``: seconds until hosts
        are asked what they miss, where that is not left to the prediction.
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


def _publish_asked(state: Publishing, event: PublishAsked, out: Out) -> None:
    """Send a version, or put it in place of the one that waits."""
    state.planner = event.planner or state.planner
    if state.busy:
        if state.pending is not None:
            out.append(VersionSuperseded(version=state.pending[0]))
        state.pending = event.version, event.n_bytes
    else:
        _begin(state, event.version, event.n_bytes, out)


def _begin(state: Publishing, version: int, n_bytes: int, out: Out) -> None:
    state.busy = True
    planner = state.planners.make(DISTRIBUTION, state.planner)
    state.publication.begin(version, n_bytes, planner, state.t, out)
    _go_on(state, out)


def _go_on(state: Publishing, out: Out) -> None:
    """Once every host holds the version or was dropped, send the next one; measure the network where none waits."""
    publication = state.publication
    if publication.waiting:
        return
    if state.busy:
        state.busy = False
        n_hosts = len(publication.hosts)
        out.append(VersionPublished(version=publication.version, publish_s=publication.publish_s, n_hosts=n_hosts))
    if state.pending is not None:
        (version, n_bytes), state.pending = state.pending, None
        _begin(state, version, n_bytes, out)
    publication.measure(state.planners.make(DISTRIBUTION, state.planner), out)


def _drop(state: Publishing, host: str, reason: str, out: Out) -> None:
    out.append(HostDropped(host=host, reason=reason))
    state.publication.gone(host, out)


def _hosts_changed(state: Publishing, event: HostsChanged, out: Out) -> None:
    """Forget hosts that are gone; send the newest version to those that have come."""
    publication = state.publication
    for host in sorted(publication.hosts.keys() - set(event.hosts)):
        _drop(state, host, "it is gone", out)
    publication.placed(event.hosts)
    if publication.version and publication.behind(publication.version):
        _begin(state, publication.version, publication.n_bytes, out)
    else:
        _go_on(state, out)


def _completed(state: Publishing, event: HostCompleted, out: Out) -> None:
    """Count a host in that holds the version."""
    state.publication.completed(event, out)
    _go_on(state, out)


def _message_lost(state: Publishing, event: MessageLost, out: Out) -> None:
    """Send again what a host did not take; drop it if it did not take it a second time."""
    if state.publication.message_lost(event, out):
        _drop(state, event.host, event.reason, out)
    _go_on(state, out)


def _unreachable(state: Publishing, event: HostUnreachable, out: Out) -> None:
    """Drop a host that does not answer; have others send where it cannot."""
    if state.publication.unreachable(event, out):
        _drop(state, event.host, event.reason, out)
    _go_on(state, out)


def _deadline_passed(state: Publishing, event: DeadlinePassed, out: Out) -> None:
    """Mend a version that is late."""
    for host in state.publication.deadline_passed(event, out):
        _drop(state, host, "late too often", out)
    _go_on(state, out)


def _misses(state: Publishing, event: RangesMissing, out: Out) -> None:
    """Send hosts what they miss once all that were asked have answered."""
    state.publication.misses(event, out)


def _link_measured(state: Publishing, event: LinkMeasured, out: Out) -> None:
    """Plan the next version with what was measured."""
    state.publication.measured(event)


#: Event -> its rule.
RULES: Rules[Publishing] = {
    PublishAsked: _publish_asked,
    HostsChanged: _hosts_changed,
    HostCompleted: _completed,
    HostUnreachable: _unreachable,
    MessageLost: _message_lost,
    RangesMissing: _misses,
    DeadlinePassed: _deadline_passed,
    LinkMeasured: _link_measured,
}

"""Publish one version over a simulated network, host failures included, under the machine of a real publisher."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from drlnb.planning.distribution import DISTRIBUTION, DistributionMachine, DistributionView, Link, Plan
from drlnb.records.columns.distribution import HostDropped, HostsChanged, PublishAsked, VersionPublished
from drlnb.records.journal import Stream
from drlnb.sim.distribution.network import Message, Network
from drlnb.sim.driver import Clock, Hosted

__all__ = ["Published", "host_names", "simulate_publish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one version came to."""

    plan: Plan
    #: Seconds until every host that lives was known to hold it.
    publish_s: float
    #: Seconds until the last host held it.
    held_s: float
    failed: tuple[str, ...]
    #: Messages in the order of their arrival.
    messages: tuple[Message, ...]
    stream: Stream


def host_names(n_hosts: int) -> tuple[str, ...]:
    """Return the names of simulated hosts, host i of a plan at place i: ``h0``, ``h1``, ... or ``h00``, ``h01``, ..."""
    width = len(str(max(0, n_hosts - 1)))
    return tuple(f"h{i:0{width}}" for i in range(n_hosts))


def simulate_publish(
    planner: str,
    n_hosts: int,
    model_bytes: int,
    link: Link,
    *,
    fails: Mapping[str, float] | None = None,
    freezes: Mapping[str, float] | None = None,
    validate: bool = False,
) -> Published:
    """Publish one version to `n_hosts` hosts.

    Parameters
    ----------
    planner
        Name of the planner, such as ``relay:m=4``.
    n_hosts, model_bytes
        Hosts beside the learner, at least 0, and bytes of the version, at least 1.
    link
        The network.
    fails, freezes
        Host, of :func:`host_names` -> seconds after which it is gone, or stands still.
    validate
        Check the machine's invariants after each event.

    Raises
    ------
    ValueError
        If the planner is unknown or refuses its parameters.
    """
    clock, config = Clock(), {"planner": planner, "link": asdict(link)}
    machine, dead = DistributionMachine(config), set[str]()
    network = Network(clock, lambda version: link, lambda: hosted, model_bytes, lambda host: host not in dead)
    hosted = Hosted(
        clock,
        machine,
        kind="distribution",
        config=config,
        stream="distribution",
        effects=network.effects,
        validate=validate,
    )
    hosts = host_names(n_hosts)
    for places, named in ((dead, fails), (network.frozen, freezes)):
        for host, after_s in (named or {}).items():
            clock.after(after_s, places.add, host)
    hosted.feed(HostsChanged, hosts=hosts)
    epoch = machine.state.publication.epoch
    hosted.feed(PublishAsked, version=1, n_bytes=model_bytes)
    clock.run()
    stream = hosted.stream
    view = DistributionView(version=1, hosts=hosts, model_bytes=model_bytes, link=link, epoch=epoch)
    return Published(
        plan=DISTRIBUTION.build(planner).plan(view),
        publish_s=stream.of(VersionPublished)[-1].publish_s,
        held_s=max((message.done_t for message in network.messages), default=0.0),
        failed=tuple(record.host for record in stream.of(HostDropped)),
        messages=tuple(network.messages),
        stream=stream,
    )

"""Carry messages between hosts on the virtual clock: one server for what leaves a host, one for what arrives.

A message starts when its sender's card is free and holds it for its bytes, or for the time of the event loop if that is
longer; it is in once the receiver's card has taken it.  Plans are carried out, not computed: a second method beside the
closed forms.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from drlnb.planning.distribution import LEARNER, Chunk, Link, RelayAssembly, Route
from drlnb.records.columns.distribution import (
    AskMissing,
    HostCompleted,
    HostUnreachable,
    LinkMeasured,
    MeasureLink,
    MessageLost,
    RangesMissing,
    SendParameters,
)
from drlnb.sim.driver import Clock, Effects, Hosted

__all__ = ["Message", "Network"]

#: Time after which a host that does not answer a small question was not reached, in seconds.
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class Message:
    """One message on its way: bytes [start, stop) from when the sender began until the receiver had all of it."""

    sender: str
    receiver: str
    start: int
    stop: int
    begun_t: float
    done_t: float


@dataclass(slots=True)
class _Sent:
    """One command under way."""

    command: SendParameters
    t: float
    link: Link
    #: Route -> host -> the hosts that it forwards to.
    children: list[dict[int, tuple[int, ...]]]


@dataclass(slots=True)
class Network:
    """The hosts of one learner and the links between them.

    Parameters
    ----------
    clock
        The virtual clock.
    link_of
        Version -> rates and costs of its messages.
    host
        Returns the machine that hears what came of its commands.
    n_bytes
        Size of one version.
    lives
        Whether a host is there.
    """

    clock: Clock
    link_of: Callable[[int], Link]
    host: Callable[[], Hosted]
    n_bytes: int
    lives: Callable[[str], bool]
    #: Hosts that stand still.
    frozen: set[str] = field(default_factory=set)
    #: Host -> how many times slower its card is.
    slowness: dict[str, float] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    held: defaultdict[str, RelayAssembly] = field(default_factory=lambda: defaultdict(RelayAssembly))
    _egress_t: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _ingress_t: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _first_t: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def effects(self) -> Effects:
        """What carries out each kind of command."""
        return {SendParameters: self._send, AskMissing: self._ask, MeasureLink: self._measure}

    # ------------------------------------------------------------------ messages
    def _send(self, command: SendParameters) -> None:
        sent = _Sent(
            command,
            self.clock.now,
            self.link_of(command.version),
            [_children(route) for route in command.routes],
        )
        source = command.source
        if source and (source in self.frozen or not self.lives(source)):
            wait_s = _ANSWER_S if source in self.frozen else sent.link.latency_s
            reply = {"host": source, "version": command.version, "reason": "it does not answer", "sends": True}
            self.host().feed_after(wait_s, HostUnreachable, **reply)
            return
        for start, stop, route in command.sends:
            for receiver in sent.children[route][LEARNER]:
                self._start(sent, source, receiver, start, stop, route)

    def _start(self, sent: _Sent, sender: str, receiver: int, start: int, stop: int, route: int) -> None:
        """Put a message behind those that wait at its sender."""
        link, wire = sent.link, (stop - start) * (1.0 + sent.link.header_frac)
        rate = link.egress_bytes_per_s if sender else link.learner_bytes_per_s
        begun_t = max(self.clock.now, self._egress_t[sender])
        self._egress_t[sender] = begun_t + max(wire * self.slowness.get(sender, 1.0) / rate, link.overhead_s)
        delay_s = begun_t - self.clock.now + link.overhead_s + link.latency_s
        self.clock.after(delay_s, self._receive, sent, sender, receiver, start, stop, route, begun_t)

    def _receive(
        self, sent: _Sent, sender: str, receiver: int, start: int, stop: int, route: int, begun_t: float
    ) -> None:
        """Receive a message, behind those that wait at its receiver."""
        name, link = sent.command.hosts[receiver], sent.link
        if not self.lives(name):
            self._lose(sent, sender, receiver, start, stop, route)
        elif name not in self.frozen and (not sender or self.lives(sender)):
            wire = (stop - start) * (1.0 + link.header_frac) * self.slowness.get(name, 1.0)
            done_t = max(self._ingress_t[name], self.clock.now) + max(wire / link.ingress_bytes_per_s, link.overhead_s)
            self._ingress_t[name] = done_t
            message = Message(sender, name, start, stop, begun_t, done_t)
            self.clock.after(done_t - self.clock.now, self._arrive, sent, receiver, route, message)

    def _arrive(self, sent: _Sent, receiver: int, route: int, message: Message) -> None:
        name, command = message.receiver, sent.command
        if name in self.frozen or not self.lives(name):
            return
        self.messages.append(message)
        self._first_t.setdefault((name, command.version), message.begun_t)
        chunk = Chunk(
            attempt=1, version=command.version, start=message.start, stop=message.stop, total=self.n_bytes,
            children=sent.children[route].get(receiver, ()), again=command.again,
        )  # fmt: skip
        taken = self.held[name].take(chunk)
        for child in taken.forward:
            self._start(sent, name, child, message.start, message.stop, route)
        if taken.whole:
            self.clock.after(sent.link.latency_s + sent.link.overhead_s, self._complete, sent, name)

    # ------------------------------------------------------------------ what came of it
    def _complete(self, sent: _Sent, name: str) -> None:
        version = sent.command.version
        first_t = self._first_t[name, version]
        self.host().feed(
            HostCompleted,
            host=name,
            version=version,
            n_bytes=self.n_bytes,
            publish_s=round(self.clock.now - sent.t, 6),
            arrival_s=round(self.clock.now - first_t, 6),
        )

    def _lose(self, sent: _Sent, sender: str, receiver: int, start: int, stop: int, route: int) -> None:
        """Report a message that was not taken, and who was to get it by way of the receiver."""
        hosts, command, behind = sent.command.hosts, sent.command, list(sent.children[route].get(receiver, ()))
        for number in behind:  # grows
            behind += sent.children[route].get(number, ())
        self.host().feed(
            MessageLost, version=command.version, sender=sender, host=hosts[receiver], start=start, stop=stop,
            orphans=tuple(hosts[number] for number in behind), again=command.again, reason="the node is gone",
        )  # fmt: skip

    def _ask(self, command: AskMissing) -> None:
        link = self.link_of(command.version)
        for name in command.hosts:
            lost = name in self.frozen or not self.lives(name)
            wait_s = _ANSWER_S if name in self.frozen else 2 * (link.latency_s + link.overhead_s)
            self.clock.after(wait_s, self._answer, name, command.version, lost)

    def _measure(self, command: MeasureLink) -> None:
        """Report the network as it is before the first version, after a round trip."""
        link = self.link_of(1)
        after_s = 2 * (link.latency_s + link.overhead_s)
        self.host().feed_after(after_s, LinkMeasured, hosts=command.hosts, figures=asdict(link))

    def _answer(self, name: str, version: int, lost: bool) -> None:
        if lost:
            self.host().feed(HostUnreachable, host=name, version=version, reason="it does not answer")
            return
        missing = self.held[name].missing(version, self.n_bytes)
        self.host().feed(RangesMissing, host=name, version=version, missing=missing)


def _children(route: Route) -> dict[int, tuple[int, ...]]:
    """Return the hosts that each host of a route sends to, in order."""
    children: dict[int, list[int]] = {}
    for sender, receiver in route:
        children.setdefault(sender, []).append(receiver)
    return {sender: tuple(receivers) for sender, receivers in children.items()}

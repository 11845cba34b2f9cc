"""Carry messages between hosts on the virtual clock: each host has a card that sends, one that receives, and one loop.

A message starts when its sender's card and event loop are free.  It holds the card for its bytes, and the loop for the
time that a message takes there; from its first byte on it takes as long of the loop of its receiver, which receives and
sends in turn.  It is in once that loop and the receiver's card have taken it, and no earlier than a latency after it
has left its sender.  Plans are carried out, not computed: a second method beside the closed forms.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from drlnb.planning.distribution import LEARNER, Chunk, Link, RelayAssembly, Route
from drlnb.records.columns import distribution as words
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

    command: words.SendParameters
    t: float
    link: Link
    #: Route -> host -> the hosts that it forwards to.
    children: list[dict[int, tuple[int, ...]]]


#: Seconds of an event loop, what is called when they begin, and with what.
_Turn = tuple[float, Callable[..., None], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class _Leg:
    """One message that is to be sent along an edge of a route."""

    sent: _Sent
    sender: str
    receiver: int
    start: int
    stop: int
    route: int


@dataclass(slots=True)
class _Loop:
    """The event loop of a host: it receives and sends in turn, each message for its time."""

    #: What waits to be received, and to be sent: seconds, and the call that follows when they begin.
    waiting: tuple[deque[_Turn], deque[_Turn]] = field(default_factory=lambda: (deque(), deque()))
    sends: bool = False
    free_t: float = 0.0
    #: It is being served, or will be when it is free.
    is_due: bool = False


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
    messages: list[Message] = field(default_factory=list)
    held: defaultdict[str, RelayAssembly] = field(default_factory=lambda: defaultdict(RelayAssembly))
    #: Host -> what waits for its card; a host is here while the card sends.
    _queues: dict[str, deque[_Leg]] = field(default_factory=dict)
    _loops: defaultdict[str, _Loop] = field(default_factory=lambda: defaultdict(_Loop))
    #: Host -> when its card has received what has come so far.
    _ingress_t: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _first_t: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def effects(self) -> Effects:
        """What carries out each kind of command."""
        return {words.SendParameters: self._send, words.AskMissing: self._ask, words.MeasureLink: self._measure}

    # ------------------------------------------------------------------ messages
    def _send(self, command: words.SendParameters) -> None:
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
            self.host().feed_after(wait_s, words.HostUnreachable, **reply)
            return
        for start, stop, route in command.sends:
            for receiver in sent.children[route][LEARNER]:
                self._start(_Leg(sent, source, receiver, start, stop, route))

    def _start(self, leg: _Leg) -> None:
        """Put a message behind those that wait at its sender."""
        if leg.sender in self._queues:
            self._queues[leg.sender].append(leg)
        else:
            self._queues[leg.sender] = deque([leg])
            self._next(leg.sender)

    def _next(self, sender: str) -> None:
        """Send the first message that waits for a host's card."""
        if not self._queues[sender]:
            del self._queues[sender]
            return
        leg = self._queues[sender].popleft()
        self._turn(sender, True, leg.sent.link.overhead_s, self._leave, leg)

    def _turn(self, host: str, sends: bool, seconds: float, call: Callable[..., None], *arguments: object) -> None:
        """Call something when it is its turn at a host's event loop, which it holds for some seconds."""
        loop = self._loops[host]
        loop.waiting[sends].append((seconds, call, arguments))
        if not loop.is_due:
            self._serve(loop)

    def _serve(self, loop: _Loop) -> None:
        loop.is_due = True
        while any(loop.waiting):
            if loop.free_t > self.clock.now:
                self.clock.after(loop.free_t - self.clock.now, self._serve, loop)
                return
            loop.sends ^= bool(loop.waiting[not loop.sends])
            seconds, call, arguments = loop.waiting[loop.sends].popleft()
            loop.free_t = self.clock.now + seconds
            call(*arguments)
        loop.is_due = False

    def _leave(self, leg: _Leg) -> None:
        """Send a message from now on."""
        now, link = self.clock.now, leg.sent.link
        rate = link.egress_bytes_per_s if leg.sender else link.learner_bytes_per_s
        takes_s = max(self._wire(leg, leg.sender) / rate, link.overhead_s)
        self.clock.after(link.overhead_s + link.latency_s, self._receive, leg, now, now + takes_s)
        self.clock.after(takes_s, self._next, leg.sender)

    def _wire(self, leg: _Leg, host: str) -> float:
        """Return the bytes of a message on the wire."""
        return (leg.stop - leg.start) * (1.0 + leg.sent.link.header_frac)

    def _receive(self, leg: _Leg, begun_t: float, left_t: float) -> None:
        """Receive a message, behind those that wait at its receiver."""
        name, link = leg.sent.command.hosts[leg.receiver], leg.sent.link
        if not self.lives(name):
            self._lose(leg)
        elif name not in self.frozen and (not leg.sender or self.lives(leg.sender)):
            wire_s = self._wire(leg, name) / link.ingress_bytes_per_s
            self._ingress_t[name] = max(self._ingress_t[name], self.clock.now) + wire_s
            there_t = max(self._ingress_t[name], left_t + link.latency_s)
            self._turn(name, False, link.overhead_s, self._take, leg, begun_t, there_t)

    def _take(self, leg: _Leg, begun_t: float, there_t: float) -> None:
        """Give a message its time of the loop; it arrives then, or when it is there."""
        now, name = self.clock.now, leg.sent.command.hosts[leg.receiver]
        done_t = max(there_t, now + leg.sent.link.overhead_s)
        self.clock.after(
            done_t - now, self._arrive, leg, Message(leg.sender, name, leg.start, leg.stop, begun_t, done_t)
        )

    def _arrive(self, leg: _Leg, message: Message) -> None:
        name, sent, command = message.receiver, leg.sent, leg.sent.command
        if name in self.frozen or not self.lives(name):
            return
        self.messages.append(message)
        self._first_t.setdefault((name, command.version), message.begun_t)
        chunk = Chunk(
            attempt=1,
            version=command.version,
            start=message.start,
            stop=message.stop,
            total=self.n_bytes,
            children=sent.children[leg.route].get(leg.receiver, ()),
            again=command.again,
        )
        taken = self.held[name].take(chunk)
        for child in taken.forward:
            self._start(_Leg(sent, name, child, message.start, message.stop, leg.route))
        if taken.whole:
            self.clock.after(sent.link.latency_s + sent.link.overhead_s, self._complete, sent, name)

    # ------------------------------------------------------------------ what came of it
    def _complete(self, sent: _Sent, name: str) -> None:
        version = sent.command.version
        first_t = self._first_t[name, version]
        self.host().feed(
            words.HostCompleted,
            host=name,
            version=version,
            n_bytes=self.n_bytes,
            publish_s=round(self.clock.now - sent.t, 6),
            arrival_s=round(self.clock.now - first_t, 6),
        )

    def _lose(self, leg: _Leg) -> None:
        """Report a message that was not taken, and who was to get it by way of the receiver."""
        command, children = leg.sent.command, leg.sent.children[leg.route]
        hosts, behind = command.hosts, list(children.get(leg.receiver, ()))
        for number in behind:  # grows
            behind += children.get(number, ())
        self.host().feed(
            words.MessageLost,
            version=command.version,
            sender=leg.sender,
            host=hosts[leg.receiver],
            start=leg.start,
            stop=leg.stop,
            orphans=tuple(hosts[number] for number in behind),
            again=command.again,
            reason="the node is gone",
        )

    def _ask(self, command: words.AskMissing) -> None:
        link = self.link_of(command.version)
        for name in command.hosts:
            lost = name in self.frozen or not self.lives(name)
            wait_s = _ANSWER_S if name in self.frozen else 2 * (link.latency_s + link.overhead_s)
            self.clock.after(wait_s, self._answer, name, command.version, lost)

    def _measure(self, command: words.MeasureLink) -> None:
        """Report the network as it is before the first version, after a round trip."""
        link = self.link_of(1)
        after_s = 2 * (link.latency_s + link.overhead_s)
        self.host().feed_after(after_s, words.LinkMeasured, hosts=command.hosts, figures=asdict(link))

    def _answer(self, name: str, version: int, lost: bool) -> None:
        if lost:
            self.host().feed(words.HostUnreachable, host=name, version=version, reason="it does not answer")
            return
        missing = self.held[name].missing(version, self.n_bytes)
        self.host().feed(words.RangesMissing, host=name, version=version, missing=missing)


def _children(route: Route) -> dict[int, tuple[int, ...]]:
    """Return the hosts that each host of a route sends to, in order."""
    children: dict[int, list[int]] = {}
    for sender, receiver in route:
        children.setdefault(sender, []).append(receiver)
    return {sender: tuple(receivers) for sender, receivers in children.items()}

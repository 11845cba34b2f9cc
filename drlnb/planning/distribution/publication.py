"""Follow one version on its way to the hosts, and mend it on the way.

A message that is lost is sent again at once: past a dead relay to those behind it, by whoever had it to send.  Hosts
that do not hold the version in time, or wait for a relay that is gone, are asked what they miss, and get that from who
holds the version, the learner last.  Who does not answer, refuses a message twice or is late too often is dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from drlnb.planning.distribution.changes import Ranges, common, size
from drlnb.planning.distribution.cost import PRESETS, Link
from drlnb.planning.distribution.planner import DISTRIBUTION, DistributionView, command, kind_of
from drlnb.planning.distribution.plans import LEARNER, Plan
from drlnb.planning.distribution.trees import cut
from drlnb.planning.machine import Out
from drlnb.planning.registry import Planner
from drlnb.records.columns import distribution as words
from drlnb.records.common import DeadlinePassed, SetDeadline

__all__ = ["DEADLINE", "Publication"]

#: Shortest deadlines in seconds: of a plan whose hosts forward; and of one where nobody waits for another host, or of
#: which nobody knows how long it takes here.
FORWARDED_S, DIRECT_S = 5.0, 60.0
#: A deadline is so many times the prediction.
_PATIENCE = 4.0
#: What was learned of kinds of plans that are not used fades to this power with each version: in 35 versions half of it
#: is forgotten, and they are tried again where that may pay.  Limits of what is learned.
_FADES, _LEAST, _MOST = 0.98, 0.1, 100.0
#: Name of the deadline of the version that is under way, and how often a host may miss it.
DEADLINE, _CHANCES = "version", 2
#: So many hosts tell all that there is to know of the network.
_TELLING = 2
#: What a host that comes late, or missed something, gets in one message at most, in bytes.
_PIECE_BYTES = 2 << 20
#: Hosts copy and check at least so many bytes per second.
_COPIED_BYTES_PER_S = 100e6


@dataclass(slots=True, kw_only=True)
class Publication:
    """The hosts, the version that each holds, and what is under way; it changes by method calls of rules alone."""

    #: Host -> newest version that its store holds; 0 if none.
    hosts: dict[str, int] = field(default_factory=dict)
    #: Number of changes of the hosts so far.
    epoch: int = 0
    link: Link = PRESETS["10GbE"]
    #: Number of hosts when it was last to be measured; 2: more hosts tell no more.
    n_measured: int = 0
    #: Seconds until hosts are asked what they miss; None: four times the prediction.
    deadline_s: float | None = None
    #: How many times longer than predicted versions take on this network; None: nobody has said, and none has arrived.
    pace: float | None = None
    #: Kind of plan -> how many times the closed form versions took by it; and the kind of the version under way, empty
    #: where that tells nothing: a host has had none of this size before, or the planner predicts nothing.
    took: dict[str, float] = field(default_factory=dict)
    kind: str = ""
    #: Whether hosts report what their actors have applied, and for how many seconds they wait for them.
    confirms: bool = False
    confirm_s: float = 0.0
    version: int = 0
    n_bytes: int = 0
    #: Version to whose hosts the ranges `changed` alone are sent; 0: all of it is sent to all.
    base: int = 0
    changed: Ranges = ()
    #: What was sent of the version, as it was commanded.
    sent: list[words.SendParameters] = field(default_factory=list)
    #: Hosts to which it was sent and that do not hold it yet.
    waiting: list[str] = field(default_factory=list)
    #: Host that was asked what it misses -> ranges that it might get no other way; and what others have said.
    asked: dict[str, Ranges] = field(default_factory=dict)
    missing: dict[str, Ranges] = field(default_factory=dict)
    #: Host -> how often a deadline has passed for it.
    late: dict[str, int] = field(default_factory=dict)
    #: Host that has answered -> whether it misses nothing, and waits for a slot of its store that no reader holds.
    full: dict[str, bool] = field(default_factory=dict)
    #: Hosts that hold the version and could not send it.
    unfit: list[str] = field(default_factory=list)
    #: When the version was sent first, how long it took until the latest host was known to hold it, and how long it was
    #: to take by the newest plan, in seconds.
    begun_t: float = 0.0
    publish_s: float = 0.0
    predicted_s: float = 0.0

    def behind(self, version: int) -> tuple[str, ...]:
        """Return the hosts that do not hold `version` yet, in name order."""
        return tuple(host for host, held in self.hosts.items() if held < version)

    def placed(self, hosts: Sequence[str]) -> None:
        """Adopt the hosts that there are."""
        kept = sorted(set(hosts))
        for host in [host for host in self.hosts if host not in kept]:
            self._forget(host)
        if len(kept) > len(self.hosts):
            self.epoch += 1
        self.hosts = {host: self.hosts.get(host, 0) for host in kept}

    def begin(
        self,
        version: int,
        n_bytes: int,
        planner: Planner[DistributionView, Plan],
        t: float,
        out: Out,
        *,
        base: int = 0,
        changed: Ranges = (),
    ) -> bool:
        """Send a version to the hosts that do not hold it; false if nobody is left to send it to.

        Where all of them are known to hold the version `base`, the ranges in which the new one may differ travel alone.
        """
        is_new = n_bytes != self.n_bytes
        if version > self.version:
            self.version, self.n_bytes, self.begun_t, self.publish_s = version, n_bytes, t, 0.0
            self.sent, self.waiting, self.unfit = [], [], []
            self.asked, self.missing, self.late, self.full = {}, {}, {}, {}
            self.base, self.changed = (base, changed) if changed and not is_new else (0, ())
        hosts = tuple(host for host in self.behind(version) if host not in self.waiting)
        if not hosts:
            return False
        if self._holders():  # these came later: whoever holds the version sends it, the learner does not
            self.waiting += hosts
            self.predicted_s, self.kind = 0.0, ""  # they tell nothing of how long a version takes
            self._say("late", hosts, self._sends(dict.fromkeys(hosts, ((0, n_bytes),))), out)
            return True
        keeps = self.base > 0 and {self.hosts[host] for host in hosts} == {self.base}
        base, changed = (self.base, self.changed) if keeps else (0, ())
        n_sent = size(changed) or n_bytes
        view = DistributionView(
            version=version, hosts=hosts, model_bytes=n_sent, epoch=self.epoch, link=self.link, took=dict(self.took)
        )
        view = replace(view, base=base, changed=changed)
        plan = DISTRIBUTION.ask(planner, view)
        correction = self.took.get(kind_of(plan.name), 1.0)
        is_new = is_new or not all(self.hosts[host] for host in hosts)  # its memory is made, which takes long
        self.kind = "" if is_new or keeps else kind_of(plan.name)
        self.waiting += hosts
        self.begun_t = self.begun_t if self.sent else t  # there may have been no host before
        forwards = any(len(route) > 1 for route in plan.routes)
        self.predicted_s = 0.0 if keeps else plan.predicted_s  # no plan says how long hosts copy what they keep
        least_s = FORWARDED_S if forwards and self.pace is not None else DIRECT_S
        expected_s = plan.predicted_s * max(self.pace or 1.0, correction)
        expected_s += (n_bytes - n_sent) / _COPIED_BYTES_PER_S
        deadline_s = self.deadline_s or max(least_s, _PATIENCE * expected_s)
        self.confirm_s = deadline_s if self.confirms else 0.0
        sent = command(plan, view, deadline_s, self.confirm_s)
        self._say(planner.name, hosts, (sent,), out, plan.placed(changed), correction)
        return True

    # ------------------------------------------------------------------ the network
    def measure(self, planner: Planner[DistributionView, Plan], out: Out) -> None:
        """Have the network measured while nothing is sent, if the planner uses it and there are more hosts to tell it.

        One host tells what the learner sends, two what hosts send each other.  A user's own planner uses it unless it
        says ``uses_link = False``.
        """
        n = min(len(self.hosts), _TELLING)
        if n > self.n_measured and not self.waiting and DISTRIBUTION.trait(planner, "uses_link"):
            self.n_measured = n
            out.append(words.MeasureLink(hosts=tuple(self.hosts)))

    def know(self, link: Link) -> None:
        """Plan with a network that somebody has told, and that need not be measured."""
        self.link, self.pace, self.n_measured = link, 1.0, _TELLING

    def measured(self, event: words.LinkMeasured) -> None:
        """Plan with what was measured; the version that is under way, which was not, tells nothing of the pace."""
        self.link, self.predicted_s = Link.from_mapping(asdict(self.link) | dict(event.figures)), 0.0
        self.took, self.kind = {}, ""
        if "egress_bytes_per_s" in event.figures:
            self.pace = 1.0

    # ------------------------------------------------------------------ what goes out
    def _holders(self) -> tuple[str, ...]:
        return tuple(host for host, held in self.hosts.items() if held == self.version and host not in self.unfit)

    def _say(
        self,
        planner: str,
        hosts: tuple[str, ...],
        commands: Sequence[words.SendParameters],
        out: Out,
        plan: Plan | None = None,
        correction: float = 1.0,
    ) -> None:
        self.sent += commands
        out.append(
            words.DistributionPlanned(
                version=self.version,
                planner=planner,
                hosts=hosts,
                n_bytes=self.n_bytes,
                n_messages=sum(len(each.routes[route]) for each in commands for _, _, route in each.sends),
                digest=plan.digest() if plan else "",
                predicted_s=plan.predicted_s if plan else 0.0,
                plan=plan.name if plan else "",
                correction=correction,
                kept_bytes=self.n_bytes - plan.model_bytes if plan else 0,
            )
        )
        out.extend(commands)
        out.append(SetDeadline(name=DEADLINE, after_s=max(each.deadline_s for each in commands)))

    # ------------------------------------------------------------------ what came of it
    def hold(self, host: str, version: int) -> bool:
        """Mark a host as holding a version; false if it is not ours any more or holds a newer one."""
        if self.hosts.get(host, version) >= version:
            return False
        self.hosts[host] = version
        return True

    def completed(self, event: words.HostCompleted, out: Out) -> bool:
        """Mark a host as holding a version, which ends its way there; false if that is no news."""
        if event.version != self.version or not self.hold(event.host, event.version):
            return False
        self.publish_s, is_last = round(event.t - self.begun_t, 6), self.waiting == [event.host]
        self.over(event.host)
        if is_last and self.predicted_s:
            self.pace = max(1.0, self.publish_s / self.predicted_s, (self.pace or 1.0) / 2.0)
            if self.kind and len(self.sent) == 1:  # nothing was mended
                self._learn(self.publish_s / self.predicted_s)
        self._mend(out)
        return True

    def _learn(self, times: float) -> None:
        """Keep how many times the closed form the version took."""
        before = self.took.get(self.kind, times)
        self.took = {kind: round(known**_FADES, 3) for kind, known in self.took.items()}
        self.took[self.kind] = round(min(_MOST, max(_LEAST, (before * times) ** 0.5)), 3)

    def message_lost(self, event: words.MessageLost, out: Out) -> bool:
        """Send a range again; true if its receiver is to be dropped: it did not take it a second time."""
        if event.version != self.version:
            return False
        each = (event.start, event.stop)
        senders = () if event.sender and event.sender not in self.hosts else (event.sender,)
        orphans = {host: (each,) for host in event.orphans if host in self.waiting}
        drop = event.host in self.waiting and event.again
        commands = [*self._sends(orphans, senders)]
        if event.host in self.waiting and not drop:
            others = [host for host in self._holders() if host != event.sender] or [""]
            commands += self._sends({event.host: (each,)}, others[:1])
        if commands:
            hosts = tuple(dict.fromkeys(host for command in commands for host in command.hosts))
            self._say("repair", hosts, commands, out)
        return drop

    def base_missing(self, event: words.BaseMissing, out: Out) -> None:
        """Send a host what it was to keep of the former version, and does not hold."""
        host = event.host
        if event.version == self.version and host in self.waiting and self.base and self.hosts[host] == self.base:
            self.hosts[host] = 0
            self._say("repair", (host,), self._sends({host: event.missing}), out)

    def unreachable(self, event: words.HostUnreachable, out: Out) -> bool:
        """Return whether a host is to be dropped: it does not answer.  One that cannot send what it holds is spared."""
        host = event.host
        if event.version != self.version or host not in self.hosts:
            return False
        if event.sends:
            self.unfit.append(host)
            self._ask_behind(host, out)
        return not event.sends and host in self.asked

    def deadline_passed(self, event: DeadlinePassed, out: Out) -> tuple[str, ...]:
        """Ask all hosts that are late what they miss; return those that are to be dropped: they were late too often."""
        if event.name != DEADLINE:
            return ()
        late = [host for host in self.waiting if host not in self.asked]
        for host in late:
            self.late[host] = self.late.get(host, 0) + 1
        lost = tuple(host for host in late if self.late[host] > _CHANCES)
        self._ask({host: ((0, self.n_bytes),) for host in late if host not in lost}, out)
        return lost

    def _ask(self, wanted: Mapping[str, Ranges], out: Out) -> None:
        """Ask hosts what they miss of some ranges."""
        for host, ranges in wanted.items():
            self.asked[host] = (*self.asked.get(host, ()), *ranges)
        if wanted:
            out.append(words.AskMissing(version=self.version, hosts=tuple(wanted)))

    def misses(self, event: words.RangesMissing, out: Out) -> None:
        """Send hosts what they miss once all that were asked have answered."""
        if event.version != self.version or event.host not in self.asked:
            return
        wanted = (*self.asked.pop(event.host), *self.missing.get(event.host, ()))
        self.missing[event.host] = common(event.missing, wanted)
        self.full[event.host] = not event.missing
        self._mend(out)

    def _mend(self, out: Out) -> None:
        if self.asked or not self.missing:
            return
        missing, self.missing = {host: ranges for host, ranges in self.missing.items() if ranges}, {}
        if missing:
            self._say("repair", tuple(missing), self._sends(missing), out)
        else:  # what they miss is on its way from others
            out.append(SetDeadline(name=DEADLINE, after_s=FORWARDED_S))

    def gone(self, host: str, out: Out) -> None:
        """Forget a host; those to which it may not have forwarded something are asked what they miss."""
        self._forget(host)
        self._ask_behind(host, out)

    def _ask_behind(self, host: str, out: Out) -> None:
        wanted: dict[str, Ranges] = {}
        for sent in self.sent:
            for cut_off, ranges in _behind(sent, host).items():
                if cut_off in self.waiting:
                    wanted[cut_off] = (*wanted.get(cut_off, ()), *ranges)
        self._ask(wanted, out)
        self._mend(out)

    def _forget(self, host: str) -> None:
        self.hosts.pop(host, None)
        self.over(host)
        self.unfit = [each for each in self.unfit if each != host]
        self.epoch += 1

    def over(self, host: str) -> None:
        """Wait no longer for a host to hold the version."""
        if host in self.waiting:
            self.waiting.remove(host)
        for each in (self.asked, self.missing, self.late, self.full):
            each.pop(host, None)

    def _sends(self, missing: Mapping[str, Ranges], sources: Sequence[str] = ()) -> tuple[words.SendParameters, ...]:
        """Send hosts what they miss: each range from one of the sources to one host, which passes it on to the others.

        Sources are the hosts that hold the version, unless they are given; the learner if there are none.
        """
        wanted: dict[tuple[int, int], list[str]] = {}
        for host, ranges in missing.items():
            for start, stop in ranges:
                for low, high in cut(stop - start, -(-(stop - start) // _PIECE_BYTES)):
                    wanted.setdefault((start + low, start + high), []).append(host)
        hosts, sources = tuple(missing), sources or self._holders() or ("",)
        numbers = {host: i for i, host in enumerate(hosts)}
        by_source: dict[str, tuple[list[words.Route], list[tuple[int, int, int]]]] = {}
        for i, ((start, stop), targets) in enumerate(wanted.items()):
            first, *others = [numbers[each] for each in targets[i % len(targets) :] + targets[: i % len(targets)]]
            routes, sends = by_source.setdefault(sources[i % len(sources)], ([], []))
            route = ((LEARNER, first), *((first, other) for other in others))
            if route not in routes:
                routes.append(route)
            sends.append((start, stop, routes.index(route)))
        n_bytes = sum(map(size, missing.values()))
        # Whoever gets its first message so hears of it.
        base = self.base if any(self.hosts.get(host) == self.base for host in hosts) else 0
        took_s = n_bytes / self.link.egress_bytes_per_s * (self.pace or 1.0)
        deadline_s = max(FORWARDED_S if self.pace is not None else DIRECT_S, _PATIENCE * took_s)
        return tuple([
            words.SendParameters(
                version=self.version,
                source=source,
                hosts=hosts,
                routes=tuple(routes),
                sends=tuple(sends),
                n_in_flight=4,
                deadline_s=deadline_s,
                again=True,
                confirm_s=self.confirm_s,
                base=base,
                changed=self.changed if base else (),
            )
            for source, (routes, sends) in by_source.items()
        ])


def _behind(sent: words.SendParameters, host: str) -> dict[str, Ranges]:
    """Return the hosts that get something by way of another one, and what."""
    root = LEARNER if host == sent.source else sent.hosts.index(host) if host in sent.hosts else None
    later: dict[str, Ranges] = {}
    for number, route in enumerate(sent.routes if root is not None else ()):
        ranges = tuple([(start, stop) for start, stop, of in sent.sends if of == number])
        behind = {root}
        for sender, receiver in route:
            if sender in behind:
                behind.add(receiver)
                name = sent.hosts[receiver]
                later[name] = (*later.get(name, ()), *ranges)
    return later

"""Laws of the distribution machine in a played world: messages in any order, lost, doubled; hosts that come and go."""

import json
import random
from collections import Counter, defaultdict
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import DISTRIBUTION, LEARNER, DistributionMachine, DistributionView
from drlnb.planning.distribution.changes import changed_ranges, kept_ranges
from drlnb.planning.distribution.machine import ACTORS, HOSTS
from drlnb.planning.distribution.publication import DEADLINE
from drlnb.records.columns.distribution import (
    ActorsInstalled,
    BaseMissing,
    HostCompleted,
    HostsChanged,
    HostUnreachable,
    LinkMeasured,
    MessageLost,
    PublishAsked,
    RangesMissing,
)
from drlnb.records.common import DeadlinePassed
from tests.strategies import fewer

PLANNERS = (
    "star",
    "tree:k=2",
    "tree:k=2,levels=9",
    "binomial",
    "chain:c=3",
    "relay:m=3",
    "relay:m=2,c=2",
    "multitree:m=2,c=3",
    "auto",
)
RATES = ("learner_bytes_per_s", "egress_bytes_per_s", "ingress_bytes_per_s")
#: What may happen in a world; names of its methods but those of PASSIVE: messages get lost, reports come twice, deaths
#: are noticed; readers hold every slot, are late, or nothing is heard of them.
PASSIVE = frozenset({"lose", "double", "notice", "hold", "linger", "mute"})
MILD = frozenset({"join", "publish", "lose", "double"})
ACTING = frozenset({"hold", "free", "linger", "mute"})
DEADLY = MILD | {"leave", "come_back", "die", "notice", "disable", "forget"}
ALL = DEADLY | ACTING | {"freeze"}


class World:
    """Hosts and what is on its way between them; it knows nothing of the machine's state but its commands.

    Parameters
    ----------
    seed
        Of every choice: what is delivered next, what is lost, who dies.
    planner, n_hosts, n_bytes
        Of the machine, and of the first version.
    faults
        What may happen, of :data:`ALL`.
    twin_after
        Number of events after which a second machine goes on from a snapshot; its answers must be the same.
    confirm
        What a version waits for: ``hosts`` or ``actors``.
    """

    def __init__(self, seed, planner, n_hosts, n_bytes, faults=frozenset(), twin_after=None, confirm="hosts"):
        self.rng, self.faults, self.t = random.Random(seed), faults, 0.0
        self.planner, self.n_bytes = planner, n_bytes
        self.config = {"planner": planner, "confirm": confirm}
        self.machine, self.twin, self.twin_after = DistributionMachine(self.config), None, twin_after
        self.n_events = 0
        #: What is on its way, to a host or to the machine.
        self.wire = []
        #: The machine's deadlines that have been set, and have not passed.
        self.deadlines = set()
        # hosts as they are
        self.names = [f"h{i}" for i in range(n_hosts)]
        self.living = set(self.names)
        self.frozen, self.disabled = set(), set()
        #: Host -> (version, its bytes).
        self.store = dict.fromkeys(self.names, (0, frozenset()))
        #: Host -> values of these bytes; (version, values) that its readers find; versions of which it keeps a part.
        self.values = {host: {} for host in self.names}
        self.found = {host: (0, {}) for host in self.names}
        self.keeps = defaultdict(set)
        #: Version -> its bytes; the version that the learner has sent last.
        self.contents, self.sent = {}, 0
        #: (host, version): readers hold every slot; have held; have not all applied it, or it does not say.
        self.blocked, self.was_blocked, self.slow = set(), set(), set()
        # books: what the machine was told, and what it said
        self.hosts = set()
        self.reported, self.installed, self.excused = defaultdict(set), defaultdict(set), defaultdict(set)
        self.unfit = set()
        self.newcomers = set()
        self.cause = None
        self.asked, self.gone_out, self.superseded, self.published = [], [], [], []
        #: The version that was begun and is not published yet, if not 0, and how often any was begun.
        self.under_way = self.n_begun = 0
        #: Hosts that were dropped, those of them that lived and had not left, and those that leave just now.
        self.dropped, self.dropped_alive, self.leaving = [], [], set()
        self.n_sent, self.n_received = Counter(), Counter()
        self.n_done = Counter()
        #: Hosts that there were each time that the network was measured.
        self.n_measured = []

    # ------------------------------------------------------------------ what the machine is told
    def feed(self, kind, **values):
        self.t += 0.001 + self.rng.random()
        self.n_events += 1
        event = kind(t=self.t, **values)
        self.book(event)
        out = self.machine.handle(event)
        self.machine.check()
        if self.twin is not None:
            assert self.twin.handle(event) == out, "a restored machine answers alike"
        if self.n_events == self.twin_after:
            self.twin = DistributionMachine(self.config)
            self.twin.restore(json.loads(json.dumps(self.machine.snapshot())))
        for record in out:
            getattr(self, f"on_{type(record).__name__}")(record)

    def book(self, event):
        self.cause = event
        if isinstance(event, HostCompleted):
            self.reported[event.version].add(event.host)
        elif isinstance(event, ActorsInstalled) and not event.n_late:
            self.installed[event.version].add(event.host)
        elif isinstance(event, HostUnreachable) and event.sends:
            self.unfit.add((event.host, event.version))

    def report(self, kind, **values):
        """Put a report on the wire, sometimes twice."""
        copies = 2 if "double" in self.faults and self.rng.random() < 0.15 else 1
        self.wire += [partial(self.feed, kind, **values)] * copies

    def change_hosts(self, hosts):
        newest = self.gone_out[-1] if self.gone_out else 0
        if self.senders(newest):
            self.newcomers |= {(host, newest) for host in hosts - self.hosts}
        for host in hosts - self.hosts:
            for held in (*self.reported.values(), *self.installed.values(), *self.excused.values()):
                held.discard(host)
            self.unfit = {each for each in self.unfit if each[0] != host}
        self.leaving, self.hosts = self.hosts - hosts, self.hosts | hosts
        self.feed(HostsChanged, hosts=tuple(self.rng.sample(sorted(hosts), len(hosts))))
        assert self.hosts == hosts, "who has left is dropped, and nobody else"
        self.leaving = set()

    def senders(self, version):
        """Return the hosts that were reported to hold a version, live and can send it."""
        unable = self.unfit | self.disabled
        there = self.reported[version] & self.hosts & self.living - self.frozen
        return {host for host in there if (host, version) not in unable}

    # ------------------------------------------------------------------ what the machine says
    def on_DistributionPlanned(self, record):
        if self.under_way == 0:
            self.began(record.version)
        assert record.version == self.under_way, "one version at a time is under way"

    def began(self, version):
        self.under_way = version
        self.n_begun += 1
        assert version in self.asked, "versions go out that were asked for"
        assert version not in self.superseded, "what was superseded never goes out"
        assert not self.gone_out or version >= self.gone_out[-1], "versions go out in growing order"
        if version not in self.gone_out:
            self.gone_out.append(version)

    def on_VersionPublished(self, record):
        if self.under_way == 0:  # nobody to send it to
            assert not self.hosts, "without a message a version is published to nobody"
            self.began(record.version)
        assert record.version == self.under_way, "what is published is what was under way"
        version, late = record.version, set(record.late)
        reported = self.reported[version]
        assert record.n_hosts == len(self.hosts & reported), "it counts the hosts of now that hold it"
        assert late <= self.hosts, "who is late is a host"
        assert {(host, version) for host in late} <= self.was_blocked | self.slow, "for a reason"
        self.excused[version] |= late
        blocked = {host for host in self.excused[version] if (host, version) in self.was_blocked}
        assert self.hosts - blocked <= reported, "each host was reported to hold it"
        if self.config["confirm"] == "actors":
            assert self.hosts - self.excused[version] <= self.installed[version], "the actors of each were waited for"
        else:
            assert late <= blocked, "no actor is waited for"
        self.under_way = 0
        self.published.append(record.version)

    def on_VersionSuperseded(self, record):
        assert record.version not in {*self.gone_out, *self.superseded}, "only what never went out is superseded, once"
        self.superseded.append(record.version)

    def on_HostDropped(self, record):
        assert record.host in self.hosts, "who is dropped is a host"
        self.hosts.remove(record.host)
        self.dropped.append(record.host)
        if record.host in self.living - self.frozen and record.host not in self.leaving:
            self.dropped_alive.append(record.host)

    def on_AskMissing(self, command):
        assert command.version == self.under_way
        assert set(command.hosts) <= self.hosts, "only hosts are asked"
        assert len(set(command.hosts)) == len(command.hosts) > 0, "each host is asked once"
        self.wire += [partial(self.answer, host, command.version) for host in command.hosts]

    def on_SendParameters(self, command):
        self.check_form(command)
        self.check_source(command)
        self.sent = command.version
        source = command.source
        unable = source in self.frozen or source not in self.living or (source, command.version) in self.disabled
        if source and unable:
            self.n_done["source cannot send"] += 1
            self.report(HostUnreachable, host=source, version=command.version, reason="it cannot send", sends=True)
            return
        for start, stop, route in command.sends:
            self.forward(command, LEARNER, start, stop, route)

    def on_MeasureLink(self, command):
        assert self.under_way == 0, "the network is measured while nothing is under way"
        assert set(command.hosts) == self.hosts
        self.n_measured.append(len(command.hosts))
        assert self.n_measured in ([1], [1, len(command.hosts)], [len(command.hosts)]), "again once there are two hosts"
        figures = {name: 10.0 ** self.rng.randint(3, 12) for name in RATES}
        figures["overhead_s"] = self.rng.random()
        known = self.rng.sample(sorted(figures), self.rng.randint(0, len(figures)))
        self.report(LinkMeasured, hosts=command.hosts, figures={name: figures[name] for name in known})

    def on_SetDeadline(self, command):
        actors = self.config["confirm"] == "actors"
        assert command.name in ({DEADLINE, HOSTS, ACTORS} if actors else {DEADLINE, HOSTS})
        assert command.name != HOSTS or not self.hosts, "hosts are waited for where there is none"
        assert command.after_s > 1
        self.deadlines.add(command.name)

    def check_form(self, command):
        assert command.version == self.under_way, "what is sent is under way"
        assert set(command.hosts) <= self.hosts, "nothing is sent to who is no host, or none any more"
        assert command.n_in_flight >= 1 < command.deadline_s
        assert (command.confirm_s > 1) == (self.config["confirm"] == "actors")
        if command.base and not command.again:
            assert set(command.hosts) <= self.reported[command.base], "who keeps a part was reported to hold it"
        for route in command.routes:
            reached = {LEARNER}
            assert [sender for sender, _ in route].count(LEARNER) == 1, "a route has one beginning"
            for sender, receiver in route:
                assert sender in reached, "who sends has received"
                assert receiver not in reached, "nobody is on a route twice"
                assert 0 <= receiver < len(command.hosts), "the host exists"
                reached.add(receiver)
        for start, stop, route in command.sends:
            assert 0 <= start < stop <= self.n_bytes, "a range lies inside the version"
            assert 0 <= route < len(command.routes), "the route exists"

    def check_source(self, command):
        source, version = command.source, command.version
        receivers = {command.hosts[number] for route in command.routes for _, number in route}
        if source:
            assert source in self.hosts, "only hosts send"
            assert source not in receivers, "nobody sends to itself"
            held_version, held = self.store[source]
            assert held_version == version, "a source has bytes of this version"
            assert all(held.issuperset(range(start, stop)) for start, stop, _ in command.sends), (
                "it holds what it sends"
            )
        elif self.senders(version) and not isinstance(self.cause, MessageLost):  # that is mended by who had it to send
            spared = {host for host in receivers if (host, version) in self.newcomers}
            assert not spared, "D14: the learner sends nothing to who came late while a host can"

    # ------------------------------------------------------------------ hosts
    def forward(self, command, sender, start, stop, route):
        for by, receiver in command.routes[route]:
            if by == sender:
                name = self.name_of(command, sender)
                self.n_sent[command.version, name] += stop - start
                values = self.values[name] if name else self.contents[command.version]
                payload = {byte: values[byte] for byte in range(start, stop)}
                self.wire.append(partial(self.arrive, command, sender, receiver, payload, route))

    def name_of(self, command, number):
        return command.source if number == LEARNER else command.hosts[number]

    def arrive(self, command, sender, receiver, payload, route):
        start, stop = min(payload), max(payload) + 1
        by, host = self.name_of(command, sender), command.hosts[receiver]
        if (by and (by in self.frozen or by not in self.living)) or host in self.frozen:
            return
        slips = "lose" in self.faults and not command.again and self.rng.random() < 0.1
        if host not in self.living or slips:
            behind = [receiver]
            for at, to in command.routes[route]:
                behind += [to] if at in behind else []
            self.n_done["lost"] += 1
            self.report(
                MessageLost, version=command.version, sender=by, host=host, start=start, stop=stop,
                orphans=tuple(command.hosts[number] for number in behind[1:]), again=command.again, reason="refused",
            )  # fmt: skip
            return
        version, held = self.store[host]
        if version > command.version:
            return
        held, range_ = held if version == command.version else frozenset(), frozenset(payload)
        self.n_received.update((command.version, host, byte) for byte in range_)
        self.values[host] = (self.values[host] if version == command.version else {}) | payload
        self.store[host] = command.version, held | range_
        if command.again or not range_ <= held:
            self.forward(command, receiver, start, stop, route)
        if command.base and command.version not in self.keeps[host]:
            self.keeps[host].add(command.version)
            self.wire.append(partial(self.keep, host, command))
        self.take_in(host, command, held)

    def keep(self, host, command):
        """Copy what does not travel from the version that is here, or say that it is not."""
        if self.store[host][0] != command.version or host not in self.living - self.frozen:
            return
        version, values = self.found[host]
        if version != command.base:
            self.n_done["base missing"] += 1
            missing = kept_ranges(command.changed, self.n_bytes)
            self.report(BaseMissing, host=host, version=command.version, missing=missing)
            return
        self.n_done["kept"] += 1
        held = self.store[host][1]
        travels = {byte for start, stop in command.changed for byte in range(start, stop)}
        kept = {byte: value for byte, value in values.items() if byte not in travels | held}
        self.values[host] |= kept
        self.store[host] = command.version, held | kept.keys()
        self.take_in(host, command, held)

    def take_in(self, host, command, held):
        """Show the version to readers if it has become whole."""
        if held != self.store[host][1] and len(self.store[host][1]) == self.n_bytes:
            if "hold" in self.faults and self.rng.random() < 0.2:
                self.n_done["hold"] += 1
                self.blocked.add((host, command.version))
                self.was_blocked.add((host, command.version))
            else:
                self.current(host, command.version)

    def current(self, host, version):
        """Show a version to a host's readers, who apply it, or do not for long."""
        self.found[host] = version, dict(self.values[host])
        self.completed(host, version)
        if self.config["confirm"] == "actors":
            n_late = int("linger" in self.faults and self.rng.random() < 0.2)
            is_mute = "mute" in self.faults and self.rng.random() < 0.1
            if n_late or is_mute:
                self.slow.add((host, version))
                self.n_done["mute" if is_mute else "linger"] += 1
            if not is_mute:
                times = {"publish_s": 0.2, "applied_s": 0.1}
                self.report(ActorsInstalled, host=host, version=version, n_actors=2, n_late=n_late, **times)

    def completed(self, host, version):
        self.report(HostCompleted, host=host, version=version, n_bytes=self.n_bytes, publish_s=0.1)

    def answer(self, host, version):
        if host in self.frozen or host not in self.living:
            self.report(HostUnreachable, host=host, version=version, reason="it does not answer")
            return
        held_version, held = self.store[host]
        lacking = [byte for byte in range(self.n_bytes) if held_version < version or byte not in held]
        if (host, version) in self.blocked:
            self.report(RangesMissing, host=host, version=version, missing=())
        elif not lacking or held_version > version:
            self.completed(host, version)
        else:
            starts = [byte for byte in lacking if byte - 1 not in lacking]
            stops = [byte + 1 for byte in lacking if byte + 1 not in lacking]
            missing = tuple(zip(starts, stops, strict=True))
            self.report(RangesMissing, host=host, version=version, missing=missing)

    # ------------------------------------------------------------------ what happens
    def publish(self):
        self.asked.append(len(self.asked) + 1)
        before, more = self.contents.get(self.sent, [0] * self.n_bytes), {}
        n_new = self.rng.choice([0, 1, 3, self.n_bytes])
        values = self.contents[self.asked[-1]] = list(before)
        for byte in self.rng.sample(range(self.n_bytes), min(n_new, self.n_bytes)):
            values[byte] = self.rng.random()
        if self.sent and self.rng.random() < 0.8:
            blocks = [byte for byte in range(self.n_bytes) if values[byte] != before[byte]]
            changed = changed_ranges(blocks, self.n_bytes, 1)
            more = {"base": self.sent, "changed": changed} if changed else {}
        self.feed(PublishAsked, version=self.asked[-1], n_bytes=self.n_bytes, **more)

    def any_of(self, hosts):
        return self.rng.choice(sorted(hosts)) if hosts else None

    def join(self):
        host = f"h{len(self.names)}"
        self.names.append(host)
        self.living.add(host)
        self.empty(host)
        self.change_hosts(self.hosts | {host})

    def empty(self, host):
        self.store[host], self.values[host], self.found[host] = (0, frozenset()), {}, (0, {})
        self.keeps[host] = set()

    def forget(self):
        """Have a host lose the version that it holds, or have other bytes of it, which nobody has heard of."""
        if host := self.any_of(self.hosts & self.living):
            self.found[host] = 0, {}

    def leave(self):
        if host := self.any_of(self.hosts):
            self.living.discard(host)
            self.change_hosts(self.hosts - {host})

    def come_back(self):
        """Start a node again, empty: by then what it had sent, and what was sent to it, is forgotten."""
        host = self.any_of(set(self.names) - self.hosts)
        if host and not self.wire:
            self.living.add(host)
            self.frozen.discard(host)
            self.empty(host)
            self.blocked = {each for each in self.blocked if each[0] != host}
            self.n_done["came back"] += 1
            self.change_hosts(self.hosts | {host})

    def die(self):
        """End a host; that the nodes have changed is heard of later, or never."""
        if host := self.any_of(self.hosts & self.living):
            self.living.discard(host)
            if "notice" in self.faults and self.rng.random() < 0.5:
                self.wire.append(lambda: self.change_hosts(self.hosts - {host}))

    def freeze(self):
        if host := self.any_of(self.hosts & self.living):
            self.frozen.add(host)

    def free(self):
        """Free a slot at a host where readers held every one."""
        if each := self.any_of(self.blocked):
            host, version = each
            self.blocked.discard(each)
            if host in self.living - self.frozen and self.store[host][0] == version:
                self.current(host, version)

    def disable(self):
        """Make a host that holds a version unable to send it."""
        if host := self.any_of(self.senders(self.under_way)):
            self.disabled.add((host, self.under_way))

    def expire(self):
        """Let one of the machine's deadlines pass."""
        name = self.rng.choice(sorted(self.deadlines))
        self.deadlines.discard(name)
        self.n_done["late"] += self.under_way > 0
        self.feed(DeadlinePassed, name=name)

    def live(self, n_unkind=0):
        """Publish; for some steps anything may happen, and then nothing but what is on its way."""
        self.change_hosts(set(self.names))
        self.publish()
        return self.live_on(n_unkind)

    def live_on(self, n_unkind=0):
        """Go on until nothing is on its way and no deadline is left."""
        happenings = sorted(self.faults - PASSIVE)
        for step in range(5_000):
            if step < n_unkind and happenings and self.rng.random() < 0.15:
                happening = self.rng.choice(happenings)
                self.n_done[happening] += 1
                getattr(self, happening)()
            elif self.wire:
                self.wire.pop(self.rng.randrange(len(self.wire)))()
            elif self.deadlines:
                self.expire()
            elif step >= n_unkind:
                break
        else:
            raise AssertionError("it does not end")
        return self

    def check_versions(self):
        """Check which versions went out, and how often each was published."""
        ended = self.gone_out[:-1] if self.under_way == self.gone_out[-1] else self.gone_out
        assert set(ended) <= set(self.published), "each version that ended was published"
        assert self.published == sorted(self.published), "in growing order"
        assert self.n_begun == len(self.published) + bool(self.under_way), "once for each time that it went out"
        accounted = sorted(self.gone_out + self.superseded)
        assert accounted in (self.asked, self.asked[:-1]), (
            "each version went out, was superseded, or is the one waiting"
        )
        assert len(accounted) == len(self.asked) or self.under_way, "it waits for another one only"

    def check_end(self):
        """Check that nothing is under way in a world in which nothing is on its way any more."""
        assert self.under_way == 0, f"version {self.under_way} is under way for ever: {self.machine.snapshot()}"
        assert self.gone_out[-1] == self.asked[-1], "the newest version went out"
        whole = self.asked[-1], frozenset(range(self.n_bytes))
        for host in self.living - self.frozen:
            assert self.store[host] == whole or host in self.dropped, f"{host} holds the newest version or was dropped"
        for host in self.hosts & self.living - self.frozen:
            assert self.store[host] == whole, f"{host} is a host, lives and holds the newest version"
            assert [self.values[host][byte] for byte in range(self.n_bytes)] == self.contents[whole[0]], "in every byte"


WORLDS = {
    "seed": st.integers(0, 2**32),
    "planner": st.sampled_from(PLANNERS),
    "n_hosts": st.integers(1, 6),
    "n_bytes": st.integers(8, 64),
}
CONFIRM = st.sampled_from(["hosts", "actors"])


@given(**WORLDS, n_unkind=st.sampled_from([20, 60, 120]), confirm=CONFIRM)
def test_whatever_happens_the_commands_are_sound(seed, planner, n_hosts, n_bytes, n_unkind, confirm):
    """Routes, ranges and sources fit to what each host holds, nothing goes to who was dropped, versions end."""
    world = World(seed, planner, n_hosts, n_bytes, ALL, confirm=confirm).live(n_unkind)
    world.check_versions()
    world.check_end()


@given(**WORLDS, n_unkind=st.sampled_from([20, 60, 120]))
def test_who_lives_is_not_dropped(seed, planner, n_hosts, n_bytes, n_unkind):
    """Whoever else dies, with or without notice, leaves, comes back or cannot send what it holds."""
    world = World(seed, planner, n_hosts, n_bytes, DEADLY).live(n_unkind)
    world.check_end()
    assert not world.dropped_alive


@given(**WORLDS, n_unkind=st.sampled_from([20, 60, 120]), confirm=CONFIRM)
def test_nobody_is_dropped_for_what_readers_do(seed, planner, n_hosts, n_bytes, n_unkind, confirm):
    """They hold every slot, or do not apply a version in time: it ends without them, and the host stays one."""
    world = World(seed, planner, n_hosts, n_bytes, MILD | ACTING, confirm=confirm).live(n_unkind)
    world.check_versions()
    world.check_end()
    assert not world.dropped
    assert world.hosts == world.living


@fewer(2)
@given(**WORLDS, n_unkind=st.sampled_from([0, 30, 60]))
def test_where_no_host_dies_every_host_holds_the_newest_version(seed, planner, n_hosts, n_bytes, n_unkind):
    """Lost messages, reports that come twice, newcomers and newer versions delay it at most; nobody is dropped."""
    world = World(seed, planner, n_hosts, n_bytes, MILD | {"forget"}).live(n_unkind)
    world.check_versions()
    world.check_end()
    assert not world.dropped, "who lives is not dropped"
    assert not world.n_done["late"], "what is lost is sent again at once, before any deadline"


@given(**WORLDS | {"planner": st.just("star")}, n_unkind=st.sampled_from([20, 60, 120]))
def test_hosts_that_wait_for_nobody_else_hold_the_newest_version_or_are_dropped(
    seed, planner, n_hosts, n_bytes, n_unkind
):
    """Under a star every host that lives gets it from the learner, whoever else dies, leaves or stands still."""
    faults = frozenset({"publish", "double", "die", "notice", "leave", "freeze"})
    world = World(seed, planner, n_hosts, n_bytes, faults).live(n_unkind)
    world.check_end()
    assert not world.dropped_alive, "who lives is not dropped"
    assert world.dropped or world.living - world.frozen == world.hosts & world.living - world.frozen


@given(**WORLDS, n_late=st.integers(1, 3))
def test_the_learner_sends_nothing_to_who_comes_late(seed, planner, n_hosts, n_bytes, n_late):
    """D14: its bytes are those of before; the newcomers' are sent by hosts, each byte to each of them once."""
    world = World(seed, planner, n_hosts, n_bytes).live()
    before = world.n_sent[1, ""]
    for _ in range(n_late):
        world.join()
    world.live_on()
    world.check_end()
    assert world.n_sent[1, ""] == before
    assert set(world.n_received.values()) == {1}
    assert len(world.n_received) == (n_hosts + n_late) * n_bytes
    assert set(world.published) == {1}, "it is published once more for the newcomers"
    assert 2 <= len(world.published) <= 1 + n_late


@given(**WORLDS, n_unkind=st.sampled_from([20, 60]), after=st.integers(1, 60), confirm=CONFIRM)
def test_a_machine_goes_on_from_its_snapshot(seed, planner, n_hosts, n_bytes, n_unkind, after, confirm):
    """Wherever it is restored, it answers each later event as the machine that was never stopped, and ends alike."""
    world = World(seed, planner, n_hosts, n_bytes, ALL, twin_after=after, confirm=confirm).live(n_unkind)
    assert (world.twin is None) == (world.n_events < after)
    assert world.twin is None or world.twin.snapshot() == world.machine.snapshot()


@pytest.mark.parametrize("planner", PLANNERS)
@fewer(5)
@given(seed=WORLDS["seed"], n_hosts=st.integers(1, 9), n_bytes=WORLDS["n_bytes"])
def test_without_faults_each_host_receives_each_byte_once(planner, seed, n_hosts, n_bytes):
    """In whatever order messages arrive; each host sends as many bytes as the plan says, and so does the learner."""
    world = World(seed, planner, n_hosts, n_bytes).live()
    world.check_end()
    assert world.published == [1]
    assert world.n_received == dict.fromkeys(
        ((1, host, byte) for host in world.names for byte in range(n_bytes)), 1
    )  # fmt: skip
    epoch = world.machine.state.publication.epoch
    view = DistributionView(version=1, hosts=tuple(world.names), model_bytes=n_bytes, epoch=epoch)
    egress = DISTRIBUTION.build(planner).plan(view).egress_bytes().tolist()
    assert [world.n_sent[1, host] for host in [*world.names, ""]] == egress


def test_the_laws_are_put_to_the_test():
    """Worlds do lose messages, kill, freeze and revive hosts, hold slots, disable sources and let deadlines pass."""
    n_done, n_superseded, n_dropped, n_excused = Counter(), 0, 0, 0
    for seed in range(60):
        planner = PLANNERS[seed % len(PLANNERS)]
        world = World(seed, planner, 1 + seed % 6, 20, ALL, confirm="actors").live(80)
        n_done += world.n_done
        n_superseded += len(world.superseded)
        n_dropped += len(world.dropped)
        n_excused += sum(map(len, world.excused.values()))
    assert min(n_done[name] for name in ALL - {"lose", "double", "notice"}) > 20
    assert min(n_done[name] for name in ("lost", "late", "came back", "source cannot send")) > 10
    assert min(n_done[name] for name in ("kept", "base missing")) > 10
    assert min(n_superseded, n_dropped, n_excused) > 10

"""Relays and a learner in one loop, on links that are played: the real outboxes, stores and plans, without a wire."""

import asyncio
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.distribution.emulated import Card, Emulated
from drlnb.planning.distribution import DistributionMachine
from drlnb.planning.distribution.publication import DEADLINE
from drlnb.planning.distribution.trees import relay as relay_plan
from drlnb.records.columns.distribution import (
    ActorsInstalled,
    HostCompleted,
    HostDropped,
    HostsChanged,
    PublishAsked,
    RangesMissing,
    VersionPublished,
)
from drlnb.records.common import DeadlinePassed
from drlnb.runtime.distribution.outbox import next_ways, pack_hosts, ways
from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.distribution.sender import Sender
from drlnb.runtime.ipc.host_store import StoreView
from tests.matches import like

TASK = ("r", "a")
#: A message to one host that forwards it to nobody.
ALONE = {"hosts": pack_hosts([("h0", "h0")]), "edges": bytes.fromhex("ffff0000")}
PLANNERS = [
    "star",
    "tree:k=2",
    "tree:k=2,levels=9",
    "binomial",
    "chain:c=5",
    "relay:m=3",
    "relay:m=4,c=2",
    "multitree:m=3,c=4",
]


class Wire:
    """Every node's handlers by address, and what is wrong with the way to some of them."""

    def __init__(self, folder, rates=None):
        self.folder = Path(folder)
        #: Address -> its emulated card; none without rates.
        self.cards = defaultdict(partial(Card, Emulated(**rates))) if rates else None
        self.handlers, self.relays = {}, {}
        #: Addresses that answer nothing; calls that are under way, and the most of them by (caller, op).
        self.dead = set()
        self.running, self.most = {}, {}
        self.chunks = []
        #: Address -> bytes that were sent to it.
        self.n_bytes = Counter()
        self.background = set()
        #: What must not happen, in words.
        self.wrong = []

    def node(self, name):
        """Start a node."""
        link = SimpleNamespace(node=name, address=name, directory=self.folder, keep=self._keep)
        link.call = lambda address, op, /, **message: self._call(name, address, op, **message)
        relay = self.relays[name] = HostRelay(link)
        self.handlers[name] = relay.handlers()
        return link

    def _keep(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    async def _call(self, caller, address, op, /, *, timeout_s=None, payload=b"", **message):
        key, held_s = (caller, op), 0.0
        if self.cards is not None and op == "drlnb_chunk":
            held_s = await self.cards[caller].send(len(payload))
        peers = self.running.setdefault(key, [])
        peers.append(address)
        self.most[key] = max(self.most.get(key, 0), len(peers))
        if op == "drlnb_chunk" and peers.count(address) > 1:
            self.wrong.append(f"{caller} has sent two messages to {address} at once")
        try:
            await asyncio.sleep(0)
            if address in self.dead or address not in self.handlers:
                return {"refused": f"{address} does not answer"}
            if op == "drlnb_chunk":
                self.chunks.append((caller, address, message["chunk"]["start"]))
                self.n_bytes[address] += len(payload)
                message["payload"] = bytes(payload)
                if self.cards is not None:
                    await self.cards[address].receive(len(payload), held_s)
            try:
                return await self.handlers[address][op](**message) or {"ok": True}
            except OSError as error:
                return {"refused": str(error), **({"no_room": True} if error.errno == 28 else {})}
        finally:
            peers.remove(address)

    async def settle(self):
        """Let everything run until nothing is under way."""
        while self.background:
            await asyncio.gather(*self.background)

    def close(self):
        for relay in self.relays.values():
            relay.close()


class Learner:
    """A machine on node ``learner``, and the sender that carries out its commands."""

    def __init__(self, wire, planner, n_hosts, **config):
        self.wire, self.machine = wire, DistributionMachine({"planner": planner, **config})
        self.hosts = tuple(f"h{i}" for i in range(n_hosts))
        link = wire.node("learner")
        for host in self.hosts:
            wire.node(host)
        self.payload, self.records, self.t = b"", [], 0.0
        self.sender = Sender(
            link, TASK, 1, lambda: self.payload, lambda: {host: host for host in self.hosts}, self.feed
        )
        wire.relays["learner"].senders[TASK] = self.sender
        self.payloads = {}
        self.effects = {"SendParameters": self.send, "AskMissing": self.sender.ask}

    def feed(self, kind, **values):
        self.t += 1e-6
        event = kind(t=self.t, **values)
        answer = self.machine.handle(event)
        self.machine.check()
        self.records += [event, *answer]
        for record in answer:
            effect = self.effects.get(type(record).__name__)
            if effect is not None and (coroutine := effect(record)) is not None:
                self.wire._keep(coroutine)

    def ask(self, version, payload):
        base, changed = self.sender.changes(payload)
        self.payloads[version] = payload
        self.feed(PublishAsked, version=version, n_bytes=len(payload), base=base, changed=changed)

    def send(self, command):
        self.payload = self.payloads.get(command.version, self.payload)
        self.sender.send(command)

    async def publish(self, version, payload):
        self.ask(version, payload)
        await self.wire.settle()

    def of(self, kind):
        return [record for record in self.records if isinstance(record, kind)]

    def held(self, host):
        """Return (version, bytes) of what a reader on the host finds."""
        view = StoreView(self.wire.relays[host].path(*TASK))
        with view.pinned() as version:
            data = view.bytes.tobytes()
        view.close()
        return version, data


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when all wait."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def play(tmp_path, scene, planner="relay:m=3", n_hosts=5, cards=None, **config):
    """Run a scene with a learner and hosts; on a clock that jumps if cards are emulated or the machine has settings."""

    async def go():
        wire = Wire(tmp_path, cards)
        learner = Learner(wire, planner, n_hosts, **config)
        learner.feed(HostsChanged, hosts=learner.hosts)
        try:
            await scene(wire, learner)
            assert not wire.wrong
        finally:
            learner.sender.close()
            wire.close()

    with asyncio.Runner(loop_factory=JumpingLoop if cards or config else None) as runner:
        runner.run(asyncio.wait_for(go(), 20.0))


def model(version, n_bytes=5_000):
    return np.random.default_rng(version).bytes(n_bytes)


@pytest.mark.parametrize("planner", PLANNERS)
def test_every_plan_brings_the_same_bytes(tmp_path, planner):
    """D4: to each host, version after version, with no more messages under way than the plan allows."""

    async def scene(wire, learner):
        for version in (1, 2, 3):
            await learner.publish(version, model(version))
            assert {learner.held(host) for host in learner.hosts} == {(version, model(version))}
        assert [record.version for record in learner.of(VersionPublished)] == [1, 2, 3]
        limit = 1 if planner.startswith(("tree", "binomial")) else 4
        assert max(n for (_, op), n in wire.most.items() if op == "drlnb_chunk") <= limit

    play(tmp_path, scene, planner)


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_dead_host_is_named_and_the_others_have_the_version(tmp_path, planner):
    """Whichever role the plan gives it."""

    async def scene(wire, learner):
        for i in range(5):
            wire.dead = {f"h{i}"}
            learner.feed(HostsChanged, hosts=learner.hosts)
            await learner.publish(i + 1, model(i))
            assert [record.host for record in learner.of(HostDropped)][-1:] == [f"h{i}"]
            living = [host for host in learner.hosts if host not in wire.dead]
            assert {learner.held(host) for host in living} == {(i + 1, model(i))}

    play(tmp_path, scene, planner)


def test_a_newcomer_gets_the_version_from_a_host(tmp_path):
    """D14: no byte of it leaves the learner; what it receives is the sender's store."""

    async def scene(wire, learner):
        newcomer = "h4"
        learner.feed(HostsChanged, hosts=learner.hosts[:4])
        await learner.publish(1, model(1))
        wire.chunks.clear()
        learner.feed(HostsChanged, hosts=learner.hosts)
        await wire.settle()
        assert learner.held(newcomer) == (1, model(1))
        assert {caller for caller, _, _ in wire.chunks} == {"h0"}
        assert learner.of(VersionPublished)[-1].n_hosts == 5

    play(tmp_path, scene)


def test_a_relay_that_dies_after_it_took_its_shard(tmp_path):
    """Nobody reports the shard that it never forwarded; those behind it are asked when it is gone."""

    async def scene(wire, learner):
        taken = wire.relays["h2"]._kept

        async def swallow(**message):
            wire.dead.add("h2")

        wire.handlers["h2"]["drlnb_chunk"] = swallow
        learner.feed(HostsChanged, hosts=learner.hosts)
        await learner.publish(1, model(1))
        assert not taken
        if not learner.of(VersionPublished):
            learner.feed(HostsChanged, hosts=tuple(host for host in learner.hosts if host != "h2"))
            await wire.settle()
        living = [host for host in learner.hosts if host != "h2"]
        assert {learner.held(host) for host in living} == {(1, model(1))}
        assert learner.of(RangesMissing)

    play(tmp_path, scene, "relay:m=5")


def test_a_host_that_has_forgotten_what_it_held_cannot_send_it(tmp_path):
    """It says so, and another one does: the newcomer waits for no deadline."""

    async def scene(wire, learner):
        learner.feed(HostsChanged, hosts=learner.hosts[:4])
        await learner.publish(1, model(1))
        wire.relays["h0"].drop(*TASK)
        learner.feed(HostsChanged, hosts=learner.hosts)
        await wire.settle()
        assert learner.held("h4") == (1, model(1))

    play(tmp_path, scene)


def test_a_report_that_was_lost_is_asked_for(tmp_path):
    """The host holds the version, and says so when it is asked what it misses."""

    async def scene(wire, learner):
        async def deaf(**message):
            return {"ok": True}

        wire.handlers["learner"]["drlnb_arrived"] = deaf
        await learner.publish(1, model(1))
        assert not learner.of(HostCompleted)
        learner.feed(DeadlinePassed, name=DEADLINE)
        await wire.settle()
        assert learner.of(VersionPublished)
        assert not learner.of(HostDropped)

    play(tmp_path, scene)


def test_what_does_not_fit_is_refused(tmp_path):
    """Bytes that are not those of the range, an attempt that is over, a version that is older."""

    async def scene(wire, learner):
        await learner.publish(2, model(2))
        relay = wire.relays["h0"]
        chunk = {"attempt": 1, "version": 3, "start": 0, "stop": 4, "total": 8, "again": False}
        where = {**ALONE, "report": "learner", "left_s": 1.0, "n_in_flight": 1}
        with pytest.raises(ConnectionError, match=r"3 bytes for range \[0, 4\)"):
            await relay.chunk(TASK, chunk, **where, payload=b"abc")
        with pytest.raises(ConnectionError, match="attempt 1, version 1 is older than 1, 2"):
            await relay.chunk(TASK, {**chunk, "version": 1}, **where, payload=b"abcd")
        relay.drop(*TASK, 1)
        with pytest.raises(ConnectionError, match="attempt 1 of r/a is over"):
            await relay.chunk(TASK, chunk, **where, payload=b"abcd")
        await wire.handlers["h0"]["drlnb_lost"]("r", "a", 9, version=2)
        await wire.handlers["h0"]["drlnb_arrived"]("r", "other", 1, version=2, host="h0", arrival_s=0.0)

    play(tmp_path, scene)


def test_a_version_of_another_size_makes_another_store(tmp_path):
    """In whole messages and in ranges."""

    async def scene(wire, learner):
        await learner.publish(1, model(1))
        await learner.publish(2, model(2, 9_000))
        assert learner.held("h0") == (2, model(2, 9_000))

    play(tmp_path, scene, "star")


def test_a_defect_of_a_host_drops_it_with_its_words(tmp_path):
    """Whoever sends hears of it as of a message that was not taken: the version ends."""

    async def scene(wire, learner):
        async def broken(**message):
            raise NameError("name 'chunck' is not defined")

        wire.handlers["h1"]["drlnb_chunk"] = broken
        await learner.publish(1, model(1))
        (dropped,) = learner.of(HostDropped)
        assert (dropped.host, dropped.reason) == ("h1", "NameError: name 'chunck' is not defined")
        assert {learner.held(host) for host in learner.hosts if host != "h1"} == {(1, model(1))}

    play(tmp_path, scene)


def test_no_room_for_a_store_is_said_and_nothing_counts_as_held(tmp_path, monkeypatch):
    """The host drops out with the disk's own words; when there is room again it gets the version."""

    async def scene(wire, learner):
        def full(n_bytes):
            raise OSError(28, "No space left on device")

        from drlnb.runtime.distribution import relay

        whole = relay.HostStore
        monkeypatch.setattr(relay, "HostStore", full)
        await learner.publish(1, model(1))
        assert "No space left on device" in learner.of(HostDropped)[0].reason
        monkeypatch.setattr(relay, "HostStore", whole)
        learner.feed(HostsChanged, hosts=learner.hosts)
        await wire.settle()
        assert {learner.held(host) for host in learner.hosts} == {(1, model(1))}

    play(tmp_path, scene, "chain:c=3")


def test_a_host_without_room_is_sent_no_more_of_the_version(tmp_path, monkeypatch):
    """Of 16 messages the learner sends it one; before, it sent all, and again in pieces: two minutes of 10 GB."""

    async def scene(wire, learner):
        from drlnb.runtime.distribution import relay

        def full(n_bytes):
            raise OSError(28, "no room")

        def write(host, *given, whole=relay.HostRelay._write):
            with monkeypatch.context() as patch:
                if host.link.node == "h1":
                    patch.setattr(relay, "HostStore", full)
                return whole(host, *given)

        monkeypatch.setattr(relay.HostRelay, "_write", write)
        await learner.publish(1, model(1))
        assert [each.host for each in learner.of(HostDropped)] == ["h1"]
        assert [(sender, to) for sender, to, _ in wire.chunks].count(("learner", "h1")) == 1
        assert learner.held("h0") == learner.held("h2") == (1, model(1))

    play(tmp_path, scene, "multitree:m=3,c=16", 3)


def test_a_version_that_waits_for_slow_readers_is_reported_when_it_is_there(tmp_path):
    """Every slot is held at one host: it reports once a reader looks away, and the newest version alone."""

    async def scene(wire, learner):
        views = []
        for version in range(1, 5):
            await learner.publish(version, model(version))
            views.append(StoreView(wire.relays["h0"].path(*TASK)))
            views[-1].refresh()
        learner.payload = model(5)
        learner.feed(PublishAsked, version=5, n_bytes=len(model(5)))
        while len([r for r in learner.of(HostCompleted) if r.version == 5]) < 4:
            await asyncio.sleep(0)
        assert learner.held("h0") == (4, model(4))
        assert not [r for r in learner.of(HostCompleted) if (r.version, r.host) == (5, "h0")]
        views[0].release()
        await wire.settle()
        assert learner.held("h0") == (5, model(5))
        assert [record.version for record in learner.of(VersionPublished)] == [1, 2, 3, 4, 5]
        for view in views:
            view.close()

    play(tmp_path, scene)


def test_a_version_without_a_slot_does_not_count_as_held(tmp_path):
    """Past the deadline either: the host says that it misses nothing and readers do not find it, and is waited for."""

    async def scene(wire, learner):
        views = []
        for version in range(1, 5):
            await learner.publish(version, model(version))
            views.append(StoreView(wire.relays["h0"].path(*TASK)))
            views[-1].refresh()
        learner.ask(5, model(5))
        while len([r for r in learner.of(HostCompleted) if r.version == 5]) < 4:
            await asyncio.sleep(0)
        for n in (1, 2):
            learner.feed(DeadlinePassed, name=DEADLINE)
            while len(learner.of(RangesMissing)) < n:
                assert learner.of(VersionPublished)[-1].version == 4
                await asyncio.sleep(0)
        learner.feed(DeadlinePassed, name=DEADLINE)
        assert learner.of(VersionPublished)[-1] == like(VersionPublished, version=5, n_hosts=4, late=("h0",))
        assert not learner.of(HostDropped)
        views[0].release()
        await wire.settle()
        assert learner.held("h0") == (5, model(5))
        assert learner.of(HostCompleted)[-1] == like(HostCompleted, host="h0", version=5)
        for view in views:
            view.close()

    play(tmp_path, scene)


def test_actors_are_confirmed_when_the_last_one_has_applied_a_version(tmp_path):
    """A host without actors at once; who leaves is not waited for; whoever has a newer version has this one."""

    async def scene(wire, learner):
        await learner.publish(1, model(1))
        assert {(e.host, e.n_actors, e.n_late) for e in learner.of(ActorsInstalled)} == {("h0", 0, 0), ("h1", 0, 0)}
        views = [StoreView(wire.relays["h0"].path(*TASK)) for _ in range(3)]
        for view in views:
            view.refresh()
        learner.ask(2, model(2))
        for leave in (StoreView.refresh, StoreView.refresh, StoreView.close):
            await asyncio.sleep(0.5)
            assert learner.of(VersionPublished)[-1].version == 1
            leave(views.pop())
        await wire.settle()
        assert learner.of(ActorsInstalled)[-1] == like(ActorsInstalled, host="h0", version=2, n_late=0)
        assert learner.of(ActorsInstalled)[-1].applied_s == pytest.approx(1.5, abs=0.01)
        assert learner.of(VersionPublished)[-1] == like(VersionPublished, version=2, n_hosts=2, late=())

    play(tmp_path, scene, "star", n_hosts=2, confirm="actors")


def test_actors_that_do_not_apply_a_version_are_counted(tmp_path):
    """After the version's own deadline nobody waits for them or looks any more; a size of its own ends the watch."""

    async def scene(wire, learner):
        await learner.publish(1, model(1))
        views = [StoreView(wire.relays["h0"].path(*TASK)) for _ in range(3)]
        learner.ask(2, model(2))
        while len(learner.of(HostCompleted)) < 4:
            await asyncio.sleep(0)
        views[0].refresh()
        await wire.settle()
        late = learner.of(ActorsInstalled)[-1]
        assert late == like(ActorsInstalled, host="h0", version=2, n_actors=3, n_late=2)
        assert late.applied_s == pytest.approx(1.0, abs=0.01)
        assert learner.of(VersionPublished)[-1] == like(VersionPublished, version=2, n_hosts=2, late=("h0",))
        n_before = len(learner.of(ActorsInstalled))
        learner.ask(3, model(3))
        while len(learner.of(HostCompleted)) < 6:
            await asyncio.sleep(0)
        wire.relays["h0"].drop(*TASK)
        await wire.settle()
        assert [event.host for event in learner.of(ActorsInstalled)[n_before:]] == ["h1"]
        for view in views:
            view.close()

    play(tmp_path, scene, "star", n_hosts=2, confirm="actors", deadline_s=1.0)


def test_a_task_that_is_over_waits_for_no_slow_reader(tmp_path):
    """Its ranges that are not written yet are not, and nobody looks for a slot any more."""

    async def scene(wire, learner):
        await learner.publish(1, model(1))
        store = wire.relays["h0"]._kept[TASK].store
        views = []
        for version in range(2, 6):
            views.append(StoreView(store.path))
            views[-1].refresh()
            store.write(version, model(version))
        learner.payload = model(9)
        chunk = {"attempt": 1, "version": 9, "start": 0, "stop": 5_000, "total": 5_000, "again": False}
        where = {**ALONE, "report": "learner", "left_s": 1.0, "n_in_flight": 1}
        await wire.relays["h0"].chunk(TASK, chunk, **where, payload=model(9))
        assert store.current == (1, 4)  # 5 and 9 wait for a slot
        wire.relays["h0"].drop(*TASK)
        await wire.settle()
        assert not [r for r in learner.of(HostCompleted) if r.version == 9]
        taking = asyncio.ensure_future(wire.relays["h1"].chunk(TASK, chunk, **where, payload=model(9)))
        await asyncio.sleep(0)
        wire.relays["h1"].drop(*TASK)
        await taking
        for view in views:
            view.close()

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("planner", "ingress", "took_s"),
    [
        # L = 4 s out of a card of 1,000 bytes/s, and as long into one.
        ("star", 1_000, 16.0),
        ("chain:c=4", 1_000, 7.0),  # a chunk takes 1 s: the last one leaves the learner at 4 s and makes 3 more steps
        ("binomial", 1_000, 12.0),  # three doublings
        ("relay:m=1", 1_000, 16.0),
        ("star", 800, 17.0),  # the last message begins to arrive at 12 s, and takes 5
    ],
)
def test_emulated_cards_take_the_time_of_real_ones(tmp_path, planner, ingress, took_s):
    """By hand, to 4 hosts; a message that meets two idle cards takes its time once."""
    cards = {"egress_bytes_per_s": 1_000, "ingress_bytes_per_s": ingress}

    async def scene(wire, learner):
        learner.feed(HostsChanged, hosts=learner.hosts)
        await learner.publish(1, model(1, 4_000))
        assert {learner.held(host) for host in learner.hosts} == {(1, model(1, 4_000))}
        assert max(event.publish_s for event in learner.of(HostCompleted)) == pytest.approx(took_s)

    play(tmp_path, scene, planner, n_hosts=4, cards=cards)


@pytest.mark.parametrize(("m", "took_s"), [(4, 4.75), (8, 2.875)])
def test_relays_do_not_queue_for_the_same_host(tmp_path, m, took_s):
    """The distribution patent to 16 hosts, L = 1 s: L + (n - 1) L / m, though the learner serves relays in turn."""

    async def scene(wire, learner):
        learner.feed(HostsChanged, hosts=learner.hosts)
        await learner.publish(1, model(1, 16_000))
        assert max(event.publish_s for event in learner.of(HostCompleted)) == pytest.approx(took_s)

    cards = {"egress_bytes_per_s": 16_000, "ingress_bytes_per_s": 16_000}
    play(tmp_path, scene, f"relay:m={m}", n_hosts=16, cards=cards)


def test_what_is_mended_passes_the_emulated_cards_too(tmp_path):
    """A newcomer's version leaves the card of the host that sends it: 4 s for 4,000 bytes."""

    async def scene(wire, learner):
        learner.feed(HostsChanged, hosts=learner.hosts[:1])
        await learner.publish(1, model(1, 4_000))
        began = asyncio.get_running_loop().time()
        learner.feed(HostsChanged, hosts=learner.hosts)
        await wire.settle()
        assert learner.held("h1") == (1, model(1, 4_000))
        assert asyncio.get_running_loop().time() - began == pytest.approx(4.0)

    play(tmp_path, scene, "star", n_hosts=2, cards={"egress_bytes_per_s": 1_000, "ingress_bytes_per_s": 1_000})


@pytest.mark.parametrize("name", ["egress_bytes_per_s", "ingress_bytes_per_s"])
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_an_emulated_card_has_a_rate(name, rate):
    """A rate of nothing would never pass anything."""
    with pytest.raises(ValueError, match=f"{name} must be > 0"):
        Emulated(**{"egress_bytes_per_s": 1.0, "ingress_bytes_per_s": 1.0, name: rate})


def test_ways_are_cut_at_their_root():
    """The receiver first, who is behind it after it, in the order of sending."""
    hosts = pack_hosts([(name, name.upper()) for name in "abcde"])
    first, second = ways(((-1, 2), (-1, 1), (2, 0), (0, 3), (1, 4)), hosts)
    assert (first.names, first.address) == (["c", "a", "d"], "C")
    assert (second.names, second.address) == (["b", "e"], "B")
    (onward,) = next_ways(first.hosts, first.edges)
    assert (onward.names, onward.address) == (["a", "d"], "A")
    (last,) = next_ways(onward.hosts, onward.edges)
    assert (last.names, next_ways(last.hosts, last.edges)) == (["d"], ())


def test_where_to_goes_along_in_few_bytes():
    """At 298 hosts, one relay each: the learner's messages say little beside 20 MB of shards."""
    addresses = [f"tcp://10.231.{i // 200}.{i % 200}:{30_000 + i * 7919 % 30_000}" for i in range(298)]
    table = pack_hosts([(address, address) for address in addresses])
    plan = relay_plan(298, 20_000_000, 298)
    said = [way for route in plan.routes for way in ways(route, table)]
    assert sorted(way.address for way in said) == sorted(addresses)
    assert sum(len(way.hosts) + len(way.edges) for way in said) < 0.06 * 20_000_000

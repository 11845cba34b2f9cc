"""One version after another to hosts that come, go and do not answer."""

import re
from dataclasses import asdict

import pytest

from drlnb.planning.distribution import DISTRIBUTION, PRESETS, DistributionMachine, DistributionView, Link, best, star
from drlnb.planning.distribution.machine import ACTORS, HOSTS
from drlnb.planning.distribution.publication import DEADLINE
from drlnb.planning.recorded import Recorded
from drlnb.planning.registry import Answer, FailedBefore, Planners
from drlnb.planning.replay import replay
from drlnb.records.base import Record
from drlnb.records.columns.distribution import (
    ActorsInstalled,
    AskMissing,
    DistributionPlanned,
    HostCompleted,
    HostDropped,
    HostsChanged,
    HostUnreachable,
    LinkMeasured,
    MeasureLink,
    MessageLost,
    PublishAsked,
    RangesMissing,
    SendParameters,
    VersionFailed,
    VersionPublished,
    VersionSuperseded,
)
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.journal import StreamOpened, line_of
from tests.matches import like
from tests.streams import stream_of

N_BYTES = 100


class Publisher:
    """A machine, fed one event per second."""

    def __init__(self, planner="star", hosts=("a", "b", "c"), own=None, **config):
        self.machine, self.t = DistributionMachine({"planner": planner, **config}, own), 0.0
        self.hosts(*hosts)

    def feed(self, kind, **values):
        self.t += 1.0
        out = self.machine.handle(kind(t=self.t, **values))
        self.machine.check()
        return out

    def hosts(self, *hosts):
        return self.feed(HostsChanged, hosts=hosts)

    def publish(self, version=1, n_bytes=N_BYTES):
        return self.feed(PublishAsked, version=version, n_bytes=n_bytes)

    def held(self, host, version=1):
        return self.feed(HostCompleted, host=host, version=version, n_bytes=N_BYTES, publish_s=0.1)

    def measured(self, **figures):
        return self.feed(LinkMeasured, hosts=("a",), figures=figures)

    def installed(self, host, n_late=0, version=1):
        times = {"publish_s": 0.3, "applied_s": 0.2}
        return self.feed(ActorsInstalled, host=host, version=version, n_actors=3, n_late=n_late, **times)

    def late(self, name=DEADLINE):
        return self.feed(DeadlinePassed, name=name)

    def silent(self, host, version=1, sends=False):
        return self.feed(HostUnreachable, host=host, version=version, reason="timed out", sends=sends)

    def message_lost(self, host, start, stop, *, sender="", orphans=(), again=False, version=1):
        return self.feed(
            MessageLost, version=version, sender=sender, host=host, start=start, stop=stop, orphans=orphans,
            again=again, reason="timed out",
        )  # fmt: skip

    def misses(self, host, *missing, version=1):
        return self.feed(RangesMissing, host=host, version=version, missing=missing)


def only(kind, out):
    (found,) = [record for record in out if isinstance(record, kind)]
    return found


def names(out):
    assert all(isinstance(record, Record) for record in out)
    return [type(record).__name__ for record in out]


def test_a_version_is_published_when_the_last_host_holds_it():
    """The time is that of the machine, from the first message on."""
    publisher = Publisher()
    out = publisher.publish()
    assert names(out) == ["DistributionPlanned", "SendParameters", "SetDeadline"]
    assert only(DistributionPlanned, out) == like(DistributionPlanned, version=1, planner="star", n_messages=3)
    assert publisher.held("a") == publisher.held("c") == ()
    assert publisher.held("b") == (VersionPublished(version=1, publish_s=3.0, n_hosts=3),)
    assert publisher.held("b") == (), "no news"


def deadline_s(out):
    return only(SendParameters, out).deadline_s


def test_deadlines_are_longer_where_nobody_waits_for_another_host():
    """And four times the prediction, if that is more."""
    link = {"link": asdict(PRESETS["10GbE"])}
    assert deadline_s(Publisher("star", **link).publish()) == 60.0
    assert deadline_s(Publisher("relay:m=2", **link).publish()) == 5.0
    large = Publisher("chain:c=1", **link).publish(n_bytes=4 * 10**9)
    assert deadline_s(large) == pytest.approx(4 * (3 * (4 / 1.17 + 450e-6)))


def test_a_slow_network_is_not_taken_for_a_failure():
    """As long as nothing has arrived and nobody has told the network, versions have a minute; then what they took."""
    publisher = Publisher("relay:m=3", hosts=("a", "b", "c"))
    assert deadline_s(publisher.publish(1, n_bytes=20_000_000)) == 60.0
    publisher.t += 27.0
    for host in "abc":
        publisher.held(host)
    planned, sent, *_ = publisher.publish(2, n_bytes=20_000_000)
    assert publisher.machine.state.publication.pace == pytest.approx(30.0 / planned.predicted_s)
    assert sent.deadline_s == pytest.approx(4 * 30.0)
    for host in "abc":
        publisher.held(host, 2)
    # Three seconds now: what was learnt is forgotten by halves, not at once.
    assert deadline_s(publisher.publish(3, n_bytes=20_000_000)) == pytest.approx(4 * 15.0)


def test_a_host_that_comes_much_later_is_no_measure_of_the_network():
    """It gets the version an hour after the others: the next deadlines are those that they have taught."""
    publisher = Publisher("relay:m=2", hosts=("a", "b"))
    publisher.publish(n_bytes=60_000_000)
    publisher.held("a")
    publisher.held("b")
    pace = publisher.machine.state.publication.pace
    publisher.t += 3600.0
    publisher.hosts("a", "b", "c")
    publisher.held("c")
    assert publisher.machine.state.publication.pace == pace


def test_what_is_mended_has_as_much_time_as_the_network_needs():
    """A repair over a network that takes a hundred times the prediction is not given up after five seconds."""
    publisher = Publisher("relay:m=3", hosts=("a", "b", "c"))
    publisher.publish(1, n_bytes=20_000_000)
    publisher.t += 27.0
    for host in "abc":
        publisher.held(host)
    pace = publisher.machine.state.publication.pace
    publisher.publish(2, n_bytes=20_000_000)
    publisher.late()
    publisher.misses("a", (0, 20_000_000), version=2)
    publisher.misses("b", (0, 20_000_000), version=2)
    out = publisher.misses("c", (0, 20_000_000), version=2)
    (given_s,) = {each.deadline_s for each in out if isinstance(each, SendParameters)}
    assert given_s == pytest.approx(4 * pace * 60_000_000 / PRESETS["10GbE"].egress_bytes_per_s)


def test_a_deadline_of_ones_own_is_kept():
    """Whatever the prediction says."""
    assert deadline_s(Publisher("star", deadline_s=0.5).publish()) == 0.5


def test_the_newest_version_wins():
    """What waits is replaced, and said; it goes out when the one before has ended."""
    publisher = Publisher(hosts=("a",))
    publisher.publish(1)
    assert publisher.publish(2) == ()
    assert publisher.publish(3) == (VersionSuperseded(version=2),)
    assert names(publisher.held("a")) == [
        "VersionPublished", "DistributionPlanned", "SendParameters", "SetDeadline",
    ]  # fmt: skip
    assert publisher.held("a", 3) == (VersionPublished(version=3, publish_s=1.0, n_hosts=1),)


def test_nobody_to_send_to():
    """A cluster of no hosts has every version at once."""
    publisher = Publisher(hosts=())
    assert publisher.publish() == (SetDeadline(name=HOSTS, after_s=2.0),)
    assert publisher.late(DEADLINE) == publisher.hosts() == ()
    assert publisher.late(HOSTS) == (VersionPublished(version=1, publish_s=0.0, n_hosts=0),)
    assert publisher.late(HOSTS) == (), "no news"


def test_a_version_that_finds_no_host_waits_for_one_to_come_back():
    """Also one that waited for the version whose last host was dropped; it takes as long as its own messages take."""
    publisher = Publisher("chain", hosts=("a",))
    publisher.publish(1)
    publisher.publish(2)
    publisher.message_lost("a", 0, 100)
    dropped = publisher.message_lost("a", 0, 100, again=True)
    assert names(dropped) == ["HostDropped", "VersionPublished", "SetDeadline"]
    assert publisher.publish(3) == ()
    assert only(SendParameters, publisher.hosts("a")) == like(SendParameters, version=2, hosts=("a",), source="")
    assert publisher.late(HOSTS) == ()
    publisher.t += 1.0
    held = publisher.held("a", version=2)
    assert only(VersionPublished, held) == VersionPublished(version=2, publish_s=3.0, n_hosts=1)
    assert only(SendParameters, held).version == 3


class Fickle:
    """Plans for two hosts and no others."""

    name = "fickle"

    def plan(self, view):
        if len(view.hosts) == 1:
            raise ZeroDivisionError("one host")
        return star(2, view.model_bytes)


def test_a_version_without_a_plan_is_not_sent():
    """In a line; the next version has its turn, and a recorded one fails in the same words."""
    publisher = Publisher("own:fickle", own=Planners({"distribution": Fickle()}))
    (failed,) = publisher.publish(1)
    words = "distribution planner own:fickle: the plan must be of 3 hosts and 100 bytes, got 2 hosts and 100 bytes"
    assert failed == VersionFailed(version=1, reason=words)
    view = DistributionView(version=1, hosts=("a", "b", "c"), model_bytes=N_BYTES)
    recorded = Recorded(DISTRIBUTION, "own:fickle", lambda: Answer([failed]))
    with pytest.raises(FailedBefore, match=re.escape(words)):
        DISTRIBUTION.ask(recorded, view)
    assert only(SendParameters, publisher.hosts("a", "b")).version == 1
    publisher.publish(2)
    publisher.held("a")
    gone = publisher.hosts("a")
    assert names(gone)[:3] == ["HostDropped", "VersionPublished", "VersionFailed"]
    assert only(VersionFailed, gone).reason.endswith("own:fickle raised ZeroDivisionError: one host")


def test_a_host_that_comes_later_is_sent_to_by_one_that_holds_it():
    """D14: the learner's egress does not grow; two newcomers pass it on to each other."""
    publisher = Publisher(hosts=("a", "b"))
    assert publisher.hosts("a", "b") == (), "nothing to send yet"
    publisher.publish(n_bytes=5 << 20)
    publisher.held("a"), publisher.held("b")
    out = publisher.hosts("a", "b", "x", "y")
    assert only(DistributionPlanned, out) == like(DistributionPlanned, planner="late", hosts=("x", "y"))
    first, second = [record for record in out if isinstance(record, SendParameters)]
    assert (first.source, second.source) == ("a", "b")
    assert first.routes == (((-1, 0), (0, 1)),)
    assert second.routes == (((-1, 1), (1, 0)),)
    assert sorted(first.sends + second.sends) == [
        (0, 1747627, 0), (1747627, 3495254, 0), (3495254, 5242880, 0),
    ]  # fmt: skip
    assert publisher.held("x") == ()
    assert only(VersionPublished, publisher.held("y")).n_hosts == 4


def test_a_lost_message_is_sent_again_at_once():
    """To those behind the relay by whoever had it to send, to the relay itself by another one: it may live still."""
    publisher = Publisher("relay:m=2", hosts=("a", "b", "c", "d"))
    publisher.publish()
    out = publisher.message_lost("b", 0, 50, sender="a", orphans=("c", "d"))
    assert only(DistributionPlanned, out) == like(DistributionPlanned, planner="repair", hosts=("c", "d", "b"))
    first, second = [record for record in out if isinstance(record, SendParameters)]
    assert (first.source, first.hosts, first.routes, first.sends) == (
        "a",
        ("c", "d"),
        (((-1, 0), (0, 1)),),
        ((0, 50, 0),),
    )
    assert (second.source, second.hosts, second.routes) == ("", ("b",), (((-1, 0),),))
    assert first.again
    assert publisher.message_lost("b", 0, 50, again=True) == (HostDropped(host="b", reason="timed out"),)
    for host in "ac":
        publisher.held(host)
    assert publisher.held("d") == (VersionPublished(version=1, publish_s=5.0, n_hosts=3),)
    assert publisher.message_lost("b", 0, 50, orphans=("d",)) == (), "nobody waits for it"


def test_who_is_late_is_asked_and_sent_what_it_misses():
    """Once all that were asked have answered; by hosts that hold the version."""
    publisher = Publisher("chain:c=1", hosts=("a", "b", "c", "d"))
    publisher.publish()
    publisher.held("a")
    assert publisher.late() == (AskMissing(version=1, hosts=("b", "c", "d")),)
    assert publisher.late() == (), "they are asked already"
    assert publisher.silent("b") == (HostDropped(host="b", reason="timed out"), AskMissing(version=1, hosts=("c", "d")))
    assert publisher.misses("c", (0, 60)) == ()
    out = publisher.misses("d", (0, 60), (70, 100))
    assert names(out) == ["DistributionPlanned", "SendParameters", "SetDeadline"]
    sent = only(SendParameters, out)
    assert (sent.source, sent.hosts, sent.again) == ("a", ("c", "d"), True)
    assert sent.sends == ((0, 60, 0), (70, 100, 1))
    assert sent.routes == (((-1, 0), (0, 1)), ((-1, 1),))
    assert only(AskMissing, publisher.late()).hosts == ("c", "d"), "one more chance"
    assert publisher.misses("c", (0, 60)) == ()
    assert names(publisher.held("d")) == ["DistributionPlanned", "SendParameters", "SetDeadline"]
    dropped, published = publisher.late()
    assert dropped == HostDropped(host="c", reason="late too often")
    assert published == like(VersionPublished, version=1, n_hosts=2)


def test_an_answer_that_says_nothing_new_is_waited_for_no_longer_than_a_deadline():
    """What it misses is on its way from others; if it never comes, it is asked again."""
    publisher = Publisher("relay:m=2")
    publisher.publish()
    publisher.held("a")
    publisher.hosts("a", "b")
    assert publisher.misses("b", (50, 100)) == (SetDeadline(name=DEADLINE, after_s=5.0),)
    assert only(AskMissing, publisher.late()).hosts == ("b",)
    assert only(SendParameters, publisher.misses("b", (50, 100))).source == "a"


def test_what_is_missed_is_kept_over_a_second_question():
    """Bytes that went by way of the first host that is gone are sent as well as those of the second."""
    publisher = Publisher("relay:m=3", hosts=("a", "b", "c", "d"))
    publisher.publish()
    publisher.hosts("a", "c", "d")
    publisher.misses("c", (0, 100))
    publisher.hosts("c", "d")
    publisher.misses("c", (0, 100))
    sends = [record.sends for record in publisher.misses("d", (0, 100)) if isinstance(record, SendParameters)]
    assert sorted({(start, stop) for each in sends for start, stop, _ in each}) == [(34, 100)]


def test_a_host_that_cannot_send_what_it_holds_sends_no_more():
    """Those that waited for it get it elsewhere; it stays a host, and may send again once it has come back."""
    publisher = Publisher(hosts=("a", "b", "c"))
    publisher.publish()
    publisher.held("a")
    publisher.held("b")
    publisher.late()
    assert only(SendParameters, publisher.misses("c", (0, 100))).source == "a"
    assert publisher.silent("a", sends=True) == (AskMissing(version=1, hosts=("c",)),)
    assert only(SendParameters, publisher.misses("c", (0, 100))).source == "b"
    assert only(VersionPublished, publisher.held("c")).n_hosts == 3
    publisher.hosts("b", "c")
    publisher.hosts("a", "b", "c")
    publisher.held("a")
    publisher.hosts("a")
    assert only(SendParameters, publisher.hosts("a", "x")).source == "a"


def test_orphans_of_a_sender_that_is_gone_get_it_from_a_holder():
    """The learner sends no byte of what hosts hold."""
    publisher = Publisher(hosts=("a", "b"))
    publisher.publish()
    publisher.held("a"), publisher.held("b")
    publisher.hosts("a", "b", "x", "y")
    publisher.hosts("b", "x", "y")
    publisher.misses("x", (0, 100))
    publisher.misses("y", (0, 100))
    out = publisher.message_lost("x", 0, 100, sender="a", orphans=("y",), again=True)
    assert {record.source for record in out if isinstance(record, SendParameters)} == {"b"}


def test_those_behind_a_relay_that_is_gone_are_asked():
    """They are not waited for until the deadline, and are sent no more than went by way of it."""
    publisher = Publisher("relay:m=2")
    sent = only(SendParameters, publisher.publish())
    assert [route[0] for route in sent.routes] == [(-1, 2), (-1, 0)]
    out = publisher.hosts("a", "b")
    assert out == (HostDropped(host="c", reason="it is gone"), AskMissing(version=1, hosts=("b", "a")))
    publisher.misses("a", (0, 100))
    again = [record for record in publisher.misses("b", (20, 80)) if isinstance(record, SendParameters)]
    assert [each.sends for each in again] == [((0, 50, 0), (20, 50, 1))]
    publisher.held("a")
    assert publisher.hosts("a") == (
        HostDropped(host="b", reason="it is gone"),
        VersionPublished(version=1, publish_s=4.0, n_hosts=1),
    )


def test_the_last_host_goes_while_a_version_is_under_way():
    """Then it is published, to nobody; and the next one to whoever comes."""
    publisher = Publisher(hosts=("a",))
    publisher.publish()
    publisher.publish(2)
    out = publisher.hosts()
    assert names(out) == ["HostDropped", "VersionPublished", "SetDeadline"]
    assert names(publisher.late(HOSTS)) == ["VersionPublished"]
    assert only(SendParameters, publisher.hosts("b")).version == 2
    assert publisher.held("a") == publisher.silent("a") == publisher.misses("a") == (), "it is no host any more"


def test_actors_are_waited_for_where_that_is_asked():
    """Until each host has said that its own have the version, in whatever order; only then the next one leaves."""
    publisher = Publisher(hosts=("a", "b"), confirm="actors")
    assert only(SendParameters, publisher.publish()).confirm_s == 60.0
    assert publisher.publish(2) == publisher.held("a") == publisher.installed("b") == ()
    assert publisher.held("b") == (SetDeadline(name=ACTORS, after_s=61.0),)
    assert publisher.held("b") == publisher.installed("b") == publisher.installed("a", version=2) == (), "no news"
    published, *_, sent, _ = publisher.installed("a")
    assert published == VersionPublished(version=1, publish_s=8.0, n_hosts=2)
    assert (sent.version, sent.confirm_s) == (2, 60.0)
    assert publisher.installed("a") == publisher.late(ACTORS) == (), "of the version before"


def test_no_actor_is_waited_for_where_that_is_not_asked():
    """Hosts are not told to watch them, and what one says of its own changes nothing."""
    publisher = Publisher(hosts=("a",), confirm="hosts")
    assert only(SendParameters, publisher.publish()).confirm_s == 0.0
    assert publisher.installed("a") == ()
    assert publisher.held("a") == (VersionPublished(version=1, publish_s=2.0, n_hosts=1),)


def test_late_actors_end_the_wait_and_their_host_stays():
    """Whether it says so, or nothing is heard of it until the deadline; the next version is a new chance."""
    publisher = Publisher(hosts=("a", "b", "c"), confirm="actors", deadline_s=2.0)
    publisher.publish()
    for host in "abc":
        out = publisher.held(host)
    assert out == (SetDeadline(name=ACTORS, after_s=3.0),)
    assert publisher.installed("a", n_late=1) == publisher.installed("b") == ()
    assert publisher.late(ACTORS) == (VersionPublished(version=1, publish_s=6.0, n_hosts=3, late=("a", "c")),)
    assert publisher.installed("c") == publisher.late(ACTORS) == (), "the version is over"
    assert only(SendParameters, publisher.publish(2)).hosts == ("a", "b", "c")
    for host in "abc":
        publisher.held(host, 2)
        out = publisher.installed(host, version=2)
    assert out == (VersionPublished(version=2, publish_s=6.0, n_hosts=3),)


def test_nobody_waits_for_the_actors_of_a_host_that_is_gone():
    """Nor are they late; a host that comes meanwhile is waited for, with a deadline of its own."""
    publisher = Publisher(hosts=("a", "b"), confirm="actors")
    publisher.publish()
    publisher.held("a"), publisher.held("b")
    publisher.installed("b", n_late=1)
    assert only(SendParameters, publisher.hosts("a", "x")).confirm_s == 60.0
    assert publisher.late(ACTORS) == (), "it does not count before all hosts hold the version"
    assert publisher.held("x") == (SetDeadline(name=ACTORS, after_s=61.0),)
    publisher.installed("x")
    assert publisher.hosts("x") == (
        HostDropped(host="a", reason="it is gone"),
        VersionPublished(version=1, publish_s=8.0, n_hosts=1),
    )


def test_readers_that_hold_every_slot_do_not_drop_their_host():
    """It has every byte and no place for them: waited for as long as any host that is late, then named."""
    publisher = Publisher(hosts=("a", "b"), confirm="actors")
    publisher.publish()
    publisher.held("a"), publisher.installed("a")
    for _ in range(2):
        assert publisher.late() == (AskMissing(version=1, hosts=("b",)),)
        assert publisher.misses("b") == (SetDeadline(name=DEADLINE, after_s=5.0),)
    assert publisher.late() == (VersionPublished(version=1, publish_s=7.0, n_hosts=1, late=("b",)),)
    pace = publisher.machine.state.publication.pace
    assert publisher.held("b") == (), "a slot is free at last"
    assert publisher.machine.state.publication.pace == pace, "readers are no measure of the network"
    assert publisher.hosts("a", "b") == (), "nobody misses anything"
    assert only(SendParameters, publisher.publish(2)).hosts == ("a", "b")


def test_old_news_change_nothing():
    """Of an older version, or of a host that was not asked."""
    publisher = Publisher(hosts=("a", "b"))
    publisher.publish()
    publisher.held("a"), publisher.held("b")
    publisher.publish(2)
    assert (
        publisher.silent("a", 1) == publisher.misses("a", (0, 1), version=1) == publisher.misses("a", version=2) == ()
    )
    assert publisher.message_lost("a", 0, 1, version=1) == ()
    assert publisher.held("a", 1) == ()
    assert publisher.machine.state.publication.waiting == ["a", "b"]


def test_a_snapshot_goes_on_alike():
    """In the middle of a repair."""
    publisher = Publisher("relay:m=2")
    publisher.publish()
    publisher.late()
    publisher.publish(2)
    other = Publisher("relay:m=2", hosts=())
    other.machine.restore(publisher.machine.snapshot())
    other.t = publisher.t
    for step in ("b", "c"):
        assert publisher.held(step) == other.held(step)
    assert publisher.feed(DeadlinePassed, name="another's") == other.feed(DeadlinePassed, name="another's") == ()
    assert publisher.misses("a", (0, 50)) == other.misses("a", (0, 50))
    assert publisher.machine.snapshot() == other.machine.snapshot()


def test_a_wrong_planner_is_refused_at_once():
    """By the registry's words."""
    with pytest.raises(ValueError, match="distribution planner must be one of"):
        DistributionMachine({"planner": "relais"})


SLOW = Link.of(11.7e6, latency_s=0.001, overhead_s=0.0002)


def test_the_network_is_measured_with_one_host_and_with_more():
    """One tells what the learner sends, two what hosts send each other; those that come and go later tell no more."""
    publisher = Publisher("auto", hosts=())
    assert publisher.hosts("a") == (MeasureLink(hosts=("a",)),)
    assert publisher.hosts("a", "b") == (MeasureLink(hosts=("a", "b")),)
    assert publisher.hosts("a", "b", "c") == ()
    assert names(publisher.hosts("a")) == ["HostDropped", "HostDropped"]
    assert publisher.hosts("a", "b") == ()


def test_a_network_that_is_told_or_not_used_is_not_measured():
    """A star is the same on every network; planners of a user's own may use it."""
    told = Publisher("auto", hosts=(), link=asdict(SLOW))
    assert told.hosts("a", "b") == Publisher("star", hosts=()).hosts("a", "b") == ()
    assert Publisher("relay:m=2", hosts=()).hosts("a", "b") == (MeasureLink(hosts=("a", "b")),)


class Even:
    """Sends to each host itself, on whatever network."""

    name, uses_link = "even", False

    def plan(self, view):
        return star(len(view.hosts), view.model_bytes)


@pytest.mark.parametrize("uses_link", [False, True])
def test_a_planner_of_the_users_own_says_whether_it_uses_the_network(uses_link):
    """Only then it is measured; a replay, which has not the planner, has it measured where the journal has."""
    even = Even()
    even.uses_link = uses_link
    publisher = Publisher("own:even", hosts=(), own=Planners({"distribution": even}))
    header = StreamOpened(
        stream="distribution", machine="distribution", config={"planner": "own:even"}, origin="measured", version="0"
    )
    lines, n_measured = [line_of(header), line_of(HostsChanged(t=1.0, hosts=()))], 0
    for event in (
        HostsChanged(t=2.0, hosts=("a", "b")),
        PublishAsked(t=3.0, version=1, n_bytes=N_BYTES),
        HostCompleted(t=4.0, host="a", version=1, n_bytes=N_BYTES, publish_s=0.1),
        HostCompleted(t=5.0, host="b", version=1, n_bytes=N_BYTES, publish_s=0.1),
    ):
        out = publisher.machine.handle(event)
        n_measured += sum(isinstance(record, MeasureLink) for record in out)
        lines += map(line_of, (event, *out))
    assert n_measured == uses_link
    assert replay(stream_of(lines, source="j")).difference is None


def test_what_was_measured_counts_from_the_next_version_on():
    """Its plan, its prediction and its deadline; of the version that is under way the pace is not learnt."""
    hosts = tuple("abcdefgh")
    publisher = Publisher("auto", hosts=hosts)
    first = only(DistributionPlanned, publisher.publish(1, n_bytes=20_000_000))
    assert first.predicted_s == pytest.approx(best(8, 20_000_000, PRESETS["10GbE"]).publish_s, abs=1e-6)
    assert publisher.measured(**asdict(SLOW)) == ()
    for host in hosts:
        publisher.held(host)
    assert publisher.machine.state.publication.pace == 1.0
    out = publisher.publish(2, n_bytes=20_000_000)
    expected_s = best(8, 20_000_000, SLOW).publish_s
    assert only(DistributionPlanned, out).predicted_s == pytest.approx(expected_s, abs=1e-6)
    assert deadline_s(out) == pytest.approx(4 * expected_s, abs=1e-5)


def test_what_could_not_be_measured_stays_as_it_was():
    """As long as nobody knows what hosts send, versions have a minute."""
    publisher = Publisher("relay:m=2", hosts=("a", "b"))
    publisher.measured(learner_bytes_per_s=5e6, overhead_s=0.001)
    publication = publisher.machine.state.publication
    assert publication.link == Link(learner_bytes_per_s=5e6, overhead_s=0.001)
    assert publication.pace is None
    assert deadline_s(publisher.publish()) == 60.0
    publisher.measured()
    assert publication.link.learner_bytes_per_s == 5e6


def test_nothing_is_measured_while_versions_are_under_way():
    """A planner that uses the network comes with the first one; the second one waits for it, and goes out at once."""
    publisher = Publisher("star", hosts=("a",))
    publisher.feed(PublishAsked, version=1, n_bytes=N_BYTES, planner="auto")
    publisher.publish(2)
    assert names(publisher.held("a"))[:2] == ["VersionPublished", "DistributionPlanned"]
    assert publisher.held("a", 2)[-1] == MeasureLink(hosts=("a",))


def test_a_restored_machine_knows_the_network():
    """And does not have it measured again."""
    publisher, other = Publisher("auto", hosts=("a", "b")), Publisher("auto", hosts=())
    publisher.measured(**asdict(SLOW))
    other.machine.restore(publisher.machine.snapshot())
    other.t = publisher.t
    assert other.machine.state.publication.link == SLOW
    assert other.publish(n_bytes=10**7) == publisher.publish(n_bytes=10**7)

"""Versions of a run beside what was predicted, and its hosts: counted by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from drlnb.planning.distribution import PRESETS
from drlnb.records.columns.distribution import (
    DistributionPlanned,
    HostCompleted,
    HostDropped,
    HostsChanged,
    LinkMeasured,
    MessageLost,
    SendParameters,
    VersionPublished,
)
from drlnb.records.columns.warmup import CollectorReady, WakeCollector
from drlnb.records.journal import Journal
from drlnb.sim.distribution.publish import simulate_publish
from drlnb.views.distribution import measured
from drlnb.views.distribution.topology import topology
from drlnb.views.folds.fold import Fold, fold_of
from tests.views.journals import Run
from tests.views.pictures import until


def planned(version, planner="relay:m=2", predicted_s=0.5, correction=1.0):
    return DistributionPlanned(
        version=version, planner=planner, hosts=("n0", "n1"), n_bytes=4_000_000, n_messages=2, digest="d",
        predicted_s=predicted_s, correction=correction,
    )  # fmt: skip


def held(version, host, publish_s, t):
    return HostCompleted(t=t, host=host, version=version, n_bytes=4_000_000, publish_s=publish_s, arrival_s=0.125)


def version(number, *hosts):
    """Return the records of a version in two shards, each to one host that passes it on; the first host holds it."""
    n, size = len(hosts), 4_000_000
    routes = tuple(((-1, i), *((i, k) for k in range(n) if k != i)) for i in range(n))
    sends = tuple((size * i // n, size * (i + 1) // n, i) for i in range(n))
    plan = DistributionPlanned(
        version=number, planner=f"relay:m={n}", hosts=hosts, n_bytes=size, n_messages=n * n, digest="d", predicted_s=0.5
    )
    command = SendParameters(
        version=number, source="", hosts=hosts, routes=routes, sends=sends, n_in_flight=4, deadline_s=9.0
    )
    return plan, command, held(number, hosts[0], 0.5, 10.0 + number)


def test_how_a_version_spread_is_measured_per_host():
    """Who was to send what is the plan's; a host's first byte and its last are its own, of all its shards."""
    run = Run().task("a")
    run.say("task-a-a1", *version(1, "n0"), *version(2, "n0", "n1"))
    of = measured.spread(run.journal())
    assert (of.hosts, of.sizes.tolist(), of.origin) == (("n0", "n1"), [2_000_000, 2_000_000], "measured")
    ends = list(zip(of.messages["sender"].tolist(), of.messages["receiver"].tolist(), strict=True))
    assert ends == [(-1, 0), (0, 1), (-1, 1), (1, 0)]
    assert of.messages["shard"].tolist() == [0, 0, 1, 1]
    assert of.messages["begun"] == pytest.approx(np.array([0.375, np.nan, np.nan, 0.375]), nan_ok=True)
    view = topology(of, 1)
    assert view.sentence == "version 2 by relay:m=2, shard 1 of 2: 1 of 2 hosts complete after 500 ms (measured)"
    assert view.rows() == [["learner", "n1", None, None, 2.0, "planned"], ["n1", "n0", 375.0, 500.0, 2.0, "planned"]]
    assert topology(of, 1, 0.4).columns["cells"]["state"].tolist() == [1, 0]
    assert view.notes == ("a host says when its first byte came and its last: all its shards seem to come at once",)


def test_a_host_that_was_dropped_is_lost_from_then_on(journal):
    """In words and in the picture; of a version before it nothing is left, and nothing of who came without one."""
    run = Run().task("a")
    run.say("task-a-a1", *version(1, "n0", "n1"), HostDropped(host="n1", reason="gone"))
    of = measured.spread(run.journal())
    assert of.outcome == "n1 lost; 1 of 2 hosts complete after 500 ms (measured), without repair"
    assert [(host, number) for host, _, number in of.lost] == [("n1", -1)]
    assert topology(of).columns["cells"]["state"].tolist() == [2, 3]
    late = VersionPublished(version=1, publish_s=0.5, n_hosts=2), HostDropped(host="n0", reason="gone")
    run.say("task-a-a1", *late)
    assert measured.spread(run.journal()).lost == of.lost  # n0 had it, and was there as long as it took
    assert measured.spread(journal) is None  # it has no command to send
    with pytest.raises(ValueError, match="this run has no task 'c'"):
        measured.spread(journal, "c")


def test_repair_is_measured_apart_from_the_plan():
    """What was sent again, by a host that holds it or by the learner, is counted as such, and nothing else is."""
    stream = simulate_publish("relay:m=8", 16, 20_000_000, PRESETS["10GbE"], fails={"h11": 0.02}).stream
    of = measured.spread(Journal(streams={"distribution": stream}))
    assert of.origin == "simulated"
    assert (len(of.sizes), of.n_complete, [host for host, *_ in of.lost]) == (8, 15, ["h11"])
    sent = stream.of(SendParameters)
    again = sum(len(command.routes[route]) for command in sent[1:] for _, _, route in command.sends)
    assert of.messages["repair"].sum() == again > 0
    assert of.messages["bytes"][of.messages["repair"] == 0].sum() == 16 * 20_000_000
    assert of.publish_s == stream.of(VersionPublished)[-1].publish_s


@pytest.fixture
def journal():
    """Two versions by relays, a third one by a star that host n1 loses: it is dropped."""
    run = Run().task("a").task("b")
    run.say(
        "task-a-a1", planned(1), held(1, "n0", 0.5, 1.0), held(1, "n1", 0.75, 1.1),
        VersionPublished(version=1, publish_s=0.75, n_hosts=2),
        planned(2), held(2, "n1", 0.25, 2.0), held(2, "n0", 1.0, 2.1),
        VersionPublished(version=2, publish_s=1.0, n_hosts=2),
        planned(3, "star", 0.0), held(3, "n0", 0.5, 3.0),
        MessageLost(t=3.1, version=3, sender="", host="n1", start=0, stop=9, orphans=(), again=False, reason="gone"),
        planned(3, "repair"),
        HostDropped(host="n1", reason="gone"),
    )  # fmt: skip
    return run.journal()


def points(view, label):
    at = [line["label"] for line in view.facts["lines"]].index(label)
    drawn = view.columns["points"]
    mine = drawn["line"] == at
    return [tuple(drawn[name][mine].tolist()) for name in ("x", "y", "lo", "hi")]


def test_versions_are_drawn_by_planner_with_their_first_and_last_hosts(journal):
    """Milliseconds; the third version has no end yet, and its planner said nothing."""
    view = measured.versions(journal)
    assert points(view, "measured, relay:m=2") == [(1, 2), (750, 1000), (500, 250), (750, 1000)]
    assert points(view, "predicted")[:2] == [(1, 2), (500, 500)]
    assert points(view, "measured, star")[0] == ()
    numbers = {key: value for key, (_, value, _, _) in view.numbers.items()}
    assert numbers == {
        "versions": 3, "measured": 0.875, "predicted": 0.5, "ratio": 1.75, "correction": 1.0, "behind": 0,
        "repairs": 1, "lost": 1, "sent": 4.0, "kept": 0.0, "pause": None,
    }  # fmt: skip
    assert view.sentence == "a: 3 versions; under relay:m=2 measured 875 ms, predicted 500 ms (medians), to 1 host"


def test_a_corrected_prediction_is_drawn_beside_its_closed_form():
    """Versions took three times as long before: 500 ms by the form are 1,500 expected."""
    run = Run().task("a")
    run.say("task-a-a1", planned(1), held(1, "n0", 1.5, 1.0), held(1, "n1", 1.5, 1.0))
    run.say("task-a-a1", VersionPublished(version=1, publish_s=1.5, n_hosts=2))
    run.say("task-a-a1", planned(2, correction=3.0), held(2, "n0", 1.5, 2.0), held(2, "n1", 1.5, 2.0))
    run.say("task-a-a1", VersionPublished(version=2, publish_s=1.5, n_hosts=2))
    view = measured.versions(run.journal())
    assert points(view, "predicted")[:2] == [(1, 2), (500, 1500)]
    assert points(view, "closed form alone")[:2] == [(2,), (500,)]
    assert view.value("correction") == 2.0, "the median of 1 and 3"
    assert view.sentence.endswith("; predictions are 2 times the closed form, which is what versions took")


def test_what_hosts_kept_and_for_how_long_collectors_waited_is_said():
    """3 of 4 MB stay; of two collectors the second was up later: it waited for .25 s, the first for .75 s."""
    run = Run().task("a")
    before = {"node": "n0", "start_s": 0.5, "n_starting": 1, "start_mode": "spawn"}
    wake = {"node": "n0", "round": 1, "n_steps": 5, "n_timesteps": 0}
    for number, kept, t in ((1, 0, 1.0), (2, 3_000_000, 5.0)):
        run.say(
            "task-a-a1",
            CollectorReady(t=t, collector=0, **before),
            HostsChanged(t=t, hosts=("n0", "n1")),
            replace(planned(number), kept_bytes=kept),
            CollectorReady(t=t + 0.5, collector=1, **before),
            held(number, "n0", 0.75, t + 0.75),
            WakeCollector(collector=0, version=number, **wake),
            WakeCollector(collector=1, version=number, **wake),
        )
    view = measured.versions(run.journal())
    assert (view.value("sent"), view.value("kept"), view.value("pause")) == (1.0, 3.0, 0.75)
    assert (
        "; collectors waited 750 ms for one; of the newest one's 4 MB 1 were sent, hosts kept the rest" in view.sentence
    )


def test_a_shard_is_as_large_as_what_is_sent_of_it():
    """Of 4 MB two ranges travel, of 1 and 2 MB: to each host by a route of its own."""
    run = Run().task("a")
    plan, command, _ = version(1, "n0", "n1")
    ranges = ((0, 1_000_000), (2_000_000, 4_000_000))
    sends = tuple((start, stop, i) for i, (start, stop) in enumerate(ranges))
    run.say("task-a-a1", replace(plan, kept_bytes=1_000_000), replace(command, sends=sends, base=1, changed=ranges))
    of = measured.spread(run.journal())
    assert (of.sizes.tolist(), of.model_bytes) == ([1_000_000, 2_000_000], 3_000_000)


def test_hosts_have_rows_with_what_they_lack(journal):
    """Mean times over what each held; of a dropped one nobody says that it is behind."""
    view = measured.hosts(journal)
    assert view.rows() == [
        ["n0", 3.0, 0.0, 3.0, pytest.approx(2 / 3), 0.125, 0.0, ""],
        ["n1", 2.0, None, 2.0, 0.5, 0.125, 1.0, "gone"],
    ]
    assert view.sentence == "2 hosts: 1 hold version 3; dropped: n1"


def test_a_host_that_is_behind_is_counted(journal):
    """Of a prefix: version 2 was planned and has reached n1 alone."""
    journal = until(journal, 2.05)
    view = measured.versions(journal)
    assert view.value("behind") == 1
    rows = {row[0]: row for row in measured.hosts(journal).rows()}
    assert view.value("measured") == 0.75
    assert (rows["n0"][1:3], rows["n1"][1:3]) == ([1.0, 1.0], [2.0, 0.0])


def test_a_task_without_versions_says_so_and_an_unknown_one_is_refused(journal):
    """Both views, in words."""
    assert measured.versions(journal, "b").sentence == "no version has been sent yet"
    assert measured.hosts(journal, "b").sentence == "no host yet"
    with pytest.raises(ValueError, match="this run has no task 'c'; it has a, b"):
        measured.versions(journal, "c")
    for view in (measured.versions(journal, "b"), measured.hosts(journal, "b")):
        assert view.sentence in view.svg()


def test_a_publisher_alone_has_versions_too():
    """The journal of a simulated publisher: origin, repair and the dropped host as in its records."""
    stream = simulate_publish("relay:m=8", 16, 20_000_000, PRESETS["10GbE"], fails={"h11": 0.02}).stream
    view = measured.versions(Journal(streams={"distribution": stream}))
    assert view.origin == "simulated"
    assert view.value("measured") == stream.of(VersionPublished)[-1].publish_s
    assert view.value("lost") == len(stream.of(MessageLost))
    assert view.value("repairs") == len(stream.of(DistributionPlanned)) - 1
    assert "to 15 hosts" in view.sentence


def test_only_so_many_versions_are_kept():
    """Of 20,000 versions the newest is there, and the numbers are finite."""
    fold = Fold()
    entries = [("task-a-a1", planned(version)) for version in range(1, 20_001)]
    fold.feed(entries)
    of = fold.distributions["a"]
    assert len(of.versions) <= 8_192
    assert of.newest == 20_000
    view = measured.versions(fold_of(fold))
    assert math.isfinite(view.value("predicted"))
    assert len(view.columns["points"]["x"]) <= 800


def test_the_page_says_how_the_network_was_measured(journal):
    """Figures that came later, and those that stayed; before all are known it says so."""
    assert measured.versions(journal).notes[-1] == "network: not measured"
    run = Run().task("a")
    run.say(
        "task-a-a1", planned(1), LinkMeasured(t=1.0, hosts=("n0",), figures={"overhead_s": 1e-4, "latency_s": 2e-4}),
        LinkMeasured(t=2.0, hosts=("n0",), figures={"learner_bytes_per_s": 1.17e7, "latency_s": 3e-4}),
    )  # fmt: skip
    note = measured.versions(run.journal()).notes[-1]
    assert note == "network, measured: 11.7 MB/s, latency 300 us, 100 us per message"

"""Simulated versions, drawn: times by hand, lanes, repair, and a race."""

import numpy as np
import pytest

from drlnb.fleet.whatif.distribution import simulate
from drlnb.planning.distribution import PRESETS, Link
from drlnb.views.distribution import simulated

SIZE = 20_000_000
LINK = PRESETS["10GbE"]
#: 100 bytes take a second, a message at least a quarter, and half a second on its way.
SLOW = Link.of(100.0, latency_s=0.5, overhead_s=0.25)


@pytest.fixture(scope="module")
def killed():
    """Sixteen hosts, eight relays, the one of shard 3 gone half way."""
    return simulate("relay:m=8", 16, SIZE, LINK, kill=3)


def test_two_hosts_and_two_relays_by_hand():
    """A shard of 200 bytes holds a card for 2 s; the second host's own shard holds up what the first one forwards."""
    view = simulated.shards(simulate("relay:m=2", 2, 400, SLOW))
    bars = view.columns["bars"]
    assert [lane["label"] for lane in view.facts["lanes"]] == ["learner", "h0", "", "h1", ""]
    assert view.origin == "simulated"
    # lane 1: h0's arrivals, lane 3: h1's
    rows = sorted(zip(bars["lane"].tolist(), bars["start"].tolist(), bars["stop"].tolist(), strict=True))
    assert rows == [(1, 0.75, 2.75), (1, 5.5, 7.5), (3, 2.75, 4.75), (3, 4.75, 6.75)]
    sends = view.columns["waits"]
    rows = sorted(zip(sends["lane"].tolist(), sends["start"].tolist(), sends["stop"].tolist(), strict=True))
    assert rows == [(0, 0.0, 2.0), (0, 2.0, 4.0), (2, 2.75, 4.75), (4, 4.75, 6.75)]
    assert view.columns["dots"]["start"].tolist() == [7.5, 6.75]
    assert (view.value("first"), view.value("last"), view.value("complete")) == (6.75, 7.5, 2.0)
    assert view.rows()[0] == ["learner", "h0", 0.0, 2750.0, 0.0002, "shard 0"]
    assert view.sentence == "relay m=2: all 2 hosts complete after 8.3 s (simulated)"


def test_a_lost_relay_is_named_and_repaired(killed):
    """Fifteen hosts complete, by messages that the plan did not have."""
    view = simulated.shards(killed)
    assert killed.dropped == ("h11",)
    assert killed.n_complete == 15
    assert view.sentence.startswith("relay m=8: h11 (relay 3) lost half way; 15 of 16 hosts complete after ")
    assert f"by {int(view.value('repaired'))} repair messages" in view.sentence
    (mark,) = view.facts["marks"]
    assert (mark["label"], mark["t"]) == ("h11 lost", killed.lost[0][1])
    assert killed.egress[0] == 1.125, "one version, and the lost shard of eight: no host held the version yet"
    series = [style["name"] for style in view.facts["series"]]
    parts = [row[-1] for row in view.rows()]
    assert series[-2:] == ["repair", "holds the version"]
    assert parts.count("repair") == view.value("repaired") > 0


def test_what_arrives_is_the_version_once_and_never_two_at_once(killed):
    """Bytes of every live host add up to one version; no card takes two messages at the same time."""
    bars = simulated.shards(killed).columns["bars"]
    for host in range(16):
        mine = bars["receiver"] == host + 1
        begun, done = np.sort(bars["start"][mine]), np.sort(bars["stop"][mine])
        assert (begun[1:] >= done[:-1] - 1e-9).all()
        if host != 11:
            assert bars["mb"][mine].sum() == pytest.approx(20.0)


@pytest.mark.thorough
def test_many_hosts_and_shards_share_lanes_and_colours():
    """Sixteen lanes of 40 hosts, the lost one among them; shards in eight groups, by their numbers."""
    of = simulate("relay:m=20", 40, SIZE, LINK, kill=1)
    view = simulated.shards(of)
    named = [lane["label"] for lane in view.facts["lanes"] if lane["label"]]
    assert len(named) <= 17
    assert of.lost[0][0] in named
    assert [style["name"] for style in view.facts["series"][:3]] == ["shards 0-2", "shards 3-4", "shards 5-7"]
    assert any("of 40 hosts are drawn" in note for note in view.notes)


def test_every_lane_is_one_of_its_own_in_plotly():
    """Thin lanes have no label, and are no single lane for that."""
    figure = simulated.shards(simulate("relay:m=2", 2, 400, SLOW)).figure()
    labels = {trace.meta: set() for trace in figure.data}
    for trace in figure.data:
        labels[trace.meta] |= set(trace.y)
    assert labels["bars"] == {"h0", "h1"}
    assert len(labels["waits"]) == 3


def test_a_whole_version_is_one_part():
    """A star has no shards."""
    view = simulated.shards(simulate("star", 3, SIZE, LINK))
    assert [style["name"] for style in view.facts["series"]] == ["the whole version", "repair", "holds the version"]


def test_the_race_ranks_plans_on_one_clock():
    """The fastest first, every line ends at 100 %, ratios are of the last hosts' times."""
    results = [simulate(plan, 16, SIZE, LINK) for plan in ("star", "relay:m=8", "auto")]
    view = simulated.race(results)
    assert view.origin == "simulated"
    assert view.sentence.startswith("multitree m=3, c=16 is first: ")
    assert "11.67x of star" in view.sentence
    drawn = view.columns["points"]
    ends = [drawn["y"][drawn["line"] == i][-1] for i in range(3)]
    assert ends == [100.0] * 3
    assert all((np.diff(drawn["y"][drawn["line"] == i]) >= 0).all() for i in range(3))


@pytest.mark.thorough
def test_a_plan_that_takes_far_longest_is_cut_off_and_said_so():
    """Else nothing of the others could be seen."""
    results = [simulate(plan, 64, SIZE, LINK) for plan in ("star", "relay:m=64", "auto")]
    view = simulated.race(results)
    drawn = view.columns["points"]
    assert drawn["y"][drawn["line"] == 2].max() < 100
    assert any(note.startswith("cut off at ") and "star is not done" in note for note in view.notes)


@pytest.mark.parametrize("size", [1, 3, 1_000_000_000])
@pytest.mark.parametrize("plan", ["star", "relay:m=8", "multitree:m=3,c=4", "auto"])
@pytest.mark.parametrize("n", [1, 2])
def test_few_hosts_and_odd_sizes_are_drawn(n, plan, size):
    """One byte, a gigabyte; and where the only host dies, nobody holds the version and no number is made up."""
    of = simulate(plan, n, size, LINK, kill=0)
    view = simulated.shards(of)
    assert of.n_complete == view.value("complete") == n - 1
    assert (view.value("last") is None) == (n == 1)
    assert f"{n - 1} of {n} hosts complete" in view.svg()
    assert simulated.race([of]).payload()

"""Who holds which part of a version at a moment: by hand, and counted anew from the messages."""

import re

import numpy as np
import pytest

from drlnb.fleet.whatif.distribution import simulate
from drlnb.planning.distribution import PRESETS, Link
from drlnb.views.distribution.simulated import Spread
from drlnb.views.distribution.topology import topology
from drlnb.views.drawing.pictures import nothing

SIZE = 20_000_000
LINK = PRESETS["10GbE"]
#: 100 bytes take a second, a message at least a quarter, and half a second on its way.
SLOW = Link.of(100.0, latency_s=0.5, overhead_s=0.25)
WAITING, RECEIVING, COMPLETE, DROPPED = range(4)


@pytest.fixture(scope="module")
def killed():
    """Sixteen hosts, eight relays, the one of shard 3 gone half way."""
    return simulate("relay:m=8", 16, SIZE, LINK, kill=3)


@pytest.fixture(scope="module")
def many():
    """Forty hosts and relays, the first one gone half way."""
    return simulate("relay:m=40", 40, SIZE, LINK, kill=0)


def states(view):
    return view.columns["cells"]["state"].tolist()


def counted(of, shards, host, at_s):
    """Return the state of some shards at a host, from its messages alone, one by one."""
    if any(each == of.hosts[host] and lost_s <= at_s for each, lost_s, _ in of.lost):
        return DROPPED
    left, begun = sum(of.sizes[shard] for shard in shards), False
    for i, receiver in enumerate(of.messages["receiver"]):
        if receiver == host and of.messages["shard"][i] in shards:
            came = of.messages["done"][i] - of.messages["wire"][i]
            begun = begun or max(of.messages["begun"][i], came) <= at_s
            left -= of.messages["bytes"][i] * (of.messages["done"][i] <= at_s)
    return COMPLETE if left <= 0 else RECEIVING if begun else WAITING


@pytest.mark.parametrize(
    ("at_s", "first", "second"),
    [
        (0.5, WAITING, WAITING),
        (1.0, RECEIVING, WAITING),
        (3.0, COMPLETE, WAITING),
        (5.0, COMPLETE, RECEIVING),
        (7.0, COMPLETE, COMPLETE),
    ],
)
def test_two_hosts_and_two_relays_by_hand(at_s, first, second):
    """A shard of 200 bytes holds a card for 2 s: h0 has shard 0 from 0.75 to 2.75 s, h1 by way of it from 4.75 on."""
    view = topology(simulate("relay:m=2", 2, 400, SLOW), 0, at_s)
    assert view.rows() == [
        ["learner", "h0", 0.0, 2750.0, 0.0002, "planned"],
        ["h0", "h1", 2750.0, 6750.0, 0.0002, "planned"],
    ]
    assert states(view) == [first, second]
    assert view.columns["edges"]["state"].tolist() == [1 + (at_s >= 2.75), (at_s >= 2.75) + (at_s >= 6.75)]
    assert (view.value("holders"), view.value("whole")) == (2.0, 6.75)
    assert view.sentence == "relay m=2, shard 0 of 2: all 2 hosts complete after 8.3 s (simulated)"


def test_a_killed_relay_is_seen_and_what_it_owed_comes_by_repair(killed):
    """Drawn as it is lost: seven hosts have its shard; each of the others gets all of it later, none from there."""
    view = topology(killed, 3)
    assert view.facts["at"] * view.facts["span"][1] == pytest.approx(killed.lost[0][1])
    assert [states(view).count(k) for k in range(4)] == [7, 1, 7, 1]
    assert states(view)[11] == DROPPED
    assert [(mark["label"], mark["t"]) for mark in view.facts["moments"]] == [("h11 lost", killed.lost[0][1])]
    edges, names = view.columns["edges"], [row[-1] for row in view.rows()]
    repair = np.array([name == "repair" for name in names])
    assert not (edges["sender"][repair] == 12).any()
    got = np.bincount(edges["receiver"], edges["mb"], 17)
    assert got[1:] == pytest.approx(np.full(16, 2.5))
    assert view.value("holders") == 15
    assert states(topology(killed, 3, 1.0)).count(COMPLETE) == 15
    assert not any(row[-1] == "repair" for row in topology(killed, 4).rows() if row[0] != "learner" and row[1] == "h11")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.5, 0.7, 1.0])
def test_every_state_is_that_of_the_messages(killed, many, share):
    """On a ring of each shard, in a matrix of each row, at any moment; the page's own moments say the same."""
    for of, shard in ((killed, 3), (killed, 0), (many, 7)):
        at_s = share * max(of.publish_s, of.messages["done"].max())
        view = topology(of, shard, at_s)
        spans = [text.split("-") for text in view.facts["parts"]] or [[shard]]
        rows = [range(int(span[0]), int(span[-1]) + 1) for span in spans]
        expected = [counted(of, set(row), host, at_s) for row in rows for host in range(len(of.hosts))]
        assert states(view) == expected
        if share in {0.2, 0.7}:  # moments are 65,535: what happens in the same one has no order
            cells, gone, tick = view.columns["cells"], view.columns["hosts"]["gone"], share * 65_534
            drawn = np.where(cells["done"] <= tick, 2, np.where(cells["begun"] <= tick, 1, 0))
            assert np.where(np.tile(gone <= tick, len(rows)), 3, drawn).tolist() == expected


def test_more_hosts_are_a_matrix_with_some_shards_in_a_row(many):
    """Forty shards in thirty rows, each once; the row of the shard is marked; edges are the shard's alone."""
    view = topology(many, 7)
    numbers = [int(number) for text in view.facts["parts"] for number in re.findall(r"\d+", text)]
    assert (len(view.facts["parts"]), min(numbers), max(numbers)) == (30, 0, 39)
    assert sum(int(text.split("-")[-1]) - int(text.split("-")[0]) + 1 for text in view.facts["parts"]) == 40
    low, *_, high = (int(number) for number in 2 * view.facts["parts"][view.facts["part"]].split("-"))
    assert low <= 7 <= high
    assert len(view.columns["cells"]["done"]) == 30 * 40
    assert {row[1] for row in view.rows()} == set(many.hosts)
    assert topology(simulate("relay:m=24", 24, SIZE, LINK)).facts["parts"] == []


@pytest.mark.parametrize(("plan", "part"), [("star", "the whole version"), ("multitree:m=3,c=2", "tree 2 of 3")])
def test_a_part_has_the_word_of_its_plan(plan, part):
    """A tree of several, or all; chunks of a tree are one edge."""
    of = simulate(plan, 9, SIZE, LINK)
    view = topology(of, len(of.sizes) - 1)
    assert f", {part}: all 9 hosts complete" in view.sentence
    assert len(view.rows()) == 9


@pytest.mark.parametrize("shard", [-1, 8])
def test_a_shard_that_is_not_there_is_refused(killed, shard):
    """With the limit and the value."""
    with pytest.raises(ValueError, match=f"shard must be from 0 to 7, got {shard}"):
        topology(killed, shard)


def test_as_svg_and_in_plotly_states_are_shapes_and_letters(killed, many):
    """Both twins say how many hosts wait, receive, hold it and are dropped; the matrix is one box per run of them."""
    view = topology(killed, 3)
    picture = view.svg()
    letters = re.findall(r'text-anchor="middle" font-weight="600">(.)</text>', picture)
    assert sorted(letters[:16]) == sorted("·" * 7 + "↓" + "✓" * 7 + "✕")
    assert "at 25 ms" in picture
    hosts = [trace for trace in view.figure().data if trace.meta == "hosts"]
    assert [(trace.name[:1], len(trace.x)) for trace in hosts] == [("·", 7), ("↓", 1), ("✓", 7), ("✕", 1)]
    assert hosts[-1].text == ("✕ h11",)
    view = topology(many, 7)
    (grid,) = view.figure().data
    assert np.array(grid.z).ravel().tolist() == states(view)
    assert len(view.svg()) < 12_000


def test_names_of_hosts_stay_text():
    """In every form."""
    of = simulate("star", 2, SIZE, LINK)
    odd = Spread(**{name: getattr(of, name) for name in of.__dataclass_fields__} | {"hosts": ("<b>x", "&y")})
    view = topology(odd)
    assert "<b>" not in view.svg()
    assert all("<b>" not in str(trace.text) for trace in view.figure().data)


def test_before_a_version_it_says_so():
    """Drawn in every form; nothing is made up."""
    view = nothing("distribution.topology", "topology", "no version yet")
    assert "no version yet" in view.svg()
    assert view.rows() == []
    assert len(view.figure().data) == 0
    assert view.payload()[1] == [b""]

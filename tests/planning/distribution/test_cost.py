"""The closed forms against figures that were computed apart from this code, and against hand numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import PRESETS, STRATEGIES, Cost, Link, best, bound_s, forecast
from drlnb.planning.distribution import cost as costs

SIZE = 20_000_000
IDEAL = Link.of(1.17e9, latency_s=50e-6, overhead_s=0.0)
LIKE_PYTHON = Link.of(1.17e9, latency_s=300e-6, overhead_s=150e-6)
UP_TO = {100: np.arange(1, 101.0)[:, None], 298: np.arange(1, 299.0)[:, None]}
ONE, DOUBLINGS = np.ones((1, 1)), 2.0 ** np.arange(10)[None, :]

#: Versions per second, 20 MB at 10 GbE, for (n, link): row by row the table in the design of this system, except relays
#: whose messages cost time.  By hand: (n - 1) L / m and (n + m - 2) o are about equal at m = 68 for n = 100, 24.9 ms,
#: and at m = 88 for n = 298, 57.7 ms; L + 2 a, 17.7 ms, comes on top.
GOLDEN = {
    "star": (0.58, 0.20, 0.58, 0.20),
    "tree": (3.08, 1.72, 3.07, 1.72),
    "tree of more levels": (4.87, 3.90, 4.85, 3.88),
    "binomial": (8.3, 6.5, 8.2, 6.4),
    "chain": (39, 24, 11.0, 4.7),
    "relay of the patent": (5.36, 5.36, 5.35, 5.35),
    "relay": (29.3, 29.2, 23.5, 13.3),
    "multitree": (53, 53, 38, 36.5),
}
CASES = [(100, IDEAL), (298, IDEAL), (100, LIKE_PYTHON), (298, LIKE_PYTHON)]


def at_its_best(name, n, link):
    """Return versions per second at the best numbers of the whole grid."""
    if name == "relay of the patent":
        return 1 / forecast("relay", n, SIZE, link, m=10 if n == 100 else 30, c=1).publish_s
    if name == "tree of more levels":
        return 1 / forecast("tree", n, SIZE, link, c=99).publish_s
    return 1 / forecast(name, n, SIZE, link, c=1 if name == "relay" else 0).publish_s


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("case", range(4))
def test_versions_per_second_are_those_of_the_table(name, case):
    """To the digits that it has."""
    golden = GOLDEN[name][case]
    digits = len(str(golden).partition(".")[2]) if isinstance(golden, float) else 0
    assert at_its_best(name, *CASES[case]) == pytest.approx(golden, abs=0.6 * 10**-digits)


@pytest.mark.parametrize(("case", "ms"), list(enumerate([17.144, 17.144, 18.294, 18.594])))
def test_the_bound_by_hand(case, ms):
    """One version through one card, 17.094 ms, six or eight doublings of the last message, and one latency."""
    n, link = CASES[case]
    assert 1e3 * bound_s(Cost.of(n, SIZE, link)) == pytest.approx(ms, abs=0.001)


def test_chunks_help_the_full_mesh_only_where_messages_cost_nothing():
    """56 versions per second in theory; nothing over whole shards where each message costs 150 us."""
    chunks = 2.0 ** np.arange(1, 6)[None, :]
    assert 1 / costs.relay_s(Cost.of(100, SIZE, IDEAL), UP_TO[100], chunks).min() == pytest.approx(56, abs=0.5)
    like_python = costs.relay_s(Cost.of(298, SIZE, LIKE_PYTHON), UP_TO[298], chunks).min()
    assert 1 / like_python < at_its_best("relay", 298, LIKE_PYTHON)


def test_hand_numbers():
    """In units of one version through one card: 2.75 for 8 hosts and 4 relays, 7 for 16 and k = 4, 4 doublings of 8."""
    link = Link.of(SIZE, latency_s=0.0, overhead_s=0.0)
    assert forecast("star", 8, SIZE, link).publish_s == 8
    assert forecast("relay", 8, SIZE, link, m=4).publish_s == 2.75
    assert forecast("tree", 16, SIZE, link, m=4).publish_s == 7
    assert forecast("binomial", 8, SIZE, link).publish_s == 4
    assert forecast("chain", 8, SIZE, link, c=1).publish_s == 8
    assert forecast("chain", 8, SIZE, link, c=8).publish_s == 1 + 7 / 8
    assert forecast("tree", 12, SIZE, link, m=3, c=2 + 1).publish_s == 6
    assert bound_s(Cost.of(8, SIZE, link)) == 1.0


def test_headers_count_where_the_rate_counts_them():
    """A shaped card carries 4.6 % more than the payload."""
    link = Link.of(25e6, latency_s=0.0, overhead_s=0.0, header_frac=costs.HEADER_FRAC)
    assert forecast("star", 8, SIZE, link).publish_s == pytest.approx(8 * 0.8 * 1.046)


def test_the_slowest_card_counts():
    """The learner's for a star; where hosts receive slowly, their own."""
    slow_in = Link(
        learner_bytes_per_s=4e7, egress_bytes_per_s=4e7, ingress_bytes_per_s=1e6, latency_s=0.0, overhead_s=0.0
    )
    assert forecast("star", 4, SIZE, slow_in).publish_s == 20.0
    assert forecast("relay", 4, SIZE, slow_in, m=2).publish_s == 20.0
    assert bound_s(Cost.of(4, SIZE, slow_in)) == 20.0


@given(name=st.sampled_from(list(STRATEGIES)), n=st.integers(1, 64), size=st.integers(1, 10**9))
def test_numbers_that_are_left_open_are_numbers(name, n, size):
    """As many relays as there are hosts at most, and a time."""
    said = forecast(name, n, size, LIKE_PYTHON)
    assert 1 <= said.m <= max(2, n)
    assert 0.0 < best(n, size, LIKE_PYTHON).publish_s <= said.publish_s * (1 + 1e-12) < np.inf


def test_who_forwards_what_it_receives_pays_for_both():
    """By hand, where bytes take no time and a message a second of the loop, receivers of the last one left out."""
    link = Link.of(1e15, latency_s=0.0, overhead_s=1.0)
    assert forecast("chain", 2, SIZE, link, c=512).publish_s == pytest.approx(2 * 512), "512 come in, 512 go out"
    assert forecast("chain", 1, SIZE, link, c=512).publish_s == pytest.approx(512), "nothing goes out"
    assert forecast("relay", 16, SIZE, link, m=16).publish_s == pytest.approx(16 + 15 + 15)
    assert forecast("relay", 1, SIZE, link, m=1).publish_s == pytest.approx(1)
    assert forecast("relay", 16, SIZE, link, m=16, c=4).publish_s == pytest.approx(4 * (15 + 16) + 15)


def test_auto_takes_chunks_that_hosts_take_well():
    """From 128 KiB to 4 MiB where the version allows it; a small version goes directly, as few messages as can be."""
    said = best(16, SIZE, PRESETS["10GbE"])
    assert said.strategy == "multitree"
    assert 128 << 10 <= SIZE / (said.m * said.c) <= 4 << 20
    assert best(2, 40_000, PRESETS["10GbE"]).strategy == "star"
    assert best(1, SIZE, PRESETS["10GbE"]).strategy == "star"


def test_a_tree_is_not_cut_however_many_it_serves():
    """Sizes of chunks limit what is cut into shards: of a tree's k the best one is taken."""
    link, sizes = PRESETS["10GbE"], (128 << 10, 4 << 20)
    for levels in (2, 99):
        of_levels = forecast("tree", 298, SIZE, link, c=levels, chunk_bytes=sizes)
        assert of_levels == forecast("tree", 298, SIZE, link, c=levels)
    assert of_levels.m == 3
    assert SIZE / forecast("relay", 298, SIZE, link, c=1, chunk_bytes=sizes).m >= 128 << 10

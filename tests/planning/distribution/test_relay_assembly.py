import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import Chunk, RelayAssembly, Taken, cut

CHILDREN = (2, 1)


def chunk(start, stop, *, version=1, attempt=1, total=10, children=(), again=False):
    return Chunk(attempt=attempt, version=version, start=start, stop=stop, total=total, children=children, again=again)


def test_a_chunk_is_forwarded_and_kept():
    """What arrives first goes on to the children; the version is whole with its last range."""
    relay = RelayAssembly()
    assert relay.take(chunk(4, 10, children=CHILDREN)) == Taken(forward=CHILDREN, new=True)
    assert (relay.whole, relay.newest) == (False, (1, 1))
    assert relay.take(chunk(0, 4)) == Taken(new=True, whole=True)
    assert relay.whole


def test_duplicates_are_ignored():
    """A range that is here already is neither forwarded nor written, before and after the version is whole."""
    relay = RelayAssembly()
    relay.take(chunk(0, 6))
    assert relay.take(chunk(2, 5, children=CHILDREN)) == Taken()
    relay.take(chunk(6, 10))
    assert relay.take(chunk(6, 10, children=CHILDREN)) == Taken()


def test_what_others_miss_is_forwarded_though_it_is_here():
    """A repair that crosses the first message: those behind wait for it."""
    relay = RelayAssembly()
    relay.take(chunk(0, 6))
    assert relay.take(chunk(0, 6, children=CHILDREN, again=True)) == Taken(forward=CHILDREN)


def test_what_is_missing_is_told_by_ranges():
    """Between those that are here; all of another version."""
    relay = RelayAssembly()
    assert relay.missing(1, 10) == ((0, 10),)
    relay.take(chunk(2, 4))
    relay.take(chunk(6, 10))
    assert relay.missing(1, 10) == ((0, 2), (4, 6))
    assert relay.missing(2, 8) == ((0, 8),)
    assert relay.holds([(7, 10), (2, 4)])
    assert not relay.holds([(7, 10), (5, 10)])
    relay.take(chunk(0, 6))
    assert relay.missing(1, 10) == ()


def test_an_overlap_is_new_as_far_as_it_is_missing():
    """A repair may cut elsewhere than the plan did."""
    relay = RelayAssembly()
    relay.take(chunk(0, 2))
    relay.take(chunk(4, 6))
    assert relay.take(chunk(1, 5, children=CHILDREN)) == Taken(forward=CHILDREN, new=True)
    assert relay.take(chunk(1, 6)) == Taken()
    assert relay.take(chunk(6, 10)) == Taken(new=True, whole=True)


def test_a_newer_version_abandons_a_partial_one():
    """Nobody waits for parameters that are old already; the same version of a later attempt is newer."""
    relay = RelayAssembly()
    relay.take(chunk(0, 6))
    assert relay.take(chunk(0, 4, version=2, total=4)) == Taken(new=True, whole=True)
    refusal = relay.take(chunk(6, 10)).refused
    assert refusal == "attempt 1, version 1 is older than 1, 2"
    assert relay.take(chunk(0, 6, attempt=2, version=1)).new
    assert relay.take(chunk(0, 4, version=9)).refused == "attempt 1, version 9 is older than 2, 1"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (chunk(-1, 4, version=2), r"range must be inside [0, 10) and not empty, got [-1, 4)"),
        (chunk(4, 4, version=2), r"range must be inside [0, 10) and not empty, got [4, 4)"),
        (chunk(4, 11, version=2), r"range must be inside [0, 10) and not empty, got [4, 11)"),
        (chunk(6, 8, total=12), "total must be 10 bytes as before, got 12"),
    ],
)
def test_a_wrong_chunk_is_refused_and_changes_nothing(bad, reason):
    """Not even a newer version's bad chunk abandons what is here."""
    relay = RelayAssembly()
    relay.take(chunk(0, 6))
    assert relay.take(bad) == Taken(refused=reason)
    assert relay.newest == (1, 1)
    assert relay.take(chunk(0, 6)) == Taken()
    assert relay.take(chunk(6, 10)) == Taken(new=True, whole=True)


@given(m=st.integers(1, 12), order=st.randoms(use_true_random=False), repeats=st.integers(0, 5))
def test_any_order_gives_the_whole_version_once(m, order, repeats):
    """However ranges come, each is forwarded once, and the version becomes whole once, with the last new one."""
    ranges = list(cut(10, m))
    arrivals = ranges + [order.choice(ranges) for _ in range(repeats)]
    order.shuffle(arrivals)
    relay, there, n_whole = RelayAssembly(), set(), 0
    for start, stop in arrivals:
        taken = relay.take(chunk(start, stop, children=CHILDREN))
        assert taken.new == ((start, stop) not in there)
        assert taken.forward == (CHILDREN if taken.new else ())
        there.add((start, stop))
        n_whole += taken.whole
        assert relay.whole == ({byte for a, b in there for byte in range(a, b)} == set(range(10)))
    assert n_whole == 1
    assert relay.whole


def test_nothing_is_whole_at_first():
    """Before the first chunk nothing is here."""
    relay = RelayAssembly()
    assert (relay.whole, relay.newest) == (False, (0, 0))

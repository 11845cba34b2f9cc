from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.placement.collectors import spread

NODES = st.dictionaries(st.sampled_from(["n0", "n1", "n2", "n3"]), st.integers(-2, 6), min_size=1)


def test_shares_are_in_proportion_to_what_is_free():
    """8 collectors on 6, 1 and 1 free places: 6, 1 and 1."""
    assert Counter(spread(8, {"a": 6, "b": 1, "c": 1})) == {"a": 6, "b": 1, "c": 1}


def test_the_largest_remainder_gets_the_last_collector():
    """4 on 3 and 2 free places: shares 2.4 and 1.6, so 2 and 2."""
    assert spread(4, {"a": 3, "b": 2}) == ("a", "a", "b", "b")


def test_ties_go_to_the_masters_node_then_by_name():
    """One collector, two equal nodes."""
    assert spread(1, {"b": 2, "a": 2}) == ("a",)
    assert spread(1, {"b": 2, "a": 2}, near="b") == ("b",)


def test_the_lowest_numbers_live_beside_the_master():
    """Collector 0 is on the master's node when any is."""
    assert spread(4, {"a": 2, "b": 2}, near="b") == ("b", "b", "a", "a")


def test_too_many_collectors_oversubscribe_evenly():
    """12 on 3 and 1 places: three times as many on each as fit."""
    assert Counter(spread(12, {"a": 3, "b": 1})) == {"a": 9, "b": 3}


def test_where_nothing_is_free_all_nodes_are_alike():
    """Full and overfull nodes take equal shares."""
    assert Counter(spread(4, {"a": 0, "b": -3})) == {"a": 2, "b": 2}


def test_only_the_collectors_of_a_lost_node_move():
    """The others stay where they are, even where a fresh plan would move them."""
    before = ("a", "b", "b", "c")
    assert spread(4, {"a": 1, "c": 4}, before=before) == ("a", "c", "c", "c")


def test_a_node_that_returns_moves_nobody():
    """Stability goes before balance."""
    assert spread(2, {"a": 0, "b": 9}, before=("a", "a")) == ("a", "a")


def test_no_collectors_need_no_node():
    """Zero collectors live nowhere."""
    assert spread(0, {}) == ()


@pytest.mark.parametrize(
    ("n", "nodes", "message"),
    [(-1, {"a": 1}, "n must be >= 0 collectors, got -1"), (2, {}, "for 2 collectors, got none")],
)
def test_bad_arguments(n, nodes, message):
    """A negative number, and collectors without a node."""
    with pytest.raises(ValueError, match=message):
        spread(n, nodes)


@given(n=st.integers(0, 30), nodes=NODES, near=st.none() | st.just("n1"))
def test_laws(n, nodes, near):
    """Everybody has a node; while they fit nobody is squeezed; shares are within one of exact proportion."""
    placed = spread(n, nodes, near=near)
    counts = Counter(placed)
    assert len(placed) == n
    assert counts.keys() <= nodes.keys()
    free = {node: max(0, fit) for node, fit in nodes.items()}
    total = sum(free.values())
    if n <= total:
        assert all(counts[node] <= free[node] for node in nodes)
    for node in nodes:
        exact = n * free[node] / total if total else n / len(nodes)
        assert abs(counts[node] - exact) < 1
    assert spread(n, nodes, near=near, before=placed) == placed


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.lists(st.integers(0, 4), max_size=6), st.integers(0, 8))
def test_only_who_must_move_moves_and_the_others_are_dealt_by_what_is_left(rooms, before, n):
    """Staying costs a place; who moves is dealt as if those who stay belonged to other tasks."""
    nodes = {f"n{i}": room for i, room in enumerate(rooms)}
    lived = [f"n{i}" for i in before]  # n4, and n1 to n3 where there are fewer nodes, are lost
    placed = spread(n, nodes, before=lived)
    stay = [node if node in nodes else None for node in lived[:n]] + [None] * (n - len(lived))
    assert all(now == then for now, then in zip(placed, stay, strict=True) if then is not None)
    left = {node: max(0, room - stay.count(node)) for node, room in nodes.items()}
    moved = [now for now, then in zip(placed, stay, strict=True) if then is None]
    assert Counter(moved) == Counter(spread(len(moved), left))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 12), st.integers(1, 4))
def test_a_larger_pool_of_the_same_shape_deals_alike(rooms, n, factor):
    """Shares depend on the proportions of what is free, while nobody is squeezed."""
    nodes = {f"n{i}": room for i, room in enumerate(rooms)}
    larger = {node: room * factor for node, room in nodes.items()}
    if n <= sum(rooms):
        assert spread(n, larger) == spread(n, nodes)

"""The constructions of the distribution patent, its baselines, and the multitree: hand numbers and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import LEARNER, Send, binomial, chain, cut, multitree, relay, star, tree

SIZE = 20_000_000
EACH = [
    lambda n, size, m, c: star(n, size),
    lambda n, size, m, c: tree(n, size, m),
    lambda n, size, m, c: tree(n, size, m, levels=99),
    lambda n, size, m, c: binomial(n, size),
    lambda n, size, m, c: chain(n, size, c),
    lambda n, size, m, c: relay(n, size, m, c),
    lambda n, size, m, c: relay(n, size, m, c, epoch=m + c),
    lambda n, size, m, c: multitree(n, size, m + 1, c),
]


def depths(plan):
    """Return the hops to the furthest host of each route."""
    found = []
    for route in plan.routes:
        at = {LEARNER: 0}
        for sender, receiver in route:
            at[receiver] = at[sender] + 1
        found.append(max(at.values()))
    return found


@given(total=st.integers(0, 1000), m=st.integers(1, 50))
def test_shards_are_contiguous_and_equal_to_one_byte(total, m):
    """D1: they touch, begin at 0, end at the total, larger ones first; none is empty."""
    ranges = cut(total, m)
    sizes = [stop - start for start, stop in ranges]
    assert len(ranges) == min(m, total)
    assert [start for start, _ in ranges] == [0, *[stop for _, stop in ranges]][: len(ranges)]
    assert not ranges or ranges[-1][1] == total
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[0] - sizes[-1] <= 1


@given(
    make=st.sampled_from(EACH),
    n=st.integers(0, 24),
    size=st.integers(1, 500),
    m=st.integers(1, 48),
    c=st.integers(1, 9),
)
def test_each_construction_reaches_every_host_once(make, n, size, m, c):
    """Whatever the numbers, more shards than hosts or bytes among them: each byte once, n S bytes received in all."""
    plan = make(n, size, m, c)
    plan.check()
    assert plan.ingress_bytes().sum() == plan.egress_bytes().sum() == n * size


@pytest.mark.parametrize("n", [1, 2, 7, 16, 100])
@pytest.mark.parametrize("make", EACH[4:], ids=["chain", "relay", "relay later", "multitree"])
def test_the_learner_sends_one_model(make, n):
    """D8: its egress is S whatever n, for relay, chain and multitree."""
    assert make(n, SIZE, 4, 3).egress_bytes()[LEARNER] == SIZE


def test_one_host_gets_one_direct_message():
    """In every strategy."""
    for make in EACH:
        assert make(1, 9, 1, 1).sends == (Send(0, 9, 0),)
        assert make(1, 9, 1, 1).routes[0] == ((LEARNER, 0),)


# ------------------------------------------------------------------ relay: the patent's
def test_shard_i_goes_to_relay_i_which_sends_to_all_others():
    """D2, D3, by hand: 3 hosts, 2 relays, 5 bytes."""
    plan = relay(3, 5, 2)
    assert plan.sends == (Send(0, 3, 0), Send(3, 5, 1))
    assert plan.routes == (((LEARNER, 0), (0, 2), (0, 1)), ((LEARNER, 1), (1, 0), (1, 2)))
    assert relay(3, 5, 2, epoch=1).routes[0] == ((LEARNER, 2), (2, 1), (2, 0)), "another host's turn"


@pytest.mark.parametrize(("n", "m"), [(8, 4), (16, 4), (100, 10), (298, 30)])
def test_a_relay_sends_its_share_to_all_others(n, m):
    """D8: (n - 1) S / m, at most one byte's rounding each; hosts that are no relays send nothing."""
    egress = relay(n, SIZE, m).egress_bytes()[:-1]
    assert np.count_nonzero(egress) == m
    assert abs(egress[:m] - (n - 1) * SIZE / m).max() < n


@given(n=st.integers(2, 40), m=st.integers(1, 40))
def test_relays_in_step_aim_at_different_hosts(n, m):
    """Trap 1: at step j no two relays send to the same host."""
    plan = relay(n, SIZE, m)
    for step in range(1, n):
        targets = [route[step][1] for route in plan.routes]
        assert len(set(targets)) == len(targets)


@given(n=st.integers(2, 40), m=st.integers(1, 40))
def test_relays_that_begin_one_after_another_aim_at_different_hosts(n, m):
    """Relay i sends its first message at step i, as the learner serves it: no more than two then aim at one host."""
    routes = relay(n, SIZE, m).routes
    for step in range(n + m):
        targets = [route[step - i + 1][1] for i, route in enumerate(routes) if 0 <= step - i < n - 1]
        assert max(map(targets.count, targets), default=0) <= 2


def test_more_relays_than_hosts_are_as_many_as_hosts():
    """They are clipped."""
    assert relay(3, 90, 10) == relay(3, 90, 3)
    assert multitree(3, 90, 10) == multitree(3, 90, 3)


# ------------------------------------------------------------------ trees
def test_two_levels_by_hand():
    """Two hosts serve the other three in turn, and nobody else sends."""
    plan = tree(5, 7, 2)
    assert plan.routes == (((LEARNER, 0), (0, 2), (0, 4)), ((LEARNER, 1), (1, 3)))
    assert plan.egress_bytes().tolist() == [14, 7, 0, 0, 0, 14]
    assert plan.n_in_flight == 1, "trap 2: one message after another"


def test_a_tree_of_as_many_levels_as_it_takes():
    """Three below each, learner included: 3 + 9 hosts have two levels, a 13th begins a third."""
    assert max(depths(tree(12, 7, 3, levels=99))) == 2
    assert max(depths(tree(13, 7, 3, levels=99))) == 3
    assert tree(13, 7, 3, levels=99).routes[0] == (
        (LEARNER, 0), (0, 3), (0, 4), (0, 5), (3, 12),
    )  # fmt: skip


@pytest.mark.parametrize(("n", "doublings"), [(1, 1), (2, 2), (3, 2), (7, 3), (8, 4), (100, 7), (298, 9)])
def test_a_binomial_tree_doubles(n, doublings):
    """The learner, like everybody, sends once per doubling; when all send in step, the last host has it then."""
    plan = binomial(n, SIZE)
    assert plan.egress_bytes()[LEARNER] == doublings * SIZE
    assert plan.n_in_flight == 1
    at, next_send = {LEARNER: 0}, {}
    for _, sender, receiver in plan.messages():
        begin = max(at[sender], next_send.get(sender, 0))
        at[receiver] = next_send[sender] = begin + 1
    assert max(at.values()) == doublings


def test_a_chain_is_a_line_for_each_chunk():
    """Three chunks of ten bytes; the last host forwards nothing."""
    plan = chain(3, 10, 3)
    assert plan.routes == (((LEARNER, 0), (0, 1), (1, 2)),)
    assert plan.sends == (Send(0, 4, 0), Send(4, 7, 0), Send(7, 10, 0))
    assert plan.egress_bytes().tolist() == [10, 10, 0, 10]


# ------------------------------------------------------------------ multitree
@given(n=st.integers(2, 40), m=st.integers(2, 12), c=st.integers(1, 4))
def test_each_host_forwards_in_one_tree_at_most(n, m, c):
    """The trees' inner hosts are disjoint."""
    plan = multitree(n, SIZE, m, c)
    inner = [{sender for sender, _ in route} - {LEARNER} for route in plan.routes]
    assert sum(map(len, inner)) == len(set().union(*inner))


@pytest.mark.parametrize(
    ("n", "m", "most"),
    [(16, 4, 1.0), (298, 7, 1.14), (298, 30, 1.10), (5, 3, 1.33)],
)
def test_no_host_sends_much_more_than_one_model(n, m, most):
    """The figures were computed on their own: 1.0 where m divides n."""
    assert multitree(n, SIZE, m).egress_bytes()[:-1].max() / SIZE == pytest.approx(most, abs=0.005)


@pytest.mark.parametrize("n", [2, 5, 16])
def test_with_as_many_trees_as_hosts_it_is_the_seeds_plan(n):
    """Message by message."""
    assert multitree(n, SIZE, n) == relay(n, SIZE, n)


def test_the_first_chunks_of_all_trees_go_out_first():
    """So that every tree works from the beginning."""
    assert [send.route for send in multitree(4, 80, 2, 3).sends] == [0, 1, 0, 1, 0, 1]
    plan = multitree(298, SIZE, 7, 8)
    assert len({id(plan.routes[send.route]) for send in plan.sends}) == 7, "chunks share their route"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: star(-1, 7), "n_hosts must be >= 0, got -1"),
        (lambda: binomial(2, 0), "model_bytes must be >= 1, got 0"),
        (lambda: tree(2, 7, 0), "k must be >= 1, got 0"),
        (lambda: tree(4, 7, 1, levels=3), "a tree of k = 1 must have 2 levels, or as many as 4 hosts take, got 3"),
        (lambda: chain(2, 7, 0), "n_chunks must be >= 1, got 0"),
        (lambda: relay(2, 7, 0), "n_relays must be >= 1, got 0"),
        (lambda: multitree(2, 7, 1), "n_relays must be >= 2 for a multitree, got 1"),
        (lambda: multitree(2, 7, 2, 0), "n_chunks must be >= 1, got 0"),
    ],
    ids=range(8),
)
def test_numbers_that_are_too_small_are_refused(make, message):
    """Argument, limit and value are named."""
    with pytest.raises(ValueError, match=message):
        make()

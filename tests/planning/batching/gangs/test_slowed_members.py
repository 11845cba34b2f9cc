"""A member that a user slows down on purpose: in which rounds, in which orders, and what knows nothing of it."""

import pytest
from round_words import Master, of, only
from test_shared_minibatches_planned import Gang as Epochs
from test_shared_steps import Gang as Steps

from drlnb.records import round as words
from drlnb.records.columns import batching, warmup

USUAL, SLOW = {"s0": 1.0, "s1": 1.0}, {"s0": 1.0, "s1": 4.0}


def slow(master, member, factor, n_rounds):
    return master.feed(batching.MemberSlowed, member=member, factor=factor, n_rounds=n_rounds)


def shares(gang, hz=100.0):
    """Answer a step's shares as slowly as they were ordered, and make it; return factors and sizes by slot."""
    orders = of(batching.ComputeShare, gang.out)
    for order in orders:
        gang.out = gang.share(order, speeds={order.slot: hz / order.slowed})
    gang.out = gang.applied(only(batching.ApplyGradients, gang.out))
    return {order.slot: order.slowed for order in orders}, tuple(order.n for order in orders)


def rounds(gang, n):
    """Make rounds of steps; return what `shares` says of the last step of each one."""
    said = []
    for _ in range(n):
        gang.out = gang.lease("s0", "s1")
        while not of(words.FinishRound, gang.out):
            last = shares(gang)
        assert only(words.FinishRound, gang.out).slowed == last[0]["s0"]
        said.append(last)
        gang.made(), gang.committed()
    return said


def test_a_slow_learner_gets_less_and_what_it_had_before_afterwards():
    """Four times as long in two rounds, by `jump-reset`: of 20 samples 10, then 4 (a fifth), and 10 again.

    It is asked for in the midst of a round, whose steps stay as they are; those that follow have one
    step, and the first of them has begun when the one before it is committed.
    """
    gang = Steps(n_steps=4, total=60, n_samples=400)
    gang.out = gang.lease("s0", "s1")
    shares(gang)
    assert slow(gang, "s1", 4.0, 2) == ()
    while not of(words.FinishRound, gang.out):
        assert shares(gang) == (USUAL, (10, 10))
    gang.made(), gang.committed()
    assert rounds(gang, 4) == [(SLOW, (10, 10)), (SLOW, (16, 4)), (USUAL, (16, 4)), (USUAL, (10, 10))]
    slow(gang, "s0", 4.0, 9)
    other = {"s0": 4.0, "s1": 1.0}
    assert rounds(gang, 3) == [(USUAL, (10, 10)), (other, (10, 10)), (other, (4, 16))]
    slow(gang, "s0", 1.0, 1)
    assert rounds(gang, 2) == [(USUAL, (4, 16)), (USUAL, (10, 10))], "what was said before ends at once"
    assert gang.replayed().difference is None


@pytest.mark.parametrize("member", ["s0", "s1"])
def test_a_slot_is_slow_in_the_minibatches_that_it_shares(member):
    """Whether it leads or joins; another one is not."""
    gang = Epochs("s0", "s1")
    slow(gang, member, 3.0, 1)
    paces = {"s0": 0.01, "s1": 0.01}
    gang.round(paces=paces)
    out = gang.to_lease()
    said = {order.slot: order.slowed for kind in (words.FinishRound, batching.JoinRound) for order in of(kind, out)}
    assert said == {"s0": 1.0, "s1": 1.0, member: 3.0}
    assert gang.difference() is None


def test_a_collector_is_slow_and_so_is_the_slot_of_a_gradient_at_arrival():
    """Each for as many rounds as was said, and no other."""
    master = Master(n_rounds=9, streams=True)
    master.at_version_1()
    slow(master, "1", 2.0, 1), slow(master, "n0/cpu0", 5.0, 2)
    seen = []
    for _ in range(3):
        out = master.to_commit() + master.completed()
        seen.append([wake.slowed for wake in of(warmup.WakeCollector, out)])
    assert seen == [[1.0, 2.0], [1.0, 1.0], [1.0, 1.0]]
    orders = [(order.round, order.slowed) for order in of(words.ComputeGradient, master.records)]
    assert orders == [(1, 1.0)] * 2 + [(2, 5.0)] * 2 + [(3, 5.0)] * 2
    scalars = {row.round: row.metrics.get("batching/slowed") for row in of(words.MetricsRecorded, master.records)}
    assert scalars == {1: None, 2: 5.0, 3: 5.0}, "the slowest member's"
    finishes = [(order.round, order.slowed) for order in of(words.FinishRound, master.records)]
    assert finishes == [(1, 1.0), (2, 5.0), (3, 5.0)]


def test_the_next_attempt_knows_nothing_of_it():
    """Nor does what is written for it."""
    master = Master(n_rounds=9, checkpoint_every=1, checkpoint_min_s=0.0)
    master.at_version_1()
    slow(master, "0", 2.0, 9)
    (written,) = of(words.WriteCheckpoint, master.to_commit())
    assert "slowed" not in written.to_row()
    other = Master(n_rounds=9)
    other.opened(attempt=2, version=2), other.placed("n0", "n0")
    out = (*other.ready(0), *other.ready(1), *other.completed())
    assert {wake.slowed for wake in of(warmup.WakeCollector, out)} == {1.0}

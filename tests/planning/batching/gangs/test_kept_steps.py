"""Steps that the lead of a lease has made stay when the lease is lost, as long as the lead has them."""

import pytest
from round_words import fence, of, only
from test_shared_steps import Gang

from drlnb.records import round as words
from drlnb.records.columns import batching


def lost(gang, out, *, dead="s1", n_made=2):
    """Make some steps, and lose a slot, or the lease, in the midst of the next; return the orders that were open."""
    for _ in range(n_made):
        out = gang.step(out)
    orders = of(batching.ComputeShare, out)
    gang.share(orders[0])
    if dead:
        gang.feed(words.ExecutorDied, fence=orders[0].fence, slot=dead, reason="signal 9")
    else:
        gang.lease_lost()
    return orders


def asked(out):
    """Return the order that asks a lead for what it has made."""
    order = only(batching.ApplyGradients, out)
    assert not of(batching.ComputeShare, out), "nothing is computed before it is known from where"
    assert (order.split, order.keys, order.denominators) == (0, (), ())
    return order


def goes_on(gang, out, key="k"):
    """Answer for a lead that has what it made; return the orders of its next step."""
    order = asked(out)
    which = {"round": order.round, "split": 0, "fence": order.fence}
    return gang.feed(batching.GradientsApplied, **which, elapsed_s=0.1, key=key)


def total(gang):
    return sum(split.n_used for split in of(batching.SplitClosed, gang.records))


@pytest.mark.parametrize("dead", ["s1", ""])
def test_the_steps_of_a_round_stay_when_a_member_dies(dead):
    """Two of three are made: the next lease makes the third, of its 5 samples, and no other; each sample counts once.

    The order says from which parameters the lead goes on, and to whom they are brought.
    """
    gang = Gang()
    first = lost(gang, gang.lease("s0", "s1"), dead=dead)
    out = gang.lease("s0", "s1")
    order = asked(out)
    assert (order.slot, order.step, order.parameters, order.others) == ("s0", 1, "p2", ("s1",))
    out = goes_on(gang, out)
    orders = of(batching.ComputeShare, out)
    assert [(each.step, each.parameters) for each in orders] == [(2, "k")] * 2
    assert sum(each.n for each in orders) == 5 == sum(each.n for each in first)
    out = gang.step(out)
    assert of(words.FinishRound, out)
    gang.made()
    out = gang.committed()
    metrics = only(words.MetricsRecorded, out).metrics
    assert (metrics["batching/n_used"], metrics["batching/n_lost"]) == (45, 0)
    assert metrics["batching/split_s"] == pytest.approx(
        sum(split.duration_s for split in of(batching.SplitClosed, gang.records)) / 3, abs=1e-5
    )
    assert total(gang) == 45
    assert gang.machine.state.progress.n_timesteps == 3
    assert gang.replayed().difference is None


def test_a_step_whose_gradients_are_in_and_that_is_not_made_counts_once():
    """Its split is closed, and closed again under the next lease: 45 samples of the round, not 65."""
    gang = Gang()
    out = gang.step(gang.lease("s0", "s1"))
    for order in of(batching.ComputeShare, out):
        out = gang.share(order)
    gang.feed(words.ExecutorDied, fence=only(batching.ApplyGradients, out).fence, slot="s1", reason="signal 9")
    out = goes_on(gang, gang.lease("s0", "s1"))
    while not of(words.FinishRound, out):
        out = gang.step(out)
    gang.made()
    metrics = only(words.MetricsRecorded, gang.committed()).metrics
    assert (metrics["batching/n_used"], metrics["batching/n_lost"]) == (45, 0)
    assert total(gang) == 65, "the journal has what was computed"


def test_the_lead_goes_on_alone():
    """Nobody else is up: its next steps are shares of its own, from where it is."""
    gang = Gang()
    lost(gang, gang.lease("s0", "s1"))
    out = gang.lease("s0")
    assert asked(out).others == ()
    out = goes_on(gang, out)
    (alone,) = of(batching.ComputeShare, out)
    assert (alone.slot, alone.step, alone.n, alone.parameters) == ("s0", 2, 5, "k")
    assert of(words.FinishRound, gang.step(out))
    gang.made()
    out = gang.committed()
    out = gang.lease("s0")
    assert only(words.ComputeGradient, out), "the next round of one slot is as ever"


@pytest.mark.parametrize("slots", [("s1", "s0"), ("s1",)])
def test_another_lead_begins_the_round_again(slots):
    """It has no state of an optimiser: the round's first step, from the version."""
    gang = Gang()
    lost(gang, gang.lease("s0", "s1"))
    out = gang.lease(*slots)
    orders = of(batching.ComputeShare, out)
    assert [(each.step, each.parameters) for each in orders] == [(0, "")] * 2 * (len(slots) == 2)
    assert bool(of(words.ComputeGradient, out)) == (len(slots) == 1)


def test_the_lead_that_died_begins_the_round_again():
    """What it had made is gone with it."""
    gang = Gang()
    lost(gang, gang.lease("s0", "s1"), dead="s0")
    orders = of(batching.ComputeShare, gang.lease("s0", "s1"))
    assert [(each.step, each.parameters) for each in orders] == [(0, "")] * 2
    assert gang.machine.state.progress.update_s == 0.0


def test_a_lead_that_has_dropped_its_model_begins_the_round_again():
    """It says so; 45 samples of the round count, in three steps, and no second more."""
    gang = Gang()
    lost(gang, gang.lease("s0", "s1"), dead="")
    out = goes_on(gang, gang.lease("s0", "s1"), key="")
    orders = of(batching.ComputeShare, out)
    assert [(each.step, each.parameters) for each in orders] == [(0, "")] * 2
    assert gang.machine.state.progress.update_s == 0.0
    while not of(words.FinishRound, out):
        out = gang.step(out)
    gang.made()
    metrics = only(words.MetricsRecorded, gang.committed()).metrics
    assert metrics["batching/n_used"] == 45
    assert gang.machine.state.progress.n_timesteps == 3
    assert gang.replayed().difference is None


def test_an_answer_of_a_lost_lease_says_nothing():
    """The lead is asked again under the next one."""
    gang = Gang()
    lost(gang, gang.lease("s0", "s1"))
    old = asked(gang.lease("s0", "s1"))
    gang.lease_lost()
    order = asked(gang.lease("s0", "s1"))
    assert order.parameters == "p2"
    which = {"round": order.round, "split": 0, "elapsed_s": 0.1, "key": "k"}
    assert not gang.feed(batching.GradientsApplied, **which, fence=old.fence)
    assert of(batching.ComputeShare, gang.feed(batching.GradientsApplied, **which, fence=fence(gang.token)))


def test_a_round_whose_steps_are_all_made_begins_again():
    """Its new version was on the way from the lead."""
    gang = Gang()
    out = gang.lease("s0", "s1")
    while not of(words.FinishRound, out):
        out = gang.step(out)
    gang.lease_lost()
    orders = of(batching.ComputeShare, gang.lease("s0", "s1"))
    assert [(each.step, each.parameters) for each in orders] == [(0, "")] * 2

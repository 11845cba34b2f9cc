"""A round of epochs whose minibatches the slots of a lease compute together."""

import pytest
from round_words import Master, fence, of, only

from drlnb.planning.batching import BatchPlan
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import batching
from drlnb.records.journal import Stream, StreamOpened


class Gang(Master):
    """A task of two collectors in rounds of epochs; its first round is collected and its slots are lent."""

    def __init__(self, *slots, own=None, **more):
        super().__init__(own, n_learners=len(slots), n_rounds=9, **{"hold": "last", **more})
        self.slots = slots
        self.at_version_1()

    def to_lease(self, *slots):
        """Collect, have slots lent, stage; return the answer to the last batch that is in."""
        self.arrived(0)
        request = only(words.RequestSlot, self.arrived(1))
        assert (request.n_slots, request.n_least) == (len(self.slots), 1)
        self.granted(slots=slots or self.slots)
        lead = self.machine.state.hold.lead
        self.computed(0, slot=lead)
        return self.computed(1, slot=lead)

    def joined(self, order, compute_s, token=None):
        which = {"round": order.round, "slot": order.slot, "fence": fence(token or self.token)}
        return self.feed(batching.RoundJoined, **which, compute_s=compute_s, elapsed_s=compute_s + 0.5)

    def round(self, *slots, paces):
        """Make a round in which a sample takes so long on each slot; return its split."""
        out = self.to_lease(*slots)
        finish = only(words.FinishRound, out)
        size_of = dict(zip(finish.members, finish.sizes, strict=True))
        for order in of(batching.JoinRound, out):
            self.joined(order, size_of[order.slot] * paces[order.slot])
        lead_s = size_of.get(finish.slot, 16) * paces[finish.slot] if finish.members else 0.0
        self.feed(
            words.ParametersReady,
            round=self.machine.state.round,
            fence=fence(self.token),
            elapsed_s=lead_s + 0.1,
            n_bytes=100,
            key="v",
            metrics={},
            compute_s=lead_s,
        )
        self.committed()
        self.completed()
        return finish.sizes

    def difference(self):
        header = StreamOpened(stream="a", machine="round", config=self.machine.config, origin="simulated", version="0")
        return replay(Stream(header=header, records=tuple(self.records), torn=False, source="a")).difference


def test_the_lead_has_all_batches_and_the_others_join_it():
    """They get the batches where the lead's parameters are made: both kinds of command name the same parts."""
    gang = Gang("s0", "s1")
    out = gang.to_lease()
    assert {order.slot for order in of(words.ComputeGradient, gang.records)} == {"s0"}
    join, finish = only(batching.JoinRound, out), only(words.FinishRound, out)
    assert (join.slot, finish.slot) == ("s1", "s0")
    assert (join.keys, join.collectors) == (("r1/c0", "r1/c1"), (0, 1))
    assert join.members == finish.members == ("s0", "s1")
    assert join.sizes == finish.sizes == (8, 8)
    assert (join.version, join.after_timesteps) == (1, 16)


def test_parts_follow_the_measured_speeds():
    """From the third round on, since a slot's first round counts nothing; the journal replays."""
    gang = Gang("s0", "s1")
    paces = {"s0": 0.1, "s1": 0.3}
    assert [gang.round(paces=paces) for _ in range(4)] == [(8, 8), (8, 8), (12, 4), (12, 4)]
    assert only(batching.SplitPlanned, gang.records[-40:]).sizes == (12, 4)
    assert gang.difference() is None


def test_one_slot_computes_alone():
    """Nobody joins, and nobody is named."""
    gang = Gang("s0", "s1")
    assert gang.round("s0", paces={"s0": 0.1}) == ()
    assert not of(batching.SplitPlanned, gang.records)


class Alone:
    """Gives everything to the lead."""

    name = "alone"

    def plan(self, view):
        return BatchPlan(sizes=(view.n_units, *[0] * (len(view.members) - 1)))


def test_who_has_no_part_does_not_join():
    """Where that is everybody but the lead, it computes alone."""
    gang = Gang("s0", "s1", own={"batching": Alone()}, planners={"hold": "last", "batching": "own:alone"})
    out = gang.to_lease()
    assert only(batching.SplitPlanned, out).sizes == (16, 0)
    assert not of(batching.JoinRound, out)
    assert (only(words.FinishRound, out).members, only(words.FinishRound, out).sizes) == ((), ())


def test_a_member_that_dies_costs_the_round():
    """The lead's update is of no use: all is done anew under the next lease, and what was measured is forgotten."""
    gang = Gang("s0", "s1")
    (join,) = of(batching.JoinRound, gang.to_lease())
    out = gang.feed(words.ExecutorDied, fence=fence(gang.token), slot="s1", reason="signal 9")
    assert only(words.RequestSlot, out).n_slots == 2
    assert not gang.joined(join, 1.0), "an answer of the old lease"
    gang.granted(slots=("s1", "s0"))
    gang.computed(0, slot="s1")
    assert only(words.FinishRound, gang.computed(1, slot="s1")).slot == "s1"
    gang.made()
    gang.committed()
    assert gang.difference() is None


def test_what_has_one_order_of_steps_has_one_learner():
    """A block of minibatches from a ring, and supervised work that nobody knows the samples of."""
    for more in ({"replay": True}, {"n_collectors": 0, "n_envs": 0}):
        with pytest.raises(ValueError, match="n_learners = 2 cannot share this task's gradient steps"):
            Master(n_learners=2, **more)

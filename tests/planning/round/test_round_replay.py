"""Off-policy rounds: fragments into the ring, one block to the slot, no lease where nothing is learnt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_words import N_STEPS, Master, fence, kinds, of, only
from test_round_laws import Peer

from drlnb.planning.replay import replay
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.round.state import RING
from drlnb.records import replay as ring
from drlnb.records import round as words
from drlnb.records.columns import leasing, warmup
from drlnb.records.columns.batching import RoundClosed
from drlnb.records.journal import Stream, StreamOpened


class RingMaster(Master):
    """A master with a replay ring."""

    def __init__(self, **config):
        super().__init__(replay=True, **config)

    def ring_ready(self, n_bytes_lost=0):
        return self.feed(ring.ReplayReady, start_s=0.1, n_transitions=0, n_bytes_lost=n_bytes_lost)

    def ring_lost(self, reason="killed by signal 9", detail=""):
        return self.feed(ring.ReplayLost, reason=reason, detail=detail)

    def drawn(self, n_gradient_steps=4, *, round=None, metrics=None):
        return self.feed(
            ring.MinibatchesDrawn,
            round=self.version if round is None else round,
            key=f"block/{self.version}",
            n_gradient_steps=n_gradient_steps,
            n_samples=32 * n_gradient_steps,
            n_bytes=1000,
            elapsed_s=0.01,
            metrics=metrics or {},
        )

    def carried(self, version=None):
        return self.feed(ring.ParametersCarried, version=self.version + 1 if version is None else version)


@pytest.fixture
def master():
    """Return a master at version 1 with its collectors awake and its ring up."""
    made = RingMaster()
    made.at_version_1()
    made.ring_ready()
    return made


def test_the_ring_starts_with_the_task():
    """TaskOpened commands the ring's start; an on-policy task has none."""
    assert of(ring.StartReplay, RingMaster().opened())
    assert not of(ring.StartReplay, Master().opened())


def test_fragments_enter_together_in_the_order_of_collectors(master):
    """The draw is commanded at the last arrival, keys sorted, with the steps before the round; no slot before it."""
    assert not of(ring.DrawMinibatches, master.arrived(1))
    out = master.arrived(0)
    assert only(ring.DrawMinibatches, out) == ring.DrawMinibatches(round=1, keys=("r1/c0", "r1/c1"), n_timesteps=0)
    assert only(RoundClosed, out).n_samples == 2 * N_STEPS
    assert not of(words.RequestSlot, master.records[-3:])


def test_a_round_waits_for_a_ring_that_starts_late():
    """All fragments are here before the ring is up: the draw follows ReplayReady, which counts once."""
    master = RingMaster()
    master.at_version_1()
    master.arrived(0)
    assert not of(ring.DrawMinibatches, master.arrived(1))
    assert of(ring.DrawMinibatches, master.ring_ready())
    assert master.ring_ready() == ()


def test_one_block_goes_to_the_slot_and_the_round_counts_the_transitions(master):
    """Fragments are freed at the draw, the block at the commit; the round has 16 steps, not the block's 128 samples."""
    master.arrived(0)
    master.arrived(1)
    out = master.drawn()
    assert [(d.key, d.reason) for d in of(words.DropExperience, out)] == [
        ("r1/c0", "in the ring"),
        ("r1/c1", "in the ring"),
    ]
    assert of(words.RequestSlot, out)
    sent = only(words.ComputeGradient, master.granted())
    assert (sent.collector, sent.key) == (RING, "block/1")
    assert only(words.FinishRound, master.computed(RING))
    master.made(metrics={"train/loss": 0.5})
    out = master.committed()
    recorded = only(words.MetricsRecorded, out)
    assert (recorded.n_timesteps, recorded.metrics["train/loss"]) == (2 * N_STEPS, 0.5)
    assert [(d.key, d.reason) for d in of(words.DropExperience, out)] == [("block/1", "used")]
    assert [w.round for w in of(warmup.WakeCollector, master.completed())] == [2, 2]


def test_a_round_without_a_gradient_step_asks_for_no_lease(master):
    """Mechanism 20: no request, the parameters are carried to the next version, published, and acting goes on."""
    master.arrived(0)
    master.arrived(1)
    out = master.drawn(0, metrics={"replay/size": 16})
    assert only(ring.CarryParameters, out) == ring.CarryParameters(version=2, round=1)
    assert only(ring.UpdateSkipped, out).round == 1
    out = master.carried()
    assert only(words.MetricsRecorded, out).metrics["replay/size"] == 16
    assert only(words.MetricsRecorded, out).metrics["round/wait_lease_s"] == 0.0
    assert len(of(warmup.WakeCollector, master.completed())) == 2
    assert master.carried(version=2) == ()
    asked = [r for r in master.records if isinstance(r, words.RequestSlot)]
    assert [r.round for r in asked] == [0]


def test_a_draw_told_twice_counts_once(master):
    """The same block again, and one of a round that is over, change nothing."""
    master.arrived(0)
    master.arrived(1)
    master.drawn()
    assert master.drawn() == ()
    assert master.drawn(round=0) == ()


def test_second_copies_are_refused_and_collectors_that_sent_are_not_woken_again(master):
    """A fragment in the ring's queue counts as sent: a restarted collector waits for the next round."""
    master.arrived(0)
    assert only(words.DropExperience, master.arrived(0, key="again")).reason == "second copy"
    assert master.arrived(0) == ()
    master.lost(0)
    assert not of(warmup.WakeCollector, master.ready(0))


def test_a_lost_lease_sends_the_same_block_again(master):
    """The block stays until the commit: nothing is drawn twice."""
    master.arrived(0)
    master.arrived(1)
    master.drawn()
    master.granted()
    master.lease_lost()
    assert only(words.ComputeGradient, master.granted()).key == "block/1"
    assert len([r for r in master.records if isinstance(r, ring.DrawMinibatches)]) == 1


@pytest.mark.parametrize("when", ["collecting", "drawn", "computing"])
def test_a_lost_ring_restarts_the_task(when, master):
    """What is held is returned, what is here is freed, once each; the attempt ends with RestartTask, not EndTask."""
    master.arrived(0)
    expected = {"r1/c0"}
    if when != "collecting":
        master.arrived(1)
        master.drawn()
        expected = {"block/1"}
    if when == "computing":
        master.granted()
    out = master.ring_lost()
    assert {d.key for d in of(words.DropExperience, out)} == expected
    assert [r.fence for r in of(words.ReturnLease, out)] == ([fence(master.token)] if when == "computing" else [])
    assert only(ring.RestartTask, out).reason == "the replay ring was lost: killed by signal 9"
    assert not of(words.EndTask, out)
    assert master.phase == "ended"


def test_a_ring_lost_too_often_or_by_its_own_error_fails_the_task(master):
    """The sixth loss in a row, or a traceback (it would come again): the task fails and says why."""
    out = master.ring_lost(reason="ValueError: 3 rows", detail="Traceback ...")
    assert only(words.EndTask, out).reason == "the replay ring was lost: ValueError: 3 rows\nTraceback ..."
    sixth = RingMaster(n_replay_losses=5)
    sixth.at_version_1()
    assert only(words.EndTask, sixth.ring_lost()).state == "failed"
    fifth = RingMaster(n_replay_losses=4)
    fifth.at_version_1()
    assert of(ring.RestartTask, fifth.ring_lost())


def test_a_ring_that_was_not_saved_is_said(master):
    """RingRefilling tells the bytes that must be made again; a whole ring says nothing."""
    assert not of(ring.RingRefilling, master.records)
    other = RingMaster()
    other.opened(version=3)
    told = only(ring.RingRefilling, other.ring_ready(n_bytes_lost=2**31))
    assert told.n_bytes == 2**31
    assert "resumed without the replay ring (2.00 GiB, not saved)" in told.text


def test_a_whole_off_policy_task_ends_and_replays(master):
    """Skip, learn, learn: the task is done after 3 rounds, and fresh machines decide the same from its events."""
    for number in range(3):
        master.arrived(0)
        master.arrived(1)
        if number == 0:
            master.drawn(0)
            master.carried()
        else:
            master.drawn()
            master.granted()
            master.computed(RING)
            master.made()
            master.committed()
        if number < 2:
            master.completed()
    assert only(words.EndTask, master.to_end()).state == "done"
    header = StreamOpened(stream="a", machine="round", config=master.config, origin="simulated", version="0")
    result = replay(Stream(header=header, records=tuple(master.records), torn=False, source="test"))
    assert result.difference is None
    assert result.n_records == len(master.records)
    assert "HoldPlanned" in kinds(master.records)
    assert [r.action for r in of(leasing.HoldPlanned, master.records)] == ["request"] * 3


class OffPolicyPeer(Peer):
    """The unkind world of the round's laws, with a ring; every third round learns nothing."""

    def __init__(self, seed, *, hold, n_collectors):
        super().__init__(seed, hold=hold, n_collectors=n_collectors)
        planners = {**self.machine.config["planners"], "collect": "equal"}
        config = {**self.machine.config, "planners": planners, "streams": False, "n_learners": 1, "replay": True}
        self.machine = RoundMachine(config)
        self.drawn = set()

    def on_StartReplay(self, command):
        self.send(ring.ReplayReady, start_s=0.1, n_transitions=0, n_bytes_lost=self.rng.choice([0, 1]))

    def on_DrawMinibatches(self, command):
        assert command.round not in self.drawn, "a round is drawn once"
        assert not self.freed & set(command.keys), "a fragment that enters the ring has not been freed"
        assert command.n_timesteps == (command.round - 1) * len(command.keys) * N_STEPS
        self.drawn.add(command.round)
        n = 0 if command.round % 3 == 1 else 4
        self.send(
            ring.MinibatchesDrawn, round=command.round, key=f"block/{command.round}", n_gradient_steps=n, n_samples=n,
            n_bytes=n, elapsed_s=0.1, metrics={},
        )  # fmt: skip

    def on_CarryParameters(self, command):
        assert command.round % 3 == 1, "only a round that learns nothing carries"
        if self.store.carry(1, command.version) is None:
            self.send(ring.ParametersCarried, version=command.version)

    def on_RequestSlot(self, command):
        assert not command.round or command.round % 3 != 1, "no slot where nothing is learnt"
        super().on_RequestSlot(command)

    def on_FinishRound(self, command):
        self.ready(command, command.round)


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(0, 300), st.sampled_from(["round", "yield", "last"]), st.integers(1, 3))
def test_an_off_policy_task_ends_and_keeps_its_laws_whatever_happens(seed, n_unkind, hold, n_collectors):
    """Each round is drawn once from fragments that are there, rounds 1 and 4 of 4 ask for no slot; the task ends."""
    peer = OffPolicyPeer(seed, hold=hold, n_collectors=n_collectors)
    peer.live(n_unkind)
    assert peer.end.state == "done"
    assert peer.drawn == {1, 2, 3, 4}
    assert peer.used == {(RING, 2), (RING, 3)}
    assert not peer.live_fences

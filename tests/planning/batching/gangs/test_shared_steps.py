"""The steps of supervised work are shared by the slots of a lease, whatever happens to them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_words import Master, fence, of, only

from drlnb.planning.batching import BatchPlan
from drlnb.planning.replay import replay
from drlnb.planning.round.state import RING
from drlnb.records import round as words
from drlnb.records.columns import batching
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SetDeadline
from drlnb.records.journal import Stream, StreamOpened

#: Samples that a slot computes per second.
SPEEDS = {"s0": 100.0, "s1": 25.0}
#: A data set of 45 samples, in batches of 20: steps of 20, 20 and 5 samples.
DATA = {"n_samples": 45, "batch_size": 20}


class Gang(Master):
    """A task without collectors whose steps two slots share; its first version is made."""

    def __init__(self, own=None, *, n_steps=3, total=6, **more):
        shape = {"n_collectors": 0, "n_envs": 0, "n_learners": 2, **DATA, **more}
        super().__init__(own, **{"total_timesteps": total, "n_steps": n_steps, **shape})
        self.opened()
        self.placed()
        self.lease("s0")
        self.made()
        self.out = self.committed()

    @property
    def splits(self):
        return self.machine.state.splits

    def lease(self, *slots):
        """Grant the slots."""
        self.token += 1
        which = {"request_id": self.machine.state.hold.request_id, "fence": fence(self.token), "slots": slots}
        return self.feed(words.LeaseReceived, **which, waited_s=0.0, demand=False, resident=None)

    def share(self, order, *, n_done=None, speeds=SPEEDS, t=None, key=None, **more):
        """Answer a share, after what it takes, or at a time."""
        n_done = order.n if n_done is None else n_done
        compute_s = n_done / speeds[order.slot]
        self.t = t or self.t
        fields = {name: getattr(order, name) for name in ("round", "split", "slot", "fence", "first")}
        times = {"compute_s": compute_s, "elapsed_s": compute_s + 0.01, "age_s": compute_s}
        gradient = {"denominator": float(n_done), "loss": 1.0, "norm_sq": 1.0, **more}
        key = key or f"{order.split}/{order.first}" + f"/{order.fence.token}" * (self.token > 2)
        return self.feed(
            batching.ShareComputed, **fields, n_planned=order.n, n_done=n_done, **gradient, **times, key=key
        )

    def applied(self, order, **more):
        """Make the step that was ordered."""
        which = {"round": order.round, "split": order.split, "fence": order.fence}
        return self.feed(batching.GradientsApplied, **which, elapsed_s=0.1, key=f"p{order.split}", **more)

    def step(self, out):
        """Answer every share of a step, and make it; return the next orders."""
        for order in of(batching.ComputeShare, out):
            out = self.share(order)
        return self.applied(only(batching.ApplyGradients, out))

    def round(self, out):
        """Make a round's steps and commit them; return the commit's answer."""
        while not of(words.FinishRound, out):
            out = self.step(out)
        assert only(words.FinishRound, out).collectors == (RING,)
        self.made()
        return self.committed()

    def replayed(self):
        config = self.machine.config
        header = StreamOpened(stream="a", machine="round", config=config, origin="simulated", version="0")
        return replay(Stream(header=header, records=tuple(self.records), torn=False, source="a"))


def plans(records):
    return [plan.sizes for plan in of(batching.SplitPlanned, records)]


def test_each_step_is_split_and_its_sum_is_made_at_the_lead():
    """Steps of 20, 20 and 5 samples; parameters are named from the second step on, and into the next round."""
    gang = Gang()
    request = only(words.RequestSlot, gang.out)
    assert (request.n_slots, request.n_least) == (2, 1)
    out = gang.lease("s0", "s1")
    asked = []
    for n, key in ((20, ""), (20, "p1"), (5, "p2")):
        orders = of(batching.ComputeShare, out)
        assert [(order.slot, order.lead, order.parameters, order.chunk) for order in orders] == [
            ("s0", "s0", key, 0),
            ("s1", "s0", key, 0),
        ]
        assert [order.first for order in orders] == [0, orders[0].n]
        assert sum(order.n for order in orders) == n
        asked.append(orders[0].step)
        gang.share(orders[1])
        out = gang.share(orders[0])
        apply = only(batching.ApplyGradients, out)
        assert apply.keys == tuple(f"{apply.split}/{order.first}" for order in orders), "in the order of the batch"
        assert apply.denominators == tuple(float(order.n) for order in orders)
        assert (apply.slot, apply.others) == ("s0", ("s1",))
        closed = only(batching.SplitClosed, out)
        assert (closed.n_used, closed.lost, closed.cause) == (n, {}, "all")
        out = gang.applied(apply)
    assert asked == [0, 1, 2]
    assert only(words.FinishRound, out).slot == "s0"
    gang.made()
    lease = only(words.ReturnLease, gang.committed())
    assert len(lease.computed_s) == 2
    assert lease.computed_s[1] > 0
    out = gang.lease("s0", "s1")
    assert [order.parameters for order in of(batching.ComputeShare, out)] == ["p3", "p3"]
    out = gang.round(out)
    while not of(words.WriteCheckpoint, out):
        out = gang.round(gang.lease("s0", "s1"))
    gang.gathered(), gang.written()
    assert gang.phase == "ended"
    assert gang.machine.state.progress.n_timesteps == 6
    assert gang.replayed().difference is None


def test_shares_follow_the_measured_speeds():
    """Equal at first; the first share of each slot counts for nothing: from the third step on 4 to 1."""
    gang = Gang(n_steps=99, total=99, n_samples=2000, batch_size=100)
    out = gang.lease("s0", "s1")
    for _ in range(5):
        out = gang.step(out)
    assert plans(gang.records)[:4] == [(50, 50), (50, 50), (80, 20), (80, 20)]
    first, *_, last = of(batching.SplitPlanned, gang.records)
    assert (first.predicted_s, first.speeds_hz) == (0.0, ())
    assert last.speeds_hz == pytest.approx((100.0, 25.0))
    assert last.predicted_s == pytest.approx(0.8)


def test_one_slot_makes_the_steps_alone():
    """No split, as without learners; its parameters are those of the version for whoever comes next."""
    gang = Gang()
    gang.round(gang.lease("s0", "s1"))
    out = gang.lease("s0")
    assert not of(batching.SplitPlanned, out)
    assert only(words.ComputeGradient, out).collector == RING
    assert gang.splits.parameters == ""


def test_a_lost_lease_means_the_step_anew():
    """What comes of the old lease counts for nothing; a round of which nothing is made begins with the version."""
    gang = Gang()
    old = of(batching.ComputeShare, gang.lease("s0", "s1"))
    gang.share(old[0])
    out = gang.feed(words.ExecutorDied, fence=old[0].fence, slot="s1", reason="signal 9")
    assert only(words.RequestSlot, out).n_slots == 2
    assert not gang.share(old[1]), "made under a lease that is over"
    orders = of(batching.ComputeShare, gang.lease("s0", "s1"))
    assert [(order.step, order.parameters) for order in orders] == [(0, "")] * 2
    assert gang.splits.gather.split == 2
    gang.round([*orders])
    assert gang.machine.state.progress.n_timesteps == 3
    assert gang.replayed().difference is None


def quorum(late="cut", **more):
    """Return a gang that waits for one of two, and the orders of a split after both have been measured."""
    settings = {"quorum": 0.5, "deadline_s": 0.5, "late": late, **more}
    gang = Gang(n_steps=99, total=99, n_samples=2000, batch_size=100, batching=settings)
    out = gang.lease("s0", "s1")
    for _ in range(3):
        out = gang.step(out)
    return gang, of(batching.ComputeShare, out)


def test_late_members_are_cut():
    """The first of two has answered: half a second later the other one is cut, and what it has done counts."""
    gang, (mine, others) = quorum()
    assert [order.chunk for order in (mine, others)] == [5, 1], "0.05 s at 100 and 25 samples per second"
    out = gang.share(mine)
    reached = only(batching.QuorumReached, out)
    assert (reached.first, reached.targets, reached.grace_s) == (("s0",), ("s1",), pytest.approx(0.5))
    assert only(SetDeadline, out).name == f"split/{mine.split}"
    assert not gang.deadline(f"split/{mine.split - 1}"), "another split's"
    out = gang.deadline(f"split/{mine.split}")
    assert only(batching.CutShare, out).slot == "s1"
    assert only(SetDeadline, out).name == f"cut/{mine.split}"
    gang.t = gang.machine.state.splits.gather.deadline_t + 0.01
    gang.machine.state.t = min(gang.machine.state.t, gang.t)
    out = gang.share(others, n_done=12)
    closed = only(batching.SplitClosed, out)
    assert (closed.n_used, closed.lost, closed.cause) == (92, {"cut": 8}, "all")
    assert only(batching.ApplyGradients, out).denominators == (80.0, 12.0)


def test_who_does_not_answer_sits_out():
    """It gets no share until it has answered; the step is made of what is there."""
    gang, (mine, others) = quorum(late="drop")
    gang.share(mine)
    out = gang.deadline(f"split/{mine.split}")
    assert not of(batching.CutShare, out)
    closed = only(batching.SplitClosed, out)
    assert (closed.n_used, closed.lost, closed.cause) == (80, {"late": 20}, "deadline")
    out = gang.applied(only(batching.ApplyGradients, out))
    (alone,) = of(batching.ComputeShare, out)
    assert (alone.slot, alone.n) == ("s0", 100)
    assert not gang.share(others), "an answer to a split that is over"
    out = gang.step([alone])
    assert [order.slot for order in of(batching.ComputeShare, out)] == ["s0", "s1"]
    assert gang.replayed().difference is None


@pytest.mark.parametrize("moment", ["computing", "one has answered", "being made"])
def test_trap_11_two_words_of_one_loss_are_one_loss(moment):
    """The executor's death and the lease's end: one request for another lease, and the round's steps once each."""
    gang = Gang()
    orders = of(batching.ComputeShare, gang.lease("s0", "s1"))
    if moment != "computing":
        gang.share(orders[0])
    if moment == "being made":
        gang.share(orders[1])
    out = gang.feed(words.ExecutorDied, fence=orders[0].fence, slot="s1", reason="signal 9")
    assert only(words.RequestSlot, out).n_slots == 2
    assert not gang.feed(words.LeaseLost, fence=orders[0].fence, reason="its worker is gone")
    assert not gang.feed(words.ExecutorDied, fence=orders[0].fence, slot="s1", reason="signal 9")
    for late in orders:
        assert not gang.share(late), "nobody waits for it"
    gang.round(gang.lease("s0", "s1"))
    assert gang.machine.state.progress.n_timesteps == 3
    assert gang.replayed().difference is None


def test_trap_9_what_comes_of_another_split_changes_the_next_one_in_nothing():
    """Deadlines of the split before, and its answers once more: the same decisions as without."""
    gang, (mine, others) = quorum(deadline_s=50.0)
    gang.share(mine)
    out = gang.applied(only(batching.ApplyGradients, gang.share(others)))
    (first, second) = of(batching.ComputeShare, out)
    for name in (f"split/{mine.split}", f"cut/{mine.split}", "split/0"):
        assert not gang.deadline(name)
    assert not gang.share(mine)
    assert not gang.share(others, n_done=1)
    gang.share(first)
    closed = only(batching.SplitClosed, gang.share(second))
    assert (closed.n_used, closed.lost, closed.cause) == (100, {}, "all")
    assert gang.replayed().difference is None


def test_who_was_late_at_a_rounds_end_has_a_share_in_the_next():
    """Its answer is void with the lease, so nothing else would ever tell that it is free."""
    gang, (mine, _) = quorum(late="drop")
    gang.machine.state.n_steps[RING] = 4
    gang.share(mine)
    assert of(words.FinishRound, gang.applied(only(batching.ApplyGradients, gang.deadline(f"split/{mine.split}"))))
    gang.made()
    gang.committed()
    assert {order.slot for order in of(batching.ComputeShare, gang.lease("s0", "s1"))} == {"s0", "s1"}


def test_an_answer_that_comes_after_the_last_step_makes_no_other():
    """The round is being finished."""
    gang, (mine, others) = quorum(late="drop")
    gang.machine.state.n_steps[RING] = 4
    gang.share(mine)
    out = gang.applied(only(batching.ApplyGradients, gang.deadline(f"split/{mine.split}")))
    assert of(words.FinishRound, out)
    assert not gang.share(others)
    assert not gang.deadline(f"split/{mine.split}")


def test_a_rounds_scalars_say_what_its_splits_came_to():
    """By hand: parts of 10 and 10 samples, of norms 2 and 1, that project on the step's gradient with .8 and .6.

    The step's norm is .5 x 2 x .8 + .5 x 1 x .6 = 1.1.  A sample's variance is ((4 + 1) / 2 - 1.21) / (1 / 10 - 1 / 20)
    = 25.8, the true squared norm 1.21 - 25.8 / 20 < 0: nothing but noise, and only the samples count.
    """
    gang = Gang(n_steps=2, total=2, n_samples=40)
    out = gang.lease("s0", "s1")
    for norm_sq in ((4.0, 1.0), (4.0, 1.0)):
        for order, square in zip(of(batching.ComputeShare, out), norm_sq, strict=True):
            out = gang.share(order, norm_sq=square)
        out = gang.applied(only(batching.ApplyGradients, out), cosines=(0.8, 0.6))
    noise = gang.splits.noise
    assert noise == pytest.approx({"variance": 25.8, "signal": 1.21 - 25.8 / 20})
    gang.made()
    metrics = only(words.MetricsRecorded, gang.committed()).metrics
    closed = of(batching.SplitClosed, gang.records)
    spent_s = [split.duration_s for split in closed]
    assert metrics["batching/split_s"] == pytest.approx(sum(spent_s) / 2)
    assert metrics["batching/wait_s"] == pytest.approx(sum(split.wait_s for split in closed) / 2)
    assert (metrics["batching/n_used"], metrics["batching/n_lost"]) == (40, 0)
    assert metrics["batching/goodput_hz"] == pytest.approx(40 / sum(spent_s), rel=1e-3)
    assert "batching/noise_scale" not in metrics, "infinite"


def test_the_noise_scale_is_told_where_it_is_finite():
    """Norms of 1.2 squared that project on the step's with .95: .95^2 x 1.2 = 1.083; variance 2.34, signal .966."""
    gang = Gang(n_steps=1, total=1)
    out = gang.lease("s0", "s1")
    for order in of(batching.ComputeShare, out):
        out = gang.share(order, norm_sq=1.2)
    gang.applied(only(batching.ApplyGradients, out), cosines=(0.95, 0.95))
    gang.made()
    metrics = only(words.MetricsRecorded, gang.committed()).metrics
    square = 1.2 * 0.95**2
    variance = (1.2 - square) / (1 / 10 - 1 / 20)
    assert metrics["batching/noise_scale"] == pytest.approx(variance / (square - variance / 20), abs=0.06)


def test_steps_that_take_no_time_have_no_goodput():
    """All at one instant, as on a clock that stands: nothing is divided by it."""
    gang = Gang(n_steps=1, total=1)
    out, now = gang.lease("s0", "s1"), gang.t - 1.0
    for order in of(batching.ComputeShare, out):
        out = gang.share(order, t=now)
    gang.applied(only(batching.ApplyGradients, out))
    gang.made()
    metrics = only(words.MetricsRecorded, gang.committed()).metrics
    assert metrics["batching/split_s"] == 0.0
    assert "batching/goodput_hz" not in metrics


def test_a_step_that_was_made_under_a_lost_lease_is_void():
    """Nobody holds a lease when its word comes."""
    gang = Gang()
    for order in of(batching.ComputeShare, gang.lease("s0", "s1")):
        out = gang.share(order)
    gang.lease_lost()
    assert not gang.applied(only(batching.ApplyGradients, out))


def test_a_round_of_one_slot_has_no_scalars_of_splits():
    """Not those of the round before, either."""
    gang = Gang()
    gang.round(gang.lease("s0", "s1"))
    gang.lease("s0")
    gang.computed(RING, slot="s0")
    gang.made()
    assert not [name for name in only(words.MetricsRecorded, gang.committed()).metrics if name.startswith("batching/")]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("quorum", 0.5, ""),
        ("quorum", 2, ""),
        ("quorum", 3, "a count from 2 to 2, got 3"),
        ("deadline_s", 1.0, "deadline_s has no effect while quorum is 1.0"),
    ],
)
def test_whom_a_step_waits_for_can_be_changed(key, value, why):
    """From the next step on; what would have no effect is refused with the reason."""
    gang = Gang()
    orders = of(batching.ComputeShare, gang.lease("s0", "s1"))
    out = gang.set(f"batching.{key}", value)
    assert [why in row.reason for row in of(RequestRefused, out)] == [True] * bool(why)
    out = gang.step(orders)
    assert gang.splits.gather.gathering.quorum == (value if not why else 1.0)


def test_nobody_waits_where_one_learner_computes():
    """Of tasks with collectors, too: their shares stay whole."""
    for more in ({"n_learners": 1}, {"n_learners": 2, "n_collectors": 2, "n_envs": 2, "streams": True}):
        master = Master(**{"n_collectors": 0, "n_envs": 0, "total_timesteps": 9, **more})
        master.opened()
        assert "nobody is waited for" in only(RequestRefused, master.set("batching.quorum", 0.5)).reason


class Counts:
    """Gives the lead all but as many samples as it has been told of splits."""

    name = "counts"

    def plan(self, view):
        n = view.memory or 0
        return BatchPlan(sizes=(view.n_units - n, n) if len(view.members) == 2 else (view.n_units,))

    def observe(self, memory, report):
        return (memory or 0) + 1


def test_a_users_planner_shares_steps_and_learns():
    """It is asked for each step, and told what became of it, but for the first."""
    gang = Gang({"batching": Counts()}, n_steps=4, total=8, planners={"batching": "own:counts"}, n_samples=80)
    gang.round(gang.lease("s0", "s1"))
    assert plans(gang.records) == [(20, 0), (20, 0), (19, 1), (18, 2)]
    assert gang.replayed().difference is None


def test_2_12_a_share_of_nothing_is_never_sent():
    """Who has none is no member of the step: no order, no gradient of its own, but the new parameters."""
    gang = Gang({"batching": Counts()}, n_steps=2, total=2, planners={"batching": "own:counts"}, n_samples=80)
    order = only(batching.ComputeShare, gang.lease("s0", "s1"))
    assert (order.slot, order.first, order.n) == ("s0", 0, 20)
    apply = only(batching.ApplyGradients, gang.share(order))
    assert (apply.keys, apply.others) == ((f"{order.split}/0",), ("s1",))


def test_2_15_what_a_slow_member_has_not_begun_is_done_by_all():
    """Mechanism 2-15: 20 samples for s1, at a fifth of its speed; it is cut after 5, and 15 are shared anew, once.

    The planner has heard of it before: 15 samples at 100 and 5 per second.  The step has all 100 samples.
    """
    settings = {"steal": True, "deadline_s": 0.5}
    gang = Gang(n_steps=99, total=99, n_samples=2000, batch_size=100, batching=settings)
    out = gang.lease("s0", "s1")
    for _ in range(3):
        out = gang.step(out)
    mine, others = of(batching.ComputeShare, out)
    assert (mine.n, others.n, others.first) == (80, 20, 80)
    assert (mine.chunk, others.chunk) == (5, 1), "shares can be cut"
    out = gang.share(mine)
    reached = only(batching.QuorumReached, out)
    assert (reached.first, reached.targets, reached.grace_s) == (("s0",), ("s1",), pytest.approx(0.5))
    out = gang.deadline(f"split/{mine.split}")
    assert only(batching.CutShare, out).slot == "s1"
    assert not of(SetDeadline, out), "it is waited for"
    out = gang.share(others, n_done=5, speeds={"s1": 5.0})
    closed, again = only(batching.SplitClosed, out), of(batching.ComputeShare, out)
    assert (closed.n_used, closed.lost, closed.n_moved, closed.cause) == (85, {}, 15, "all")
    assert not of(batching.ApplyGradients, out)
    assert [(order.slot, order.first, order.n, order.step) for order in again] == [("s0", 85, 15, mine.step)]
    assert again[0].parameters == mine.parameters
    apply = only(batching.ApplyGradients, gang.share(again[0]))
    assert apply.denominators == (80.0, 5.0, 15.0)
    assert apply.keys == (f"{mine.split}/0", f"{mine.split}/80", f"{mine.split + 1}/85")
    gang.applied(apply, cosines=(0.9, 0.8, 0.7))
    assert sum(split.n_used for split in of(batching.SplitClosed, gang.records)) == 400
    assert gang.replayed().difference is None


def test_who_has_no_share_for_long_is_probed_and_who_had_none_of_a_rest_was_not_idle():
    """Trap 7: a slot that is so slow that the other one is done before its first sample has one again, to be measured.

    Of 15 samples that are left of a step the first slot takes all: that says nothing of the other one.
    """
    gang = Gang(n_steps=99, total=99, n_samples=40, batch_size=20)
    out = gang.lease("s0", "s1")
    for _ in range(2):
        for order in of(batching.ComputeShare, out):
            out = gang.share(order, speeds={"s0": 100.0, "s1": 0.1})
        out = gang.applied(only(batching.ApplyGradients, out))
    for _ in range(4):
        orders = of(batching.ComputeShare, out)
        for order in orders:
            out = gang.share(order, speeds={"s0": 100.0, "s1": 0.1})
        out = gang.applied(only(batching.ApplyGradients, out))
    assert plans(gang.records)[2:7] == [(20, 0), (19, 1), (20, 0), (20, 0), (19, 1)]
    memory = gang.machine.state.memories["batching:jump-reset"]
    assert memory["s1"]["n_wait"] == 2


def test_members_that_end_about_together_are_not_cut():
    """15 % of the first one's time is enough."""
    gang = Gang(n_steps=2, total=2, batching={"steal": True})
    mine, others = of(batching.ComputeShare, gang.lease("s0", "s1"))
    gang.share(mine)
    out = gang.share(others)
    assert only(batching.ApplyGradients, out).denominators == (10.0, 10.0)
    assert not gang.deadline(f"split/{mine.split}")


class Slots:
    """What the optimisers of a gang's slots have: the key of their parameters, and the steps of the round."""

    def __init__(self, gang):
        self.gang, self.held = gang, {}

    def apply(self, order, *, is_heard=True):
        """Carry out an order; return what follows from its answer, if it is heard."""
        key, steps = self.held.pop(order.slot, ("", []))
        if order.split:
            steps = steps if order.step else []
            assert steps == list(range(order.step)), "each step is made once, after those before it"
            self.held[order.slot] = f"p{order.split}", [*steps, order.step]
            return self.gang.applied(order) if is_heard else []
        key = f"{key}+" if key == order.parameters else ""
        self.held[order.slot] = key, steps * bool(key)
        which = {"round": order.round, "split": 0, "fence": order.fence}
        return self.gang.feed(batching.GradientsApplied, **which, elapsed_s=0.1, key=key)

    def lose(self, data, apply):
        """Lose a slot, what only one has, or the lease alone, in the midst of what was ordered; grant another lease."""
        gang = self.gang
        dead = data.draw(st.sampled_from(["s0", "s1", "model of s0", "lease"]))
        if apply and apply[0].split and data.draw(st.booleans()):
            self.apply(apply[0], is_heard=False)
        self.held.pop(dead[-2:], None)
        if dead in {"s0", "s1"}:
            gang.feed(words.ExecutorDied, fence=fence(gang.token), slot=dead, reason="signal 9")
        else:
            gang.lease_lost()
        return gang.lease(*data.draw(st.sampled_from([("s0", "s1"), ("s1", "s0"), ("s0",), ("s1",)])))


@given(st.data())
def test_whatever_comes_each_sample_is_used_once_or_counted(data):
    """Answers in any order, late, cut or dropped, slots and leases lost: the round ends with each of its steps once."""
    quorums = [{"quorum": q, "late": late} for q in (0.5, 1.0, 2) for late in ("cut", "drop")]
    settings = data.draw(st.sampled_from([*quorums, {"quorum": 1.0, "steal": True}]))
    gang = Gang(n_steps=4, total=4, n_samples=160, batch_size=40, batching=settings)
    out, open_, n_deaths, slots = gang.lease("s0", "s1"), {}, 0, Slots(gang)
    for _ in range(60):
        open_ |= {order.slot: order for order in of(batching.ComputeShare, out)}
        if of(words.FinishRound, out):
            lead = only(words.FinishRound, out).slot
            assert slots.held[lead][1] == [0, 1, 2, 3]
            break
        apply = of(batching.ApplyGradients, out)
        move = data.draw(st.sampled_from(["answer", "answer", "deadline", "cut", "die"]))
        if move == "die" and n_deaths < 2:
            n_deaths, open_ = n_deaths + 1, {}
            out = slots.lose(data, apply)
            if of(words.ComputeGradient, out):
                break  # one slot makes the round alone
        elif apply:
            out = slots.apply(apply[0])
        elif move in {"deadline", "cut"}:
            name = "split" if move == "deadline" else "cut"
            out = gang.deadline(f"{name}/{gang.splits.gather.split}")
        elif open_:
            order = open_.pop(data.draw(st.sampled_from(sorted(open_))))
            n_done = data.draw(st.integers(1, order.n)) if gang.splits.gather.is_cut else order.n
            out = gang.share(order, n_done=n_done)
        else:
            out = []
    planned = {split.split: sum(split.sizes) for split in of(batching.SplitPlanned, gang.records)}
    for closed in of(batching.SplitClosed, gang.records):
        assert closed.n_used + sum(closed.lost.values()) + closed.n_moved == planned[closed.split]
        assert settings["quorum"] == 0.5 or not closed.lost
        assert not closed.n_moved or settings.get("steal")
    done = {share.key: share for share in of(batching.ShareComputed, gang.records)}
    for apply in [each for each in of(batching.ApplyGradients, gang.records) if each.split]:
        ranges = [(done[key].first, done[key].first + done[key].n_done) for key in apply.keys]
        assert all(one[1] <= other[0] for one, other in pairwise(ranges)), "no sample twice"
        assert settings["quorum"] == 0.5 or sum(stop - start for start, stop in ranges) == 40
    assert gang.replayed().difference is None

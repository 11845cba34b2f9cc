"""A round's gradient is dealt to the slots of a lease by what they were measured at, and the planners are told."""

import pytest
from round_words import Master, fence, of, only

from drlnb.planning.batching import BatchPlan
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns.batching import BatchPlanned, SplitPlanned
from drlnb.records.columns.leasing import RestoreGradients
from drlnb.records.journal import Stream, StreamOpened
from tests.learners import InTurn

#: Seconds that a batch takes on each slot.
PACES = {"s0": 1.0, "s1": 4.0}


class Gang(Master):
    """A task of five collectors that computes on two slots, side by side."""

    def __init__(self, own=None, *, n_learners=2, n_collectors=5, **more):
        self.batches = n_collectors
        super().__init__(own, n_collectors=n_collectors, n_learners=n_learners, streams=True, n_rounds=99, **more)
        self.opened()
        self.placed(*["n0"] * n_collectors)
        for i in range(n_collectors):
            self.ready(i)
        self.lease("s0", "s1")
        self.made()
        self.committed()
        self.completed()

    def lease(self, *slots):
        """Grant the slots."""
        self.token += 1
        state = self.machine.state
        return self.feed(
            words.LeaseReceived,
            request_id=state.hold.request_id,
            fence=fence(self.token),
            slots=slots[:1] if not state.n_bytes else slots,
            waited_s=0.0,
            demand=False,
            resident=None,
        )

    def sent(self):
        """Have all collectors send."""
        for i in range(self.batches):
            self.arrived(i)

    def work(self, out, paces=PACES):
        """Compute what was ordered; return slot -> collectors."""
        dealt = {}
        for order in of(words.ComputeGradient, out):
            dealt.setdefault(order.slot, []).append(order.collector)
            key = f"g{order.collector}" if order.keep else ""
            self.computed(order.collector, slot=order.slot, elapsed_s=paces[order.slot], key=key)
        return dealt

    def close(self):
        """End the round."""
        if of(RestoreGradients, self.records[-9:]):
            self.restored()
        self.made()
        self.committed()
        self.completed()

    def warm(self, paces=PACES):
        """Make the round that nobody is measured in, and the first one in which they are."""
        self.round("s0", "s1", paces={"s0": 60.0, "s1": 1.0})
        return self.round("s0", "s1", paces=paces)

    def round(self, *slots, paces=PACES):
        """Make a round on these slots; return what was planned, and who computed what."""
        self.sent()
        out = self.lease(*slots)
        dealt = self.work(out, paces)
        self.close()
        return only(SplitPlanned, out), dealt


def replayed(master):
    config = master.machine.config
    header = StreamOpened(stream="a", machine="round", config=config, origin="simulated", version="0")
    return replay(Stream(header=header, records=tuple(master.records), torn=False, source="a")).difference


def test_shares_follow_the_measured_speed_from_the_third_round_on():
    """Five batches as 3 and 2; then 1 and .25 a second: 4 and 1, at 4 s both.  The journal replays.

    Trap 17: the first round of a process counts nothing: it has loaded what all others find.
    """
    gang = Gang(hold="last")
    planned, dealt = gang.warm()
    assert (planned.planner, planned.members, planned.sizes) == ("jump-reset", ("s0", "s1"), (3, 2))
    assert planned.speeds_hz == (), "nobody has measured one"
    assert dealt == {"s0": [0, 1, 2], "s1": [3, 4]}
    planned, dealt = gang.round("s0", "s1")
    assert (planned.sizes, planned.speeds_hz) == ((4, 1), (1.0, 0.25))
    assert dealt == {"s0": [0, 1, 2, 3], "s1": [4]}
    assert replayed(gang) is None


def test_speeds_are_those_of_slots_whatever_their_order_in_a_lease():
    """The slow slot is the lead of the next lease: it computes the first batch, and no more."""
    gang = Gang(hold="last")
    gang.warm()
    planned, dealt = gang.round("s1", "s0")
    assert (planned.members, planned.sizes) == (("s1", "s0"), (1, 4))
    assert dealt == {"s1": [0], "s0": [1, 2, 3, 4]}


def test_a_lead_without_a_share_finishes_the_round():
    """All gradients come from beside it; it makes the new version all the same."""
    gang = Gang(hold="last", n_collectors=2)
    paces = {"s0": 100.0, "s1": 1.0}
    gang.warm(paces)
    planned, dealt = gang.round("s0", "s1", paces=paces)
    assert (planned.sizes, dealt) == ((0, 2), {"s1": [0, 1]})
    assert of(words.FinishRound, gang.records)[-1].slot == "s0"
    assert gang.version == 4


@pytest.mark.parametrize(
    ("name", "second"),
    [("equal", (3, 2)), ("proportional", (4, 1)), ("static", (4, 1)), ("ewma", (4, 1)), ("seasonal", (4, 1))],
)
def test_planners_of_learners_by_name(name, second):
    """The same ones as for collectors; a change counts from the next round on."""
    gang = Gang(hold="last", planners={"hold": "last", "batching": name})
    gang.warm()
    planned, _ = gang.round("s0", "s1")
    assert (planned.planner, planned.sizes) == (name, second)
    gang.set("batching.planner", "equal")
    assert gang.round("s0", "s1")[0].planner == name, "the round had begun"
    assert gang.round("s0", "s1")[0].planner == "equal"
    assert replayed(gang) is None


def test_one_learner_has_no_plan():
    """Neither has a lease of one slot, where no more are there."""
    gang = Gang(hold="last", n_learners=1, n_collectors=2)
    gang.sent()
    assert not of(SplitPlanned, gang.lease("s0"))
    assert gang.machine.state.memories == {}
    alone = Gang(hold="last")
    alone.sent()
    out = alone.lease("s1")
    assert not of(SplitPlanned, out)
    assert {order.slot for order in of(words.ComputeGradient, out)} == {"s1"}


def test_what_is_remembered_is_in_the_checkpoint():
    """By decision and name; the planner of collectors remembers beside it."""
    gang = Gang(hold="last", planners={"hold": "last", "collect": "ewma"})
    gang.warm()
    gang.say(words.CheckpointAsked)
    gang.round("s0", "s1")
    memories = only(words.WriteCheckpoint, gang.records).memories
    assert set(memories) == {"batching:jump-reset", "collect:ewma"}
    assert memories["batching:jump-reset"]["s1"]["speed_hz"] == 0.25
    assert memories["collect:ewma"]["4"]["speed_hz"] == pytest.approx(4.0)


def test_2_11_a_slot_that_was_lost_was_not_slow():
    """Mechanism 2-11: the next lease deals what is left; nobody's estimate has suffered, and nothing is done twice."""
    gang = Gang(hold="last")
    gang.warm()
    gang.sent()
    first, *_ = of(words.ComputeGradient, gang.lease("s0", "s1"))
    gang.computed(first.collector, slot=first.slot, elapsed_s=50.0, key="")
    gang.lease_lost(reason="s1 is gone")
    dealt = gang.work(gang.lease("s0", "s2"), {"s0": 1.0, "s2": 1.0})
    assert sorted(i for each in dealt.values() for i in each) == [0, 1, 2, 3, 4]
    gang.close()
    memory = gang.machine.state.memories["batching:jump-reset"]
    assert (memory["s0"]["speed_hz"], memory["s1"]["speed_hz"]) == (1.0, 0.25)
    assert gang.version == 4


def test_another_process_on_a_slot_is_cold_again():
    """Its first round is not measured, whatever was measured before."""
    gang = Gang(hold="last")
    gang.warm()
    gang.sent()
    gang.lease("s0", "s1")
    gang.feed(words.ExecutorDied, fence=fence(gang.token), slot="s1", reason="signal 9")
    gang.work(gang.lease("s0", "s1"), {"s0": 1.0, "s1": 60.0})
    gang.close()
    assert gang.machine.state.memories["batching:jump-reset"]["s1"]["speed_hz"] == 0.25
    assert gang.round("s0", "s1", paces={"s0": 1.0, "s1": 1.0})[0].sizes == (4, 1)
    assert gang.machine.state.memories["batching:jump-reset"]["s1"]["speed_hz"] == 1.0


def test_a_plan_of_collectors_that_says_who_computes_what_is_kept_to():
    """Numbers of learners in it are not planned again."""
    gang = Gang({"collect": InTurn(2)}, hold="last", planners={"hold": "last", "collect": "own:in-turn"})
    gang.sent()
    out = gang.lease("s0", "s1")
    assert not of(SplitPlanned, out)
    assert gang.work(out) == {"s0": [0, 2, 4], "s1": [1, 3]}


class Own:
    """Gives each slot what it is told."""

    name = "mine"

    def __init__(self, *sizes):
        self.sizes = sizes

    def plan(self, view):
        assert (view.role, view.collectors, view.n_units) == ("update", (0, 1, 2, 3, 4), 5)
        return BatchPlan(sizes=self.sizes)


def test_a_users_planner_of_learners_is_replayed_from_the_journal():
    """The replay does not need it."""
    gang = Gang({"batching": Own(1, 4)}, hold="last", planners={"hold": "last", "batching": "own:mine"})
    planned, dealt = gang.round("s0", "s1")
    assert (planned.planner, planned.sizes, dealt["s0"]) == ("own:mine", (1, 4), [0])
    assert replayed(gang) is None


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((1, 3), "sizes must sum to 5, got 4"),
        ((5,), "sizes must be 2 numbers, one per member, got 1"),
        ((), "sizes must be 2 numbers, one per member, got 0"),
        ((6, -1), "sizes of member s1 must be a whole number >= 0, got -1"),
        ((2.5, 2.5), r"sizes of member s0 must be a whole number >= 0, got 2.5"),
        ((4, True), "sizes of member s1 must be a whole number >= 0, got True"),
    ],
)
def test_sizes_that_do_not_fit_end_the_task_and_return_the_lease(sizes, problem):
    """In one line; the slots are free for others."""
    gang = Gang({"batching": Own(*sizes)}, hold="last", planners={"hold": "last", "batching": "own:mine"})
    gang.sent()
    out = gang.lease("s0", "s1")
    end = only(words.EndTask, out)
    assert (end.state, end.reason) == ("failed", f"round 1: batching planner own:mine: {problem}")
    assert only(words.ReturnLease, out).fence == fence(gang.token)
    assert replayed(gang) is None


class Steps(Own):
    """Gives each collector what it is told."""

    name = "steps"

    def plan(self, view):
        return BatchPlan(sizes=self.sizes)


def test_a_users_planner_of_collectors_may_give_sizes():
    """They sum to the round's steps, and nobody has none."""
    planners = {"hold": "last", "collect": "own:steps"}
    gang = Gang({"collect": Steps(4, 8, 8, 8, 12)}, hold="last", planners=planners)
    assert only(BatchPlanned, gang.records).n_steps == (4, 8, 8, 8, 12)
    for sizes, problem in (
        ((40, 0, 0, 0, 0), "sizes of member 1 must be a whole number >= 1, got 0"),
        ((8, 8, 8, 8, 9), "sizes must sum to 40, got 41"),
    ):
        master = Master({"collect": Steps(*sizes)}, n_collectors=5, planners=planners)
        master.at_version_1(*["n0"] * 5)
        assert only(words.EndTask, master.records).reason == f"round 1: collect planner own:steps: {problem}"

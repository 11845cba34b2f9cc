"""Tasks of a pool are placed as gangs: by hand on two nodes with four slots each, and as slots fail and come."""

import json
from dataclasses import replace

import pytest
from lease_indices import CheckedPool
from pool_words import (
    asked,
    grant,
    node_added,
    node_lost,
    of,
    only,
    requested,
    returned,
    setting,
    slot_added,
    slot_failed,
)

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement import GANGS, PLACEMENT, PlacementView
from drlnb.planning.placement.planner import GangPlacement
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import PlannerFailed, Planners
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import LeaseGranted, LeaseReleased, RequestRefused
from drlnb.records.columns.placement import Candidate, PlacementPlanned, PlacementPostponed, SendPlacement
from drlnb.records.journal import Stream, StreamOpened
from tests.matches import like


class Told(CheckedPool):
    """A pool that remembers its journal."""

    def __init__(self, settings=None, planners=None):
        super().__init__(settings or LeasingSettings(), 1, lambda task: planners or Planners())
        self.said = []

    def handle(self, event):
        out = super().handle(event)
        self.said += [event, *out]
        return out

    def replays(self):
        """Whether a fresh pool decides the same of the events."""
        config = PoolMachine(LeasingSettings(), 1).config
        header = StreamOpened(stream="p", machine="pool", config=config, origin="simulated", version="0")
        return replay(Stream(header=header, records=tuple(self.said), torn=False, source="p")).difference is None


def pool_of(*slots, **more):
    """Return a pool of the nodes and slots of some names."""
    pool = Told(**more)
    for node in dict.fromkeys(slot.partition("/")[0] for slot in slots):
        pool.handle(node_added(node))
    for slot in slots:
        pool.handle(slot_added(slot))
    return pool


@pytest.fixture
def pool():
    """Return a pool of two nodes with four slots each."""
    return pool_of(*[f"n{i}/{k}" for i in range(2) for k in range(4)])


def place(pool, task, n_learners=1, *, t=1.0, planner="", **more):
    """Return the plan of a task that begins."""
    return only(PlacementPlanned, pool.handle(asked(task, t=t, n=1, n_learners=n_learners, planner=planner, **more)))


def gang(pool, task):
    return pool.state.placement.placed[task].slots


# -------------------------------------------------------------------- at the start
def test_a_gang_is_placed_on_one_node_and_says_what_else_could_have_been(pool):
    """Nothing was seen of any slot: all rules take the first ones, which fail as slots do, once in 337 days.

    A second of work and, where that fails, once more a half of it, and a second for the start.
    """
    plan = place(pool, "a", 2)
    assert (plan.planner, plan.gang_version, plan.slots, plan.allowed_by) == ("ect", 1, ("n0/0", "n0/1"), "any")
    assert len(plan.allowed) == 8
    assert plan.expected_s == pytest.approx(1.0 + 2 * 1.5 / (337 * 86_400), rel=1e-12)
    assert plan.candidates == (Candidate("best_fit", ("n0/0", "n0/1"), plan.expected_s, 1),)
    usual_hz = pytest.approx(1 / (337 * 86_400))
    assert [(each.slot, each.rate_hz, each.chance) for each in plan.weighed] == [
        (slot, usual_hz, None) for slot in plan.allowed
    ]


def test_a_plan_tells_among_which_slots_it_chose(pool):
    """Those that are home to the fewest tasks, and those of the gang that stay; of one that lacks none, these alone."""
    place(pool, "a", 3)
    assert [each.slot for each in place(pool, "b", 2).weighed] == ["n0/3", "n1/0", "n1/1", "n1/2", "n1/3"]
    *_, plan = of(PlacementPlanned, pool.handle(slot_failed("n0/1", t=2.0)))
    assert (plan.task, [each.slot for each in plan.weighed]) == ("a", ["n0/0", "n0/2", "n0/3", "n1/2", "n1/3"])
    assert [each.slot for each in place(pool, "a", 3, t=3.0, attempt=1).weighed] == sorted(plan.slots)
    assert pool.replays()


def test_the_next_gangs_fill_the_first_node_then_the_second_then_share(pool):
    """By best fit among the slots that the fewest gangs have, of as many as are needed."""
    slots = {task: place(pool, task, n).slots for task, n in (("a", 2), ("b", 2), ("c", 3), ("d", 1), ("e", 4))}
    assert slots["a"] + slots["b"] == ("n0/0", "n0/1", "n0/2", "n0/3")
    assert slots["c"] + slots["d"] == ("n1/0", "n1/1", "n1/2", "n1/3")
    assert slots["e"] == ("n0/0", "n0/1", "n0/2", "n0/3")


def test_a_gang_that_fits_on_no_node_spans_both(pool):
    """Five slots: a node of four, and one more; six of the seven that are there, on as few nodes."""
    plan = place(pool, "a", 5)
    assert plan.slots == ("n0/0", "n0/1", "n0/2", "n0/3", "n1/0")
    assert plan.candidates[0].n_nodes == 2


def test_first_and_pack_take_as_many_slots_as_there_are_learners(pool):
    """Those that are home to the fewest; every slot is allowed."""
    assert place(pool, "a", 3, planner="first").slots == ("n0/0", "n0/1", "n0/2")
    plan = place(pool, "b", 6, planner="pack")
    assert plan.slots == ("n0/3", "n0/0", "n0/1", "n0/2", "n1/0", "n1/1")
    assert (len(plan.allowed), plan.allowed_by, plan.expected_s, plan.candidates) == (8, "", None, ())


def work(pool, t, seconds=10.0):
    """Have every slot lent for so many seconds."""
    slots = pool.state.placement.slots
    leases = [grant(pool, requested(f"w{t}{slot}", t=t, allowed=(slot,))) for slot in slots]
    for lease in leases:
        pool.handle(returned(lease.fence, t=t + seconds))


def test_slots_that_fail_are_avoided_by_who_looks_at_health(pool):
    """n0/0 has failed twice in 10 s of work; its node is suspect, and best fit does not care."""
    work(pool, 2.0)
    for k in (1, 2):
        pool.handle(slot_failed("n0/0", t=20.0 + k))
        pool.handle(slot_added("n0/0", t=20.5 + k, epoch=k))
    assert place(pool, "a", 2, t=30.0, planner="best_fit").slots == ("n0/1", "n0/0"), "the healthier one leads"
    assert place(pool, "a", 2, t=30.0, attempt=2, planner="healthiest").slots == ("n1/0", "n1/1")
    # Beside 337 days of a slot, which is what is believed before, two failures make no other node worth 2 %.
    plan = place(pool, "a", 2, t=30.0, attempt=3)
    assert plan.slots == ("n0/1", "n0/2")
    assert [(each.rule, each.slots) for each in plan.candidates] == [
        ("best_fit", ("n0/1", "n0/2")),
        ("healthiest_packed", ("n1/0", "n1/1")),
    ]
    assert plan.expected_s == plan.candidates[0].expected_s > plan.candidates[1].expected_s
    assert plan.gang_version == 3, "over all attempts"


def test_the_healthiest_member_leads():
    """n0/0 has failed, n0/1 has not."""
    pool = pool_of("n0/0", "n0/1")
    work(pool, 2.0)
    pool.handle(slot_failed("n0/0", t=20.0))
    pool.handle(slot_added("n0/0", t=21.0, epoch=1))
    assert place(pool, "a", 2, t=22.0).slots == ("n0/1", "n0/0")


def test_rounds_that_were_measured_are_what_is_expected(pool):
    """From a request to the next round's: 4 s."""
    place(pool, "a")
    for k, t in ((1, 2.0), (2, 6.0)):
        pool.handle(returned(grant(pool, requested("a", t=t, round=k)).fence, t=t + 1.0))
    assert only(PlacementPlanned, pool.handle(slot_failed("n0/0", t=7.0))).expected_s > 4.0
    assert place(pool, "a", attempt=2, t=8.0).candidates[0].expected_s > 4.0


def test_random_slots_are_as_the_seed_and_the_time_say(pool):
    """Different ones at another time; the name holds the seed."""
    plans = [place(pool, "a", 3, t=t, attempt=k, planner="random:seed=4") for k, t in enumerate((1.0, 1.0, 2.0), 1)]
    assert plans[0].planner == "random:seed=4"
    assert plans[0].slots == plans[1].slots != plans[2].slots


def test_quiet_nodes_by_the_gangs_that_span_several(pool):
    """A gang of five has four slots of the first node and one of the third, which it fills best: the second is left."""
    for slot in ("n2/0", "n2/1", "n2/2"):
        pool.handle(slot_added(slot))
    place(pool, "wide", 5)
    assert place(pool, "a", 2, planner="interference_aware").slots == ("n1/0", "n1/1")


# -------------------------------------------------------------------- failures
def test_a_member_that_fails_is_replaced_and_the_others_stay(pool):
    """On the same node; the plan has the next version, and no collector is placed."""
    place(pool, "a", 3)
    plan = only(PlacementPlanned, pool.handle(slot_failed("n0/1", t=2.0)))
    assert (plan.gang_version, plan.attempt, plan.slots) == (2, 1, ("n0/0", "n0/2", "n0/3"))
    assert plan.collector_nodes == ()
    assert not of(SendPlacement, pool.said[-1:])


def test_a_lead_that_fails_is_followed_by_the_healthiest_member(pool):
    """The third slot has failed before; a lead that lives leads on."""
    place(pool, "a", 3)
    work(pool, 2.0)
    pool.handle(slot_failed("n0/1", t=13.0))
    assert gang(pool, "a") == ("n0/0", "n0/2", "n0/3")
    pool.handle(slot_failed("n0/0", t=14.0))
    assert gang(pool, "a") == ("n1/0", "n0/2", "n0/3"), "the newcomer's node has not failed"


def test_a_gang_whose_members_all_live_is_not_asked(pool):
    """Another slot's failure and return change nothing for it."""
    place(pool, "a", 2)
    assert not of(PlacementPlanned, pool.handle(slot_failed("n0/3", t=2.0)))
    assert not of(PlacementPlanned, pool.handle(slot_added("n0/3", t=3.0, epoch=1)))


def test_a_node_that_is_lost_with_the_lead(pool):
    """The master lived on the other one: both members move there, the version counts on, and it is asked once more."""
    place(pool, "a", 2, node="n1")
    lease = grant(pool, requested("a", t=1.0, node="n1", n_slots=2, n_least=1))
    assert lease.slots == ("n0/0", "n0/1")
    out = pool.handle(node_lost("n0", t=2.0))
    assert only(LeaseReleased, out).reason == "node-lost"
    plan = only(PlacementPlanned, out)
    assert (plan.gang_version, plan.slots) == (2, ("n1/0", "n1/1"))
    again = place(pool, "a", 2, t=3.0, node="n1")
    assert (again.gang_version, again.slots, again.collector_nodes) == (3, ("n1/0", "n1/1"), ("n1",))


def test_a_node_that_is_lost_with_the_master_too(pool):
    """The next attempt is placed anew; the version counts on."""
    place(pool, "a", 2)
    pool.handle(node_lost("n0", t=2.0))
    plan = place(pool, "a", 2, t=3.0, node="n1", attempt=2)
    assert (plan.attempt, plan.gang_version, plan.slots) == (2, 2, ("n1/0", "n1/1"))


def test_where_no_slot_is_to_spare_it_goes_on_with_those_that_live_and_says_so_once():
    """Until it has all again, and once more where none is left; the slot that comes is its own."""
    pool = pool_of("n0/0", "n0/1", "n0/2")
    place(pool, "a", 3)
    out = pool.handle(slot_failed("n0/0", t=2.0))
    assert only(PlacementPostponed, out) == PlacementPostponed(task="a", reason="needs 3 slots, 2 alive", n_alive=2)
    assert only(PlacementPlanned, out).slots == ("n0/1", "n0/2")
    assert grant(pool, requested("a", t=2.0, n_slots=3, n_least=1)).slots == ("n0/1", "n0/2")
    assert not of(PlacementPostponed, pool.handle(slot_failed("n0/2", t=3.0)))
    assert only(PlacementPostponed, pool.handle(slot_failed("n0/1", t=3.5))).reason == "needs 3 slots, 0 alive"
    assert not of(PlacementPostponed, pool.handle(slot_added("n0/1", t=3.6, epoch=1)))
    assert not of(PlacementPostponed, pool.handle(slot_failed("n0/1", t=3.7)))
    pool.handle(slot_added("n0/1", t=3.8, epoch=2))
    pool.handle(slot_added("n0/0", t=4.0, epoch=1))
    out = pool.handle(slot_added("n0/2", t=5.0, epoch=1))
    assert only(PlacementPlanned, out).slots == ("n0/1", "n0/0", "n0/2")
    assert only(PlacementPostponed, pool.handle(slot_failed("n0/1", t=6.0))).reason == "needs 3 slots, 2 alive"
    assert pool.replays()


def test_a_gang_that_begins_on_too_few_slots_gets_those_that_come():
    """It is told its collectors at once."""
    pool = pool_of("n0/0")
    out = pool.handle(asked("a", t=1.0, n=1, n_learners=2))
    assert out == (
        like(PlacementPlanned, slots=("n0/0",), gang_version=1),
        PlacementPostponed(task="a", reason="needs 2 slots, 1 alive", n_alive=1),
        like(SendPlacement, collector_nodes=("n0",)),
    )
    plan = only(PlacementPlanned, pool.handle(slot_added("n0/1", t=2.0)))
    assert (plan.gang_version, plan.slots) == (2, ("n0/0", "n0/1"))


@pytest.mark.parametrize("planner", ["", "first"])
def test_when_all_slots_have_failed_each_task_waits_says_so_once_and_goes_on(planner):
    """Whichever planner it has."""
    pool = pool_of("n0/0", "n1/0")
    place(pool, "a", planner=planner)
    assert not of(PlacementPostponed, pool.handle(slot_failed("n1/0", t=2.0)))
    said = only(PlacementPostponed, pool.handle(slot_failed("n0/0", t=3.0)))
    assert (said.reason, said.text) == ("needs 1 slot, 0 alive", "task a waits: it needs 1 slot, 0 alive")
    assert not of(LeaseGranted, pool.handle(requested("a", t=4.0)))
    out = pool.handle(slot_added("n1/0", t=5.0, epoch=1))
    assert only(LeaseGranted, out).slots == ("n1/0",)
    assert [plan.slots for plan in of(PlacementPlanned, out)] == [("n1/0",)] * (planner == "")
    assert not of(PlacementPostponed, pool.handle(slot_added("n0/0", t=6.0, epoch=1)))


def test_what_goes_on_is_no_word_for_the_user():
    """The lease says on how many slots it computes."""
    assert PlacementPostponed(task="a", reason="needs 2 slots, 1 alive", n_alive=1).text == ""


# -------------------------------------------------------------------- requests
def test_a_gang_is_lent_its_own_slots():
    """Though others have rested for longer; where one of its own is lent, another one serves."""
    pool = pool_of("n0/0", "n0/1", "n0/2", "n0/3")
    place(pool, "a", 2)
    place(pool, "b", 2)
    lease = grant(pool, requested("b", t=2.0, n_slots=2))
    assert lease.slots == ("n0/2", "n0/3")
    pool.handle(returned(lease.fence, t=3.0, computed_s=(0.0, 0.0)))
    grant(pool, requested("x", t=4.0, allowed=("n0/2",)))
    assert grant(pool, requested("b", t=5.0, round=2, n_slots=2)).slots == ("n0/3", "n0/0")


def test_the_plan_says_who_leads_until_another_slot_has_the_parameters():
    """The lead is the first slot of a lease; then the one that made the version is."""
    pool = pool_of("n0/0", "n0/1", "n1/0", "n1/1")
    place(pool, "a", 2)
    work(pool, 2.0)
    pool.handle(slot_failed("n0/0", t=12.5))
    lead = "n1/0"
    assert gang(pool, "a") == (lead, "n0/1")
    lease = grant(pool, requested("a", t=13.0, n_slots=2))
    assert lease.slots == gang(pool, "a")
    pool.handle(returned(lease.fence, t=14.0, computed_s=(1.0, 1.0)))
    assert grant(pool, requested("a", t=15.0, round=2, n_slots=2)).slots[0] == lead


def test_a_request_that_waits_moves_to_the_new_slots():
    """Its gang's slots alone may serve it, and one of them fails while it waits for the other."""
    pool = pool_of("n0/0", "n0/1", "n0/2")
    pool.handle(setting("placement.allowed", "gang", t=0.5))
    assert place(pool, "a", 2).allowed == ("n0/0", "n0/1")
    held = grant(pool, requested("x", t=1.0, allowed=("n0/1",)))
    assert not of(LeaseGranted, pool.handle(requested("a", t=2.0, n_slots=2)))
    out = pool.handle(slot_failed("n0/0", t=3.0))
    assert only(PlacementPlanned, out).allowed == ("n0/1", "n0/2")
    assert not of(LeaseGranted, out)
    assert only(LeaseGranted, pool.handle(returned(held.fence, t=4.0))).slots == ("n0/1", "n0/2")
    assert pool.replays()


def test_allowed_nodes_are_those_of_the_gang(pool):
    """A slot of them that fails only leaves, one that comes joins: no plan is made."""
    pool.handle(setting("placement.allowed", "nodes", t=0.5))
    plan = place(pool, "a", 2)
    assert (plan.allowed, plan.allowed_by) == (("n0/0", "n0/1", "n0/2", "n0/3"), "nodes")
    assert not of(PlacementPlanned, pool.handle(slot_failed("n0/3", t=2.0)))
    held = [grant(pool, requested(f"x{k}", t=2.0, allowed=(f"n0/{k}",))) for k in range(3)]
    assert not of(LeaseGranted, pool.handle(requested("a", t=3.0, n_slots=2, n_least=1)))
    assert not of(LeaseGranted, pool.handle(slot_added("n0/3", t=4.0, epoch=1)))
    assert set(only(LeaseGranted, pool.handle(returned(held[2].fence, t=5.0))).slots) == {"n0/2", "n0/3"}


def test_settings_hold_from_the_next_plan_on(pool):
    """Both gangs were placed before the change; one moves."""
    place(pool, "a", 2)
    place(pool, "b", 2)
    assert pool.handle(setting("placement.allowed", "gang", t=2.0)) == ()
    assert pool.handle(setting("placement.locality_frac", 0.5, t=2.0)) == ()
    plan = only(PlacementPlanned, pool.handle(slot_failed("n0/0", t=3.0)))
    assert (plan.task, plan.allowed_by) == ("a", "gang")
    # Two nodes where one could do: half as long again.
    assert plan.slots == ("n1/0", "n0/1")
    assert plan.expected_s == pytest.approx(1.5)
    assert len(pool.state.placement.placed["b"].allowed) == 0
    for key, value, reason in (
        ("placement.allowed", "all", "allowed must be one of any, nodes, gang, got 'all'"),
        ("placement.locality_frac", -1, "locality_frac must be a number from 0 to 1, got -1"),
    ):
        assert only(RequestRefused, pool.handle(setting(key, value, t=4.0))).reason == reason


# -------------------------------------------------------------------- slots that come
def test_tasks_that_have_not_run_spread_over_slots_that_come():
    """The first slot was home to four; then as evenly as may be."""
    pool = pool_of("n0/0")
    for task in "abcd":
        place(pool, task)
    plans = of(PlacementPlanned, pool.handle(slot_added("n0/1", t=2.0)))
    assert [(plan.task, plan.slots) for plan in plans] == [("a", ("n0/1",)), ("b", ("n0/1",))]


def runs(pool, task, t):
    """Have a task make two rounds."""
    for k in (1, 2):
        pool.handle(returned(grant(pool, requested(task, t=t + k, round=k)).fence, t=t + k + 0.5))


def test_of_gangs_that_run_one_moves_at_a_return():
    """Each time; and none if it would be as uneven the other way."""
    pool = pool_of("n0/0")
    for task in "abcde":
        place(pool, task)
    for k, task in enumerate("abcde"):
        runs(pool, task, 10.0 * k + 1.0)
    plans = of(PlacementPlanned, pool.handle(slot_added("n0/1", t=60.0)))
    assert [(plan.task, plan.slots) for plan in plans] == [("a", ("n0/1",))]
    plans = of(PlacementPlanned, pool.handle(slot_added("n0/2", t=61.0)))
    assert [(plan.task, plan.slots) for plan in plans] == [("b", ("n0/2",))]
    pool.handle(slot_failed("n0/2", t=62.0))  # b goes to n0/1
    assert [plan.task for plan in of(PlacementPlanned, pool.handle(slot_added("n0/2", t=63.0, epoch=1)))] == ["c"]
    moved = [of(PlacementPlanned, pool.handle(slot_added(f"n0/{k}", t=61.0 + k))) for k in (3, 4, 5)]
    assert [[plan.task for plan in plans] for plans in moved] == [["a"], ["d"], []]
    assert pool.replays()


def test_a_gang_that_lacks_a_slot_goes_before_one_that_moves():
    """One has lost its second slot; the others share the first."""
    pool = pool_of("n0/0", "n0/1")
    for task in "acd":
        place(pool, task, planner="first")
    place(pool, "b", 2)
    pool.handle(slot_failed("n0/1", t=2.0))
    plans = of(PlacementPlanned, pool.handle(slot_added("n0/1", t=3.0, epoch=1)))
    assert [(plan.task, plan.slots) for plan in plans] == [("b", ("n0/0", "n0/1"))], "first follows no slot"


# -------------------------------------------------------------------- planners that change, wait and fail
def test_another_planner_while_a_gang_drains_plans_its_next_slots():
    """The lease of a dead member has ended, the other's slot drains; the planner is named; then the lead fails."""
    pool = pool_of(*[f"n0/{k}" for k in range(4)])
    place(pool, "a", 2)
    grant(pool, requested("a", t=1.0, n_slots=2))
    pool.handle(slot_failed("n0/1", t=2.0))
    assert pool.state.leases.slots["n0/0"].state == "draining"
    assert pool.handle(setting("placement.planner", "healthiest", t=2.5, task="a")) == ()
    plan = only(PlacementPlanned, pool.handle(slot_failed("n0/0", t=3.0)))
    assert (plan.planner, plan.gang_version) == ("healthiest", 3)
    assert set(plan.slots) == {"n0/2", "n0/3"}
    assert grant(pool, requested("a", t=4.0, round=2, n_slots=2)).slots == plan.slots


def test_a_planner_of_gangs_that_waits_fails():
    """A task is placed at once."""

    class Waits:
        name = "waits"

        def plan(self, view):
            return None

    view = PlacementView(homes={"n0/0": 0}, free_collectors={"n0": 1}, node="n0", n_collectors=0)
    with pytest.raises(PlannerFailed, match="raised ValueError: it waits: a task is placed at once"):
        PLACEMENT.ask(GangPlacement("waits", Waits()), view)


def test_a_planner_of_gangs_that_looks_at_history_is_shown_what_is_remembered():
    """Of slots and of their nodes; one that never failed is up since the pool began."""
    views = []

    class Looks:
        name, history = "looks", True

        def plan(self, view):
            views.append(view)
            return GANGS.build("first").plan(view)

    day = 86_400.0
    view = PlacementView(
        homes={"n0/0": 0, "n0/1": 0, "n1/0": 0}, free_collectors={"n0": 1}, node="n0", n_collectors=0, t=40 * day,
        failures={"n0/1": (day, 39.5 * day), "n0": (20 * day,), "n9/0": (39 * day,)},
    )  # fmt: skip
    PLACEMENT.ask(GangPlacement("looks", Looks()), view)
    (seen,) = views
    assert seen.names == ("n0/0", "n0/1", "n1/0")
    assert (seen.n_failures_24h, seen.n_failures_30d) == ((0, 1, 0), (1, 2, 0))
    assert seen.up_for_s == (20 * day, 0.5 * day, 40 * day)
    assert seen.busy_for_s == (0.0,) * 3


class Busy:
    """Names a slot that is not there, once the first one is gone; `raises` instead."""

    name = "busy"

    def __init__(self, raises=False):
        self.raises, self.real = raises, PLACEMENT.build("ect")

    def plan(self, view):
        if "n0/0" in view.homes:
            return self.real.plan(view)
        if self.raises:
            raise RuntimeError("n0/0 was all that I knew")
        return replace(self.real.plan(view), slots=("n0/0", "n0/1"))


@pytest.mark.parametrize(
    ("raises", "reason"),
    [
        (True, "placement planner own:busy raised RuntimeError: n0/0 was all that I knew"),
        (False, "placement planner own:busy: slots and allowed must be live slots, got 'n0/0'"),
    ],
)
def test_a_planner_that_names_a_slot_that_failed_or_raises_ends_its_task_alone(raises, reason):
    """The other one is placed anew; both replay."""
    pool = pool_of(*[f"n0/{k}" for k in range(4)], planners=Planners({"placement": Busy(raises)}))
    place(pool, "a", 2, planner="own:busy")
    pool.handle(asked("b", t=1.0, n=1, n_learners=4))
    out = pool.handle(slot_failed("n0/0", t=2.0))
    assert of(RequestRefused, out) == [RequestRefused(subject="a", reason=reason, final=True)]
    assert only(PlacementPlanned, out).task == "b"
    assert [each.task for each in of(PlacementPostponed, out)] == ["b"]
    assert only(RequestRefused, pool.handle(requested("a", t=3.0, n_slots=2))).final
    out = pool.handle(slot_added("n0/0", t=4.0, epoch=1))
    assert [plan.task for plan in of(PlacementPlanned, out)] == ["b"]
    assert pool.replays()


def test_plans_of_a_learned_planner_of_gangs_are_taken_from_the_journal():
    """It says that its plans cannot be made again; what it was not asked is not asked in a replay either."""

    class Last:
        name, exact = "last", False

        def plan(self, view):
            job = view.window[0]
            return replace(
                GANGS.build("first").plan(view), slots=(*job.kept, *view.free()[len(job.kept) - job.n_slots :])
            )

    PLACEMENT.register("last", lambda: GangPlacement("last", Last()))
    try:
        pool = pool_of(*[f"n0/{k}" for k in range(4)])
        pool.handle(setting("placement.allowed", "nodes", t=0.5))
        assert place(pool, "a", 2, planner="last").slots == ("n0/2", "n0/3")
        for event in (
            slot_failed("n0/0", t=2.0), slot_failed("n0/2", t=3.0), slot_added("n0/0", t=4.0, epoch=1),
            requested("a", t=5.0, n_slots=2),
        ):  # fmt: skip
            pool.handle(event)
        assert gang(pool, "a") == ("n0/3", "n0/1")
        Last.plan = None
        assert pool.replays()
    finally:
        del PLACEMENT._entries["last"]


def test_all_of_it_outlives_a_restart(pool):
    """Gangs, their versions, what was seen of slots, and settings."""
    place(pool, "a", 2)
    work(pool, 2.0)
    pool.handle(setting("placement.allowed", "gang", t=13.0))
    pool.handle(slot_failed("n0/1", t=14.0))
    copy = PoolMachine(LeasingSettings(), 1)
    copy.restore(json.loads(json.dumps(pool.snapshot())))
    for event in (
        slot_failed("n0/0", t=15.0),
        asked("b", t=16.0, n=1, n_learners=3),
        slot_added("n0/0", t=17.0, epoch=1),
    ):
        assert copy.handle(event) == pool.handle(event)


def test_a_task_whose_planner_is_not_there_any_more_gets_no_slot():
    """Its run is gone from the broker, its end has not been told yet: one line, and the others go on."""
    own = {"placement": Busy()}
    pool = Told(planners=Planners(own))
    for event in (node_added("n0"), slot_added("n0/0"), slot_added("n0/1")):
        pool.handle(event)
    place(pool, "a", planner="own:busy")
    place(pool, "b")
    pool.state.planners_of = lambda task: Planners()
    out = pool.handle(slot_failed("n0/0", t=2.0))
    reason = "this task has no placement planner 'own:busy'"
    assert of(RequestRefused, out) == [RequestRefused(subject="a", reason=reason, final=True)]
    assert not of(RequestRefused, pool.handle(slot_added("n0/0", t=3.0, epoch=1)))

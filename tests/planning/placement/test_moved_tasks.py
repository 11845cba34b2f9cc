"""A planner that follows slots as they come and go: what it is shown, and what holds of its word."""

import json
from dataclasses import replace

import pytest
from lease_indices import CheckedPool
from pool_words import (
    asked,
    grant,
    idled,
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
from drlnb.planning.placement import Placement
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import AskYield, LeaseGranted, RequestRefused, SlotFreed, SlotsOpened
from drlnb.records.columns.placement import PlacementPlanned, SendPlacement
from drlnb.records.common import SettingChanged
from drlnb.records.journal import Stream, StreamOpened


class Away:
    """Home is the slot that failed least; `strict`: no other may be used; it raises of a task whose home is `fatal`."""

    name = "away"

    def __init__(self, *, strict=False, fatal=""):
        self.strict, self.fatal, self.views = strict, fatal, []

    def plan(self, view):
        self.views.append(view)
        if self.fatal and self.fatal in view.slots:
            raise RuntimeError(f"{self.fatal} was mine")
        home = min(sorted(view.homes), key=lambda slot: len(view.failures.get(slot, ())))
        allowed = (home,) if self.strict else tuple(view.homes)
        return Placement(slots=(home,), allowed=allowed, collector_nodes=(view.node,) * view.n_collectors)


def pool_of(planner, nodes=("n0", "n1"), **settings):
    """Return a pool with a slot per node, whose runs all have one planner."""
    pool = CheckedPool(LeasingSettings(**settings), 1, lambda task: Planners({"placement": planner}))
    for node in nodes:
        pool.handle(node_added(node, n=2))
        pool.handle(slot_added(f"{node}/cpu0"))
    return pool


def own(task, **more):
    return replace(asked(task, **{"n": 1, **more}), planner="own:away")


def home_of(records):
    (slot,) = only(PlacementPlanned, records).slots
    return slot


def test_a_home_moves_when_its_slot_fails_and_stays_away_when_that_is_back():
    """What is asked next is lent the new home."""
    pool = pool_of(Away())
    assert home_of(pool.handle(own("a", t=1.0))) == "n0/cpu0"
    lease = grant(pool, requested("a", t=1.0))
    assert lease.slots == ("n0/cpu0",)
    out = pool.handle(slot_failed("n0/cpu0", t=2.0))
    assert only(PlacementPlanned, out) == PlacementPlanned(
        task="a", attempt=1, gang_version=2, planner="own:away", slots=("n1/cpu0",), allowed=("n1/cpu0",),
        allowed_by="", collector_nodes=(), expected_s=None, candidates=(),
    )  # fmt: skip
    assert not of(SendPlacement, out), "its collectors stay where they are"
    assert grant(pool, requested("a", t=2.0, round=2)).slots == ("n1/cpu0",)
    assert home_of(pool.handle(slot_added("n0/cpu0", t=3.0, epoch=1))) == "n1/cpu0"


def test_a_home_that_moved_is_preferred_to_a_slot_that_rested_for_longer():
    """Both are free, and neither has the parameters: home decides."""
    pool = pool_of(Away())
    pool.handle(own("a", t=1.0))
    pool.handle(returned(grant(pool, requested("b", t=1.0, home=("n1/cpu0",))).fence, t=1.5))
    pool.handle(slot_failed("n0/cpu0", t=2.0))
    pool.handle(slot_added("n0/cpu0", t=3.0, epoch=1))
    assert grant(pool, requested("a", t=4.0)).slots == ("n1/cpu0",)


@pytest.mark.parametrize("planner", ["first", "pack"])
def test_drlnbs_own_planners_do_not_follow_slots(planner):
    """Their tasks stay as they were placed, and nothing is decided."""
    pool = pool_of(Away())
    assert home_of(pool.handle(replace(asked("a", t=1.0, n=1), planner=planner))) == "n0/cpu0"
    assert pool.handle(slot_failed("n0/cpu0", t=2.0)) == ()
    assert pool.handle(slot_added("n0/cpu0", t=3.0, epoch=1)) == (SlotFreed(slot="n0/cpu0"),)
    assert grant(pool, requested("a", t=4.0)).slots == ("n0/cpu0",)


def test_the_view_has_slots_load_and_the_times_of_failures():
    """Of slots and of nodes; where the task was, and that no collector is to be placed; kept over a restart."""
    planner = Away()
    pool = pool_of(planner, nodes=("n0", "n1", "n2"))
    pool.handle(own("r/a", t=1.0, node="n1", n=2))
    pool.handle(own("r/b", t=1.5, node="n1", n=1))
    pool.handle(slot_failed("n0/cpu0", t=2.0))
    pool.handle(node_lost("n2", t=3.0))
    again = pool_of(planner, nodes=())
    again.restore(json.loads(json.dumps(pool.snapshot())))
    again.handle(slot_added("n0/cpu0", t=4.0, epoch=1))
    first, second, *_, last_a, last_b = planner.views
    assert (first.task, first.slots, first.before, first.t, first.n_collectors) == ("r/a", (), (), 1.0, 2)
    assert second.homes == {"n0/cpu0": 1, "n1/cpu0": 0, "n2/cpu0": 0}
    assert (last_a.task, last_a.slots, last_a.before, last_a.t) == ("r/a", ("n1/cpu0",), ("n1", "n1"), 4.0)
    assert (last_a.n_collectors, last_a.node) == (0, "n1")
    assert last_a.homes == last_b.homes == {"n0/cpu0": 0, "n1/cpu0": 1}
    assert last_a.free_collectors == {"n0": 2, "n1": 1}, "its own two do not count there, the other's one does"
    assert last_a.failures == {"n0/cpu0": (2.0,), "n2": (3.0,)}


@pytest.mark.parametrize(
    ("goes", "comes"),
    [
        (slot_failed("n0/cpu0", t=2.0), slot_added("n0/cpu0", t=3.0, epoch=1)),
        (setting("slot.drain", "n0/cpu0", t=2.0), setting("slot.undrain", "n0/cpu0", t=3.0)),
        (node_lost("n0", t=2.0), slot_added("n0/cpu0", t=3.0)),
    ],
    ids=["fails", "drains", "node"],
)
def test_it_is_asked_whichever_way_a_slot_goes_and_comes(goes, comes):
    """The slot is among those to choose from, is not, and is again."""
    planner = Away()
    pool = pool_of(planner)
    for event in (own("a", t=1.0, node="n1"), goes, comes):
        pool.handle(event)
    both = ("n0/cpu0", "n1/cpu0")
    assert [tuple(view.homes) for view in planner.views] == [both, ("n1/cpu0",), both]


def test_it_is_not_asked_where_no_slot_came_or_went():
    """A slot that is drained while it is lent is gone at once; its return changes nothing more."""
    planner = Away()
    pool = pool_of(planner)
    pool.handle(own("a", t=1.0))
    lease = grant(pool, requested("a", t=1.0))
    pool.handle(setting("slot.drain", "n0/cpu0", t=2.0))
    n_asked = len(planner.views)
    for event in (
        returned(lease.fence, t=3.0), setting("task.priority", 1, t=4.0, task="a"),
        slot_added("n1/cpu0", t=5.0, epoch=1),
        setting("slot.drain", "n0/cpu0", t=6.0), slot_failed("n0/cpu0", t=7.0), slot_failed("n9/cpu0", t=8.0),
    ):  # fmt: skip
        pool.handle(event)
    assert (len(planner.views), n_asked) == (2, 2)


def test_a_slot_that_is_lent_for_the_last_time_is_nobodys_home():
    """It was drained by hand and is still held."""
    pool = pool_of(Away())
    grant(pool, requested("a", t=1.0))
    pool.handle(setting("slot.drain", "n0/cpu0", t=2.0))
    assert only(PlacementPlanned, pool.handle(asked("b", t=3.0, n=1))).allowed == ("n1/cpu0",)


def test_nobody_is_asked_while_no_slot_is_left():
    """There is nothing to choose from; the planner is asked as soon as one is back."""
    planner = Away()
    pool = pool_of(planner, nodes=("n0",))
    pool.handle(own("a", t=1.0))
    assert not of(RequestRefused, pool.handle(slot_failed("n0/cpu0", t=2.0)))
    assert len(planner.views) == 1
    assert home_of(pool.handle(slot_added("n0/cpu0", t=3.0, epoch=1))) == "n0/cpu0"


def test_a_request_that_waits_moves_along():
    """It had waited for its one slot, which fails: it is lent the other one at once."""
    pool = pool_of(Away(strict=True))
    pool.handle(own("a", t=1.0))
    grant(pool, requested("b", t=1.0, home=("n0/cpu0",)))
    assert not of(LeaseGranted, pool.handle(requested("a", t=2.0)))
    assert only(LeaseGranted, pool.handle(slot_failed("n0/cpu0", t=3.0))).slots == ("n1/cpu0",)


def test_a_slot_that_comes_is_lent_to_whom_its_planner_gives_it():
    """The task that has waited for longer may not use it any more."""

    class Sorted:
        name = "away"

        def plan(self, view):
            slot = sorted(view.homes)[0 if view.task == "a" else -1]
            return Placement(slots=(slot,), allowed=(slot,), collector_nodes=(view.node,) * view.n_collectors)

    pool = pool_of(Sorted(), nodes=("n1",))
    for task in "ab":
        pool.handle(own(task, t=1.0, node="n1"))
    grant(pool, requested("x", t=1.0))
    for task in "ba":
        assert not of(LeaseGranted, pool.handle(requested(task, t=2.0)))
    lease = only(LeaseGranted, pool.handle(slot_added("n0/cpu0", t=3.0)))
    assert (lease.task, lease.slots) == ("a", ("n0/cpu0",))


def test_slots_that_were_kept_for_a_gang_go_when_it_moves():
    """One of its two was reserved for it; it may use the other two now."""

    class Pair:
        name = "away"

        def plan(self, view):
            pair = tuple(sorted(view.homes, key=lambda slot: (len(view.failures.get(slot, ())), slot)))[:2]
            return Placement(slots=pair[:1], allowed=pair, collector_nodes=(view.node,) * view.n_collectors)

    pool = pool_of(Pair(), nodes=("n0", "n1", "n2", "n3"))
    pool.handle(own("a", t=1.0, node="n3"))
    held = [grant(pool, requested(task, t=1.0, allowed=(f"n{k}/cpu0",))) for k, task in enumerate("wxyz")]
    pool.handle(requested("a", t=2.0, n_slots=2))
    pool.handle(returned(held[1].fence, t=4.0))
    assert pool.state.leases.reserved == {"n1/cpu0"}
    pool.handle(slot_failed("n1/cpu0", t=5.0))
    assert pool.state.leases.slots["n1/cpu0"].state == "failed"
    pool.handle(returned(held[0].fence, t=6.0))
    out = pool.handle(returned(held[2].fence, t=7.0))
    assert only(LeaseGranted, out).slots == ("n0/cpu0", "n2/cpu0")


def test_a_request_that_could_never_be_met_any_more_is_refused_for_good():
    """Its two slots were enough; its planner allows one of the two that are left."""

    class Fewer:
        name = "away"

        def plan(self, view):
            allowed = tuple(sorted(view.homes))[: 2 if not view.slots else 1]
            return Placement(slots=allowed[:1], allowed=allowed, collector_nodes=(view.node,) * view.n_collectors)

    pool = pool_of(Fewer(), nodes=("n0", "n1", "n2"))
    pool.handle(SlotsOpened(t=0.5, slots=("n0/cpu0", "n1/cpu0", "n2/cpu0")))
    pool.handle(own("a", t=1.0))
    grant(pool, requested("b", t=1.0, allowed=("n0/cpu0",)))
    pool.handle(requested("a", t=1.0, n_slots=2))
    refused = only(RequestRefused, pool.handle(slot_failed("n2/cpu0", t=2.0)))
    reason = "task a would wait for ever: it wants 2 slots at once, and 1 may serve it"
    assert refused == RequestRefused(subject="a-1", reason=reason, final=True)


def test_who_holds_the_slot_to_which_a_waiting_request_moves_is_asked_to_give_way():
    """Nobody waited for that slot so far; a holder that was asked is not asked again, nor is one of another slot."""
    pool = pool_of(Away(strict=True), nodes=("n0", "n1", "n2"))
    pool.handle(own("a", t=1.0, node="n2"))
    b, _, _ = (
        grant(pool, requested(task, t=1.0, allowed=(f"n{k}/cpu0",), yields=k > 0))
        for k, task in ((1, "b"), (0, "c"), (2, "d"))
    )
    assert not of(AskYield, pool.handle(requested("a", t=2.0)))
    asked_now = of(AskYield, pool.handle(slot_failed("n0/cpu0", t=3.0)))
    assert [(each.fence, each.task) for each in asked_now] == [(b.fence, "b")]
    assert only(LeaseGranted, pool.handle(returned(b.fence, t=4.0))).task == "a"


def test_a_request_that_moves_to_a_free_slot_asks_nobody():
    """It is granted at once."""
    pool = pool_of(Away(strict=True))
    pool.handle(own("a", t=1.0))
    grant(pool, requested("b", t=1.0, allowed=("n0/cpu0",), yields=True))
    pool.handle(requested("a", t=2.0))
    out = pool.handle(slot_failed("n0/cpu0", t=3.0))
    assert only(LeaseGranted, out).task == "a"
    assert not of(AskYield, out)


def chosen(task, planner, t):
    return SettingChanged(t=t, key="placement.planner", value=planner, task=task)


def test_a_planner_that_is_chosen_while_a_task_trains_is_the_one_that_follows_its_slots():
    """`first` is not asked as slots go; the own one is, from the next such time on; other tasks keep theirs."""
    planner = Away()
    pool = pool_of(planner)
    pool.handle(own("a", t=1.0))
    pool.handle(own("b", t=1.0))
    assert pool.handle(chosen("a", "first", t=2.0)) == ()
    planned = of(PlacementPlanned, pool.handle(slot_failed("n0/cpu0", t=3.0)))
    assert [(plan.task, plan.slots) for plan in planned] == [("b", ("n1/cpu0",))]
    assert pool.handle(chosen("a", "own:away", t=4.0)) == ()
    planned = of(PlacementPlanned, pool.handle(slot_added("n0/cpu0", t=5.0, epoch=1)))
    assert [(plan.task, plan.planner) for plan in planned] == [("a", "own:away"), ("b", "own:away")]


@pytest.mark.parametrize(("task", "planner"), [("a", "clever"), ("gone", "first")])
def test_a_choice_that_cannot_be_changes_nothing(task, planner):
    """No such planner: one line, and the task goes on with its own; a task that is not placed is placed later."""
    pool = pool_of(Away())
    pool.handle(own("a", t=1.0))
    before = pool.snapshot()
    out = pool.handle(chosen(task, planner, t=1.0))
    assert [each.subject for each in of(RequestRefused, out)] == ["placement.planner"] * (task == "a")
    assert pool.snapshot() == before
    assert of(PlacementPlanned, pool.handle(slot_failed("n0/cpu0", t=2.0)))


@pytest.mark.parametrize("residency", [True, False])
def test_slots_that_a_planner_forbids_are_never_lent(residency):
    """Whether or not slots are chosen by what they hold."""
    pool = pool_of(Away(strict=True), residency=residency)
    pool.handle(own("a", t=1.0))
    grant(pool, requested("b", t=1.0, allowed=("n0/cpu0",)))
    assert not of(LeaseGranted, pool.handle(requested("a", t=2.0)))


REASON = "placement planner own:away raised RuntimeError: n0/cpu0 was mine"


def test_a_planner_that_raises_as_slots_go_fails_its_task_and_no_other():
    """One line; what waits and what comes is refused for good, and the planner is asked no more of this task."""
    planner = Away(fatal="n0/cpu0")
    pool = pool_of(planner)
    pool.handle(own("a", t=1.0))
    pool.handle(replace(asked("b", t=1.0, n=1), planner="first"))
    for slot in ("n0/cpu0", "n1/cpu0"):
        grant(pool, requested(slot, t=1.0, allowed=(slot,)))
    for task in "ab":
        pool.handle(requested(task, t=2.0))
    out = pool.handle(slot_failed("n0/cpu0", t=3.0))
    assert of(RequestRefused, out) == [
        RequestRefused(subject="a", reason=REASON, final=True),
        RequestRefused(subject="a-1", reason=REASON, final=True),
    ]
    later = pool.handle(requested("a", t=4.0, round=2))
    assert later == (RequestRefused(subject="a-2", reason=REASON, final=True),)
    assert only(LeaseGranted, pool.handle(slot_added("n0/cpu0", t=5.0, epoch=1))).task == "b"
    assert len(planner.views) == 2


def test_what_planners_said_as_slots_went_is_decided_again_without_them():
    """Of three tasks the second one's planner raises; the others' plans are their own in a replay, too."""
    planners = {"r/a": Away(), "r/b": Away(fatal="n0/cpu0"), "r/c": Away(strict=True)}
    pool = CheckedPool(LeasingSettings(), 1, lambda task: Planners({"placement": planners[task]}))
    events = [node_added("n0"), slot_added("n0/cpu0"), node_added("n1"), slot_added("n1/cpu0")]
    events += [own(task, t=1.0) for task in planners]
    events += [requested(task, t=2.0) for task in planners]
    events += [slot_failed("n0/cpu0", t=3.0), slot_added("n0/cpu0", t=4.0, epoch=1), idled("n1/cpu0", t=5.0)]
    events += [requested("r/b", t=6.0, round=2), node_lost("n1", t=7.0), slot_failed("n0/cpu0", t=8.0)]
    events += [chosen("r/a", "first", t=9.0), slot_added("n0/cpu0", t=9.5, epoch=2), chosen("r/a", "own:away", t=10.0)]
    events += [node_added("n2", t=11.0), slot_added("n2/cpu0", t=11.0)]
    counts = replayed(pool, events)
    # Three at first; two at each of the changes that leave a slot, but for the one that `first` does not follow.
    assert counts["PlacementPlanned"] == 3 + 2 * 4 + 1


def test_a_planner_that_fails_before_the_first_node_is_there_is_told_apart_from_the_next():
    """Three questions are answered by one event; the second planner raises."""
    planners = {"r/a": Away(), "r/b": Away(), "r/c": Away()}
    planners["r/b"].plan = lambda view: None
    pool = CheckedPool(LeasingSettings(), 1, lambda task: Planners({"placement": planners[task]}))
    events = [slot_added("n0/cpu0"), *[own(task, t=1.0) for task in planners], node_added("n0", t=2.0)]
    assert replayed(pool, events)["PlacementPlanned"] == 2


def replayed(pool, events):
    """Feed events to a pool and to a fresh one that has the journal alone; return how many records there are."""
    records = [record for event in events for record in (event, *pool.handle(event))]
    header = StreamOpened(
        stream="p", machine="pool", config=PoolMachine(LeasingSettings(), 1).config, origin="simulated", version="0"
    )
    result = replay(Stream(header=header, records=tuple(records), torn=False, source="p"))
    assert result.difference is None
    return result.counts

import json
from dataclasses import replace

import pytest
from lease_indices import CheckedPool
from pool_words import (
    asked,
    grant,
    idled,
    made_again,
    node_added,
    node_lost,
    of,
    only,
    reap,
    requested,
    returned,
    slot_added,
    slot_failed,
    stopped,
)

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.placement import Placement
from drlnb.planning.pool import PoolMachine
from drlnb.planning.registry import Planners
from drlnb.planning.replay import replay
from drlnb.records.columns.leasing import LeaseGranted, LeaseReleased, RequestRefused, RevokeLease, SlotDrained
from drlnb.records.columns.placement import (
    PlacementPlanned,
    PlacementPostponed,
    SendPlacement,
    TaskRestarted,
)
from drlnb.records.common import SettingChanged
from drlnb.records.errors import InvalidTransition
from drlnb.records.journal import Stream, StreamOpened
from tests.matches import like


@pytest.fixture
def pool():
    """Return a pool of two nodes with two collector places and one slot each."""
    pool = CheckedPool(LeasingSettings(), epoch=1)
    for node in ("n0", "n1"):
        assert pool.handle(node_added(node, n=2)) == ()
        assert pool.handle(slot_added(f"{node}/cpu0")) == ()
    return pool


def nodes_of(records):
    return only(PlacementPlanned, records).collector_nodes


def test_a_placement_is_planned_and_sent(pool):
    """The master learns where its collectors live, the journal also home and allowed slots."""
    assert pool.handle(asked("a", t=1.0, node="n1", n=3)) == (
        like(
            PlacementPlanned,
            task="a",
            attempt=1,
            gang_version=1,
            planner="ect",
            slots=("n0/cpu0",),
            allowed=("n0/cpu0", "n1/cpu0"),
            allowed_by="any",
            collector_nodes=("n1", "n1", "n0"),
        ),
        SendPlacement(task="a", attempt=1, collector_nodes=("n1", "n1", "n0")),
    )


def test_homes_and_collectors_of_other_tasks_count(pool):
    """The second task gets the other slot as home, and the places that are left."""
    pool.handle(asked("a", t=1.0, n=2, node="n0"))
    pool.handle(asked("b", t=1.0, n=1, node="n0"))
    out = pool.handle(asked("c", t=1.0, n=1, node="n0"))
    assert (only(PlacementPlanned, out).slots, nodes_of(out)) == (("n0/cpu0",), ("n1",))


def test_a_placement_asked_again_moves_only_the_collectors_of_a_lost_node(pool):
    """The attempt goes on with one node less; a home on a failed slot is given up."""
    pool.handle(asked("a", t=1.0, n=4, node="n1"))
    pool.handle(node_lost("n0", t=2.0))
    out = pool.handle(asked("a", t=3.0, n=4, node="n1"))
    assert nodes_of(out) == ("n1", "n1", "n1", "n1")
    assert only(PlacementPlanned, out).slots == ("n1/cpu0",)


def test_a_lost_node_counts_for_nothing_while_its_tasks_have_not_asked_again(pool):
    """Homes and collectors on a lost node take no room from others."""
    pool.handle(asked("a", t=1.0, n=4, node="n1"))
    pool.handle(node_lost("n0", t=2.0))
    pool.handle(node_added("n2", t=2.0, n=2))
    assert nodes_of(pool.handle(asked("b", t=3.0, n=2, node="n1"))) == ("n2", "n2")


def test_a_lost_master_frees_its_places(pool):
    """The task's next attempt is placed as if the former had never been."""
    pool.handle(asked("a", t=1.0, n=4, node="n0"))
    pool.handle(node_lost("n0", t=2.0))
    assert nodes_of(pool.handle(asked("b", t=3.0, n=2, node="n1"))) == ("n1", "n1")


def test_a_stopped_task_frees_its_places_and_its_lease(pool):
    """Room, home and slot go to others; the attempt may not ask again."""
    pool.handle(asked("a", t=1.0, n=4))
    lease = grant(pool, requested("a", t=1.0, node="n0"))
    assert pool.handle(stopped("a", t=2.0))[:2] == (
        like(LeaseReleased, fence=lease.fence, reason="task-stopped"),
        like(SlotDrained, slot="n0/cpu0"),
    )
    out = pool.handle(asked("b", t=3.0, n=4))
    assert (only(PlacementPlanned, out).slots, nodes_of(out)) == (("n0/cpu0",), ("n0", "n0", "n1", "n1"))
    assert pool.handle(asked("a", t=4.0)) == (
        RequestRefused(subject="a", reason="attempt 1 is over: 2 or later may ask"),
    )
    assert of(PlacementPlanned, pool.handle(asked("a", t=5.0, attempt=2)))


def test_a_task_that_is_started_again_may_ask_as_a_new_attempt_only(pool):
    """What the former attempt still sends is refused, and no slot or place is taken meanwhile."""
    pool.handle(asked("a", t=1.0, n=4))
    pool.handle(stopped("a", t=2.0))
    before = pool.snapshot()
    assert pool.handle(TaskRestarted(t=3.0, task="a", attempt=2)) == ()
    assert pool.snapshot() == before | {"leases": before["leases"] | {"t": 3.0}}
    assert pool.handle(asked("a", t=4.0, n=4)) == (
        RequestRefused(subject="a", reason="attempt 1 is over: 2 or later may ask"),
    )
    assert of(PlacementPlanned, pool.handle(asked("a", t=5.0, attempt=2, n=4)))


def test_a_restart_after_a_pool_began_anew_still_refuses_what_was_before(pool):
    """The pool never saw attempt 4: the restart as attempt 5 is all that it knows."""
    pool.handle(TaskRestarted(t=1.0, task="a", attempt=5))
    assert pool.handle(asked("a", t=2.0, attempt=4)) == (
        RequestRefused(subject="a", reason="attempt 4 is over: 5 or later may ask"),
    )
    assert of(PlacementPlanned, pool.handle(asked("a", t=3.0, attempt=5)))


def test_a_question_of_an_attempt_that_is_over_is_never_answered():
    """It waited for a first node; meanwhile the user had the task begin again, so its master is gone."""
    pool = CheckedPool(LeasingSettings(), epoch=1)
    assert pool.handle(asked("a", t=1.0)) == ()
    pool.handle(TaskRestarted(t=2.0, task="a", attempt=2))
    assert pool.handle(node_added("n0", t=3.0)) == ()
    assert only(SendPlacement, pool.handle(asked("a", t=4.0, attempt=2))).attempt == 2


def test_a_place_of_an_attempt_that_is_over_is_free_at_once(pool):
    """Also where the next attempt waits for a node itself."""
    pool.handle(asked("a", t=1.0, node="n9"))
    for node in ("n0", "n1"):
        pool.handle(node_lost(node, t=2.0))
    assert pool.handle(asked("a", t=3.0, attempt=2, node="n9")) == ()
    assert pool.snapshot()["placement"]["placed"] == {}


def test_a_late_stop_of_a_former_attempt_leaves_the_present_one(pool):
    """The end of attempt 1, told after attempt 2 was placed, frees nothing of attempt 2."""
    pool.handle(asked("a", t=1.0, attempt=2, n=4))
    assert pool.handle(stopped("a", t=2.0, attempt=1)) == ()
    assert pool.snapshot()["placement"]["placed"].keys() == {"a"}


def test_a_higher_attempt_takes_over_at_once(pool):
    """What the former master holds is revoked when its successor asks for its place, and the former is refused."""
    pool.handle(asked("a", t=1.0, attempt=1, n=4))
    lease = grant(pool, requested("a", t=1.0, node="n0"))
    out = pool.handle(asked("a", t=2.0, attempt=2, n=4))
    assert out == (
        like(LeaseReleased, fence=lease.fence),
        like(SlotDrained, slot="n0/cpu0"),
        like(RevokeLease, fence=lease.fence),
        like(PlacementPlanned, attempt=2, collector_nodes=("n0", "n0", "n1", "n1")),
        like(SendPlacement, attempt=2),
    )
    assert pool.handle(asked("a", t=3.0, attempt=1)) == (
        RequestRefused(subject="a", reason="attempt 1 is over: 2 or later may ask"),
    )
    assert of(RequestRefused, pool.handle(requested("a", t=3.0, attempt=1, round=2)))


def test_questions_wait_for_a_first_node():
    """Who asks before any node is up is answered when one comes; who stopped or was lost meanwhile is not."""
    pool = CheckedPool(LeasingSettings(), epoch=1)
    for task, node in (("a", "n0"), ("b", "n0"), ("c", "n9")):
        assert pool.handle(asked(task, t=0.0, node=node)) == ()
    pool.handle(stopped("b", t=1.0))
    pool.handle(node_lost("n9", t=1.0))
    assert pool.handle(node_added("n0", t=2.0)) == (
        like(PlacementPlanned, task="a", slots=(), collector_nodes=("n0", "n0")),
        PlacementPostponed(task="a", reason="needs 1 slot, 0 alive", n_alive=0),
        like(SendPlacement, task="a"),
    )


def test_leases_go_through_the_table(pool):
    """Requests, returns, ticks and slots are answered by the lease table."""
    leases = [grant(pool, requested(task, t=0.0, node="n0")) for task in "ab"]
    assert pool.handle(requested("c", t=1.0)) == ()
    assert only(LeaseGranted, pool.handle(returned(leases[1].fence, t=2.0))).task == "c"
    pool.handle(reap(t=13.0))
    assert pool.handle(slot_failed("n0/cpu0", t=14.0)) == ()
    assert pool.handle(requested("d", t=14.0)) == ()
    assert only(LeaseGranted, pool.handle(idled("n1/cpu0", t=15.0))).task == "d"


def test_a_live_lease_says_whether_its_slot_had_the_parameters(pool):
    """Not at the first grant; at the next round's, on the same slot, yes; a lease that is over, or none, no."""
    first = only(LeaseGranted, pool.handle(requested("a", t=1.0, round=1)))
    assert not pool.is_resident(first.fence)
    pool.handle(returned(first.fence, t=2.0))
    second = only(LeaseGranted, pool.handle(requested("a", t=3.0, round=2)))
    assert second.resident
    assert pool.is_resident(second.fence)
    pool.handle(returned(second.fence, t=4.0))
    assert not pool.is_resident(second.fence)


def test_a_setting_changes_while_tasks_run(pool):
    """The configuration of the journal's header stays what it was at the start."""
    assert pool.handle(SettingChanged(t=1.0, key="leasing.ttl_s", value=20.0, task=None)) == ()
    assert pool.settings.ttl_s == 20.0
    assert pool.config["settings"]["ttl_s"] == 10.0


@pytest.mark.parametrize("event", [node_added("n2", t=0.5), requested("a", t=float("nan"))])
def test_time_never_runs_back(pool, event):
    """Whichever part an event is for."""
    pool.handle(node_added("n2", t=1.0))
    with pytest.raises(InvalidTransition, match="pool in state at t=1 s"):
        pool.handle(event)


def test_the_configuration_rebuilds_the_machine():
    """The header of a journal is enough to make the same machine again."""
    pool = PoolMachine(LeasingSettings(ttl_s=30.0, hold="last"), epoch=7)
    config = json.loads(json.dumps(pool.config))
    assert config == {
        "settings": {**config["settings"], "ttl_s": 30.0, "hold": "last"},
        "epoch": 7,
    }
    again = made_again(pool)
    assert (again.config, again.settings, again.snapshot()) == (config, pool.settings, pool.snapshot())


def test_each_task_is_placed_by_its_own_planner(pool):
    """The journal names it; both collectors fit on one node."""
    out = pool.handle(replace(asked("a", t=1.0, n=2), planner="pack"))
    assert (only(PlacementPlanned, out).planner, nodes_of(out)) == ("pack", ("n0", "n0"))
    assert only(PlacementPlanned, pool.handle(asked("b", t=1.0, n=2))).planner == "ect"


class Own:
    """Places every collector on a node that it was told."""

    name = "own"

    def __init__(self, node):
        self._node = node

    def plan(self, view):
        slots = tuple(view.homes)[: view.n_slots]
        return Placement(slots=slots, collector_nodes=(self._node,) * view.n_collectors)


def test_a_task_whose_planner_fails_is_refused_and_the_others_are_placed():
    """The planner is named and what is wrong; nothing is kept of the task."""
    own = {"r/a": Own("n1"), "r/b": Own("n7")}
    pool = CheckedPool(LeasingSettings(), 1, lambda task: Planners({"placement": own[task]} if task in own else {}))
    for node in ("n0", "n1"):
        pool.handle(node_added(node, n=2))
        pool.handle(slot_added(f"{node}/cpu0"))
    assert nodes_of(pool.handle(replace(asked("r/a", t=1.0, n=2), planner="own:own"))) == ("n1", "n1")
    reason = "placement planner own:own: collector_nodes must be among n0, n1, got 'n7'"
    assert pool.handle(replace(asked("r/b", t=1.0, n=1), planner="own:own")) == (
        SendPlacement(task="r/b", attempt=1, collector_nodes=(), refusal=reason),
    )
    unknown = only(SendPlacement, pool.handle(replace(asked("r/c", t=1.0), planner="own:own"))).refusal
    assert unknown == "this task has no placement planner 'own:own'"
    assert nodes_of(pool.handle(asked("r/d", t=1.0, n=2))) == ("n0", "n0")


def test_a_users_plans_are_replayed_from_the_journal():
    """The planner itself is not at hand then; what had failed fails again."""
    pool = PoolMachine(LeasingSettings(), 1, lambda task: Planners({"placement": Own(task)}))
    header = StreamOpened(stream="p", machine="pool", config=pool.config, origin="simulated", version="0")
    events = [node_added("n0", n=2), slot_added("n0/cpu0")]
    events += [replace(asked(node, t=1.0, n=1), planner="own:own") for node in ("n0", "n7")]
    records = [record for event in events for record in (event, *pool.handle(event))]
    stream = Stream(header=header, records=tuple(records), torn=False, source="p")
    assert replay(stream).difference is None
    assert replay(stream).counts["PlacementPlanned"] == 1


def test_a_snapshot_survives_json_and_replay(pool):
    """From any moment on, the same events give the same records."""
    events = [
        asked("a", t=1.0, n=3),
        requested("a", t=1.0, node="n0"),
        requested("b", t=1.5, node="n1"),
        requested("c", t=2.0, node="n1"),
        asked("b", t=2.0, n=2, node="n1"),
        node_lost("n0", t=3.0),
        asked("c", t=3.0, n=2, node="n1"),
        node_lost("n1", t=3.5),
        asked("d", t=4.0, n=1),
        node_added("n0", t=5.0, n=1),
        slot_added("n0/cpu0", t=5.0),
        stopped("d", t=6.0),
        reap(t=7.0),
    ]
    moments = [(json.loads(json.dumps(pool.snapshot())), event, pool.handle(event)) for event in events]
    for at, (snapshot, _, _) in enumerate(moments):
        copy = PoolMachine(LeasingSettings(), epoch=1)
        copy.restore(snapshot)
        assert json.loads(json.dumps(copy.snapshot())) == snapshot
        assert [copy.handle(event) for _, event, _ in moments[at:]] == [out for _, _, out in moments[at:]]


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (lambda s: s["placement"]["floors"].update(a=2), "no attempt that is over is placed"),
        (
            lambda s: s["placement"]["asked"].update(b=asked("b", t=1.0).to_row()),
            "a question waits only while no node is up",
        ),
        (lambda s: s["leases"].update(reaping=False), "a reap deadline is set while a lease is held"),
    ],
)
def test_check_finds_each_broken_law(pool, spoil, law):
    """Each law turns red when the state is spoiled."""
    pool.handle(asked("a", t=1.0))
    pool.handle(requested("a", t=1.0))
    snapshot = pool.snapshot()
    spoil(snapshot)
    pool.restore(snapshot)
    with pytest.raises(AssertionError, match=law):
        pool.check()


def test_a_pool_has_slots_while_one_of_them_lives(pool):
    """A pool has no slots before the first is added and after the last has failed."""
    assert not CheckedPool(LeasingSettings(), epoch=1).n_slots
    pool.handle(slot_failed("n0/cpu0", t=1.0))
    assert pool.n_slots
    pool.handle(slot_failed("n1/cpu0", t=2.0))
    assert not pool.n_slots


def test_a_pool_names_the_slots_that_are_out_of_it_too(pool):
    """One is drained, one has failed: both may be asked for by name."""
    pool.handle(SettingChanged(t=1.0, key="slot.drain", value="n0/cpu0", task=None))
    pool.handle(slot_failed("n1/cpu0", t=2.0))
    assert (pool.n_slots, pool.slots) == (0, ("n0/cpu0", "n1/cpu0"))

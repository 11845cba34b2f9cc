"""Whatever a planner is shown, its plan fits, is the same each time, and comes back from the journal that holds it."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.batching import BATCHING, COLLECT, BatchView, Member, collect_members, collect_steps, env_shares
from drlnb.planning.decisions import KINDS
from drlnb.planning.distribution import DISTRIBUTION, LEARNER, DistributionView, command
from drlnb.planning.leasing.planners import HOLD, HoldView
from drlnb.planning.placement import PLACEMENT, PlacementView
from drlnb.planning.recorded import Recorded, RecordedPlanners
from drlnb.planning.registry import Answer, PlannerFailed, PlannerKind, Planners, plan_of
from drlnb.planning.swapping import SWAPPING, SwapPlan, SwapView, facts
from drlnb.planning.warmup import WARMUP, WarmupPlan, WarmupView
from drlnb.records.base import Record, shared
from drlnb.records.columns.batching import BatchPlanned, SplitPlanned
from drlnb.records.columns.distribution import DistributionPlanned
from drlnb.records.columns.leasing import HoldPlanned
from drlnb.records.columns.placement import PlacementPlanned, SendPlacement
from drlnb.records.columns.swapping import SwapPlanned
from drlnb.records.columns.warmup import WarmupPlanned
from tests.planning.swapping.swap_words import profiles
from tests.strategies import fewer

NAMES = ["n0", "n1", "n2", "n3"]
seconds = st.floats(0.0, 50.0, allow_nan=False)


@st.composite
def holds(draw):
    """Return what a hold planner may be shown: nothing more is here than is expected, or kept than is here."""
    n_expected = draw(st.integers(1, 6))
    n_arrived = draw(st.integers(0, n_expected))
    held, requested = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return HoldView(
        n_arrived=n_arrived,
        n_expected=n_expected,
        held=held,
        requested=requested,
        n_queued=draw(st.integers(0, n_arrived)),
        divisible=draw(st.booleans()),
        demand=held and draw(st.booleans()),
        crowded=draw(st.booleans()),
        switch_p50_s=draw(st.none() | seconds),
        compute_p50_s=draw(st.none() | seconds),
        switch_limit_frac=draw(st.floats(0.0, 2.0)),
    )


@st.composite
def batches(draw):
    shares = env_shares(*sorted(draw(st.tuples(st.integers(1, 9), st.integers(1, 9))), reverse=True))
    nodes = tuple(draw(st.sampled_from(NAMES)) for _ in shares)
    n_steps, n_envs = draw(st.integers(1, 64)), tuple(map(len, shares))
    sample_s = [draw(st.none() | st.floats(1e-6, 1.0)) for _ in shares]
    return BatchView(
        round=draw(st.integers(1, 9)),
        role="collect",
        n_units=n_steps * len(shares),
        members=collect_members(range(len(shares)), n_envs, sample_s, n_steps=n_steps),
        n_steps=n_steps,
        collectors=tuple(range(len(shares))),
        n_envs=n_envs,
        nodes=nodes,
    )


@st.composite
def splits(draw):
    slots = draw(
        st.lists(st.sampled_from([f"{node}/gpu{k}" for node in NAMES for k in range(2)]), min_size=1, unique=True)
    )
    members = tuple(Member(id=slot, speed_hz=draw(st.floats(1e-3, 1e3))) for slot in slots)
    n_units = draw(st.integers(1, 64))
    return BatchView(round=draw(st.integers(1, 9)), role="update", n_units=n_units, members=members)


def versions():
    hosts = st.lists(st.sampled_from(NAMES), unique=True).map(tuple)
    return st.builds(DistributionView, version=st.integers(1, 9), hosts=hosts, model_bytes=st.integers(1, 10**9))


@st.composite
def pools(draw):
    nodes = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    slots = draw(st.lists(st.sampled_from([f"{node}/gpu{k}" for node in NAMES for k in range(2)]), unique=True))
    n, n_learners = draw(st.integers(0, 7)), draw(st.integers(1, 5))
    gone = [f"n9/gpu{k}" for k in range(2)]
    gang = draw(st.lists(st.sampled_from([*slots, *gone]), max_size=n_learners, unique=True))
    return PlacementView(
        homes={slot: draw(st.integers(0, 3)) for slot in slots},
        free_collectors={node: draw(st.integers(-2, 5)) for node in nodes},
        node=draw(st.sampled_from(NAMES)),
        n_collectors=n,
        failures=dict.fromkeys(nodes, ()),
        before=tuple(draw(st.sampled_from(NAMES)) for _ in range(draw(st.sampled_from([0, n])))),
        slots=tuple(gang),
        n_learners=n_learners,
        round_s=draw(st.sampled_from([0.0, 0.5, 1e7])),
        rates={slot: draw(st.sampled_from([0.0, 1e-6, 1e-3, 1.0])) for slot in slots},
        n_wide=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2))),
        locality_frac=draw(st.sampled_from([0.0, 0.05, 1.0])),
    )


@st.composite
def histories(draw):
    n, k = draw(st.integers(1, 3)), draw(st.integers(0, 12))
    rows = st.lists(st.lists(seconds, min_size=n, max_size=n), min_size=k, max_size=k)
    return WarmupView(
        rho=draw(st.floats(0.1, 10.0)),
        kappa=draw(st.floats(0.1, 10.0)),
        filter_window=draw(st.integers(2, 16)),
        min_rounds=draw(st.integers(2, 8)),
        n_candidates=draw(st.integers(2, 6)),
        gap_s=draw(rows),
        start_s=draw(st.just([]) | rows),
        round_s=draw(st.lists(seconds, min_size=k, max_size=k)),
        pools_s=[tuple(draw(st.lists(seconds, max_size=3))) for _ in range(n)],
    )


VIEWS = {
    HOLD: holds(),
    BATCHING: splits(),
    COLLECT: batches(),
    SWAPPING: st.builds(
        SwapView,
        round=st.integers(1, 9),
        profile=st.none() | profiles(n_rows=3),
        n_samples=st.integers(1, 9),
        memory_budget_bytes=st.none() | st.floats(1.0, 500.0),
        seed=st.integers(0, 9),
    ),
    DISTRIBUTION: versions(),
    PLACEMENT: pools(),
    WARMUP: histories(),
}
PLANNERS = [(kind, name) for kind in VIEWS for name in kind.names]


def journalled(kind, view, plan):
    """Return the records that a machine writes of a plan."""
    if kind is HOLD:
        return [HoldPlanned(round=1, planner="p", **shared(plan, HoldPlanned))]
    if kind is BATCHING:
        members = tuple(each.id for each in view.members)
        return [SplitPlanned(round=view.round, planner="p", members=members, **shared(plan, SplitPlanned))]
    if kind is COLLECT:
        steps = collect_steps(view, plan)
        return [BatchPlanned(round=view.round, planner="p", collectors=view.collectors, n_steps=steps)]
    if kind is SWAPPING:
        plan_of = None if plan.key is None else facts(plan)
        return [SwapPlanned(round=view.round, planner="p", plan_key=plan.key, plan=plan_of)]
    if kind is DISTRIBUTION:
        said = {"version": view.version, "planner": "p", "hosts": view.hosts, "n_bytes": view.model_bytes}
        said |= {"n_messages": plan.n_messages(), "digest": plan.digest(), "predicted_s": plan.predicted_s}
        return [DistributionPlanned(**said), command(plan, view, 60.0)]
    if kind is PLACEMENT:
        nodes = plan.collector_nodes
        about = {"task": view.task, "attempt": 1, "gang_version": 1, "planner": "p", "allowed_by": ""}
        planned = PlacementPlanned(**about, **shared(plan, PlacementPlanned))
        return [planned, SendPlacement(task=view.task, attempt=1, collector_nodes=nodes)]
    of_plan = shared(plan, WarmupPlanned) | {"filtered": plan.filter_of(0)}
    return [WarmupPlanned(round=1, collector=0, planner="p", **of_plan)]


def test_every_decision_has_views():
    """A new decision comes with a strategy here."""
    assert set(VIEWS) == set(KINDS.values())


@pytest.mark.parametrize(("kind", "name"), PLANNERS, ids=lambda part: getattr(part, "decision", part))
def test_a_plan_fits_whatever_the_view(kind, name):
    """No view makes a planner raise, or plan what its machine would refuse; the same view gives the same plan."""

    @fewer(3)
    @given(VIEWS[kind])
    def check(view):
        plan = kind.ask(kind.build(name), view)
        assert kind.ask(kind.build(name), view) == plan

    check()


@pytest.mark.parametrize(("kind", "name"), PLANNERS, ids=lambda part: getattr(part, "decision", part))
def test_a_plan_comes_back_from_its_journal(kind, name):
    """Through the rows of a file; a recorded planner stands for the one that made it, its answer is used up."""

    @fewer(3)
    @given(VIEWS[kind])
    def check(view):
        plan = kind.ask(kind.build(name), view)
        rows = [record.to_row() for record in journalled(kind, view, plan)]
        answer = Answer([Record.from_row(row) for row in rows])
        again = kind.ask(Recorded(kind, name, lambda: answer), view)
        if kind is WARMUP:  # one time for all is what a record holds
            again, plan = (replace(each, offsets_s=(), filtered=(), since="") for each in (again, plan))
            again, plan = (replace(each, expected_wait_s=None, expected_idle_s=None) for each in (again, plan))
        if kind is COLLECT:  # what a record holds is the steps
            again, plan = (collect_steps(view, each) for each in (again, plan))
        assert again == plan
        if kind is not HOLD:  # where nothing is held, things are kept as they are
            with pytest.raises(PlannerFailed):
                kind.ask(Recorded(kind, name, lambda: answer), view)

    check()


# ------------------------------------------------------------------ what each decision must keep
@given(holds(), st.sampled_from(HOLD.names))
def test_a_slot_is_asked_for_once_and_given_back_only_on_demand(view, name):
    """Nothing is asked for before anything is here; a complete round is finished on the slot that is held."""
    action = HOLD.ask(HOLD.build(name), view).action
    if view.held or view.requested:
        assert action in {"keep", "return"}
    else:
        assert action in {"request", "wait"}
        assert action == "wait" or view.n_arrived
        assert action == "request" or view.n_arrived < view.n_expected, "all is here, and nobody asks"
    if action == "return":
        assert view.demand
        assert view.n_arrived < view.n_expected
        assert view.n_queued == 0


@given(batches(), st.sampled_from(COLLECT.names))
def test_a_round_has_as_many_samples_however_they_are_shared(view, name):
    """And nobody makes less than a fourth or more than four times the algorithm's steps."""
    steps = collect_steps(view, COLLECT.ask(COLLECT.build(name), view))
    assert sum(n * k for n, k in zip(view.n_envs, steps, strict=True)) == view.n_steps * sum(view.n_envs)
    assert all(view.n_steps <= 4 * k and k <= 4 * view.n_steps for k in steps)


@given(versions(), st.sampled_from(DISTRIBUTION.names))
def test_each_host_gets_the_whole_version_and_nobody_sends_what_it_has_not(view, name):
    """A host forwards only ranges that it receives itself."""
    plan = DISTRIBUTION.ask(DISTRIBUTION.build(name), view)
    received = Counter()
    for send, sender, host in plan.messages():
        received[host] += send.stop - send.start
        assert sender == LEARNER or any(s is send and h == sender for s, _, h in plan.messages())
    assert received == Counter(dict.fromkeys(range(len(view.hosts)), view.model_bytes))
    assert plan.n_messages() >= len(view.hosts)


@given(pools(), st.sampled_from(PLACEMENT.names))
def test_collectors_whose_node_lives_stay_there(view, name):
    """The others live on live nodes; the lead is a live slot if there is one, that of the fewest tasks for `first`."""
    plan = PLACEMENT.ask(PLACEMENT.build(name), view)
    for before, now in zip(view.before, plan.collector_nodes, strict=False):
        assert now == before or before not in view.free_collectors
    assert len(plan.slots) == min(view.n_learners, len(view.homes))
    if name == "first" and view.homes:
        assert view.homes[plan.slots[0]] == min(view.homes.values())


@given(pools(), st.sampled_from([name for name in PLACEMENT.names if name not in {"first", "pack"}]))
def test_members_of_a_gang_stay_and_few_share_the_slots_of_those_that_come(view, name):
    """A lead that lives leads on, else no member is healthier; no slot that nobody took is home to fewer by far."""
    plan = PLACEMENT.ask(PLACEMENT.build(name), view)
    kept = [slot for slot in view.slots if slot in view.homes]
    assert set(kept) <= set(plan.slots)
    if kept and kept[0] == view.slots[0]:
        assert plan.slots[0] == kept[0]
    elif plan.slots:
        assert view.rates[plan.slots[0]] == min(view.rates[slot] for slot in plan.slots)
    came = sorted(view.homes[slot] for slot in set(plan.slots) - set(kept))
    others = sorted(n for slot, n in view.homes.items() if slot not in kept)
    assert not came or came[-1] <= others[len(came) - 1]
    for each in plan.candidates:
        assert set(kept) <= set(each.slots)
        assert len(each.slots) == len(plan.slots)
    if name == "ect" and plan.slots:
        assert plan.expected_s * 0.98 <= min(each.expected_s for each in plan.candidates)


@given(pools(), st.sampled_from(PLACEMENT.names))
def test_nobody_is_crowded_while_there_is_room(view, name):
    """A node gets more newcomers than fit there only if they do not fit on all nodes together."""
    plan = PLACEMENT.ask(PLACEMENT.build(name), view)
    stay = Counter(n for n in view.before[: view.n_collectors] if n in view.free_collectors)
    room = {node: max(0, max(0, n) - stay[node]) for node, n in view.free_collectors.items()}
    came = Counter(plan.collector_nodes) - stay
    if came.total() <= sum(room.values()):
        assert all(n <= room[node] for node, n in came.items())


@given(histories(), st.sampled_from(WARMUP.names))
def test_without_history_every_start_is_cold(view, name):
    """But for the one that never stops; the reason says what is missing."""
    plan = WARMUP.ask(WARMUP.build(name), view)
    assert plan.reason
    if name == "keep":
        assert plan.action == "keep"
    elif view.lack() and name != "cold":
        assert plan.action == "cold"
        assert view.lack() in plan.reason


@given(histories(), st.sampled_from([name for name in WARMUP.names if name not in {"cold", "keep"}]))
def test_a_planned_start_is_never_before_its_reference(view, name):
    """Each worker's; one that is planned has a lead, one that is cold has no time."""
    plan = WARMUP.ask(WARMUP.build(name), view)
    times = [plan.start_s(i) for i in range(len(view.pools_s))]
    assert all(time is None for time in times) == (plan.start_after_s is None)
    assert all(time >= 0 for time in times if time is not None)
    if plan.action == "start":
        assert plan.lead_s is not None
        assert plan.since == ("round" if name == "patent" else "sent")


# ------------------------------------------------------------------ how planners are given
class Mine:
    """A user's own planner."""

    name = "mine"

    def plan(self, view):
        return WarmupPlan(action="keep", reason="mine")


def test_a_planner_is_made_once_for_all_its_rounds():
    """It may learn; another decision's of the same name is another one."""
    planners = Planners()
    assert planners.make(DISTRIBUTION, "chain") is planners.make(DISTRIBUTION, "chain")
    assert planners.make(DISTRIBUTION, "chain") is not planners.make(DISTRIBUTION, "star")
    assert Planners().make(DISTRIBUTION, "chain") is not planners.make(DISTRIBUTION, "chain")


def test_a_users_own_planner_is_asked_under_its_full_name():
    """By the decision that it was given for, and by no other name."""
    planners = Planners({"warmup": Mine()})
    own = planners.make(WARMUP, "own:mine")
    assert (own.name, own.yields, own.plan(WarmupView()).reason) == ("own:mine", True, "mine")
    for kind, name in ((WARMUP, "own:other"), (HOLD, "own:mine")):
        with pytest.raises(ValueError, match=f"this task has no {kind.decision} planner '{name}'"):
            planners.make(kind, name)


def test_a_replay_asks_the_journal_where_the_registry_knows_nobody():
    """Heuristics are computed again, a user's own plans are read."""
    planners = RecordedPlanners()
    assert planners.make(DISTRIBUTION, "chain").name == "chain"
    own = planners.make(SWAPPING, "own:tuner")
    planners.answer = Answer([SwapPlanned(planner="own:tuner", plan_key="k", plan=facts(SwapPlan(blocks=("b",))))])
    assert SWAPPING.ask(own, SwapView(round=1)) == SwapPlan(blocks=("b",))
    with pytest.raises(PlannerFailed, match="the journal holds no plan of swapping here"):
        SWAPPING.ask(own, SwapView(round=1))


def test_the_plan_of_no_record_is_none():
    """Of a record it is what both have."""
    planned = HoldPlanned(round=3, action="wait", planner="last", reason="why")
    plan = plan_of(
        type(HOLD.build("last").plan(HoldView(n_arrived=0, n_expected=1, held=False, requested=False))), planned
    )
    assert (plan.action, plan.reason) == ("wait", "why")
    assert plan_of(WarmupPlan, None) is None


def test_a_planner_that_fails_by_itself_is_not_wrapped_again():
    """Its message is the reason that the task ends with."""

    class Fails:
        name = "fails"

        def plan(self, view):
            raise PlannerFailed("as it was")

    kind = PlannerKind("x", "fails", problem=lambda view, plan: "", recorded=lambda view, answer: None)
    with pytest.raises(PlannerFailed, match=r"^as it was$"):
        kind.ask(Fails(), None)

"""Planners are given to a round: by name, changed while it trains, or a user's own."""

import pytest
from round_words import Master, kinds, of, only

from drlnb.planning.batching import BatchPlan
from drlnb.planning.distribution import star
from drlnb.planning.replay import replay
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.swapping import SwapPlan, facts
from drlnb.planning.swapping.profile import SWAP
from drlnb.records import round as words
from drlnb.records.columns.batching import BatchPlanned
from drlnb.records.columns.distribution import DistributionPlanned, LinkMeasured, MeasureLink, SendParameters
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.columns.swapping import SwapPlanned, SwapProfileTaken
from drlnb.records.journal import Stream, StreamOpened
from tests.planning.swapping.swap_task import OF
from tests.planning.swapping.swap_words import having

NODES = ("n0", "n1")


def to_next_round(master):
    """Make a round to its commit and publish; return the commit's answer and that of the last host."""
    out = master.to_commit()
    return out, [record for node in NODES for record in master.completed(node)]


def test_a_plan_of_distribution_counts_from_the_next_round_on():
    """The version that ends the present round still goes its way."""
    master = Master(n_rounds=4)
    master.at_version_1(*NODES)
    assert master.set("distribution.plan", "chain") == ()
    before, _ = to_next_round(master)
    assert only(DistributionPlanned, before).planner == "auto"
    assert only(SendParameters, before).routes == (((-1, 0),), ((-1, 1),))
    after, _ = to_next_round(master)
    assert only(DistributionPlanned, after).planner == "chain"
    assert only(SendParameters, after).routes == (((-1, 0), (0, 1)),)


def test_the_network_is_measured_once_a_planner_uses_it():
    """Between two versions, when the last host holds the former one; the next plan is made with what came of it."""
    master = Master(n_rounds=5, planners={"distribution": "star"})
    assert not of(MeasureLink, master.at_version_1(*NODES))
    master.set("distribution.plan", "chain")
    assert of(MeasureLink, to_next_round(master)[1]) == [MeasureLink(hosts=NODES)]
    assert master.feed(LinkMeasured, hosts=NODES, figures={"latency_s": 7.0}) == ()
    before, after = to_next_round(master)
    assert only(DistributionPlanned, before).predicted_s > 14.0
    assert not of(MeasureLink, after)


def test_a_planner_of_collectors_counts_from_the_next_round_on():
    """Named in that round's plan."""
    master = Master(n_rounds=4)
    assert {plan.planner for plan in of(BatchPlanned, master.at_version_1(*NODES))} == {"equal"}
    master.set("batching.collect", "proportional")
    assert {plan.planner for plan in of(BatchPlanned, to_next_round(master)[1])} == {"proportional"}


class InTurn:
    """Deals two collectors to three learners by numbers of its own."""

    name = "in-turn"

    def plan(self, view):
        return BatchPlan(n_steps=(view.n_steps,) * 2, learners=(7, 5))


@pytest.mark.parametrize(
    ("own", "name", "learners"), [({}, "proportional", ()), ({"collect": InTurn()}, "own:in-turn", (7, 5))]
)
def test_shares_are_dealt_to_learners_by_the_plan_or_evenly(own, name, learners):
    """A plan that does not say who computes what is dealt over the task's learners; each asks for a slot.

    The journal holds what the plan says: a replay asks a recorded plan, and must deal as it was dealt.
    """
    master = Master(own, planners={"collect": name}, streams=True, n_learners=3)
    planned = only(BatchPlanned, master.at_version_1(*NODES))
    assert planned.learners == learners
    asked = of(words.RequestSlot, [*master.arrived(0), *master.arrived(1)])
    assert [request.n_slots for request in asked] == [2]


class AllToTheFirst:
    """Gives the first learner all shares, and the other none."""

    name = "first"

    def plan(self, view):
        return BatchPlan(sizes=(view.n_units, *[0] * (len(view.members) - 1)))


def test_a_learner_may_be_given_no_share():
    """A slot that is so slow that the others are done before its first share is held for nothing in this round."""
    master = Master({"batching": AllToTheFirst()}, planners={"batching": "own:first"}, streams=True, n_learners=2)
    master.at_version_1(*NODES)
    master.arrived(0)
    master.arrived(1)
    sent = of(words.ComputeGradient, master.granted(slots=("n0/cpu0", "n0/cpu1")))
    assert {command.slot for command in sent} == {"n0/cpu0"}
    assert master.computed(0) == ()
    assert only(words.FinishRound, master.computed(1)).collectors == (0, 1)


def test_a_planner_of_learners_is_refused_where_there_is_one():
    """It would be accepted and never asked; what it was until now is named."""
    master = Master(n_rounds=4)
    master.at_version_1(*NODES)
    refused = only(RequestRefused, master.set("batching.planner", "proportional"))
    assert refused.reason == (
        "proportional shares a gradient among learners, and one computes it all; for steps of collectors: "
        "batching.collect"
    )
    assert master.machine.state.next_names == {}


def test_a_planner_of_placement_counts_from_the_next_placement_on():
    """It rides on the question."""
    master = Master(n_rounds=4)
    master.at_version_1(*NODES)
    assert master.set("placement.planner", "pack") == ()
    assert only(words.AskPlacement, master.node_lost("n1")) == words.AskPlacement(n_collectors=2, planner="pack")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (
            "distribution.plan",
            "chian",
            "distribution planner must be one of auto, star, tree, binomial, chain, relay, multitree",
        ),
        ("batching.collect", "equal:m=2", "collect planner equal takes no parameter, got 'm'"),
        ("placement.planner", 7, "placement planner must be one of first, pack, random, best_fit, healthiest"),
    ],
)
def test_an_unknown_planner_is_refused_and_nothing_changes(key, value, reason):
    """In one line; the next round is planned as before."""
    master = Master(n_rounds=4)
    master.at_version_1(*NODES)
    refused = only(RequestRefused, master.set(key, value))
    assert (refused.subject, refused.reason[: len(reason)]) == (key, reason)
    assert only(DistributionPlanned, to_next_round(master)[0]).planner == "auto"


@pytest.mark.parametrize("decision", ["batching", "collect", "swapping", "distribution"])
def test_a_round_without_its_planner_cannot_be_made(decision):
    """The known ones are named."""
    with pytest.raises(ValueError, match=f"{decision} planner must be one of .*, got 'mine'"):
        Master(planners={decision: "mine"})


class Mine:
    """Plans with a function."""

    name = "mine"

    def __init__(self, rule):
        self.plan = rule


def broken(view):
    raise RuntimeError(f"no plan for {view.round}")


#: Decision -> a planner of a user's own that serves, one that does not, and what is wrong with its plan.
OWN = {
    "collect": (
        lambda view: BatchPlan(n_steps=tuple(view.n_steps + i for i in view.collectors)),
        lambda view: BatchPlan(n_steps=(0,) * len(view.collectors)),
        "round 1: collect planner own:mine: n_steps of collector 0 must be a whole number >= 1, got 0",
    ),
    "swapping": (
        lambda view: having(SwapPlan.keeping(view.profile), {("l0", 0): SWAP}),
        broken,
        "round 1: swapping planner own:mine raised RuntimeError: no plan for 0",
    ),
    "distribution": (
        lambda view: star(len(view.hosts), view.model_bytes),
        lambda view: star(len(view.hosts) - 1, view.model_bytes),
        "round 1: distribution planner own:mine: the plan must be of 2 hosts and 100 bytes, got 1 hosts and 100 bytes",
    ),
}


def replayed(master):
    """Replay what a master has recorded, without its own planners."""
    header = StreamOpened(stream="a", machine="round", config=master.machine.config, origin="simulated", version="0")
    return replay(Stream(header=header, records=tuple(master.records), torn=False, source="a"))


@pytest.mark.parametrize("decision", OWN)
def test_a_users_planner_plans_and_is_replayed_from_the_journal(decision):
    """Its plans come back from their records, whatever it was."""
    config = {"planners": {decision: "own:mine"}, "swapping": {"memory_budget_bytes": 45}}
    master = Master(own={decision: Mine(OWN[decision][0])}, n_rounds=2, **config)
    master.at_version_1(*NODES)
    if decision == "swapping":
        master.feed(SwapProfileTaken, profile=facts(OF), n_samples=1)
    to_next_round(master)
    kind = {"collect": BatchPlanned, "swapping": SwapPlanned, "distribution": DistributionPlanned}[decision]
    assert {record.planner for record in of(kind, master.records)} == {"own:mine"}
    with pytest.raises(ValueError, match=f"this task has no {decision} planner 'own:mine'"):
        RoundMachine(master.machine.config)
    assert replayed(master).difference is None


@pytest.mark.parametrize("decision", OWN)
def test_a_users_planner_that_fails_ends_its_task(decision):
    """With one line that names planner, round and what is wrong; the replay fails at the same place."""
    config = {"planners": {decision: "own:mine"}, "swapping": {"memory_budget_bytes": 45}}
    master = Master(own={decision: Mine(OWN[decision][1])}, **config)
    master.at_version_1(*NODES)
    if decision == "swapping":
        master.feed(SwapProfileTaken, profile=facts(OF), n_samples=1)
    (end,) = of(words.EndTask, master.records)
    assert (end.state, end.reason) == ("failed", OWN[decision][2])
    assert master.phase == "ended"
    assert replayed(master).difference is None


def test_a_user_may_go_back_to_a_planner_of_their_own():
    """Its name is known to the round that it was given to."""
    master = Master(
        own={"distribution": Mine(OWN["distribution"][0])}, planners={"distribution": "own:mine"}, n_rounds=5
    )
    master.at_version_1(*NODES)
    for name in ("chain", "own:mine"):
        assert master.set("distribution.plan", name) == ()
        to_next_round(master)
        assert only(DistributionPlanned, master.to_commit()).planner == name
        [master.completed(node) for node in NODES]
    assert replayed(master).difference is None


def test_a_users_plan_that_fits_is_followed():
    """It is asked once there is a profile, with what the task has; one that does not fit gives way to one that does."""
    views = []

    def every(view):
        views.append(view)
        kept = SwapPlan.keeping(view.profile)
        return having(kept, dict.fromkeys(kept.keys, SWAP))

    config = {"planners": {"swapping": "own:mine"}, "swapping": {"memory_budget_bytes": 45, "pin": {"l0#0": SWAP}}}
    master = Master(own={"swapping": Mine(every)}, n_rounds=9, **config)
    master.at_version_1(*NODES)
    planned, applied = master.feed(SwapProfileTaken, profile=facts(OF), n_samples=1)
    view = views[-1]
    assert (view.profile, view.n_samples, view.memory_budget_bytes, view.pins) == (OF, 1, 45, {"l0#0": SWAP})
    assert (planned.planner, applied.plan_key) == ("own:mine", planned.plan_key)
    assert set(applied.plan["actions"]) == {SWAP}
    master.set("swapping.memory_budget_bytes", 5)
    assert views[-1].memory_budget_bytes == 5
    assert kinds(master.records[-5:]) == [
        "SwapPlanned", "ApplySwapPlan", "SwapPlanRolledBack", "SwapPlanned", "ApplySwapPlan",
    ]  # fmt: skip
    assert replayed(master).difference is None

"""A task's gradient steps under a byte budget, as its master decides them: plans ride with the gradient's commands."""

import json

import pytest

from drlnb.planning.replay import replay
from drlnb.planning.round.machine import RoundMachine
from drlnb.planning.swapping import SwapView, facts
from drlnb.planning.swapping.cost import predict
from drlnb.planning.swapping.heuristics import candidates, searched
from drlnb.planning.swapping.machine import BUDGET_KEY, PIN_KEY, PLANNER_KEY
from drlnb.planning.swapping.profile import KEEP, SWAP, SwapLink
from drlnb.records import round as words
from drlnb.records.base import from_plain
from drlnb.records.columns import swapping
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.journal import Stream, StreamOpened
from tests.planning.round_words import Master, kinds, of, only
from tests.planning.swapping.swap_task import OF
from tests.planning.swapping.swap_words import SECOND, profile, row, wide

#: Six rows of ten bytes do not fit into it, some plans do.
TIGHT = 45


class Swapped(Master):
    """A master whose executor makes each step as the cost model expects, and whose searches are carried out."""

    def __init__(self, budget=TIGHT, of=OF, n_rounds=40, **config):
        if budget is not None:
            config["swapping"] = {"memory_budget_bytes": budget, **config.get("swapping", {})}
        super().__init__(n_collectors=1, n_rounds=n_rounds, **config)
        self.of, self.seconds, self.attempt = of, {}, 1
        self.at_version_1()

    @property
    def swap(self):
        return self.machine.state.swap.state

    def gradient(self):
        """Bring the round to its finish; return the command."""
        self.arrived(0, attempt=self.attempt)
        if not self.machine.state.hold.held:
            self.granted()
        return only(words.FinishRound, self.computed(0))

    def reported(self, command, **more):
        """Report the steps of a command as the executor does; return the answers, searches carried out."""
        order, answers = command.swap, []
        if order is not None:
            key, steps = order.plan_key, 4 if order.report == "steps" else 1
            said = self.swap.predicted(key) if key in self.swap.plans else None
            step = {"step_s": self.seconds.get(key, 1.0), "peak_bytes": int(said.peak_bytes) if said else 30, **more}
            answers += [self.feed(swapping.SwapStepMeasured, plan_key=key, **step) for _ in range(steps)]
        if order is not None and order.report == "profile":
            answers.append(self.feed(swapping.SwapProfileTaken, profile=facts(self.of), n_samples=1))
        for search in [record for out in answers for record in of(swapping.SearchSwapPlan, out)]:
            answers.append(self.feed(swapping.SwapPlanFound, **searched(search)))
        return answers

    def commit(self):
        self.made()
        self.committed()
        self.completed()

    def round(self, **more):
        """Make a round; return the command that its steps were made by."""
        command = self.gradient()
        self.reported(command, **more)
        self.commit()
        return command

    def settle(self):
        while self.swap.phase != "settled":
            command = self.round()
        return command


def replayed(master, records=None):
    """Replay what a master has recorded."""
    header = StreamOpened(stream="a", machine="round", config=master.machine.config, origin="simulated", version="0")
    return replay(Stream(header=header, records=tuple(records or master.records), torn=False, source="a")).difference


# ------------------------------------------------------------------ without a budget
@pytest.mark.parametrize(
    "config", [{}, {"planners": {"swapping": "all"}}, {"budget": TIGHT, "planners": {"swapping": "none"}}]
)
def test_without_a_budget_nothing_is_asked_for(config):
    """Whatever the planner; nor with one where the planner is to keep all."""
    master = Swapped(**{"budget": None, **config})
    command = master.round()
    assert command.swap is None
    planned = of(swapping.SwapPlanned, master.records)
    assert planned == [swapping.SwapPlanned(round=1, planner="none", plan_key=None)]
    assert only(words.ComputeGradient, master.records).swap is None


def test_a_task_that_cannot_be_swapped_says_so_once():
    """Its budget binds nothing; one that comes later is refused with the reason."""
    master = Swapped(unswapped="its gradient is written out")
    assert of(swapping.SwapUnavailable, master.records) == [
        swapping.SwapUnavailable(reason="its gradient is written out")
    ]
    assert master.round().swap is None
    refused = only(RequestRefused, master.set(BUDGET_KEY, 9))
    assert refused == RequestRefused(subject=BUDGET_KEY, reason=f"{BUDGET_KEY}: its gradient is written out")
    assert len(of(swapping.SwapUnavailable, master.records)) == 1


def test_a_task_that_cannot_be_swapped_and_has_no_budget_says_nothing():
    """Most tasks."""
    assert of(swapping.SwapUnavailable, Swapped(budget=None, unswapped="no").records) == []


# ------------------------------------------------------------------ from cold to settled
def test_the_first_round_swaps_all_and_is_profiled():
    """Whatever needs the slot rides with the gradient: no command asks for a profile or the link."""
    master = Swapped()
    master.arrived(0)
    (compute,) = of(words.ComputeGradient, master.granted())
    assert (compute.swap.plan_key, compute.swap.memory_budget_bytes, compute.swap.report) == ("all", TIGHT, "profile")
    finish = only(words.FinishRound, master.computed(0))
    assert (finish.swap.plan_key, finish.swap.memory_budget_bytes, finish.swap.report) == ("all", TIGHT, "profile")
    (_, taken, found) = master.reported(finish)
    assert kinds(taken) == ["SwapPlanned", "ApplySwapPlan", "SearchSwapPlan"]
    assert kinds(found) == ["SwapPlanned", "ApplySwapPlan", "SwapTrialStarted"]
    assert of(swapping.TakeSwapProfile, master.records) == []


def test_each_trial_is_a_round_and_the_best_one_stays():
    """Reported step by step; then medians alone, and each round's plan is in its record."""
    master = Swapped()
    master.round()
    names = [master.swap.running, *master.swap.candidates]
    master.seconds = dict.fromkeys(names, 3.0) | {names[1]: 1.0}
    trials = [master.round() for _ in names]
    assert [command.swap.plan_key for command in trials] == names
    assert {command.swap.report for command in trials} == {"steps"}
    assert only(swapping.SwapPlanKept, master.records) == swapping.SwapPlanKept(
        plan_key=names[1], step_s=1.0, n_tried=len(names)
    )
    last = master.round()
    assert (last.swap.plan_key, last.swap.report) == (names[1], "median")
    by_round = {each.round: each.plan_key for each in of(swapping.SwapPlanned, master.records) if each.round}
    assert by_round == dict(enumerate(["all", *names, names[1]], start=1))
    known = {each.plan_key for each in of(swapping.ApplySwapPlan, master.records)}
    assert known >= set(by_round.values()) - {"all"}, "the driver has each plan before it is needed"
    assert replayed(master) is None


def test_every_plan_that_ran_was_expected_to_fit():
    """And what a journal holds of its peaks is within the budget."""
    master = Swapped()
    master.settle()
    steps = of(swapping.SwapStepMeasured, master.records)
    assert len(steps) > 8
    assert max(step.peak_bytes for step in steps) <= TIGHT


def test_what_fits_is_left_alone():
    """Nothing is searched for; the user is told in one line."""
    master = Swapped(budget="1KiB")
    master.round()
    assert master.round().swap.plan_key == "none"
    assert only(swapping.SwapUnavailable, master.records).text == (
        "swapping: a step needs 60 B, less than its budget; it is left alone"
    )
    assert of(swapping.SearchSwapPlan, master.records) == []


def test_where_nothing_fits_the_smallest_peak_runs_and_the_user_is_told():
    """In one line that names both sizes; training goes on."""
    master = Swapped(budget=5)
    master.settle()
    assert of(swapping.SwapUnavailable, master.records) == []
    master.round()
    master.round()
    told = only(swapping.SwapUnavailable, master.records)
    least = predict(OF, master.swap.plans[master.swap.running], 1, 5.0).peak_bytes
    way = "give it as much, or make steps of fewer samples"
    assert told.reason == f"the budget of 5 B is not kept: the least that was found takes {least:.0f} B; {way}"
    assert master.round().swap.plan_key == master.swap.safest()


# ------------------------------------------------------------------ faults
def test_an_executor_that_dies_in_a_trial_changes_nothing():
    """The next one is asked for the same plan, and the trial goes on from what the master knows."""
    master = Swapped()
    master.round()
    trial = master.swap.running
    before = master.gradient()
    assert before.swap.plan_key == trial
    master.executor_died()
    master.granted()
    after = only(words.FinishRound, master.computed(0))
    assert (after.swap.plan_key, after.swap.report) == (trial, "steps")
    master.reported(after)
    assert master.swap.steps_s[trial] == [1.0] * 3
    master.commit()
    master.settle()
    assert replayed(master) is None


def test_a_step_that_overflows_is_never_planned_again():
    """Steps of the same command that swapped everything count for no plan."""
    master = Swapped()
    master.round()
    bad = master.swap.running
    master.gradient()
    master.feed(swapping.SwapStepMeasured, plan_key="all", step_s=9.0, peak_bytes=30)
    out = master.feed(swapping.SwapStepOverflowed, plan_key=bad)
    assert only(swapping.SwapPlanRolledBack, out).plan_key == bad
    master.commit()
    master.settle()
    assert master.swap.running != bad
    assert bad in master.swap.overflowed


@pytest.mark.parametrize("other", [{"n_samples": 2}, {"device_kind": "another card"}])
def test_a_larger_minibatch_or_another_device_is_profiled_anew(other):
    """As in the first round, with everything swapped; smaller ones are not."""
    master = Swapped()
    master.settle()
    assert master.round(n_samples=1, device_kind=OF.device_kind).swap.report == "median"
    master.round(**other)
    command = master.gradient()
    assert (command.swap.plan_key, command.swap.report) == ("all", "profile")
    master.reported(command)
    assert master.swap.phase == "trialling"


def test_a_disk_without_room_is_told_once():
    """However often it is reported."""
    master = Swapped()
    master.settle()
    told = [master.feed(swapping.SwapBroken, reason="tier file: No space left on device") for _ in range(3)]
    assert told == [
        (swapping.SwapUnavailable(reason="nothing is swapped: tier file: No space left on device"),),
        (),
        (),
    ]


def test_a_drift_has_the_link_reported_and_plans_made_anew():
    """With the next gradient."""
    master = Swapped()
    master.settle()
    master.seconds = {master.swap.running: 2.0}
    reports = [master.round().swap.report for _ in range(11)]
    assert reports == ["median"] * 9 + ["link"] * 2, "the first step after a change does not count, eight others do"
    assert of(swapping.MeasureSwapLink, master.records) == []
    master.feed(swapping.SwapLinkMeasured, link=facts(wide(1).link))
    assert master.swap.phase == "quick"


# ------------------------------------------------------------------ what the user changes
def test_a_smaller_budget_counts_from_the_next_gradient_on():
    """The command that is out goes on as it was; later ones are within the new one; rows go from KEEP to SWAP."""
    master = Swapped(budget=1000)
    master.round()
    command = master.gradient()
    out = master.set(BUDGET_KEY, TIGHT)
    planned = only(swapping.SwapPlanned, out)
    assert SWAP in planned.plan["actions"]
    assert set(master.swap.plans["none"].actions) == {KEEP}
    master.feed(swapping.SwapPlanFound, **searched(only(swapping.SearchSwapPlan, out)))
    assert master.reported(command) == [()], "a step of the former plan counts for nothing"
    master.commit()
    command = master.round()
    assert (command.swap.memory_budget_bytes, command.swap.report) == (TIGHT, "steps")
    master.settle()
    assert replayed(master) is None


def test_a_budget_may_come_and_go():
    """It begins with a profile, and ends with plain steps."""
    master = Swapped(budget=None)
    master.round()
    assert master.set(BUDGET_KEY, "45B") == ()
    master.settle()
    assert master.round().swap.memory_budget_bytes == 45
    master.set(BUDGET_KEY, None)
    assert master.round().swap is None
    assert replayed(master) is None


def test_a_budget_below_the_models_own_size_is_refused_and_changes_nothing():
    """In one line that names both; before there is a profile nobody knows."""
    master = Swapped(of=wide(6, fixed_bytes=2048.0, link=OF.link), budget=4096)
    master.round()
    before = master.machine.state.swap.snapshot()
    refused = only(RequestRefused, master.set(BUDGET_KEY, 2048))
    assert refused.reason == (
        f"{BUDGET_KEY}: the budget must be above the 2.0 KiB of the module's parameters, gradients, moments and "
        "buffers, got 2.0 KiB"
    )
    assert master.machine.state.swap.snapshot() | {"t": 0} == before | {"t": 0}
    assert master.set(BUDGET_KEY, 2300) != ()


def test_another_planner_is_followed_and_an_unknown_one_refused():
    """By its name with parameters; what is refused changes nothing."""
    master = Swapped()
    master.settle()
    refused = only(RequestRefused, master.set(PLANNER_KEY, "clever"))
    assert refused.reason.startswith("swapping planner must be one of none, all,")
    assert master.swap.planner == "auto"
    master.feed(swapping.SwapPlanFound, **searched(only(swapping.SearchSwapPlan, master.set(PLANNER_KEY, "all"))))
    master.settle()
    assert set(master.swap.plans[master.swap.running].actions) == {SWAP}
    assert of(swapping.SwapPlanned, master.records)[-1].planner == "all"


@pytest.mark.thorough
def test_parameters_of_the_seeds_table_are_changed_while_it_trains():
    """Time is all at w = 0, memory at w = 1; each is one setting, searched for with it, journalled and replayed."""
    rows = [row(f"l{i}", i - 1, i, layer_type="abc"[i % 3], size=10.0 * (1 + i % 3)) for i in range(6)]
    of_three = profile(rows, [SECOND] * 6, link=SwapLink.of(5.0))
    master = Swapped(budget=110, of=of_three, n_rounds=80)  # a round per trial, of which there are 2 * 30
    master.round()
    said = []
    for name in ("qtable:n_trials=30,w=0.0", "qtable:n_trials=30,w=1.0,epsilon=0.5,alpha=0.3,gamma=0.5"):
        search = only(swapping.SearchSwapPlan, master.set(PLANNER_KEY, name))
        assert search.planner == name
        master.feed(swapping.SwapPlanFound, **searched(search))
        master.settle()
        assert of(swapping.SwapPlanned, master.records)[-1].planner == name
        said.append(predict(of_three, master.swap.plans[master.swap.running], 1, 110.0))
    assert said[1].peak_bytes < said[0].peak_bytes
    assert said[1].step_s > said[0].step_s
    refused = only(RequestRefused, master.set(PLANNER_KEY, "qtable:w=3"))
    assert refused.reason == "swapping planner qtable:w=3.0: w must be a number from 0 to 1, got 3.0"
    assert replayed(master) is None


def test_steps_that_take_longer_have_the_link_reported_and_plans_follow_it():
    """Ten of them are a drift; the next command asks for the rates, and with them the search begins anew."""
    master = Swapped()
    master.settle()
    master.seconds = {master.swap.running: 2.0}
    commands = [master.round() for _ in range(11)]
    assert commands[-1].swap.report == "link"
    master.feed(swapping.SwapLinkMeasured, link=facts(wide(1).link))
    assert master.swap.phase == "quick"
    assert replayed(master) is None


def test_the_first_version_is_made_under_the_budget_of_now():
    """Whatever the task was described with: a setting that was changed before reaches its executor."""
    master = Master(n_collectors=1, swapping={"memory_budget_bytes": TIGHT})
    master.opened()
    master.set(BUDGET_KEY, 2 * TIGHT)
    begun = only(words.InitialiseParameters, master.granted())
    assert begun.swap == swapping.SwapOrder("all", 2 * TIGHT, "profile")


def test_a_pin_is_obeyed_from_the_next_gradient_on():
    """It is kept if the planner would do otherwise; none at all takes it back."""
    master = Swapped()
    master.settle()
    for pins in ({"l0#0": SWAP, "l1#0": KEEP}, None):
        out = master.set(PIN_KEY, pins)
        search = only(swapping.SearchSwapPlan, out)
        assert search.pins == (pins or {})
        master.feed(swapping.SwapPlanFound, **searched(search))
        master.settle()
        if pins:
            assert [master.swap.plans[master.swap.running].action_of["l0", 0]] == [SWAP]


# ------------------------------------------------------------------ checkpoints
def written(master):
    """Have a checkpoint written at the next boundary; return its command."""
    master.say(words.CheckpointAsked)
    command = master.gradient()
    master.reported(command)
    master.made()
    return only(words.WriteCheckpoint, master.committed())


def resumed(snapshot, **config):
    """Open another attempt from a checkpoint's snapshot, through JSON."""
    master = Swapped.__new__(Swapped)
    budget = config.pop("budget", TIGHT)
    Master.__init__(master, n_collectors=1, n_rounds=40, swapping={"memory_budget_bytes": budget}, **config)
    master.of, master.seconds, master.attempt = OF, {}, 2
    plain = None if snapshot is None else from_plain(json.loads(json.dumps(snapshot)))
    opened = master.feed(
        words.TaskOpened, attempt=2, version=9, n_rounds=8, n_timesteps=64, elapsed_s=1.0, episodes=(), n_bytes=100,
        swapping=plain,
    )  # fmt: skip
    return master, opened


def test_a_checkpoint_holds_what_is_known_and_another_attempt_goes_on_with_it():
    """The kept plan runs at once: its driver is given it first; nothing is profiled or tried again."""
    master = Swapped()
    master.settle()
    snapshot = written(master).swapping
    again, opened = resumed(snapshot)
    kept = master.swap.running
    applied = only(swapping.ApplySwapPlan, opened)
    assert (applied.plan_key, applied.plan) == (kept, facts(master.swap.plans[kept]))
    again.placed("n0")
    again.ready(0)
    again.completed()
    command = again.round()
    assert (command.swap.plan_key, command.swap.report) == (kept, "median")
    assert replayed(again) is None


def test_a_search_or_a_trial_that_an_attempt_did_not_end_begins_anew():
    """From the profile, which is not taken again."""
    master = Swapped()
    master.round()
    assert master.swap.phase == "trialling"
    snapshot = written(master).swapping
    again, opened = resumed(snapshot)
    assert kinds(of(swapping.SearchSwapPlan, opened)) == ["SearchSwapPlan"]
    assert again.swap.phase == "quick"
    again.feed(swapping.SwapPlanFound, **searched(only(swapping.SearchSwapPlan, opened)))
    assert again.swap.phase == "trialling"
    assert replayed(again) is None


@pytest.mark.thorough
def test_searches_and_learners_draw_from_the_tasks_seed():
    """Two tasks of other seeds try other plans; a search is told the seed."""
    rows = []
    for seed in (5, 5, 6):
        master = Swapped(seed=seed, planners={"swapping": "qtable:n_trials=9,epsilon=1"}, budget=1000)
        master.settle()
        assert only(swapping.SearchSwapPlan, master.records).seed == seed
        rows.append([each.row for each in of(swapping.SwapLearned, master.records)])
    assert rows[0] == rows[1] != rows[2]


def test_a_checkpoint_holds_what_was_learned_and_another_attempt_learns_on():
    """The table, the number of the trial and its plan; another planner's course begins anew."""
    master = Swapped(planners={"swapping": "qtable:n_trials=14"})
    while len(of(swapping.SwapLearned, master.records)) < 8:
        master.round()
    snapshot = written(master).swapping
    n_trials = of(swapping.SwapLearned, master.records)[-1].trial
    again, opened = resumed(snapshot, planners={"swapping": "qtable:n_trials=14"})
    assert kinds(opened)[-1:] != ["SearchSwapPlan"]
    assert only(swapping.ApplySwapPlan, opened).plan_key == master.swap.running
    assert again.swap.learned == master.swap.learned
    again.placed("n0")
    again.ready(0)
    again.completed()
    again.settle()
    learned = of(swapping.SwapLearned, again.records)
    assert [each.trial for each in learned] == list(range(n_trials + 1, 15))
    assert replayed(again) is None
    other, opened = resumed(snapshot, planners={"swapping": "hybrid"})
    assert (only(swapping.SearchSwapPlan, opened).planner, other.swap.learned) == ("hybrid", "")


def test_what_was_changed_since_the_checkpoint_counts():
    """The attempt begins with the task's settings of now."""
    master = Swapped()
    master.settle()
    snapshot = written(master).swapping
    again, opened = resumed(snapshot, budget=35)
    assert again.swap.memory_budget_bytes == 35
    assert only(swapping.SwapPlanned, opened).predicted_bytes <= 35
    again, opened = resumed(snapshot, planners={"swapping": "none"})
    assert opened == resumed(None, planners={"swapping": "none"})[1]
    assert not again.swap.active


def test_a_checkpoint_without_a_budget_holds_nothing():
    """As before."""
    assert written(Swapped(budget=None)).swapping is None


def test_a_copy_from_a_snapshot_answers_alike():
    """At each of the phases, for every event that comes next."""
    master = Swapped()
    for _ in range(6):
        snapshot = from_plain(json.loads(json.dumps(master.machine.snapshot())))
        copy = RoundMachine(master.config)
        copy.restore(snapshot)
        n = len(master.records)
        master.round()
        events = [record for record in master.records[n:] if record.letter == "e"]
        answers = [record for event in events for record in (event, *copy.handle(event))]
        assert answers == master.records[n:]


def test_candidates_are_those_of_the_planner():
    """What is carried out for a master is what a planner says of the same view."""
    master = Swapped()
    command = master.gradient()
    master.feed(swapping.SwapStepMeasured, plan_key="all", step_s=1.0, peak_bytes=30)
    (search,) = of(swapping.SearchSwapPlan, master.feed(swapping.SwapProfileTaken, profile=facts(OF), n_samples=1))
    assert command.swap.memory_budget_bytes == search.memory_budget_bytes
    view = SwapView(profile=OF, n_samples=1, memory_budget_bytes=TIGHT)
    assert searched(search)["plans"] == tuple(map(facts, candidates("auto", view)))

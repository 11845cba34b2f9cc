"""Jobs on slots that fail, worked by hand."""

import sys

import pytest

from drlnb.planning.placement import Cluster, Pick
from drlnb.planning.registry import PlannerFailed
from drlnb.records.errors import ConfigError
from drlnb.sim.placement import Conditions, FaultModel, FaultPath, TraceJob, play, simulate

#: Slots 0 and 1 on a node, 2 and 3 on another.
FOUR = Cluster.uniform(n_nodes=2, slots_per_node=2)


def path(cluster=FOUR, **outages):
    """Return the path on which slots named ``s0``, ``s1`` ... have outages, and the others none."""
    return FaultPath([outages.get(f"s{slot}", ()) for slot in range(cluster.n_slots)])


def job(name, n_slots, work_s, submitted_s=0.0):
    return TraceJob(name, submitted_s, n_slots, work_s)


class Given:
    """A planner whose picks are given."""

    name = "given"

    def __init__(self, *picks, **traits):
        self.picks, self.views = list(picks), []
        self.__dict__.update(traits)

    def plan(self, view):
        self.views.append(view)
        return self.picks.pop(0)


PLAIN = {"checkpoint_s": None, "restart_s": 10.0}


def started(outcome):
    """Return when and where attempts began."""
    return [(each.job, each.slots, each.started_s, each.ended_s) for each in outcome.attempts]


# ------------------------------------------------------------------ attempts
def test_without_failures_a_job_takes_its_work_and_its_checkpoints():
    """9,000 s with one in 3,600 s make two checkpoints of 10 s; 7,200 s make one, since none is made at the end."""
    assert simulate(FOUR, [job("a", 1, 9000.0)], "first", path()).makespan_s == 9020.0
    assert simulate(FOUR, [job("a", 1, 7200.0)], "first", path()).makespan_s == 7210.0
    assert simulate(FOUR, [job("a", 1, 7200.0)], "first", path(), checkpoint_s=None).makespan_s == 7200.0


def test_a_gang_dies_with_a_member_and_begins_again_elsewhere():
    """At 60 s slot 1 fails: without checkpoints 60 s of two slots are lost, and a restart of 10 s comes before."""
    outcome = simulate(FOUR, [job("a", 2, 100.0)], "first", path(s1=[(60.0, 90.0)]), **PLAIN)
    assert started(outcome) == [("a", (0, 1), 0.0, 60.0), ("a", (0, 2), 60.0, 170.0)]
    assert (outcome.makespan_s, outcome.jct_s, outcome.lost_gpu_s, outcome.n_restarts) == (170.0, 170.0, 120.0, 1)
    assert outcome.bound_s == 100.0
    assert outcome.utilisation == pytest.approx(200 / (4 * 170))
    assert outcome.ettr == pytest.approx(200 / (2 * 60 + 2 * 110))
    assert outcome.n_plans == 2


def test_work_is_kept_up_to_the_last_checkpoint():
    """A slowdown of 1.5 and checkpoints of 1 s every 20 s of work: in 61 s one interval of 31 s, not two of 30 s."""
    given = Given(Pick("a", (0, 2)), Pick("a", (0, 2)))
    terms = {"checkpoint_s": 20.0, "checkpoint_cost_s": 1.0, "restart_s": 10.0, "locality_frac": 0.5}
    outcome = simulate(FOUR, [job("a", 2, 100.0)], given, path(s0=[(61.0, 61.0)]), **terms)
    first, second = outcome.attempts
    assert (first.ended_s, first.kept_s, first.finished) == (61.0, 20.0, False)
    assert second.ended_s == 61.0 + 10.0 + 80.0 * 1.5 + 3.0
    assert (second.kept_s, second.finished) == (80.0, True)
    assert outcome.lost_gpu_s == 2 * (61.0 - 20.0)
    assert (given.views[1].window[0].work_s, given.views[1].window[0].started) == (80.0, True)


def test_a_failure_before_work_goes_on_keeps_nothing():
    """The second attempt works 15 s of its 25 s: no interval of 20 s; what was kept before stays."""
    two = path(s0=[(25.0, 25.0), (50.0, 50.0)])
    outcome = simulate(
        FOUR, [job("a", 1, 40.0)], "first", two, checkpoint_s=20.0, checkpoint_cost_s=0.0, restart_s=10.0
    )
    assert [each.kept_s for each in outcome.attempts] == [20.0, 0.0, 20.0]
    assert outcome.makespan_s == 50.0 + 10.0 + 20.0
    assert outcome.lost_gpu_s == 5.0 + 25.0


def test_a_job_has_a_second_of_work_left_while_it_is_not_over():
    """What a checkpoint has kept may be all; a second remains."""
    end = path(s0=[(20.5, 30.0)])
    outcome = simulate(
        FOUR,
        [job("a", 1, 20.0)],
        Given(Pick("a", (0,)), Pick("a", (1,))),
        end,
        checkpoint_s=19.5,
        checkpoint_cost_s=1.0,
        restart_s=0.0,
    )
    assert [each.kept_s for each in outcome.attempts] == [19.5, 1.0]
    assert outcome.makespan_s == 21.5


def test_more_nodes_than_four_beyond_the_least_cost_no_more():
    """Eight slots on eight nodes are 1 + 0.1 * 4 as slow, not 1 + 0.1 * 7."""
    wide = Cluster.uniform(n_nodes=8, slots_per_node=8)
    given = Given(Pick("a", tuple(range(0, 64, 8))))
    assert simulate(wide, [job("a", 8, 100.0)], given, path(wide), locality_frac=0.1).makespan_s == pytest.approx(140.0)


# ------------------------------------------------------------------ instants
def test_a_job_that_ends_as_its_slot_fails_has_ended():
    """Of what happens in one instant ends come first."""
    outcome = simulate(FOUR, [job("a", 1, 100.0)], "first", path(s0=[(100.0, 200.0)]), **PLAIN)
    assert (outcome.makespan_s, outcome.n_restarts) == (100.0, 0)


def test_a_slot_that_fails_and_is_back_in_one_instant_is_free_when_planned():
    """All of an instant is taken in before a plan: without repair time the gang does not move to the spare slot."""
    outcome = simulate(FOUR, [job("a", 1, 100.0)], "first", path(s0=[(50.0, 50.0)]), **PLAIN)
    assert started(outcome)[1] == ("a", (0,), 50.0, 160.0)


def test_the_end_of_a_broken_attempt_changes_nothing():
    """An attempt that was to end at 100 s is broken at 40 s; the next one, nothing lost, ends at 100 s, too."""
    outcome = simulate(
        FOUR,
        [job("a", 1, 100.0)],
        "first",
        path(s0=[(40.0, 41.0)]),
        checkpoint_s=20.0,
        checkpoint_cost_s=0.0,
        restart_s=0.0,
    )
    assert started(outcome) == [("a", (0,), 0.0, 40.0), ("a", (1,), 40.0, 100.0)]
    outcome = simulate(FOUR, [job("a", 1, 100.0)], "first", path(s0=[(99.0, 120.0)]), **PLAIN)
    assert outcome.makespan_s == 99.0 + 110.0


def test_slots_fail_busy_or_not():
    """Slot 0 is away as the job comes, and back when nobody needs it."""
    outcome = simulate(FOUR, [job("a", 1, 10.0, 50.0), job("z", 1, 1.0)], "first", path(s0=[(40.0, 80.0)]), **PLAIN)
    assert started(outcome) == [("z", (0,), 0.0, 1.0), ("a", (1,), 50.0, 60.0)]
    assert outcome.jct_s == (10.0 + 1.0) / 2
    assert outcome.bound_s == 60.0


# ------------------------------------------------------------------ queue
def test_a_broken_job_waits_at_its_place_in_the_queue():
    """The gang of four breaks at 10 s and cannot start: b goes ahead, c not before a once the slot is back."""
    jobs = [job("a", 4, 100.0), job("b", 3, 20.0), job("c", 4, 5.0)]
    outcome = simulate(FOUR, jobs, "first", path(s0=[(10.0, 25.0)]), **PLAIN)
    assert started(outcome) == [
        ("a", (0, 1, 2, 3), 0.0, 10.0),
        ("b", (1, 2, 3), 10.0, 30.0),
        ("a", (0, 1, 2, 3), 30.0, 140.0),
        ("c", (0, 1, 2, 3), 140.0, 145.0),
    ]


@pytest.mark.parametrize(
    ("backfill", "starts"),
    [
        ("greedy", {"a": 0.0, "b": 100.0, "c": 0.0, "d": 10.0}),
        ("reserve", {"a": 0.0, "d": 0.0, "b": 10.0, "c": 15.0}),
    ],
)
def test_small_jobs_do_not_starve_a_gang_that_has_slots_reserved(backfill, starts):
    """A gang of four can start at 10 s: c, of 100 s, must wait for it; d, of 8 s, need not."""
    jobs = [job("a", 3, 10.0), job("b", 4, 5.0), job("c", 1, 100.0), job("d", 1, 8.0)]
    outcome = simulate(FOUR, jobs, "first", path(), backfill=backfill, **PLAIN)
    assert {each.job: each.started_s for each in outcome.attempts} == starts


def test_a_reservation_leaves_what_it_does_not_need():
    """At 10 s three slots are free and b takes two of four: c, of one slot, delays nobody."""
    jobs = [job("a", 3, 10.0), job("b", 2, 5.0), job("c", 1, 100.0), job("d", 1, 100.0)]
    outcome = simulate(FOUR, jobs, "first", path(), backfill="reserve", **PLAIN)
    assert {each.job: each.started_s for each in outcome.attempts} == {"a": 0.0, "b": 10.0, "c": 0.0, "d": 10.0}


def test_a_reservation_counts_slots_that_come_back():
    """Slot 0 fails at once and is expected back in 50 s: b waits for it, c of 30 s goes ahead, d of 70 s does not."""
    outages = FaultPath([[(1.0, 51.0)], (), (), ()], mttr_s=50.0)
    jobs = [job("b", 4, 5.0, 2.0), job("c", 1, 30.0, 2.0), job("d", 1, 70.0, 2.0)]
    outcome = simulate(FOUR, jobs, "first", outages, backfill="reserve", **PLAIN)
    assert {each.job: each.started_s for each in outcome.attempts} == {"b": 51.0, "c": 2.0, "d": 56.0}


def test_the_largest_job_goes_first():
    """Two slots times 50 s before one times 80 s before one times 70 s."""
    jobs = [job("a", 1, 70.0), job("b", 1, 80.0), job("c", 2, 50.0)]
    outcome = simulate(Cluster((0, 0)), jobs, "first", path(Cluster((0, 0))), order="largest", **PLAIN)
    assert started(outcome) == [("c", (0, 1), 0.0, 50.0), ("a", (1,), 50.0, 120.0), ("b", (0,), 50.0, 130.0)]


def test_a_planner_with_a_window_chooses_among_jobs_that_fit():
    """It is shown four heads of the queue and the largest four others; it may wait while something runs."""
    jobs = [job("big", 4, 1.0), *[job(f"j{i}", 1, 10.0 + i) for i in range(10)], job("wide", 3, 1.0)]
    game = play(FOUR, jobs, path(), Conditions(**PLAIN), window=True)
    view = next(game)
    assert [each.job for each in view.window] == ["big", "j0", "j1", "j2", "j9", "j8", "j7", "j6"]
    view = game.send(Pick("j9", (3,)))
    assert [each.job for each in view.window] == ["j0", "j1", "j2", "j3", "j8", "j7", "j6", "j5"]
    assert view.state == ("free", "free", "free", "busy")
    view = game.send(None)
    assert (view.t, view.state) == (19.0, ("free",) * 4)


def test_history_says_what_has_become_of_each_slot():
    """Two failures of slot 0, the first one more than a day ago; slot 1 is busy for a while, slot 2 is away."""
    day = 86_400.0
    outages = FaultPath([[(10.0, 20.0), (2 * day, 2 * day + 50.0)], (), [(2 * day + 90.0, 3 * day)], ()], mttr_s=30.0)
    jobs = [job("a", 1, 2 * day + 500.0), job("b", 1, 1.0, 2 * day + 100.0)]
    given = Given(Pick("a", (1,)), Pick("b", (3,)), history=True)
    simulate(FOUR, jobs, given, outages, **PLAIN)
    view = given.views[1]
    assert view.n_failures_24h == (1, 0, 1, 0)
    assert view.n_failures_30d == (2, 0, 1, 0)
    assert view.up_for_s == (50.0, 2 * day + 100.0, 0.0, 2 * day + 100.0)
    assert view.busy_for_s == (0.0, 400.0, 30.0, 0.0)


def test_gangs_on_several_nodes_are_counted_on_each():
    """One gang lies on both nodes; when it has ended none does."""
    given = Given(Pick("a", (0, 2)), Pick("b", (1,)), Pick("c", (1,)))
    simulate(FOUR, [job("a", 2, 10.0), job("b", 1, 5.0), job("c", 1, 5.0, 20.0)], given, path())
    assert [view.n_wide for view in given.views] == [(0, 0), (1, 1), (0, 0)]


# ------------------------------------------------------------------ what does not fit
@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (Pick("b", (0,)), "'b'"),
        (Pick("a", (0,)), "2 different"),
        (Pick("a", (0, 0)), "2 different"),
        (Pick("a", (0, 1)), "slot 1, which is failed"),
    ],
)
def test_a_plan_that_does_not_fit_ends_the_simulation(pick, words):
    """The message names planner, job, slots and states."""
    with pytest.raises(PlannerFailed, match=words) as raised:
        simulate(FOUR, [job("a", 2, 1.0, 5.0)], Given(pick), path(s1=[(1.0, 9.0)]))
    assert "given" in str(raised.value)
    game = play(FOUR, [job("a", 2, 1.0, 5.0)], path(s1=[(1.0, 9.0)]))
    next(game)
    with pytest.raises(PlannerFailed, match=r"'b' does not wait|2 different free slots, got"):
        game.send(pick)


def test_waiting_where_nothing_can_change_is_refused():
    """Nothing runs, nothing is to come or to be mended: it would wait until slots fail."""
    with pytest.raises(PlannerFailed, match="waits while all slots are free"):
        simulate(FOUR, [job("a", 1, 1.0)], Given(None), path(s3=[(50.0, 60.0)]))
    late = [job("a", 1, 1.0), job("b", 1, 1.0, 7.0)]
    outcome = simulate(FOUR, late, Given(None, Pick("a", (0,)), Pick("b", (1,))), path())
    assert outcome.makespan_s == 8.0


def test_jobs_that_can_never_start_are_refused():
    """One line with both numbers, and all that is wrong."""
    with pytest.raises(ConfigError, match="job a needs 5 slots, the cluster has 4"):
        simulate(FOUR, [job("a", 5, 1.0)], "first", path())
    with pytest.raises(ConfigError, match="each with an id of its own"):
        simulate(FOUR, [job("a", 1, 1.0), job("a", 1, 1.0)], "first", path())
    with pytest.raises(ConfigError, match="at least one"):
        simulate(FOUR, [], "first", path())
    with pytest.raises(ConfigError, match="path must be of the cluster's 4 slots, it is of 2"):
        simulate(FOUR, [job("a", 1, 1.0)], "first", path(Cluster((0, 0))))


def test_a_gang_that_would_never_end_is_told():
    """Four slots that fail each 10 s never make 1,000 s without checkpoints; with some they do."""
    model = FaultModel(mtbf_days=0.001, spread=0.0, node_spread=0.0, mttr_s=1.0)
    never = model.path(model.rates(FOUR))
    with pytest.raises(ConfigError, match=r"job a was broken \d+ times .* 4 slots .* checkpoint_s=None"):
        simulate(FOUR, [job("a", 4, 1000.0)], "first", never, **PLAIN)
    saved = {"checkpoint_s": 10.0, "checkpoint_cost_s": 0.0, "restart_s": 0.0}
    assert simulate(FOUR, [job("a", 4, 1000.0)], "first", model.path(model.rates(FOUR)), **saved).n_restarts > 10


def test_a_gang_whose_slots_are_never_up_together_is_told(monkeypatch):
    """Once broken, four slots that are up for 86 s and away for 10,000 would have to wait for ages."""
    monkeypatch.setattr(sys.modules[simulate.__module__], "_MOST_IDLE", 300)
    model = FaultModel(mtbf_days=0.001, spread=0.0, node_spread=0.0, mttr_s=10_000.0)
    with pytest.raises(
        ConfigError, match=r"job a of 4 slots did not start in \d+ days in which nothing ran: slots fail"
    ):
        simulate(FOUR, [job("a", 4, 1000.0)], "first", model.path(model.rates(FOUR)), **PLAIN)
    late = [job("a", 1, 1.0), job("b", 1, 1.0, 1e7)]  # whoever is to come is waited for
    assert simulate(FOUR, late, "first", model.path(model.rates(FOUR)), **PLAIN).makespan_s >= 1e7


def test_conditions_are_checked_by_name():
    """Unknown ones are named with the nearest known one; wrong values with what they must be."""
    with pytest.raises(ConfigError, match=r"localty_frac.*did you mean 'locality_frac'"):
        simulate(FOUR, [job("a", 1, 1.0)], "first", path(), localty_frac=0.1)
    with pytest.raises(ConfigError, match="order must be one of fifo, largest, got 'lifo'"):
        simulate(FOUR, [job("a", 1, 1.0)], "first", path(), order="lifo")
    with pytest.raises(ConfigError, match="checkpoint_s must be"):
        simulate(FOUR, [job("a", 1, 1.0)], "first", path(), checkpoint_s=0)
    with pytest.raises(ValueError, match="gangs planner must be one of"):
        simulate(FOUR, [job("a", 1, 1.0)], "etc", path())

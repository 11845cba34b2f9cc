"""What is counted of slots and jobs, and told to planners: worked by hand, on a node or two."""

import pytest
from job_words import Jobs, back, drain, fails, passed, raised, saved, silent, started, stopped, submit, taken, unwanted

from drlnb.planning.placement import JobView, Pick
from drlnb.planning.placement.order import unreserved
from drlnb.records.columns.placement import GangBroken, GangPlanned, JobFailed, JobPostponed, SlotMasked, StartGang
from drlnb.records.common import SetDeadline

DAY_S = 86_400.0


def only(records, kind):
    return [record for record in records if isinstance(record, kind)]


class Shown:
    """A planner that keeps what it was shown, and has all jobs wait, or the first one start on given slots."""

    name, history = "shown", True

    def __init__(self, *picks):
        self.picks, self.views = list(picks), []

    def plan(self, view):
        self.views.append(view)
        return Pick(view.window[0].job, self.picks.pop(0)) if self.picks else None


def shown(*picks, n_nodes=1, n_slots=3, **config):
    own = Shown(*picks)
    return own, Jobs(n_nodes, n_slots, {"gangs": own}, planner="own:shown", **config)


# ---------------------------------------------------------------------- slots
def test_a_slot_is_seen_as_long_as_it_is_up():
    """Of 300 s: all, those before and after an outage of 100 s, and those before one that lasts."""
    own, jobs = shown(hold_s=0.0)
    jobs.at(100.0, fails("s1"), fails("s2"))
    jobs.at(200.0, back("s1"))
    jobs.at(300.0, submit("a", 1))
    seen_s, n_failed = (300.0, 200.0, 100.0), (0, 1, 1)
    k, before_hz = 0.8, 1 / (337 * DAY_S)
    mean_hz = (k + 2) / (k / before_hz + sum(seen_s))
    node = (k + 2) / (k / mean_hz + sum(seen_s))
    each = [0.7 * node + 0.3 * (k + n) / (k / mean_hz + s) for n, s in zip(n_failed, seen_s, strict=True)]
    assert own.views[0].rate_hz == pytest.approx(each, rel=1e-12)
    assert own.views[0].up_for_s == (300.0, 100.0, 0.0)


def test_failures_of_a_day_ago_hold_a_slot_no_longer():
    """Nor do they count toward the three after which it is out of use; planners see those of 30 days."""
    own, jobs = shown()
    for t in (0.0, 1000.0, DAY_S + 2000.0):
        jobs.at(t, fails("s0"), back("s0"))
        jobs.at(t + 500.0, passed("hold:s0"))
    holds = [each.after_s for each in jobs.answers if isinstance(each, SetDeadline) and each.name == "hold:s0"]
    assert holds == [30.0, 60.0, 30.0]
    assert not only(jobs.answers, SlotMasked)
    jobs.at(DAY_S + 3000.0, submit("a", 1))
    assert own.views[0].n_failures_24h == (1, 0, 0)
    assert own.views[0].n_failures_30d == (3, 0, 0)


def test_a_slot_that_is_given_back_is_so_at_once_and_begins_anew():
    """It is held no longer, and two former failures do not make the next one the third."""
    jobs = Jobs(n_nodes=1, slots_per_node=1)
    for t in (0.0, 100.0):
        jobs.at(t, fails("s0"), back("s0"), drain("s0", back_again=True))
        assert jobs.machine.state.count("free") == 1
    jobs.at(200.0, fails("s0"))
    assert not only(jobs.answers, SlotMasked)


def test_slots_that_are_drained_are_none_that_live():
    """A job that needs them says so."""
    jobs = Jobs(n_nodes=1, slots_per_node=2)
    jobs.at(0.0, drain("s1"))
    assert jobs.at(1.0, submit("a", 2)) == [JobPostponed(job="a", reason="needs 2 slots, 1 alive")]


def test_a_planner_sees_which_slots_stop_and_which_nodes_gangs_share():
    """A gang on one node is none that talks to others."""
    own, jobs = shown((0, 1), (2, 4), n_nodes=2, n_slots=3)
    jobs.at(0.0, submit("near", 2), submit("far", 2))
    jobs.at(1.0, fails("s0"), submit("next", 1))
    assert own.views[-1].state == ("failed", "stopping", "busy", "free", "busy", "free")
    assert own.views[-1].n_wide == (1, 1)
    assert own.views[1].n_wide == (0, 0)


def test_a_slot_that_another_placement_takes_has_not_failed():
    """It serves nobody until it is given back, and then at once; a gang that has just got it stops."""
    jobs = Jobs(n_nodes=1, slots_per_node=2)
    jobs.at(0.0, taken("s0"), submit("a", 1))
    assert jobs.slots_of("a") == ("s1",)
    assert only(jobs.at(1.0, taken("s1"), taken("s1")), GangBroken)[0].reason == "process 7 has taken slot s1"
    assert jobs.at(2.0, stopped("a", 1)) == [JobPostponed(job="a", reason="needs 1 slots, 0 alive")]
    assert only(jobs.at(3.0, back("s1")), StartGang)
    assert [slot.failed_t for slot in jobs.machine.state.slots.values()] == [[], []]


# ---------------------------------------------------------------------- jobs
def test_the_first_loss_of_an_instant_is_the_reason():
    """Others of the gang are lost with it."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 2))
    assert only(jobs.at(1.0, fails("s0", "x"), fails("s1", "y")), GangBroken)[0].reason == "slot s0 failed: x"


def test_the_first_error_is_the_jobs():
    """What others of the gang raise since it has gone, and whoever wants it no more, come after."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 2))
    jobs.at(1.0, raised("a", 1, "s0", "ValueError: first"), raised("a", 1, "s1", "KeyError: second"))
    jobs.at(2.0, stopped("a", 1))
    assert jobs.at(3.0, passed("blame:a")) == [JobFailed(job="a", reason="ValueError: first")]
    jobs.at(4.0, submit("b", 1))
    jobs.at(5.0, unwanted("b", "its folder is gone"), unwanted("b"))
    assert jobs.at(6.0, stopped("b", 1)) == [JobFailed(job="b", reason="its folder is gone")]


def test_work_that_is_kept_never_falls():
    """Of checkpoints that are heard of in another order the most counts; a second is left while a job is not over."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 1, 100.0))
    jobs.at(50.0, saved("a", 1, 45.0), saved("a", 1, 40.0), fails("s0"))
    assert only(jobs.at(51.0, stopped("a", 1, kept_s=40.0)), StartGang)[0].work_s == 55.0
    jobs.at(60.0, fails("s1"))
    assert only(jobs.at(61.0, stopped("a", 2, kept_s=70.0)), StartGang)[0].work_s == 1.0


def test_members_elsewhere_are_none_of_a_gang():
    """A gang has begun when its own slots have."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 2))
    jobs.at(0.1, started("a", 1, ["s0", "s5"]))
    assert jobs.machine.state.jobs["a"].started == {0}


def test_a_gang_that_stops_owes_no_start():
    """Where a member had not begun when another one was lost no slot is at fault; nor one that hangs by then."""
    jobs = Jobs(n_nodes=1, slots_per_node=3)
    jobs.at(0.0, submit("a", 3))
    jobs.at(0.1, started("a", 1, ["s0", "s1"]))
    jobs.at(1.0, fails("s0"))
    jobs.at(30.0, passed("start:a"), silent("a", 1, ["s1"], stuck=["s1"]))
    assert [len(slot.failed_t) for slot in jobs.machine.state.slots.values()] == [1, 0, 0]


def test_a_job_may_wait_for_slots_that_are_to_come_back():
    """Where none is, and nothing runs, its planner has failed."""
    _, jobs = shown()
    heard = jobs.at(0.0, fails("s0"), submit("a", 1))
    assert heard == [JobPostponed(job="a", reason="planner own:shown has it wait")]


def test_a_plan_says_on_how_many_nodes():
    """Two slots of one node, and all of two."""
    jobs = Jobs(2, 2, planner="ect")
    planned = only(jobs.at(0.0, submit("a", 2), submit("b", 2)), GangPlanned)
    assert [candidate.n_nodes for candidate in planned[0].candidates] == [1, 1, 1]
    jobs = Jobs(2, 2, planner="ect")
    assert {each.n_nodes for each in only(jobs.at(0.0, submit("a", 3)), GangPlanned)[0].candidates} == {2}


# ---------------------------------------------------------------------- reservations
def test_slots_that_failed_are_expected_back_for_the_next_of_the_queue():
    """In 50 s there are the three that it needs: a later job of 49 s may go first, one of 51 s may not."""
    for work_s, starts in ((49.0, ["short"]), (51.0, [])):
        jobs = Jobs(1, 3, backfill="reserve", downtime_s=50.0, terms={"checkpoint_s": None})
        heard = jobs.at(0.0, fails("s2"), submit("all", 3), submit("short", 1, work_s))
        assert [each.job for each in only(heard, StartGang)] == starts


def test_the_next_of_the_queue_is_kept_waiting_by_no_slots_that_come_later():
    """It starts at 10 s with three slots; that four more are free at 100 s lets nobody have one of them until 60 s."""
    head, later = JobView(job="head", n_slots=3, work_s=1.0), JobView(job="later", n_slots=1, work_s=60.0)
    assert not list(unreserved([head, later], 1, 0.0, [(100.0, 4), (10.0, 2)], lambda job: job.work_s))
    assert list(unreserved([head, later], 1, 0.0, [(100.0, 4), (10.0, 3)], lambda job: job.work_s)) == [later]

"""Jobs on two nodes of four slots, worked by hand: who starts where, what a lost slot costs, who is out of use."""

import pytest
from job_words import (
    Jobs,
    back,
    drain,
    fails,
    finished,
    passed,
    raised,
    saved,
    silent,
    started,
    stopped,
    submit,
    unwanted,
)

from drlnb.planning.placement import Pick
from drlnb.planning.placement.gangs import WAIT
from drlnb.planning.replay import replay
from drlnb.records.columns.placement import (
    Candidate,
    GangBroken,
    GangPlanned,
    JobFailed,
    JobPostponed,
    SlotMasked,
    StartGang,
    StopGang,
)
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.journal import Stream, StreamOpened


def only(records, kind):
    return [record for record in records if isinstance(record, kind)]


def test_a_job_gets_all_its_slots_or_none():
    """Of nine slots' worth of jobs on eight slots the first two start; the third, which fits no more, waits."""
    jobs = Jobs()
    heard = jobs.at(1.0, submit("a", 4), submit("b", 3), submit("c", 2))
    assert [(each.job, each.slots, each.work_s) for each in only(heard, StartGang)] == [
        ("a", ("s0", "s1", "s2", "s3"), 100.0),
        ("b", ("s4", "s5", "s6"), 100.0),
    ]
    assert only(jobs.at(5.0, finished("b", 1)), StartGang)[0].slots == ("s4", "s5")


def test_any_later_job_that_fits_may_start_or_none_that_delays_the_next():
    """`a` ends at 101 s, when `b` needs all slots: `greedy` starts what fits, `reserve` what is over by then."""
    for backfill, starts in (("greedy", ["short", "long"]), ("reserve", ["short"])):
        jobs = Jobs(backfill=backfill)
        jobs.at(1.0, submit("a", 5), submit("b", 8))
        heard = jobs.at(2.0, submit("long", 1, 100.0), submit("short", 1, 99.0))
        assert sorted(each.job for each in only(heard, StartGang)) == sorted(starts)


def test_the_next_of_the_queue_starts_before_its_turn_is_reserved():
    """With slots to spare beside those that the next one will need, later ones start however long they take."""
    jobs = Jobs(backfill="reserve")
    heard = jobs.at(1.0, submit("a", 5), submit("b", 6), submit("c", 2, 1e6))
    assert [each.job for each in only(heard, StartGang)] == ["a", "c"]
    jobs = Jobs(backfill="reserve")
    jobs.at(1.0, submit("a", 8))
    assert not only(jobs.at(2.0, fails("s7"), fails("s6"), submit("b", 2, 1e6)), StartGang)


def test_the_largest_goes_first_where_it_is_asked_for_and_keeps_its_place():
    """By slots times seconds; what is left after a loss does not count."""
    jobs = Jobs(order="largest")
    heard = jobs.at(1.0, submit("small", 4, 10.0), submit("large", 4, 100.0), submit("middle", 4, 50.0))
    assert [each.job for each in only(heard, StartGang)] == ["large", "middle"]
    jobs.at(2.0, fails("s0"), fails("s4"))
    heard = jobs.at(3.0, stopped("large", 1, kept_s=90.0), stopped("middle", 1))
    assert [(each.job, each.work_s) for each in only(heard, StartGang)] == [("large", 10.0)]


def test_a_lost_slot_stops_its_gang_and_the_job_goes_on_elsewhere():
    """The rest of the gang is told to stop; once it has, the job is planned again with what is left of its work."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 3), started("a", 1, ["s0", "s1", "s2"]))
    jobs.at(40.0, saved("a", 1, 35.0))
    heard = jobs.at(50.0, fails("s1", "killed"))
    assert heard == [
        GangBroken(job="a", gang_version=1, reason="slot s1 failed: killed"),
        StopGang(job="a", gang_version=1),
    ]
    heard = jobs.at(51.0, stopped("a", 1))
    assert only(heard, StartGang) == [StartGang(job="a", gang_version=2, slots=("s0", "s2", "s3"), work_s=65.0)]
    jobs.at(60.0, finished("a", 2))
    assert not jobs.machine.state.jobs


def test_slots_of_a_gang_that_stops_are_not_planned():
    """Five slots are free beside it, of which another job of five gets none that still runs."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 3))
    jobs.at(1.0, fails("s0"))
    assert only(jobs.at(2.0, submit("b", 5)), StartGang)[0].slots == ("s3", "s4", "s5", "s6", "s7")


def test_what_comes_of_an_older_gang_changes_nothing():
    """Its end, its stop, its checkpoints, its starts and its errors alike."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 2))
    jobs.at(1.0, fails("s0"))
    jobs.at(2.0, stopped("a", 1, kept_s=10.0))
    before = jobs.machine.snapshot()
    late = [finished("a", 1), stopped("a", 1, 50.0), saved("a", 1, 50.0), started("a", 1, ["s0"]), raised("a", 1, "s0")]
    assert jobs.at(3.0, *late, unwanted("nobody")) == []
    assert jobs.machine.snapshot() | {"t": 2.0} == before


def test_a_finish_and_a_failure_of_one_instant_are_a_finish_in_either_order():
    """And so the job is over, with its slot out of use all the same."""
    for events in ((finished("a", 1), fails("s0")), (fails("s0"), finished("a", 1))):
        jobs = Jobs()
        jobs.at(0.0, submit("a", 2))
        assert jobs.at(9.0, *events) == []
        assert (jobs.machine.state.jobs, jobs.machine.state.count("failed")) == ({}, 1)


def test_a_finish_after_the_gang_was_told_to_stop_is_none():
    """The job waits until all of it has stopped."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 2))
    jobs.at(9.0, fails("s0"))
    jobs.at(9.5, finished("a", 1), stopped("a", 1, 0.0))
    assert jobs.machine.state.jobs["a"].version == 2


def test_a_slot_that_fails_and_is_back_in_one_instant_may_be_used_at_once_without_holds():
    """The gang that stops at once gets the same slots again."""
    jobs = Jobs(hold_s=0.0)
    jobs.at(0.0, submit("a", 2))
    jobs.t = 5.0
    for make in (fails("s0"), back("s0")):
        jobs.tell(make(5.0))
    jobs.tell(passed("instant")(5.0))
    jobs.tell(stopped("a", 1)(5.0))
    assert only(jobs.settle(), StartGang)[0].slots == ("s0", "s1")


def test_a_slot_that_failed_is_out_of_use_for_a_while_even_if_it_is_back():
    """30 s, then 60 s; the third failure of a day keeps it out until it is cleared."""
    jobs = Jobs(n_nodes=1, slots_per_node=1)
    holds = [each.after_s for each in jobs.tell(fails("s0")(0.0)) if getattr(each, "name", "") == "hold:s0"]
    jobs.at(1.0, back("s0"), submit("a", 1))
    assert jobs.machine.state.count("failed") == 1
    heard = jobs.at(30.0, passed("hold:s0"))
    assert only(heard, StartGang)[0].slots == ("s0",)
    jobs.at(40.0, finished("a", 1))
    holds += [each.after_s for each in jobs.tell(fails("s0")(50.0)) if getattr(each, "name", "") == "hold:s0"]
    assert holds == [30.0, 60.0]
    jobs.at(110.0, back("s0"), passed("hold:s0"))
    heard = jobs.at(200.0, fails("s0", "lost"), submit("b", 1))
    assert heard == [
        SlotMasked(slot="s0", reason="it failed 3 times in 24 h, the last time: lost"),
        JobPostponed(job="b", reason="needs 1 slots, 0 alive"),
    ]
    assert jobs.at(400.0, back("s0"), passed("hold:s0")) == []
    assert jobs.machine.state.count("masked") == 1
    assert only(jobs.at(500.0, drain("s0", back_again=True)), StartGang)[0].job == "b"


def test_a_slot_that_is_gone_cannot_fail_again():
    """Two who tell of one loss count it once."""
    jobs = Jobs()
    assert jobs.at(1.0, fails("s0"), fails("s0", "again")) == []
    assert jobs.machine.state.slots["s0"].failed_t == [1.0]


def test_without_holds_a_slot_is_back_as_soon_as_it_is_up():
    """However often it fails."""
    jobs = Jobs(n_nodes=1, slots_per_node=1, hold_s=0.0)
    for k in range(5):
        jobs.at(float(k), fails("s0"), back("s0"))
    assert jobs.machine.state.count("free") == 1


def test_a_slot_that_is_drained_serves_its_gang_to_the_end_and_no_other():
    """To drain it twice says nothing new."""
    jobs = Jobs(n_nodes=1, slots_per_node=2)
    jobs.at(0.0, submit("a", 1))
    assert jobs.at(1.0, drain("s0"), drain("s0")) == [SlotMasked(slot="s0", reason="drained by hand")]
    jobs.at(2.0, submit("b", 1), finished("a", 1))
    assert jobs.slots_of("b") == ("s1",)
    assert jobs.machine.state.count("masked") == 1


def test_too_few_slots_are_said_once_and_the_job_goes_on_when_they_are_back():
    """Said again only after it has run in between."""
    jobs = Jobs(n_nodes=1, slots_per_node=2, hold_s=0.0)
    heard = jobs.at(0.0, fails("s0"), submit("a", 2))
    assert heard == [JobPostponed(job="a", reason="needs 2 slots, 1 alive")]
    assert jobs.at(1.0, fails("s1")) == []
    assert jobs.at(2.0, back("s1")) == []
    assert only(jobs.at(3.0, back("s0")), StartGang)[0].slots == ("s0", "s1")
    jobs.at(4.0, fails("s1"))
    assert jobs.at(4.0, stopped("a", 1)) == [JobPostponed(job="a", reason="needs 2 slots, 1 alive")]


def test_a_job_whose_function_raises_is_over_and_its_slots_are_fine():
    """The others of its gang stop; nothing is held, and whoever waits goes on, once no slot turned out to be lost."""
    jobs = Jobs(n_nodes=1, slots_per_node=2)
    jobs.at(0.0, submit("a", 2), submit("b", 2))
    heard = jobs.at(1.0, raised("a", 1, "s1"))
    assert [type(each) for each in heard] == [GangBroken, StopGang]
    assert jobs.at(2.0, stopped("a", 1)) == []
    heard = jobs.at(3.0, passed("blame:a"))
    assert only(heard, JobFailed) == [JobFailed(job="a", reason="ValueError: no")]
    assert only(heard, StartGang)[0].job == "b"


def test_a_member_that_raises_since_another_one_was_lost_fails_no_job():
    """Whether the gang has stopped before or after it is known; the job goes on from what it had saved."""
    for after in (False, True):
        jobs = Jobs(n_nodes=1, slots_per_node=3)
        jobs.at(0.0, submit("a", 2))
        jobs.at(1.0, raised("a", 1, "s1", "ConnectionError: peer"), *([] if after else [stopped("a", 1, 30.0)]))
        jobs.at(1.0, *([] if after else [stopped("a", 1, 30.0)]))
        jobs.at(1.5, fails("s0"))
        heard = jobs.at(3.0, passed("blame:a"))
        heard += jobs.at(4.0, stopped("a", 1, 30.0), passed("blame:a")) if after else []
        assert not only(heard, JobFailed)
        assert only(heard, StartGang) == [StartGang(job="a", gang_version=2, slots=("s1", "s2"), work_s=70.0)]
    # One that raises after the slot is known to be lost says nothing new.
    jobs.at(5.0, fails("s1"), raised("a", 2, "s2"))
    assert not only(jobs.at(6.0, stopped("a", 2), passed("blame:a")), JobFailed)


def test_the_user_ends_a_job_that_waits_at_once_and_one_that_runs_when_it_has_stopped():
    """One that stops already is over when it has; the first reason stays."""
    jobs = Jobs(n_nodes=1, slots_per_node=1)
    jobs.at(0.0, submit("a", 1), submit("b", 1))
    assert jobs.at(1.0, unwanted("b"), unwanted("a")) == [
        JobFailed(job="b", reason="stopped by the user"),
        GangBroken(job="a", gang_version=1, reason="stopped by the user"),
        StopGang(job="a", gang_version=1),
    ]
    assert jobs.at(1.5, raised("a", 1, "s0"), passed("blame:a")) == []
    assert jobs.at(2.0, stopped("a", 1)) == [JobFailed(job="a", reason="stopped by the user")]


def test_members_that_do_not_stop_lose_their_workers_and_their_slots_nothing():
    """After 30 s they are ended; the slot is missing until it is back, and no failure is counted."""
    jobs = Jobs(n_nodes=1, slots_per_node=2)
    jobs.at(0.0, submit("a", 2))
    jobs.at(1.0, fails("s0"))
    assert jobs.at(31.0, passed("stop:a")) == [StopGang(job="a", gang_version=1, kill=True)]
    assert jobs.at(32.0, passed("stop:a")) == []
    jobs.at(33.0, fails("s1", "ended"), back("s1"), stopped("a", 1))
    assert jobs.machine.state.slots["s1"].failed_t == []
    assert jobs.machine.state.count("free") == 1


def test_a_gang_that_hangs_begins_again_and_no_slot_is_at_fault():
    """Its members may wait for each other; they lose their workers, and the job goes on from what it had saved."""
    jobs = Jobs(n_nodes=1, slots_per_node=4)
    jobs.at(0.0, submit("a", 2))
    jobs.at(1.0, started("a", 1, ["s0", "s1"]), saved("a", 1, 40.0))
    assert jobs.at(100.0, silent("a", 1, ["s0", "s1"])) == [
        GangBroken(job="a", gang_version=1, reason="members on s0, s1 gave no sign of life for 60 s"),
        StopGang(job="a", gang_version=1),
    ]
    assert jobs.at(101.0, silent("a", 1, ["s0", "s1"]), silent("b", 1, ["s3"])) == []
    assert jobs.at(130.0, passed("stop:a")) == [StopGang(job="a", gang_version=1, kill=True)]
    heard = jobs.at(131.0, fails("s0"), fails("s1"), stopped("a", 1))
    assert only(heard, StartGang) == [StartGang(job="a", gang_version=2, slots=("s2", "s3"), work_s=60.0)]
    assert all(not slot.failed_t for slot in jobs.machine.state.slots.values())


def test_a_process_that_hangs_is_its_slots_fault():
    """Not that of others which wait for it: it is out of use for a while, and they serve the next gang."""
    jobs = Jobs(n_nodes=1, slots_per_node=3)
    jobs.at(0.0, submit("a", 2), started("a", 1, ["s0", "s1"]))
    heard = jobs.at(100.0, silent("a", 1, ["s0", "s1"], stuck=["s1"]))
    assert only(heard, GangBroken)[0].reason == "slot s1 failed: its member gave no sign of life for 60 s"
    assert only(jobs.at(130.0, stopped("a", 1)), StartGang)[0].slots == ("s0", "s2")
    assert [slot.failed_t for slot in jobs.machine.state.slots.values()] == [[], [100.0], []]


def test_a_gang_that_is_not_complete_in_time_is_broken_and_blames_the_slots_that_miss():
    """The deadline of a gang that is there, of one that is over, or of no job at all, means nothing."""
    jobs = Jobs(n_nodes=1, slots_per_node=3)
    jobs.at(0.0, submit("a", 2))
    jobs.at(0.1, started("a", 1, ["s0"]))
    heard = jobs.at(30.0, passed("start:a"))
    assert only(heard, GangBroken)[0].reason == "slot s1 failed: a member did not start there within 30 s"
    assert (jobs.machine.state.slots["s1"].held, jobs.machine.state.slots["s0"].held) == (True, False)
    heard = jobs.at(31.0, stopped("a", 1), started("a", 2, ["s0", "s2"]))
    assert jobs.slots_of("a") == ("s0", "s2")
    jobs.at(40.0, started("a", 2, ["s0", "s2"]))
    assert jobs.at(61.0, passed("start:a"), passed("stop:a")) == []
    jobs.at(62.0, finished("a", 2))
    assert jobs.at(63.0, passed("start:a"), passed("stop:b")) == []


def test_a_job_that_takes_its_workers_along_is_given_up():
    """Five gangs in a row that kept no work are enough; one that keeps some counts anew, and none without holds."""
    for hold_s, kept_s, is_over in ((1.0, 0.0, True), (1.0, 1.0, False), (0.0, 0.0, False)):
        jobs = Jobs(n_nodes=1, slots_per_node=8, hold_s=hold_s)
        jobs.at(0.0, submit("a", 1))
        for k in range(5):
            slot = jobs.slots_of("a")[0]
            jobs.at(float(k), fails(slot, "killed"))
            heard = jobs.at(k + 0.5, stopped("a", k + 1, kept_s=kept_s))
        assert [each.reason for each in only(heard, JobFailed)] == [
            "5 gangs in a row were lost and kept no work: does the job end its workers itself? (slot s4 failed: killed)"
        ] * is_over


def test_a_worker_that_began_anew_has_lost_its_member():
    """Even if nobody has heard that the former one is gone."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 1))
    assert only(jobs.at(1.0, back("s0")), GangBroken)[0].reason == "slot s0 failed: it began anew"


# ---------------------------------------------------------------------- planners
class Own:
    """A user's planner: a list of what it answers, and what it was shown."""

    name = "mine"

    def __init__(self, *answers, **traits):
        self.answers, self.views = list(answers), []
        for name, value in traits.items():
            setattr(self, name, value)

    def plan(self, view):
        self.views.append(view)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def with_own(*answers, n_slots=2, traits=(), **config):
    own = Own(*answers, **dict.fromkeys(traits, True))
    return own, Jobs(1, n_slots, {"gangs": own}, planner="own:mine", **config)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RuntimeError("no\nidea"), "raised RuntimeError: no idea"),
        (Pick("b", (0,)), "job b is given slot 0, which is busy"),
        (Pick("b", (1, 1)), "job b needs 1 different slots, got [1, 1]"),
        (Pick("x", (1,)), "job must be one of b, got 'x'"),
        (Pick("b", (7,)), "job b is given slot 7: they are 0..1"),
        ([1], "a plan must be a Pick, or None to wait, got [1]"),
    ],
)
def test_the_job_of_a_planner_that_fails_is_over_and_others_go_on(answer, why):
    """It says what was wrong with the plan."""
    _, jobs = with_own(Pick("a", (0,)), answer, Pick("c", (1,)))
    heard = jobs.at(0.0, submit("a", 1), submit("b", 1), submit("c", 1))
    assert [each.reason for each in only(heard, JobFailed)] == [
        f"gangs planner own:mine{'' if why[:6] == 'raised' else ':'} {why}"
    ]
    assert [each.job for each in only(heard, StartGang)] == ["a", "c"]


def test_a_planner_may_have_jobs_wait_while_something_is_to_come():
    """It is asked again when something happens; where nothing can, the job is over."""
    _, jobs = with_own(Pick("a", (0,)), None, WAIT, Pick("b", (0,)), None)
    heard = jobs.at(0.0, submit("a", 1), submit("b", 1))
    waits = JobPostponed(job="b", reason="planner own:mine has it wait")
    assert only(heard, JobPostponed) == [waits]
    assert jobs.at(1.0, submit("c", 2)) == [waits]
    assert only(jobs.at(2.0, finished("a", 1)), StartGang)[0].job == "b"
    heard = jobs.at(3.0, finished("b", 1))
    assert [each.reason for each in heard] == ["gangs planner own:mine: waits, though nothing is to come"]


def test_a_planner_with_a_window_is_shown_several_jobs_and_one_without_the_next():
    """Heads and the largest of the tail that fit."""
    own, jobs = with_own(Pick("j5", (0,)), None, n_slots=2, traits=("window",))
    jobs.at(0.0, *[submit(f"j{i}", 1, 10.0 + i) for i in range(10)], submit("wide", 3))
    assert [job.job for job in own.views[0].window] == ["j0", "j1", "j2", "j3", "j9", "j8", "j7", "j6"]
    own, jobs = with_own(None, n_slots=2)
    jobs.at(0.0, submit("a", 1), submit("b", 1), fails("s1"))
    assert [job.job for job in own.views[0].window] == ["a"]


def test_a_view_holds_what_is_known_of_each_slot():
    """Rates that were given; history for who asks; gangs on several nodes; the work that is left."""
    own = Own(Pick("a", (0, 1)), Pick("a", (0, 2)), None, history=True)
    jobs = Jobs(2, 2, {"gangs": own}, planner="own:mine", rate_hz=[1e-6, 2e-6, 3e-6, 4e-6], downtime_s=50.0)
    jobs.at(0.0, submit("a", 2, 100.0), started("a", 1, ["s0", "s1"]))
    jobs.at(10.0, fails("s1"))
    jobs.at(12.0, stopped("a", 1, kept_s=20.0))
    jobs.at(20.0, submit("b", 1))
    first, second, third = own.views
    assert (first.window[0].work_s, first.window[0].started) == (100.0, False)
    assert (second.window[0].work_s, second.window[0].started) == (80.0, True)
    assert second.state == ("free", "failed", "free", "free")
    assert third.rate_hz == (1e-6, 2e-6, 3e-6, 4e-6)
    assert (third.t, third.names, third.cluster.node_of) == (20.0, ("s0", "s1", "s2", "s3"), (0, 0, 1, 1))
    assert third.n_wide == (1, 1)
    # Planned at 12 s: 600 s of restart and 80 s of work, on as many nodes as two slots need and one more.
    assert third.busy_for_s == (672.0, 50.0, 672.0, 0.0)
    assert (third.n_failures_24h, third.n_failures_30d) == ((0, 1, 0, 0),) * 2
    assert third.up_for_s == (20.0, 0.0, 20.0, 20.0)
    assert first.busy_for_s == (0.0,) * 4


def test_rates_are_estimated_where_they_are_not_given():
    """The slot that failed, and then its node, are expected to fail most."""
    own = Own(None)
    jobs = Jobs(2, 2, {"gangs": own}, planner="own:mine")
    jobs.at(86_400.0, fails("s0"), submit("a", 1))
    first, second, *others = own.views[0].rate_hz
    assert first > second > others[0] == others[1] > 0


def test_a_plan_says_what_it_expects_and_what_could_have_been():
    """Without checkpoints, at one failure in 1,000 s: (e^0.1 - 1) / 0.001 s for 100 s of work on one slot."""
    terms = {"checkpoint_s": None, "restart_s": 0.0}
    jobs = Jobs(1, 2, planner="ect", rate_hz=[1e-3, 1e-3], terms=terms)
    planned = only(jobs.at(0.0, submit("a", 1)), GangPlanned)[0]
    assert (planned.planner, planned.expected_s, planned.slots) == ("ect", 105.171, ("s0",))
    rules = ("best_fit", "healthiest_packed", "healthiest")
    assert planned.candidates == tuple(Candidate(rule, ("s0",), 105.171, 1) for rule in rules)


# ---------------------------------------------------------------------- what cannot be
def test_what_cannot_happen_is_a_defect():
    """A job twice, and a slot that nobody has added."""
    jobs = Jobs()
    jobs.at(0.0, submit("a", 1))
    for make, why in ((submit("a", 1), "with a job a already"), (fails("x"), "without a slot x")):
        with pytest.raises(InvalidTransition, match=why):
            jobs.tell(make(1.0))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"planner": "etc"}, "gangs planner must be one of .*ect.*'ect'"),
        ({"order": "lifo"}, "order must be one of fifo, largest, got 'lifo'"),
        ({"backfill": "some"}, "backfill must be one of greedy, reserve, got 'some'"),
    ],
)
def test_a_wrong_name_is_refused_when_the_machine_is_made(config, why):
    """Before any job is lost to it."""
    with pytest.raises((ConfigError, ValueError), match=why):
        Jobs(**config)


# ---------------------------------------------------------------------- replay
class Kept(Jobs):
    """As Jobs, with the journal."""

    def __init__(self, *args, **config):
        self.records = []
        super().__init__(*args, **config)

    def tell(self, event):
        answer = super().tell(event)
        self.records += [event, *answer]
        return answer

    def stream(self):
        header = StreamOpened(
            stream="placement", machine="placement", config=self.config, origin="simulated", version="0"
        )
        return Stream(header=header, records=tuple(self.records), torn=False, source="memory")


def test_a_journal_gives_the_same_decisions_and_asks_no_planner_that_is_not_there():
    """Plans, waits and failures of a user's own planner are read back in the order in which they were made."""
    own = Own(Pick("b", (1,)), ValueError("cannot"), Pick("c", (0,)), None, Pick("b", (1,)), None, window=True)
    jobs = Kept(1, 3, {"gangs": own}, planner="own:mine")
    jobs.at(0.0, submit("a", 1), submit("b", 1), submit("c", 1), submit("d", 1))
    jobs.at(1.0, fails("s1"), back("s1"))
    jobs.at(2.0, stopped("b", 1, kept_s=5.0))
    jobs.at(3.0, finished("c", 1))
    assert not own.answers
    result = replay(jobs.stream())
    assert (result.difference, result.n_events) == (None, len(jobs.events))


def test_a_journal_without_the_plan_says_so():
    """The fresh machine decides otherwise, and the difference names it."""
    jobs = Kept(1, 1, {"gangs": Own(Pick("a", (0,)))}, planner="own:mine")
    jobs.at(0.0, submit("a", 1))
    jobs.records = [record for record in jobs.records if not isinstance(record, GangPlanned)]
    assert "the journal holds no plan of gangs here" in replay(jobs.stream()).difference

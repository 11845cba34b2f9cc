"""What a journal tells of slots and jobs, and that it can be played again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drlnb.planning.placement import Cluster
from drlnb.planning.replay import fresh_machine
from drlnb.records.columns import placement as words
from drlnb.records.errors import ConfigError, JournalError
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.sim.placement import Conditions, FaultPath, TraceJob, simulate
from drlnb.sim.placement.history import history_of
from drlnb.sim.placement.on_clock import play_on_clock
from tests.planning.placement.job_words import Jobs, back, fails, passed, raised, saved, submit, unwanted

GOLDEN = Path(__file__).parents[2] / "journals"
DAY_S = 86_400.0


def journal_of(*streams):
    return Journal(streams={stream.header.stream: stream for stream in streams})


def stream_of(jobs, name="placement"):
    """Return the journal of a machine that tests have spoken with."""
    header = StreamOpened(stream=name, machine="placement", config=jobs.config, origin="simulated", version="0")
    fresh, records = Jobs(0, 0, **jobs.config).machine, []
    for event in jobs.events:
        records += [event, *fresh.handle(event)]
    return Stream(header=header, records=tuple(records), torn=False, source=name)


def ended(job, version, ran_s):
    return lambda t: words.JobFinished(t=t, job=job, gang_version=version, ran_s=ran_s)


def stopped(job, version, ran_s, kept_s=0.0):
    return lambda t: words.GangStopped(t=t, job=job, gang_version=version, ran_s=ran_s, kept_s=kept_s)


def history_from(jobs):
    return history_of(journal_of(stream_of(jobs)))


# ------------------------------------------------------------------ jobs that were placed alone
def test_what_was_played_is_read_again():
    """Outages as they were given, jobs with their work; played on them, each job ends when it did."""
    outages = [[(40.0, 70.0), (90.0, 95.0)], [], [(10.0, 30.0)], []]
    cluster, jobs = Cluster.uniform(2, 2), [TraceJob("a", 0.0, 2, 60.0), TraceJob("b", 0.0, 1, 200.0)]
    how = {"checkpoint_s": None, "restart_s": 1.0, "locality_frac": 0.0, "checkpoint_cost_s": 0.0}
    outcome, stream = play_on_clock(cluster, jobs, "first", FaultPath(outages), Conditions(**how))
    past = history_of(journal_of(stream))
    assert past.slots == ("n0/slot0", "n0/slot1", "n1/slot2", "n1/slot3")
    assert past.cluster == cluster
    seen = [[outage for outage in some if outage[1] <= outcome.makespan_s] for some in outages]
    assert [list(some) for some in past.outages] == seen
    assert past.makespan_s == outcome.makespan_s
    # A job that began again has no work from before; the second it takes to begin again counts as work.
    assert [(job.job, job.n_slots) for job in past.jobs] == [("placement/a", 2), ("placement/b", 1)]
    assert [job.work_s for job in past.jobs] == [pytest.approx(60.0, abs=1.0), pytest.approx(200.0, abs=1.0)]
    again = simulate(past.cluster, past.jobs, "first", past.path(), checkpoint_s=None, restart_s=0.0)
    assert again.makespan_s == pytest.approx(outcome.makespan_s, abs=2.0)


def test_a_slot_is_away_until_its_hold_is_over_too():
    """Failed at 10, back at 12, held until 40."""
    jobs = Jobs(1, 2, hold_s=30.0)
    jobs.at(5.0, submit("a", 1))
    jobs.at(10.0, fails("s1"))
    jobs.at(12.0, back("s1"))
    jobs.at(40.0, passed("hold:s1"))
    jobs.at(50.0, ended("a", 1, 45.0))
    past = history_from(jobs)
    assert past.outages == ((), ((10.0, 40.0),))
    assert past.lasted_s == 50.0
    assert past.conditions == Conditions(
        checkpoint_s=None, checkpoint_cost_s=0.0, restart_s=1.0, locality_frac=0.0, order="fifo"
    )


def test_a_worker_that_was_restarted_for_a_member_that_did_not_stop_has_not_failed():
    """Its member held the slot after its stop: the kill is the machine's, not the slot's."""
    jobs = Jobs(1, 2, hold_s=30.0)
    jobs.at(1.0, submit("a", 2))
    jobs.at(2.0, unwanted("a"))
    jobs.at(32.0, passed("stop:a"))
    jobs.at(33.0, fails("s0"))
    jobs.at(34.0, back("s0"), stopped("a", 1, 32.0))
    assert history_from(jobs).outages == ((), ())


def test_work_that_is_kept_counts_once_and_what_a_failed_job_ran_counts():
    """a: 20 of 30 s kept, then 15 s to its end; b fails after 7 s; d computes at the end, for 46 s; c never has."""
    jobs = Jobs(1, 3, hold_s=0.0)
    jobs.at(0.0, submit("a", 1), submit("b", 1), submit("d", 1), submit("c", 3))
    jobs.at(7.0, raised("b", 1, "s1"))
    jobs.at(7.0, stopped("b", 1, 7.0))
    jobs.at(9.0, passed("blame:b"))
    jobs.at(10.0, saved("a", 1, 10.0))
    jobs.at(20.0, saved("a", 1, 20.0))
    jobs.at(30.0, fails("s0"))
    jobs.at(30.5, stopped("a", 1, 30.0, 20.0))
    jobs.at(46.0, ended("a", 2, 15.0))
    past = history_from(jobs)
    assert {job.job.partition("/")[2]: job.work_s for job in past.jobs} == {"a": 35.0, "b": 7.0, "d": 46.0}
    assert past.conditions.checkpoint_s == 10.0
    assert past.outages[0] == ((30.0, 46.0),)  # it was not back when the journal ended


def test_distance_is_no_work():
    """A gang of two on two nodes of three slots that could have shared one took 1.5 times as long."""
    terms = {"checkpoint_s": None, "locality_frac": 0.5}
    jobs = Jobs(2, 2, hold_s=0.0, terms=terms)
    jobs.at(0.0, submit("x", 1), submit("a", 2))
    assert jobs.slots_of("a") == ("s1", "s2")
    jobs.at(60.0, ended("a", 1, 60.0), ended("x", 1, 60.0))
    assert [job.work_s for job in history_from(jobs).jobs] == [60.0, 40.0]


# ------------------------------------------------------------------ a fleet
def test_a_fleets_tasks_are_jobs_of_the_seconds_of_their_leases():
    """By the rows of the journal: a slot that failed at 12 and was back at 13.5, a node that was lost from 20 to 25."""
    rows = [json.loads(line) for line in (GOLDEN / "faults" / "broker-e1.jsonl").read_text().splitlines()]
    held = {"sim0": 0.0, "sim1": 0.0}
    for row in rows:
        if row["r"] == "LeaseReleased" and row["reason"] in {"returned", "yielded"}:
            held[row["task"]] += row["held_s"]
    past = history_of(GOLDEN / "faults")
    assert past.slots == ("n0/slot0", "n1/slot0")
    assert past.outages == (((12.0, 13.5),), ((20.0, 25.0),))
    assert {job.job: job.work_s for job in past.jobs} == pytest.approx(held)
    assert past.cluster.node_of == (0, 1)


def test_a_stream_that_begins_in_the_midst_has_the_slots_that_were_there():
    """Its header holds the pool as it was: a slot that was away comes back, the other one is lost at 20."""
    whole = Journal.read(GOLDEN / "faults").streams["broker-e1"]
    machine, later = fresh_machine(whole.header), []
    for event, answer in whole.answers():
        if event.t <= 12.5:
            machine.handle(event)
        else:
            later += [event, *answer]
    began_t = later[0].t
    header = replace(whole.header, snapshot=json.loads(json.dumps(machine.snapshot())))
    past = history_of(journal_of(replace(whole, header=header, records=tuple(later))))
    assert past.slots == ("n0/slot0", "n1/slot0")
    assert past.outages == ((), ((pytest.approx(20.0 - began_t), pytest.approx(25.0 - began_t)),))
    assert {job.job for job in past.jobs} == {"sim0", "sim1"}


# ------------------------------------------------------------------ faults like those
def played(outages, lasted_s, node_of=(0, 0, 1)):
    """Return a history of these outages."""
    jobs, path = [TraceJob("a", 0.0, 1, lasted_s)], FaultPath([*outages, []], [1.0, 1.0, 1.0, 0.0])
    cluster = Cluster((*node_of, max(node_of) + 1))
    how = Conditions(checkpoint_s=None, locality_frac=0.0, order="fifo")
    return history_of(journal_of(play_on_clock(cluster, jobs, "healthiest", path, how)[1]))


def first(path, slot, until_s):
    k, some = 0, []
    while (outage := path.outage(slot, k))[0] < until_s:
        some, k = [*some, outage], k + 1
    return some


def test_faults_like_those_come_as_often_and_last_as_long():
    """Slots of one node keep their distance; one that never failed never does; another seed is another order."""
    outages = [[(100.0, 110.0), (500.0, 520.0)], [(130.0, 140.0)], []]
    past = played(outages, 1000.0)
    assert past.lasted_s == 1000.0
    path = past.path_like(0)
    n, until_s = 400, 400_000.0
    there = [first(path, slot, until_s) for slot in range(3)]
    assert [len(some) / n for some in there] == pytest.approx([2.0, 1.0, 0.0], abs=0.1)
    assert {round(back - fails, 6) for fails, back in there[0]} == {10.0, 20.0}
    assert all(b[0] >= a[1] for a, b in zip(there[0], there[0][1:], strict=False))
    apart = [min(abs(fails - 30.0 - other) for other, _ in there[0]) for fails, _ in there[1]]
    assert np.mean(np.array(apart) < 1e-6) > 0.9  # but for those that begin or end a day
    assert first(past.path_like(0), 0, 9_000.0) == first(path, 0, 9_000.0)
    assert first(past.path_like(1), 0, 9_000.0) != first(path, 0, 9_000.0)
    assert past.path().outage(0, 1) == (500.0, 520.0)
    assert past.path().outage(0, 2)[0] == float("inf")


def test_rates_are_what_was_seen():
    """Which a planner of health goes by: the slot that failed twice last."""
    past = played([[(100.0, 110.0), (500.0, 520.0)], [(130.0, 140.0)], []], 1000.0)
    assert past.rate_hz[0] > past.rate_hz[1] > past.rate_hz[2]
    assert simulate(past.cluster, past.jobs, "healthiest", past.path()).attempts[0].slots == (
        2,
    )  # of two that never failed the first


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("past", "why"),
    [
        (7, "history must be the folder of a run, a journal, or what has one"),
        (journal_of(), "history has no slots: it must be of a fleet's run, or of drlnb.placement.place"),
        (journal_of(stream_of(Jobs())), "history has no job that has computed: there is nothing to train on"),
    ],
)
def test_what_is_no_history_is_refused_in_a_line(past, why):
    """With what would be one."""
    with pytest.raises(ConfigError) as refused:
        history_of(past)
    assert str(refused.value).startswith(why)
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_journal_is_named(tmp_path):
    """As by every command that reads one."""
    with pytest.raises(JournalError, match=str(tmp_path / "none")):
        history_of(tmp_path / "none")

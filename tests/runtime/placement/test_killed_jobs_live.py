"""Gangs on real Dask workers that are killed: what is redone, who stops, which slots are used again, and when."""

import contextlib
import functools
import os
import time
from statistics import median

import psutil
import pytest

from drlnb.placement import Job
from drlnb.records.columns.leasing import SlotAdded, SlotFailed
from drlnb.records.columns.placement import (
    CheckpointSaved,
    GangBroken,
    GangStopped,
    JobPostponed,
    JobStarted,
    StartGang,
    StopGang,
)
from drlnb.records.errors import ConfigError
from tests.runtime.live import wait_until
from tests.runtime.placement.conftest import (
    N_WORKERS,
    count,
    heard,
    ignores,
    kill,
    records,
    replays,
    until_stopped,
    where,
)


def counted(log):
    """Return (attempt, rank, step at its beginning) of each member that ran."""
    return [tuple(map(int, line.split())) for line in log.read_text().splitlines()]


@pytest.mark.cluster
def test_a_gang_goes_on_from_its_checkpoint_after_each_of_three_kills(mortal, tmp_path):
    """The sum is that of a run without a loss, losses are over in a second, and the journal decides the same."""
    log = tmp_path / "log"
    jobs = mortal(Job(functools.partial(count, n=150, log=str(log)), 2, 3.0, tmp_path / "saved"))
    seen_s, stopped_s = [], []
    for attempt in range(1, 4):
        slots = heard(jobs, StartGang, gang_version=attempt)[-1].slots
        heard(jobs, CheckpointSaved, n=2, gang_version=attempt)
        before = jobs._placer.host.now
        kill(jobs, slots[attempt % 2])
        stopped = heard(jobs, GangStopped, gang_version=attempt)[0]
        failed = heard(jobs, SlotFailed, n=attempt)[-1]
        assert failed.slot == slots[attempt % 2]
        seen_s.append(failed.t - before)
        stopped_s.append(stopped.t - failed.t)
    assert jobs.wait(60.0), jobs.failures
    assert median(seen_s) < 1.0
    assert median(stopped_s) < 1.0
    assert [total for total, _, _ in jobs.results["job-0"]] == [150 * 151 // 2] * 2
    # Every member of an attempt began at the same step: one that all had saved, later in each attempt.
    rows = counted(log)
    begun = [{step for each, _, step in rows if each == attempt} for attempt in range(1, 5)]
    assert all(len(steps) == 1 for steps in begun)
    steps = [step for some in begun for step in some]
    assert steps == sorted(set(steps))
    assert steps[0] == 0
    assert all(step % 5 == 0 for step in steps)
    # Dask runs a member that died again, in another process: that one does nothing.
    assert len(rows) == 2 * 4
    assert replays(jobs) is None
    # Results were fetched at once: they outlive the workers.
    kill(jobs, jobs.slots[0])
    heard(jobs, SlotFailed, n=4)
    assert len(jobs.results["job-0"]) == 2
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")


@pytest.mark.slow
def test_a_worker_that_was_killed_is_the_same_slot_in_another_process(mortal):
    """A job that needs all slots waits until its hold is over, says so once, and gets it at another address."""
    jobs = mortal(Job(until_stopped, N_WORKERS), hold_s=5.0)
    heard(jobs, JobStarted, n=N_WORKERS)
    slot = jobs.slots[1]
    address = jobs._placer.workers[slot].address
    kill(jobs, slot)
    # The next gang is another one: it does not stop with the former one.
    heard(jobs, JobStarted, n=N_WORKERS, gang_version=2)
    assert not records(jobs, GangBroken)[1:]
    assert [each.reason for each in records(jobs, JobPostponed)] == ["needs 4 slots, 3 alive"]
    assert jobs._placer.workers[slot].address != address
    assert [each.slot for each in records(jobs, SlotAdded)].count(slot) == 2
    failed = records(jobs, SlotFailed)[0]
    starts = [t for t, _ in jobs.journal().streams["placement"].timed(StartGang)]
    assert starts[1] - failed.t >= 5.0


@pytest.mark.slow
def test_all_slots_may_fail_and_the_job_goes_on_when_they_are_back(mortal):
    """It waits, and says so once; an injected fault lasts as long as was drawn, not as long as the nanny takes."""
    jobs = mortal(Job(until_stopped, 2))
    heard(jobs, JobStarted, n=2)
    jobs.inject([(0.2, slot, 4.0) for slot in jobs.slots])
    heard(jobs, JobStarted, n=2, gang_version=2)
    assert [each.reason for each in records(jobs, JobPostponed)] == ["needs 2 slots, 0 alive"]
    failed = {each.slot: each.t for each in records(jobs, SlotFailed)}
    back = {each.slot: each.t for each in records(jobs, SlotAdded)[N_WORKERS:]}
    assert len(failed) == N_WORKERS
    assert all(back_t - failed[slot] > 3.5 for slot, back_t in back.items())
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")
    slot = jobs.slots[0]
    with pytest.raises(ConfigError) as caught:
        jobs.inject([(-1.0, slot, 1.0), (0.0, "x", 1.0)])
    wrong = (f"slot {slot}: seconds must be at least 0, got -1.0 and 1.0", "slot 'x' is not up")
    assert caught.value.problems == wrong


@pytest.mark.slow
def test_a_member_that_ignores_its_stop_loses_its_worker_and_the_job_goes_on(mortal, monkeypatch):
    """No failure is counted for the slot; other jobs go on meanwhile, and one that hangs can be stopped."""
    monkeypatch.setattr("drlnb.planning.placement.jobs.machine._STOP_S", 0.5)
    jobs = mortal(Job(ignores, 2), Job(where, 1, name="other"))
    heard(jobs, JobStarted, n=2, job="job-0")
    first, second = heard(jobs, StartGang, job="job-0")[0].slots
    kill(jobs, first)
    assert jobs.wait(60.0), jobs.failures
    assert [each.kill for each in records(jobs, StopGang)] == [False, True]
    assert list(jobs.results) == ["other", "job-0"]
    state = jobs._placer.host.machine.state
    assert [len(state.slots[slot].failed_t) for slot in (first, second)] == [1, 0]
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")
    jobs.submit(Job(ignores, name="hangs"))
    for i in range(3):
        jobs.submit(Job(where, 3, name=f"j{i}"))
    wait_until(lambda: len(jobs.results) == 5, "three jobs more", 30.0)
    assert not jobs.wait(0.0)
    jobs.stop()
    assert str(jobs.failures["hangs"]) == "stopped by the user"
    with pytest.raises(RuntimeError, match="the placement is over"):
        jobs.submit(Job(where))


def hears_first(m, folder):
    """Raise as soon as the other member's process is gone: before Dask knows of it."""
    pid = folder / "pid"
    if m.attempt > 1:
        return m.attempt
    if m.rank == 0:
        pid.with_suffix(".part").write_text(str(os.getpid()))
        pid.with_suffix(".part").rename(pid)
        return until_stopped(m)
    wait_until(pid.is_file, "the other member", 30.0)
    process = psutil.Process(int(pid.read_text()))
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.001)
    raise ConnectionError("the other member has gone")


@pytest.mark.slow
def test_a_member_that_raises_since_another_one_died_fails_no_job(mortal, tmp_path):
    """As a collective operation does, whose peer is gone: the lost slot is the cause, whoever is heard first."""
    jobs = mortal(Job(functools.partial(hears_first, folder=tmp_path), 2))
    heard(jobs, JobStarted, n=2)
    wait_until((tmp_path / "pid").is_file, "the first member", 30.0)
    kill(jobs, heard(jobs, StartGang)[0].slots[0])
    assert jobs.wait(60.0)
    assert (jobs.results, jobs.failures) == ({"job-0": [2, 2]}, {})
    assert replays(jobs) is None
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")


def ends_its_worker(m):
    os._exit(1)


@pytest.mark.slow
def test_a_job_that_ends_its_workers_is_given_up_before_all_slots_are(mortal, monkeypatch, tmp_path):
    """After five gangs; and one whose checkpoints this process cannot see is, rather than beginning from nothing."""
    monkeypatch.setattr("drlnb.planning.placement.jobs.machine._MOST_FAILURES", 9)
    jobs = mortal(Job(ends_its_worker), hold_s=0.01)
    assert jobs.wait(60.0)
    assert "does the job end its workers itself?" in str(jobs.failures["job-0"])
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")
    jobs.submit(Job(functools.partial(count, n=500), 1, 3.0, tmp_path / "saved", "lost"))
    heard(jobs, CheckpointSaved, n=2)
    (tmp_path / "saved").rename(tmp_path / "elsewhere")
    kill(jobs, heard(jobs, StartGang, job="lost")[0].slots[0])
    assert jobs.wait(30.0)
    assert "which this process cannot see" in str(jobs.failures["lost"])
    wait_until(lambda: len(jobs.slots) == N_WORKERS, "all slots")


@pytest.mark.slow
def test_a_loss_is_seen_as_soon_where_dask_runs_nothing_again(tmp_path, monkeypatch):
    """With ``allowed-failures`` 0 a member's future fails at once; the worker's end is heard, too, and counts once."""
    from tests.runtime.placement.conftest import Places, four_workers

    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    with four_workers(tmp_path) as client:
        places = Places(client)
        jobs = places(Job(until_stopped, 2))
        heard(jobs, JobStarted, n=2)
        kill(jobs, heard(jobs, StartGang)[0].slots[1])
        heard(jobs, JobStarted, n=2, gang_version=2)
        assert len(records(jobs, SlotFailed)) == 1
        places.close()

"""Gangs on real Dask workers that hang, and gangs whose placement is gone: how soon, and who is at fault."""

import functools
import os
import signal
import subprocess
import sys
import time

import pytest
from distributed import Client

from drlnb import placement
from drlnb.placement import Job
from drlnb.records.columns.leasing import SlotFailed
from drlnb.records.columns.placement import CheckpointSaved, GangBroken, GangSilent, JobStarted, StartGang
from drlnb.records.errors import PeerError
from tests.runtime.live import wait_until
from tests.runtime.placement.conftest import N_WORKERS, count, heard, pid_of, records, replays, until_stopped, where


def waits_for_ever(m, n):
    """Count as in a gang that works together, whose first one comes to a stop in what it calls."""
    step = m.load() or 0
    while step < n and not m.should_stop():
        if m.attempt == 1 and m.rank == 0 and step >= 10:
            time.sleep(300.0)
        time.sleep(0.02)
        step += 1
        if step % 5 == 0:
            m.save(step, step)
    return step, m.resume_step, os.getpid()


@pytest.fixture
def impatient(monkeypatch):
    """Have members lose their workers soon after they were told to stop."""
    monkeypatch.setattr("drlnb.planning.placement.jobs.machine._STOP_S", 0.5)


@pytest.mark.slow
def test_a_gang_of_which_a_member_hangs_goes_on_from_its_checkpoint(mortal, tmp_path, impatient):
    """Its worker is restarted, no slot is blamed, and slots that nobody hangs on serve others meanwhile."""
    hangs = functools.partial(waits_for_ever, n=60)
    jobs = mortal(
        Job(hangs, 2, 1.2, tmp_path / "saved", silent_s=1.0), Job(until_stopped, 1, name="other", silent_s=1.0)
    )
    silent = heard(jobs, GangSilent)[0]
    slots = heard(jobs, StartGang, job="job-0")[0].slots
    began_t = heard(jobs, JobStarted, n=2, job="job-0")[0].t
    # It counts for .2 s, and is silent for one.
    assert 1.0 <= silent.t - began_t < 4.0
    assert (silent.slots, silent.stuck) == (slots[:1], ())
    assert records(jobs, GangBroken)[0].reason == f"members on {slots[0]} gave no sign of life for 1 s"
    wait_until(lambda: "job-0" in jobs.results, "the job", 60.0)
    # The other one was told to stop at a step that the first one had not made: ten steps are what all had saved.
    assert [(step, begun) for step, begun, _ in jobs.results["job-0"]] == [(60, 10)] * 2
    assert all(not slot.failed_t for slot in jobs._placer.host.machine.state.slots.values())
    assert len(records(jobs, GangSilent)) == 1
    jobs.stop()
    assert replays(jobs) is None


@pytest.mark.slow
def test_a_process_that_stands_still_is_its_slots_fault(mortal, tmp_path, impatient):
    """Its survivors stop, and the job goes on elsewhere before that process has been restarted."""
    jobs = mortal(Job(functools.partial(count, n=200), 2, 4.0, tmp_path / "saved", silent_s=1.0), hold_s=60.0)
    heard(jobs, CheckpointSaved, n=2)
    slots = heard(jobs, StartGang)[0].slots
    os.kill(pid_of(jobs, slots[1]), signal.SIGSTOP)
    silent = heard(jobs, GangSilent)[0]
    assert (silent.slots, silent.stuck) == (slots[1:], slots[1:])
    assert jobs.wait(90.0), jobs.failures
    assert [total for total, _, _ in jobs.results["job-0"]] == [200 * 201 // 2] * 2
    again = records(jobs, StartGang)[1]
    assert slots[0] in again.slots
    assert slots[1] not in again.slots
    failed = {slot: each.failed_t for slot, each in jobs._placer.host.machine.state.slots.items()}
    assert [len(failed[slot]) for slot in slots] == [0, 1]
    assert replays(jobs) is None


@pytest.mark.slow
def test_members_that_ask_now_and_then_do_not_hang(mortal, tmp_path):
    """They count for longer than they may be silent."""
    jobs = mortal(Job(functools.partial(count, n=150, every=1000), 2, 3.0, tmp_path / "saved", silent_s=1.5))
    assert jobs.wait(30.0)
    assert not records(jobs, GangSilent, SlotFailed)


_CALLER = """
import sys, time
from pathlib import Path
from distributed import Client
from drlnb.placement import Job, place
from tests.runtime.placement.conftest import count

client = Client(scheduler_file=sys.argv[1])
client.wait_for_workers(4)
job = Job(__import__("functools").partial(count, n=100_000), 4, 2000.0, Path(sys.argv[2]), "long")
placing = place([job], client)
while not any(type(record).__name__ == "CheckpointSaved" for record in placing.journal().streams["placement"].records):
    time.sleep(0.01)
print("saved", flush=True)
time.sleep(300.0)
"""


@pytest.mark.cluster
def test_members_stop_whose_placement_is_gone_and_another_one_goes_on(placing, client, tmp_path):
    """As after a restart of a notebook's kernel: the slots are free, and the same folder holds what was saved."""
    code = [sys.executable, "-c", _CALLER, client.scheduler_file, str(tmp_path / "saved")]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdout.readline() == "saved\n"
        caller.kill()
    with placement.place([], client) as after:
        assert len(after.slots) == N_WORKERS
        after.submit(Job(functools.partial(count, n=20), N_WORKERS, 1.0, tmp_path / "saved", "long"))
        assert after.wait(30.0)
        assert {resumed > 0 for _, _, resumed in after.results["long"]} == {True}


def partial_sum(m):
    """Return what there is when it is to stop; the second gang has it all."""
    if m.attempt == 1:
        until_stopped(m)
        return "half"
    return "whole"


@pytest.mark.slow
def test_a_member_of_a_worker_that_is_retired_begins_again_elsewhere(mortal):
    """It stops at once, and what it returns then is no result."""
    jobs = mortal(Job(partial_sum))
    slot = heard(jobs, JobStarted)[0].slots[0]
    began_s = time.monotonic()
    jobs._client.retire_workers([jobs._placer.workers[slot].address])
    assert jobs.wait(60.0)
    assert time.monotonic() - began_s < 4.0
    assert jobs.results == {"job-0": ["whole"]}
    assert replays(jobs) is None


@pytest.mark.slow
def test_who_waits_hears_that_the_client_is_closed(mortal, caplog):
    """In one line; its members stop, and another client may use the workers."""
    with Client(scheduler_file=mortal.client.scheduler_file) as other:
        jobs = placement.place(Job(until_stopped, N_WORKERS), other)
        heard(jobs, JobStarted, n=N_WORKERS)
    with pytest.raises(PeerError, match="gone, or the client is closed: 1 jobs are not over"):
        jobs.wait(10.0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    again = mortal(Job(where, N_WORKERS))
    assert again.wait(10.0)

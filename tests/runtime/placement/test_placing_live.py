"""Gangs of functions on real Dask workers: where members run, whose fault is what, who else places there."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from drlnb import placement
from drlnb.placement import Job, Pick
from drlnb.records.columns.leasing import SlotFailed
from drlnb.records.columns.placement import GangPlanned, JobFailed, JobStarted, SlotTaken, StartGang
from drlnb.records.errors import ConfigError
from tests.runtime.live import wait_until
from tests.runtime.placement.conftest import N_WORKERS, heard, records, replays, until_stopped, where

pytestmark = pytest.mark.cluster


def test_each_member_runs_on_its_own_slot_and_no_other_has_its_resource(placing):
    """Two gangs of two at once are on four workers, each of which alone has the resource of its slot."""
    jobs = placing(Job(where, 2), Job(where, 2))
    assert jobs.wait(30.0)
    rows = [row for job in ("job-0", "job-1") for row in jobs.results[job]]
    assert [row[:2] for row in rows] == [(0, 2), (1, 2)] * 2
    assert sorted(row[2] for row in rows) == sorted(jobs.slots)
    assert all(slot == nanny and f"drlnb-slot-{slot}" in has for _, _, slot, nanny, _, has in rows)
    assert len({pid for *_, pid, _ in rows}) == N_WORKERS
    planned = {slot for each in records(jobs, GangPlanned) for slot in each.slots}
    assert planned == set(jobs.slots)
    assert replays(jobs) is None


def raises(m):
    if m.rank == 1:
        raise ValueError("no\nidea")
    until_stopped(m)


def returns_a_lock(m):
    return threading.Lock()


class Mute(Exception):
    def __str__(self):
        raise RuntimeError


def raises_without_words(m):
    raise Mute


def test_a_member_that_raises_ends_its_job_and_no_slot(placing):
    """The others stop; the error is the user's own, with its traceback; other jobs go on.

    One whose text cannot be told was taken for a lost worker: its slot was gone for good, and the next.
    """
    bad = [Job(returns_a_lock, name="lock"), Job(raises_without_words, name="mute")]
    jobs = placing(Job(raises, 2, name="bad"), *bad, Job(where, name="good"))
    assert jobs.wait(30.0)
    error = jobs.failures["bad"]
    assert type(error) is ValueError
    assert "in raises" in str(error.__cause__)
    assert [each.reason for each in records(jobs, JobFailed) if each.job == "bad"] == ["rank 1: ValueError: no idea"]
    assert "pickle" in str(jobs.failures["lock"])
    assert str(jobs.failures["mute"]) == "Mute: no words of its own, its __str__ raises RuntimeError"
    assert list(jobs.results) == ["good"]
    assert not records(jobs, SlotFailed)


def test_a_function_that_cannot_travel_is_refused_with_its_name(placing, tmp_path):
    """Before anything runs, together with all else that is wrong."""
    lock = threading.Lock()
    with pytest.raises(ConfigError) as caught:
        placing(Job(lambda m: lock, name="a"), Job(where, 9, name="b"), Job(where, name="c"), Job(where, name="c"))
    text = str(caught.value)
    assert "job a: lambda cannot travel to a slot: " in text
    assert "variable 'lock'" in text
    assert "job b needs 9 slots, the cluster has 4" in text
    assert "job c: another one has this name" in text
    with pytest.raises(ConfigError, match=r"job y: its folder .*/a is that of job x"):
        placing(Job(where, checkpoint=tmp_path / "a", name="x"), Job(where, checkpoint=tmp_path / "a", name="y"))


class Odd:
    """Names a slot that is taken, then raises, then does as it should."""

    name = "odd"

    def __init__(self):
        self.n_asked = 0

    def plan(self, view):
        self.n_asked += 1
        job = view.window[0]
        if job.job == "busy":
            return Pick(job.job, (0,))
        if job.job == "raises":
            raise KeyError("what")
        return Pick(job.job, tuple(view.free()[: job.n_slots]))


def test_the_job_of_a_planner_that_fails_is_over_and_others_go_on(placing):
    """Each with one clear line; the journal replays without the planner."""
    jobs = placing(
        Job(until_stopped, name="first"),
        *[Job(where, name=name) for name in ("busy", "raises", "last")],
        planner=Odd(),
    )
    wait_until(lambda: "last" in jobs.results, "the last job", 30.0)
    assert {job: str(error) for job, error in jobs.failures.items()} == {
        "busy": "gangs planner own:odd: job busy is given slot 0, which is busy",
        "raises": "gangs planner own:odd raised KeyError: 'what'",
    }
    jobs.stop()
    assert replays(jobs) is None


def test_jobs_may_be_submitted_later_and_slots_be_drained(placing):
    """A drained slot serves no further job until it is given back; an unknown one is refused."""
    jobs = placing()
    slot = jobs.slots[0]
    jobs.drain(slot)
    names = [jobs.submit(Job(where)) for _ in range(N_WORKERS)]
    assert jobs.wait(30.0)
    assert names == [f"job-{i}" for i in range(N_WORKERS)]
    assert slot not in {jobs.results[name][0][2] for name in names}
    jobs.undrain(slot)
    jobs.submit(Job(where, N_WORKERS, name="all"))
    assert jobs.wait(30.0)
    with pytest.raises(ConfigError, match="slot must be one of"):
        jobs.drain("x")


def test_another_placement_takes_idle_workers_over_and_leaves_busy_ones(placing, client):
    """So a cell of a notebook can be run again, and nobody's job is disturbed."""
    first = placing(Job(where))
    assert first.wait(30.0)
    second = placing(Job(until_stopped, 1), hold_s=30.0)
    heard(second, JobStarted)
    busy = heard(second, StartGang)[0].slots[0]
    with placement.place([], client) as third:
        assert len(third.slots) == N_WORKERS - 1
        assert busy not in third.slots
        heard(second, SlotTaken, n=N_WORKERS - 1)
    # It gives them back, and they have not failed: the next gang has them all at once.
    second.submit(Job(where, N_WORKERS - 1, name="wide"))
    wait_until(lambda: "wide" in second.results, "the wide job", 10.0)
    assert not records(second, SlotFailed)


def test_the_example_of_the_page_prints_what_it_says(tmp_path):
    """As it stands there, in a process of its own."""
    page = Path(__file__).parents[3] / "docs/placement.md"
    _, example = re.findall(r"```python\n(.+?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    run = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert f"# {run.stdout.strip()}\n" in example

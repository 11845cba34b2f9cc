"""Tasks with an executor process each, on a real cluster: who dies takes nobody along."""

import contextlib
import os

import psutil
import pytest

import drlnb
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.errors import LeaseLost
from drlnb.records.journal import Stream
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

#: Rounds short enough that both tasks have many, long enough that a kill falls into one, and so many that no task ends
#: while the other is looked at.
SMALL = {"n_steps": 64, "n_envs": 8, "batch_size": 64, "n_epochs": 4}
N_ROUNDS = 60


def _tasks(n=2):
    steps = SMALL["n_steps"] * SMALL["n_envs"] * N_ROUNDS
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=seed, **SMALL) for seed in range(n)]


def _executors(fleet):
    """Return task -> its executor process."""
    found = {}
    for process in titled("drlnb executor 0/cpu0 CartPole", fleet.pool.handle.pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie, too
            found[" ".join(process.cmdline()).split()[3]] = process
    return found


def _parameters(out, task):
    latest = (out / "checkpoints" / task / "LATEST").read_text()
    return (out / "checkpoints" / task / latest / "model.safetensors").read_bytes()


def _pool(journal) -> Stream:
    return next(stream for name, stream in journal.streams.items() if name.startswith("broker"))


def test_a_killed_executor_costs_its_own_task_alone(tmp_path):
    """SIGKILL of one task's: the other's process and model stay where they are; both learn what they would have."""
    with drlnb.Fleet(slots=1, isolation="process") as fleet:
        run = fleet.train(_tasks(), out=tmp_path / "r")
        names = list(run.tasks)
        wait_until(lambda: all(run.tasks[name].n_timesteps > 2000 for name in names), "some rounds of both")
        before = _executors(fleet)
        assert sorted(before) == sorted(names)
        victim, other = names
        before[victim].kill()
        at = run.tasks[other].n_timesteps
        wait_until(lambda: run.tasks[other].n_timesteps > at, "a round of the other one")
        assert _executors(fleet)[other] == before[other]
        wait_until(lambda: before[victim] != _executors(fleet).get(victim, before[victim]), "a successor")
        run.wait(timeout_s=90)
        assert {task.state for task in run.tasks.values()} == {"done"}
        wait_until(lambda: not _executors(fleet), "the end of both processes with their tasks", 10.0)
    with drlnb.Fleet(slots=1) as fleet:
        alone = fleet.train(_tasks(), out=tmp_path / "alone")
        alone.wait(timeout_s=90)
    journal = check_laws(tmp_path / "r")
    assert journal.of(leasing.SlotFailed) == ()
    (lost,) = _pool(journal).of(leasing.TenantLost)
    assert (lost.slot, lost.task.rpartition("/")[2]) == ("0/cpu0", victim)
    assert journal.streams[f"task-{other}-a1"].of(words.ExecutorDied) == ()
    resident = {name: _resident(journal, name) for name in names}
    assert all(resident[other]), "its model stayed"
    # A grant that was under way as its process ended still names the model; the new process is given it all the same.
    assert resident[victim].count(False) == (not _granted_as_it_ended(journal, lost)), "loaded anew, once"
    assert [_parameters(tmp_path / "r", name) == _parameters(tmp_path / "alone", name) for name in names] == [True] * 2


def _resident(journal, task):
    """Return for each lease of a task, from its second round on, whether its model was there."""
    grants = [one for one in _pool(journal).of(leasing.LeaseGranted) if one.task.rpartition("/")[2] == task]
    return [one.resident for one in grants if one.round >= 1]


def _granted_as_it_ended(journal, lost):
    """Return whether the victim held a lease, of its model, that its lost process had not yet worked under."""
    held = None
    for record in _pool(journal).each(leasing.TenantLost, leasing.LeaseGranted, leasing.LeaseReleased):
        if record == lost:
            return held is not None and held.resident and held.fence != lost.fence
        if record.task == lost.task:
            held = record if isinstance(record, leasing.LeaseGranted) else None
    raise AssertionError("the loss is not in the pool's stream")


def _ids():
    return os.getpid()


def test_a_loop_has_a_process_of_its_own(tmp_path):
    """A function that kills its process loses its lease at once; a task beside it, and another loop, go on."""
    with drlnb.Fleet(slots=1, isolation="process") as fleet:
        run = fleet.train(_tasks(1), out=tmp_path / "r")
        with fleet.lease(name="mine") as lease:
            mine = lease.run(_ids)
        with fleet.lease(name="other") as lease:
            assert lease.run(_ids) != mine
        with fleet.lease(name="mine") as lease:
            assert lease.run(_ids) == mine, "the process stays for the next lease of the name"
            with pytest.raises(LeaseLost, match="code 7"):
                lease.run(os._exit, 7)
        with fleet.lease(name="mine", wait_s=30) as lease:
            assert lease.run(_ids) not in {mine, os.getpid()}
            assert psutil.pid_exists(lease.run(_ids))
        run.wait(timeout_s=90)
        assert run.status == "done"
        journal = fleet.journal()
    assert {one.reason for one in journal.of(leasing.LeaseReleased) if one.task.startswith("own-")} == {
        "returned",
        "executor-died",
    }
    check_laws(tmp_path / "r")

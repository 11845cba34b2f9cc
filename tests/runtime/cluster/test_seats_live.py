"""Several executors on one device, in real processes: fixed, found by a probe, closed again and opened again."""

import os
import time

import numpy as np
import pytest
from distributed import Client

import drlnb
from drlnb.records import round as words
from drlnb.records import seats
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError, JournalError
from drlnb.rl.local.train import LocalLoop
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.scheduler.plugin import BrokerPlugin
from drlnb.runtime.seats.plugin import SeatsPlugin
from drlnb.views.leasing.gantt import gantt
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

#: A probe needs room for a second seat.
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU core carries one seat")


def _tasks(n, steps=4096, first=0):
    small = {"n_steps": 32, "n_envs": 8, "batch_size": 64, "n_epochs": 10}
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=first + i, **small) for i in range(n)]


def _of(journal, *kinds):
    return [record for name, one in journal.streams.items() if name.startswith("seats-") for record in one.of(*kinds)]


@two_cores
def test_two_seats_of_one_device_are_two_slots_with_an_executor_each(tmp_path):
    """`Fleet(slots=1, seats=2)`: 0/cpu0/0 and 0/cpu0/1 on one virtual device; both are used, each has its lane."""
    with drlnb.Fleet(slots=1, seats=2) as fleet:
        assert [(slot.slot, slot.device) for slot in fleet.slots] == [("0/cpu0/0", "cpu:0"), ("0/cpu0/1", "cpu:0")]
        assert fleet.pool.shape == {"n_slots": 1, "n_workers": 1, "seats": 2}
        run = fleet.train(_tasks(3), out=tmp_path / "r")
        run.wait(timeout_s=90)
        assert {task.state for task in run.tasks.values()} == {"done"}
        with pytest.raises(ConfigError, match="pool has seats 2 already; seats 3 asks for another"):
            drlnb.Fleet(fleet.address, seats=3)
    journal = check_laws(tmp_path / "r")
    added = {
        (name, slot["device"]) for name, slot in next(iter(journal.streams.values())).header.snapshot["slots"].items()
    }
    added |= {(one.slot, one.device) for one in journal.of(leasing.SlotAdded)}
    assert added == {("0/cpu0/0", "cpu:0"), ("0/cpu0/1", "cpu:0")}
    assert {slot for one in journal.of(leasing.LeaseGranted) for slot in one.slots} == {"0/cpu0/0", "0/cpu0/1"}
    lanes = [lane["label"] for lane in gantt(journal).facts["lanes"]]
    assert set(lanes[:2]) == {"0/cpu0/0", "0/cpu0/1"}


def test_more_seats_than_cores_are_refused_in_one_line():
    """Four seats of as many virtual devices as there are cores: the line says what there is room for."""
    n = len(os.sched_getaffinity(0))
    with pytest.raises(
        ConfigError, match=r"^seats 4: a device here has room for 1 \(\d+ CPU cores?( for \d+ devices)?\)$"
    ):
        drlnb.Fleet(slots=n, seats=4)


@two_cores
def test_a_probe_finds_seats_and_changes_nothing_of_what_is_learnt(tmp_path):
    """`seats="auto"`: measured, planned, journalled, replayed; parameters are bitwise those of a training alone."""
    with drlnb.Fleet(slots=1, seats="auto") as fleet:
        run = fleet.train(_tasks(2, steps=1_000_000), out=tmp_path / "r")
        wait_until(lambda: _has(run, seats.SeatsSet), "the seats that the probe has found")
        run.stop()
        run.wait(timeout_s=60)
        assert not [text for text in run.notices if "Traceback" in text]
        learnt = {name: run.load(name).parameters for name in run.tasks}
        specs = dict(run.specs)
    journal = check_laws(tmp_path / "r")
    (planned,) = _of(journal, seats.ProbePlanned)
    assert (planned.device, planned.n_most) == ("0/cpu0", 2)
    assert [one.n_seats for one in _of(journal, seats.SeatsMeasured)] == [1, 2, 2, 1]
    (chosen,) = _of(journal, seats.SeatsPlanned)
    assert chosen.rates[0] == 1.0
    assert len(chosen.rates) == 2
    assert [one.n_seats for one in _of(journal, seats.SeatsSet)] == [chosen.n_seats]
    held = [one for one in journal.of(leasing.LeaseReleased) if one.task.startswith("seats/")]
    assert {one.reason for one in held} == {"returned"}
    name = next(iter(specs))
    n_rounds = max(one.round for one in journal.streams[f"task-{name}-a1"].of(words.MetricsRecorded))
    assert np.array_equal(_alone(specs[name], n_rounds), learnt[name])


def _has(run, kind):
    time.sleep(0.3)  # a journal that grows is read as a whole each time
    try:
        return bool(run.journal().of(kind))
    except JournalError:
        return False  # nothing has been written yet


def _alone(spec, n_rounds):
    loop = LocalLoop(spec)
    try:
        with one_thread():
            for _ in range(n_rounds):
                loop.round()
        return loop.parameters
    finally:
        loop.close()


@two_cores
@pytest.mark.timeout(300)  # two probes, each of which starts an executor
def test_seats_are_closed_when_one_task_is_left_and_opened_again_for_others(foreign_cluster, tmp_path):
    """A seat leaves the pool while nobody holds it, its process ends; when tasks come, it is probed and comes back."""
    with Client(_address(foreign_cluster), set_as_default=False) as client:
        client.register_plugin(BrokerPlugin())
        # A probe follows one that found that a second executor does not pay; none is taken away for slow rounds.
        often = {"again_s": 0.5, "again_max_s": 0.5, "margin_frac": 1e-9, "probe_s": 1.0, "slow_factor": 1e9}
        client.register_plugin(SeatsPlugin(often))
        with drlnb.Fleet(client, slots=1, seats="auto") as fleet:
            run = fleet.train([*_tasks(1, steps=10**7), *_tasks(1, steps=10**7, first=7)], out=tmp_path / "a")
            node = next(iter({slot.node for slot in fleet.slots}))
            executors = lambda: titled(f"drlnb executor {node}/cpu0", os.getpid())  # noqa: E731
            wait_until(lambda: _last_plan(run).n_seats == 2, "two seats for two tasks")
            wait_until(lambda: len(executors()) == 2, "their executors", 30.0)
            run.stop("CartPole-v1-s7")
            wait_until(lambda: _last_plan(run).reason == "one seat: one task computes here", "one seat for one task")
            wait_until(lambda: len(executors()) == 1, "one executor left", 30.0)
            other = fleet.train(_tasks(1, steps=10**7, first=9), out=tmp_path / "b")
            wait_until(lambda: _last_plan(run).n_seats == 2, "two seats again")
            wait_until(lambda: len(executors()) == 2, "their executors", 30.0)
            for one in (run, other):
                one.stop()
                one.wait(timeout_s=60)
                assert not [text for text in one.notices if "Traceback" in text]
    journal = check_laws(tmp_path / "a")
    second = f"{node}/cpu0/1"
    assert [one.slot for one in journal.of(leasing.SlotClosed)][:1] == [second]
    assert [one.slot for one in journal.of(leasing.SlotAdded)].count(second) >= 2
    for one in journal.of(leasing.LeaseReleased):
        assert one.reason in {"returned", "yielded", "task-stopped"}, one


def _last_plan(run):
    time.sleep(0.3)  # a journal that grows is read as a whole each time
    none = seats.SeatsPlanned(device="", n_seats=0, reason="")
    try:
        return (none, *_of(run.journal(), seats.SeatsPlanned))[-1]
    except JournalError:
        return none  # nothing has been written yet


def _address(scheduler_file):
    import json
    from pathlib import Path

    return json.loads(Path(scheduler_file).read_text())["address"]

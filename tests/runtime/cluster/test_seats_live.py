"""Several executors on one device, in real processes."""

import os

import pytest

import drlnb
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError
from drlnb.views.leasing.gantt import gantt
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU core carries one seat")


def _tasks(n, steps=4096, first=0):
    small = {"n_steps": 32, "n_envs": 8, "batch_size": 64, "n_epochs": 10}
    return [drlnb.Task("CartPole-v1", total_timesteps=steps, seed=first + i, **small) for i in range(n)]


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
        (name, slot["device"])
        for name, slot in next(iter(journal.streams.values())).header.snapshot["leases"]["slots"].items()
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

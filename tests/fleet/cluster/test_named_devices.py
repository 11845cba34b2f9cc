"""Devices by name at the door: what is wrong is told first; on clusters, they are what is opened."""

import json
import os

import pytest

import drlnb
from drlnb.cli.main import main
from drlnb.cli.train import device_choice
from drlnb.fleet.cluster import pool as module
from drlnb.fleet.cluster.pool import Wanted
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU core carries one virtual device")


@pytest.mark.parametrize(
    ("slots", "line"),
    [
        ([], "slots is an empty list: name devices such as 'cuda:0', or say 'auto' for all there are"),
        (["cuda:0", "cuda:0"], "slots names cuda:0 twice"),
        (["cuda:0", "cpu:0"], "slots mixes CUDA devices (cuda:0) with virtual ones (cpu:0): name one kind"),
        ([0, 2], "slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got 0"),
        (["cuda"], "slots lists devices as 'cuda:0', 'GPU-<uuid>', 'cpu:0' or 'NODE/gpu0', got 'cuda'"),
        (
            "cuda:0",
            "slots must be 'auto', a whole number in 1..1000 or a list of devices such as ['cuda:0'], got 'cuda:0' "
            "(one device: ['cuda:0'])",
        ),
    ],
)
def test_a_list_that_cannot_be_one_of_devices_starts_nothing(monkeypatch, slots, line):
    """`Fleet(slots=[...])`: one line, and no cluster."""
    monkeypatch.setattr(module, "start_cluster", lambda n: pytest.fail("a cluster was started"))
    with pytest.raises(ConfigError) as caught:
        drlnb.Fleet(slots=slots)
    assert str(caught.value) == line


def test_names_are_taken_as_they_are():
    """A list or a tuple of names instead of a number."""
    for names in (["cuda:0", "cuda:2"], ("cpu:1",)):
        wanted = Wanted(slots=names)
        assert (wanted.n_devices, wanted.names) == (None, tuple(names))


def test_devices_on_the_command_line_are_numbers_or_names():
    """A number counts; a list has names, for 0,2 could be anything."""
    assert [device_choice(text) for text in ("1", "1e1", "cuda:0", "cuda:0, cuda:2", "n0/gpu1,GPU-a-1")] == [
        1, 10, ["cuda:0"], ["cuda:0", "cuda:2"], ["n0/gpu1", "GPU-a-1"],
    ]  # fmt: skip


@pytest.mark.cluster
@two_cores
def test_named_virtual_devices_carry_the_slots_and_a_run_goes_on_with_them(tmp_path):
    """`slots=["cpu:1"]` opens 0/cpu1; other names are refused beside a training that goes on; resume has it, too."""
    task = drlnb.Task("CartPole-v1", total_timesteps=200_000, n_steps=32, n_envs=8)
    n = len(os.sched_getaffinity(0))
    with drlnb.Fleet(slots=["cpu:1"]) as fleet:
        assert [(slot.slot, slot.device) for slot in fleet.slots] == [("0/cpu1", "cpu")]
        assert (fleet.pool.n_devices, fleet.notices) == (1, ())
        assert fleet.pool.shape == {"n_slots": 1, "n_workers": 1, "slots": ["cpu:1"]}
        run = fleet.train(task, out=tmp_path / "r")
        for slots, line in (
            ([f"cpu:{n}"], f"no device cpu:{n}: this cluster has cpu:0"),
            (["n3/cpu0"], "no device n3/cpu0: this cluster has cpu:0"),
            (["cuda:0"], "there is no CUDA device here: "),
            (["cpu:0"], "this cluster's pool has 0/cpu1 already; slots asks for 0/cpu0"),
            (["cpu:1", "0/cpu1"], "slots names one device twice: 0/cpu1 is cpu:1"),
        ):
            with pytest.raises(ConfigError) as caught:
                drlnb.Fleet(fleet.address, slots=slots)
            assert str(caught.value).startswith(line)
        with drlnb.Fleet(fleet.address, slots=["0/cpu1"]) as other:
            assert other.slots == fleet.slots
        wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps > 0, "the first round")
        assert run.status == "running"
        run.stop()
        run.wait(timeout_s=60)
    assert json.loads((tmp_path / "r" / "run.json").read_text())["pool"]["slots"] == ["cpu:1"]
    again = drlnb.resume(tmp_path / "r")
    try:
        assert [slot.slot for slot in again.fleet.slots] == ["0/cpu1"]
        again.stop()
        again.wait(timeout_s=60)
    finally:
        again.fleet.close()
    journal = check_laws(tmp_path / "r")
    assert {slot for one in journal.of(leasing.LeaseGranted) for slot in one.slots} == {"0/cpu1"}


@pytest.mark.cluster
def test_a_device_that_is_not_there_ends_the_command_with_one_line(capfd, monkeypatch, tmp_path):
    """Exit code 2, one line that lists what there is, no run directory."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", "CartPole-v1", "--gpus", "cpu:999"]) == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert said[0].startswith("drlnb: no device cpu:999: this cluster has cpu:0")
    assert list(tmp_path.iterdir()) == []

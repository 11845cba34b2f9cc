"""Supervised work through the Python door on real processes: watched, paused, killed, resumed elsewhere, loaded."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import drlnb
from drlnb.records import round as words
from drlnb.records.columns.batching import ShareComputed
from drlnb.records.columns.leasing import LeaseGranted
from drlnb.records.errors import CheckpointError, TrainingFailed
from drlnb.records.journal import Journal
from drlnb.rl.networks.same_bits import one_thread
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, EPOCH
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

CROSS_ENTROPY, TABLE = nn.functional.cross_entropy, work.table()


class Told(TensorDataset):
    """Writes a letter where it is unpickled."""

    def __init__(self, file, *tensors):
        super().__init__(*tensors)
        self.file = file

    def __setstate__(self, state):
        self.__dict__.update(state)
        with self.file.open("a", encoding="utf-8") as file:
            file.write("x")


@pytest.fixture
def fleet():
    """Open a fleet with one slot on a cluster of its own."""
    with drlnb.Fleet(slots=1) as fleet:
        yield fleet


def wanted(n_epochs, **more):
    """Return the state of the plain loop's module."""
    with one_thread():
        torch_state = torch.get_rng_state()
        made = work.plain_loop(
            work.net(), TABLE, CROSS_ENTROPY, torch.optim.Adam, **{**ADAM, "n_epochs": n_epochs, **more}
        )
        torch.set_rng_state(torch_state)
    return made.state_dict()


def short_is_nan(ours, theirs):
    return CROSS_ENTROPY(ours, theirs) * (float("nan") if len(theirs) < work.BATCH else 1.0)


def assert_same(module, state):
    ours = module.state_dict()
    assert ours.keys() == state.keys()
    assert all(torch.equal(ours[name], value) for name, value in state.items())


def test_it_trains_evaluates_and_is_loaded(fleet, tmp_path):
    """It returns at once; then come metrics by epoch, a journal, the module, a report; and more epochs go on."""
    module, file = work.net(), tmp_path / "told"
    dataset = Told(file, *TABLE.tensors)

    def accuracy(trained):
        inputs, targets = TABLE.tensors
        return {"accuracy": (trained(inputs).argmax(1) == targets).float().mean()}

    given = {"loss": CROSS_ENTROPY, "optimizer": torch.optim.Adam, **ADAM, "evaluate": accuracy, "out": tmp_path / "r"}
    run = fleet.fit(module, dataset, **given)
    assert run.status == "running"
    with pytest.raises(CheckpointError, match="has no checkpoint in"):
        run.load()
    assert run.wait(timeout_s=60)["fit"].state == "done"
    rows = [row for row in run.rows("metrics") if "eval/accuracy" in row]
    assert [row["n_timesteps"] for row in rows] == [EPOCH, 2 * EPOCH, 3 * EPOCH]
    assert rows[-1]["train/learning_rate"] == 0.01
    loaded = run.load("fit")
    assert not loaded.training
    assert_same(loaded, wanted(3))
    assert rows[-1]["eval/accuracy"] == pytest.approx(accuracy(loaded)["accuracy"].item())
    journal = check_laws(tmp_path / "r")
    assert len(journal.of(LeaseGranted)) > 3
    assert file.read_text() == "x", "it is read once, and outlives leases"
    run.report(tmp_path / "r" / "report.html")
    longer = fleet.fit(module, dataset, **{**given, "n_epochs": 5, "on_existing": "resume"})
    longer.wait(timeout_s=60)
    assert_same(longer.load(), wanted(5))
    assert file.read_text() == "xx", "it was dropped with the end of the task"
    with pytest.raises(
        TrainingFailed, match=r"task fit failed: NonFinite: loss is nan at step 7 \(epoch 1, samples 63 to"
    ):
        fleet.fit(module, TABLE, **{**given, "loss": short_is_nan, "out": tmp_path / "bad"}).wait(timeout_s=60)
    played = drlnb.play(tmp_path / "r")
    with pytest.raises(CheckpointError, match="its program came from its author's own code"):
        played.load()
    assert_same(played.load(trust=True), wanted(5))
    played.close()


@pytest.mark.slow
def test_killed_and_resumed_by_a_fresh_process_it_ends_with_the_same_parameters(tmp_path):
    """Paused, its executor killed, stopped in the midst; `drlnb resume` finds module and data in the directory."""
    many, evaluate = 300, lambda module: {}
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.fit(
            work.net(),
            TABLE,
            CROSS_ENTROPY,
            torch.optim.Adam,
            **{**ADAM, "n_epochs": many},
            evaluate=evaluate,
            out=tmp_path / "r",
        )
        wait_until(lambda: run.tasks["fit"].n_timesteps > 5 * EPOCH, "a few rounds")
        run.pause()
        wait_until(lambda: run.status == "paused", "the pause")
        (executor,) = titled("drlnb executor", fleet.pool.handle.pid)
        executor.kill()
        run.resume()
        n_before = run.tasks["fit"].n_timesteps
        wait_until(lambda: run.tasks["fit"].n_timesteps > n_before + 5 * EPOCH, "the next executor's rounds")
        run.stop()
        assert run.wait(timeout_s=60)["fit"].state == "stopped"
        made = run.tasks["fit"].n_timesteps
        assert 0 < made < many * EPOCH
    command = [sys.executable, "-m", "drlnb.cli.main", "resume", str(tmp_path / "r")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    assert "fit" in said.stdout
    journal = Journal.read(tmp_path / "r" / "journal")
    (opened,) = journal.streams["task-fit-a2"].of(words.TaskOpened)
    assert opened.n_timesteps == made
    played = drlnb.play(tmp_path / "r")
    assert_same(played.load(trust=True), wanted(many))
    played.close()


def test_two_learners_train_what_one_trains_and_go_on_with_one(tmp_path):
    """Stopped in the midst under two slots, resumed on a pool of one: a rounding apart from the plain loop."""
    module, many = work.linear(), 40
    given = {
        "loss": CROSS_ENTROPY,
        "optimizer": torch.optim.SGD,
        "optimizer_kwargs": {"lr": 0.1},
        "batch_size": work.BATCH,
    }
    table = TensorDataset(TABLE.tensors[0].double(), TABLE.tensors[1])
    with drlnb.Fleet(slots=2) as fleet:
        run = fleet.fit(
            module,
            table,
            **given,
            n_epochs=many,
            n_learners=2,
            exact=True,
            evaluate=lambda module: {},
            out=tmp_path / "r",
        )
        wait_until(lambda: run.tasks["fit"].n_timesteps > 5 * EPOCH, "a few rounds")
        run.stop()
        assert run.wait(timeout_s=60)["fit"].state == "stopped"
        run.report(tmp_path / "r" / "report.html")
        shared = Journal.read(tmp_path / "r" / "journal").streams["task-fit-a1"].of(ShareComputed)
        assert len({share.slot for share in shared}) == 2
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.fit(
            module,
            table,
            **given,
            n_epochs=many,
            n_learners=2,
            evaluate=lambda module: {},
            out=tmp_path / "r",
            on_existing="resume",
        )
        assert run.wait(timeout_s=60)["fit"].state == "done"
        trained = run.load().state_dict()
    with one_thread():
        wanted = work.plain_loop(module, table, **{**given, "n_epochs": many}).state_dict()
    assert all((trained[name] - value).abs().max() < 1e-12 for name, value in wanted.items())

"""Supervised work whose steps two slots share, on real processes: parameters are those of one, whoever dies."""

import contextlib
import os
import time

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.records import round as words
from drlnb.records.columns import batching
from tests.runtime.fit.shared import plain_steps, written
from tests.runtime.laws import check_laws
from tests.runtime.live import titled

pytestmark = pytest.mark.cluster

ADAM = {"optimizer": torch.optim.Adam, "kwargs": {"lr": 0.01}}
#: In float32 Adam divides gradients that are almost zero by their size: rounding alone is 3e-6 then.
SGD = {"optimizer": torch.optim.SGD, "kwargs": {"lr": 0.1, "momentum": 0.9}}


def task(
    folder, dtype=torch.float64, n_features=6, n_hidden=16, n_steps=20, loss=nn.functional.mse_loss, how=ADAM, **more
):
    """Return module, data and spec of a regression; two rounds to an epoch of four steps."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(n_features, n_hidden), nn.Tanh(), nn.Linear(n_hidden, 1)).to(dtype)
    inputs = torch.randn(400, n_features, generator=torch.Generator().manual_seed(3), dtype=dtype)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    sizes = {"batch_size": 128, "total_timesteps": n_steps, "round_steps": 5}
    return module, data, written(folder, module, data, loss, **how, **sizes | more)


def trained(out, name="fit"):
    folder = out / "checkpoints" / name
    return load_file(folder / (folder / "LATEST").read_text() / "model.safetensors")


def assert_plain(run, module, data, n_steps, tolerance, how=ADAM):
    wanted = plain_steps(module, data, nn.functional.mse_loss, n_steps, batch_size=128, **how).state_dict()
    ours = trained(run.out)
    assert ours.keys() == wanted.keys()
    for name, value in wanted.items():
        assert (ours[name] - value).abs().max() <= tolerance, name
    assert (ours["0.weight"] - module[0].weight).abs().max() > 0.01, "it has learnt"


@pytest.mark.parametrize(
    ("n_workers", "dtype", "how", "tolerance"),
    [
        pytest.param(1, torch.float64, ADAM, 1e-9, marks=pytest.mark.slow),
        (2, torch.float32, SGD, 1e-6),
    ],
)
def test_two_slots_make_the_parameters_of_one(make_bench, tmp_path, n_workers, dtype, how, tolerance):
    """On one node, and on two; gradients are above the size from which they lie in shared memory."""
    module, data, spec = task(tmp_path / "files", dtype, n_features=700, n_hidden=96, how=how)
    bench = make_bench(n_workers=n_workers, n_slots=2)
    run = bench.start([spec.to_plain()])
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 20, tolerance, how)
    stream = check_laws(run.out).streams["task-fit-a1"]
    closed, shares = stream.of(batching.SplitClosed), stream.of(batching.ShareComputed)
    assert len(closed) == 20
    assert sum(split.n_used for split in closed) == 5 * 400
    assert len({share.slot for share in shares}) == 2
    assert not stream.of(words.LeaseLost)


def in_a_step(run, bench, split):
    """Wait until a step is under way; return its lease's executors, the lead first."""
    run.until(lambda row: row["r"] == "SplitPlanned" and row["split"] >= split, f"step {split}")
    leases = [row for row in run.rows if row["r"] == "LeaseReceived" and len(row["slots"]) == 2]
    return [titled(f"drlnb executor {slot} ", bench.handle.pid)[0] for slot in leases[-1]["slots"]]


def slow(outputs, targets):
    """Take a while, so that somebody can be killed in the midst of a step."""
    time.sleep(0.1)
    return nn.functional.mse_loss(outputs, targets)


def slower(outputs, targets):
    """Take so long that a step is still under way when somebody who has seen it begin kills a member of it."""
    time.sleep(0.3)
    return nn.functional.mse_loss(outputs, targets)


def kill_in_a_later_step(run, bench, who):
    """Kill the lead or another member in the midst of a step that is not its round's first."""

    def begun():
        kinds = [row["r"] for row in run.rows]
        at = len(kinds) - 1 - kinds[::-1].index("LeaseReceived")
        planned = [row for row in run.rows[at:] if row["r"] == "SplitPlanned"]
        if (
            len(planned) > 1
            and len(planned[-1]["sizes"]) == 2
            and min(planned[-1]["sizes"])
            and planned[-1]["split"] > 4
        ):
            return run.rows[at]["slots"][who == "member"]
        return None

    run.until(lambda row: row["r"] == "SplitPlanned" and begun(), "a later step of two")
    titled(f"drlnb executor {begun()} ", bench.handle.pid)[0].kill()


@pytest.mark.parametrize("who", ["member", pytest.param("lead", marks=pytest.mark.slow)])
def test_who_dies_in_the_midst_of_a_step_changes_no_parameter(make_bench, tmp_path, who):
    """The step that was under way is made anew under the next lease, on what is there; if the lead died, its round."""
    module, data, spec = task(tmp_path / "files", loss=slower)
    bench = make_bench(n_slots=2)
    run = bench.start([spec.to_plain()], planners={"batching": "equal"})
    kill_in_a_later_step(run, bench, who)
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 20, 1e-9)
    stream = check_laws(run.out).streams["task-fit-a1"]
    assert len(stream.of(words.ExecutorDied)) == 1
    kinds = [type(record) for record in stream.records]
    step = kinds[: kinds.index(words.ExecutorDied)].count(batching.SplitPlanned) - 1
    steps = [order.step for order in stream.of(batching.ApplyGradients) if order.split]
    asked = [order.step for order in stream.of(batching.ApplyGradients) if not order.split]
    again = [work.after_timesteps for work in stream.of(words.ComputeGradient) if work.after_timesteps > step]
    made = [row.n_timesteps for row in stream.of(words.MetricsRecorded)]
    round_ = next(n for n in made if n > step)
    if who == "member":
        assert asked == [step - 1]
        assert steps[:round_] == list(range(round_)), "none is made twice"
        assert again[:1] != [round_]
    else:
        assert not asked
        assert again[0] == round_, "it is made again, by one slot alone"


@pytest.mark.slow
def test_a_member_that_stands_still_is_ended_by_the_watchdog(make_bench, tmp_path):
    """SIGSTOP: nothing hangs, and no parameter is another one."""
    module, data, spec = task(tmp_path / "files", loss=slow)
    bench = make_bench(n_slots=2)
    bench.link.set_pool("leasing.compute_timeout_s", 2.0)
    run = bench.start([spec.to_plain()])
    in_a_step(run, bench, 8)[1].suspend()
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 20, 1e-9)
    (died,) = check_laws(run.out).streams["task-fit-a1"].of(words.ExecutorDied)
    assert "no progress for 2 s: killed" in died.reason


class SlowOne:
    """A loss that takes long for each sample in one process: whoever comes first."""

    def __init__(self, file):
        self.file = file

    def __call__(self, outputs, targets):
        with contextlib.suppress(FileExistsError), self.file.open("x") as file:
            file.write(str(os.getpid()))
        slow = self.file.read_text() == str(os.getpid())
        time.sleep(len(targets) * (0.004 if slow else 0.0005))
        return nn.functional.mse_loss(outputs, targets)


@pytest.mark.slow
def test_a_member_that_is_cut_returns_what_it_has_done(make_bench, tmp_path):
    """The first answer is enough: the slow one stops at a chunk; every sample that is not used is counted by name."""
    _, _, spec = task(tmp_path / "files", loss=SlowOne(tmp_path / "slow"))
    bench = make_bench(n_slots=2)
    run = bench.start(
        [spec.to_plain()], planners={"batching": "equal"}, settings={"batching": {"quorum": 0.5, "late": "cut"}}
    )
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    stream = check_laws(run.out).streams["task-fit-a1"]
    cut = {(command.split, command.slot) for command in stream.of(batching.CutShare)}
    assert cut
    parts = [share for share in stream.of(batching.ShareComputed) if share.n_done < share.n_planned]
    assert parts
    assert {(share.split, share.slot) for share in parts} <= cut
    assert all(share.denominator == share.n_done > 0 for share in parts)
    closed = stream.of(batching.SplitClosed)
    assert sum(split.n_used + sum(split.lost.values()) for split in closed) == 5 * 400


@pytest.mark.slow
def test_what_a_slow_member_has_not_begun_is_done_by_the_other(make_bench, tmp_path):
    """It stops at a chunk, the rest is shared anew, and parameters are those of the whole batch."""
    module, data, spec = task(tmp_path / "files", loss=SlowOne(tmp_path / "slow"))
    bench = make_bench(n_slots=2)
    run = bench.start([spec.to_plain()], planners={"batching": "equal"}, settings={"batching": {"steal": True}})
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 20, 1e-9)
    closed = check_laws(run.out).streams["task-fit-a1"].of(batching.SplitClosed)
    assert sum(split.n_moved for split in closed) > 0
    assert sum(split.n_used for split in closed) == 5 * 400
    assert not any(split.lost for split in closed)

"""Supervised work whose steps two slots share, on real processes: parameters are those of one, whoever dies."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.records import round as words
from drlnb.records.columns import batching
from tests.runtime.fit.shared import plain_steps, written
from tests.runtime.laws import check_laws

pytestmark = pytest.mark.cluster

ADAM = {"optimizer": torch.optim.Adam, "kwargs": {"lr": 0.01}}


def task(folder, dtype=torch.float64, n_features=6, n_hidden=16, n_steps=20, **more):
    """Return module, data and spec of a regression; two rounds to an epoch of four steps."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(n_features, n_hidden), nn.Tanh(), nn.Linear(n_hidden, 1)).to(dtype)
    inputs = torch.randn(400, n_features, generator=torch.Generator().manual_seed(3), dtype=dtype)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    sizes = {"batch_size": 128, "total_timesteps": n_steps, "round_steps": 5}
    return module, data, written(folder, module, data, nn.functional.mse_loss, **ADAM, **sizes | more)


def trained(out, name="fit"):
    folder = out / "checkpoints" / name
    return load_file(folder / (folder / "LATEST").read_text() / "model.safetensors")


def assert_plain(run, module, data, n_steps, tolerance):
    wanted = plain_steps(module, data, nn.functional.mse_loss, n_steps, batch_size=128, **ADAM).state_dict()
    ours = trained(run.out)
    assert ours.keys() == wanted.keys()
    for name, value in wanted.items():
        assert (ours[name] - value).abs().max() <= tolerance, name
    assert (ours["0.weight"] - module[0].weight).abs().max() > 0.01, "it has learnt"


@pytest.mark.parametrize("n_workers", [1, 2])
def test_two_slots_make_the_parameters_of_one(make_bench, tmp_path, n_workers):
    """On one node, and on two; gradients above the size from which they lie in shared memory."""
    module, data, spec = task(tmp_path / "files", n_features=700, n_hidden=96)
    bench = make_bench(n_workers=n_workers, n_slots=2)
    run = bench.start([spec.to_plain()])
    ended = run.end()["fit"]
    assert ended["state"] == "done", ended["reason"]
    assert_plain(run, module, data, 20, 1e-9)
    stream = check_laws(run.out).streams["task-fit-a1"]
    closed, shares = stream.of(batching.SplitClosed), stream.of(batching.ShareComputed)
    assert len(closed) == 20
    assert sum(split.n_used for split in closed) == 5 * 400
    assert len({share.slot for share in shares}) == 2
    assert not stream.of(words.LeaseLost)

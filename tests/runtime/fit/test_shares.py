"""Steps of which several members compute a part each, held against a plain PyTorch loop."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from drlnb.rl.networks.same_bits import one_thread
from tests.runtime.fit.shared import plain_steps, shared_steps, written

SPLITS = {"one": (512,), "alike": (256, 256), "uneven": (400, 112), "least": (1, 511), "three": (300, 200, 12)}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def data_of(dtype=torch.float32, n=1024):
    inputs = torch.randn(n, 6, generator=torch.Generator().manual_seed(3), dtype=dtype)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())


def net(dtype=torch.float32):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)


def assert_close(ours, theirs, tolerance):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        assert torch.allclose(ours[name], value, rtol=0.0, atol=tolerance), name


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("split", SPLITS)
def test_shares_are_one_batch(tmp_path, split, dtype):
    """However the samples are dealt; with clipping, which sees the whole gradient, and over two epochs."""
    loss, clip, module, data = nn.functional.mse_loss, 0.05, net(dtype), data_of(dtype)
    spec = written(tmp_path, module, data, loss, max_grad_norm=clip, optimizer=torch.optim.Adam, kwargs={"lr": 0.01})
    wanted = plain_steps(module, data, loss, 4, clip=clip, optimizer=torch.optim.Adam, kwargs={"lr": 0.01})
    ours = shared_steps(spec, SPLITS[split], 4)
    assert_close(ours.module, wanted, TOLERANCE[dtype])
    assert not torch.equal(ours.module[0].weight, module[0].weight)


@pytest.mark.parametrize("chunk", [1, 100, 400])
def test_chunks_are_one_batch(tmp_path, chunk):
    module, data, loss = net(torch.float64), data_of(torch.float64, 512), nn.functional.mse_loss
    spec = written(tmp_path, module, data, loss)
    assert_close(shared_steps(spec, (300, 212), 2, chunk).module, plain_steps(module, data, loss, 2), 1e-12)

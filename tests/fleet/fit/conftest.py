import pytest
import torch
from torch import nn

from drlnb.fleet.fit import fit
from drlnb.rl.networks.same_bits import one_thread
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, Door


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture
def begin(tmp_path):
    """Return a function that puts work through the door; its files are where executors look."""

    def begin(module=None, dataset=None, loss=nn.functional.cross_entropy, optimizer=torch.optim.Adam, **more):
        made = fit(Door(), module or work.net(), dataset or work.table(), loss, optimizer, **{**ADAM, **more})
        RunDir(tmp_path).add(made.files)
        return made.task

    begin.out = tmp_path
    return begin

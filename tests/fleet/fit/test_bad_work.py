"""Wrong input of supervised work: one line before anything is made, or the step and its samples."""

import threading
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from drlnb.fleet.fit import fit
from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import FitWork
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, EPOCH, Door, learner, make


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


class Locked(TensorDataset):
    def __init__(self):
        super().__init__(*work.tensors())
        self.lock = threading.Lock()


def holding(dataset):
    module = work.net()
    module.dataset = dataset
    return module


class Held(TensorDataset):
    def __init__(self, module):
        super().__init__(*work.tensors())
        self.module = module


def hooked(layer=2):
    module = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 2))
    module[layer].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    return module


def scheduled(parameters, lr):
    optimizer = torch.optim.SGD(parameters, lr=lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    return optimizer


def grouped(value):
    """Return what makes an optimiser with a value in its groups, which would not be the same once it was read back."""

    def made(parameters, lr):
        optimizer = torch.optim.SGD(parameters, lr=lr)
        optimizer.param_groups[0]["odd"] = value
        return optimizer

    return made


TABLE, NET, LOCK, CROSS_ENTROPY = work.table(), work.net(), threading.Lock(), nn.functional.cross_entropy
SGD = torch.optim.SGD(NET.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"module": nn.Linear}, "module must be a torch.nn.Module, got <class 'torch.nn.modules.linear.Linear'>"),
        ({"module": work.net().eval()}, "module is in evaluation mode, in which nothing would"),
        ({"module": nn.LazyLinear(2)}, "module has lazy parameters, whose shapes nobody knows: put one batch"),
        ({"module": holding(TABLE)}, "the module holds the data set"),
        ({"module": hooked()}, "parameter 2.weight has a hook, which is not copied with module: register it where"),
        ({"module": nn.Flatten()}, "optimizer cannot be made: ValueError: optimizer got an empty parameter list"),
        ({"module": nn.Linear(10, 2, device="meta")}, "weight of module cannot be saved (torch.float32, "),
        ({"dataset": Stream()}, "dataset must have __len__ and __getitem__, or be a function that makes such a one"),
        ({"dataset": iter([])}, "dataset must have __len__ and __getitem__, or be a function that makes such a one"),
        ({"dataset": lambda: iter([])}, "dataset must have __len__ and __getitem__"),
        ({"dataset": lambda: 1 / 0}, "dataset cannot be read: ZeroDivisionError: division by zero"),
        ({"dataset": {"a": (1.0, 2.0)}, "batch_size": 1}, "dataset cannot be read: KeyError: 0"),
        ({"dataset": DataLoader(TABLE)}, "dataset must be what the DataLoader reads (its dataset)"),
        ({"dataset": Locked()}, "dataset Locked cannot travel to another process: attribute 'lock'"),
        ({"dataset": Held(NET), "module": NET}, "the data set holds the module, and would see a copy"),
        ({"dataset": TensorDataset(torch.zeros(9, 10))}, "each sample of dataset must be a pair (input, target), got"),
        ({"dataset": [(1.0, 2.0)] * 8}, "dataset has 8 samples, less than batch_size = 9"),
        ({"dataset": []}, "dataset has 0 samples, less than batch_size = 9"),
        ({"loss": "mse"}, "loss must be a function of (output, target), got 'mse'"),
        ({"loss": nn.Linear(2, 1)}, "loss has parameters of its own, which no optimizer gets"),
        ({"loss": partial(CROSS_ENTROPY, weight=LOCK)}, "loss cannot travel to another process: argument 'weight'"),
        ({"optimizer_kwargs": {"lock": LOCK}}, "optimizer_kwargs cannot travel to another process: attribute 'lock'"),
        ({"optimizer": SGD}, "optimizer must be a class such as torch.optim.Adam, or a function that makes"),
        ({"optimizer": "adam"}, "optimizer must be a class such as torch.optim.Adam, or a function"),
        ({"optimizer": lambda parameters, lr: None}, "optimizer must make a torch.optim.Optimizer, it made None"),
        ({"optimizer": scheduled}, "optimizer has a scheduler of torch.optim.lr_scheduler, which is not saved with"),
        ({"optimizer": torch.optim.LBFGS}, "optimizer LBFGS computes losses itself (its step has a closure)"),
        ({"optimizer": grouped(np.float32(1.0))}, "the optimizer keeps odd = np.float32(1.0), which cannot be saved: "),
        ({"optimizer": grouped({10: 0.1})}, "the optimizer keeps odd = {10: 0.1}, which cannot be saved: "),
        ({"optimizer": grouped({"a"})}, "the optimizer keeps odd = {'a'}, which cannot be saved: "),
        ({"optimizer_kwargs": {"lr": -1}}, "optimizer cannot be made: ValueError: Invalid learning rate: -1"),
        ({"optimizer_kwargs": {"rate": 1}}, "optimizer cannot be made: TypeError: "),
        ({"optimizer_kwargs": [1]}, "optimizer_kwargs must be a mapping whose keys are words, got [1]"),
        ({"batch_size": 0, "n_epochs": True}, "batch_size must be a whole number >= 1, got 0; n_epochs must be"),
        ({"batch_size": float("nan")}, "batch_size must be a whole number >= 1, got nan"),
        ({"n_epochs": 1.5}, "n_epochs must be a whole number >= 1, got 1.5"),
        ({"n_epochs": 10**16}, "steps over all epochs must be a whole number in 1.."),
        ({"seed": -1}, "seed must be a whole number"),
        ({"max_grad_norm": 0}, "max_grad_norm must be a number"),
        ({"max_grad_norm": float("nan")}, "max_grad_norm must be a number"),
        ({"memory_budget": "much"}, "memory_budget must be"),
        ({"memory_budget": 100}, "the budget must be above the "),
        ({"evaluate": 3}, "evaluate must be a function of the module, got 3"),
        ({"name": "a/b"}, "name must be 1 to 80 letters, digits, '-', '_' or '.', got 'a/b'"),
        ({"planners": {"warmup": "saa"}}, "warmup has no effect on supervised work"),
        ({"planners": {"collect": "proportional"}}, "collect has no effect on supervised work"),
        ({"settings": {"warmup.rho": 2.0}}, "warmup.rho has no effect on supervised work"),
        ({"settings": {"task.priority": 2}}, "task.priority"),
        ({"planners": {"hold": "no"}}, "hold"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_before_anything_is_made(given, said):
    door = Door()
    known = {"module": work.net(), "dataset": TABLE, "loss": nn.functional.cross_entropy, "optimizer": torch.optim.Adam}
    with pytest.raises(ConfigError) as caught:
        fit(door, **{**known, **ADAM, **given})
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert not door.begun


NO_SCALAR = "raised TypeError: loss must return a tensor without axes, such as a mean, got "


@pytest.mark.parametrize(
    ("loss", "kind", "said"),
    [
        (lambda ours, theirs: ours.sum(1), RuntimeError, NO_SCALAR + r"shape \(9,\)"),
        (lambda ours, theirs: 0.5, RuntimeError, NO_SCALAR + "0.5"),
        (lambda ours, theirs: ours.sum() * float("nan"), NonFinite, ""),
    ],
)  # fmt: skip
def test_a_loss_that_is_none_names_step_and_samples(begin, loss, kind, said):
    """The round is undone; the samples are those of the epoch's order."""
    good = nn.functional.cross_entropy
    n_calls = iter(range(100))
    with pytest.warns(RuntimeWarning, match="^variable 'n_calls' of loss changes with each step"):
        task = begin(loss=lambda ours, theirs: loss(ours, theirs) if next(n_calls) == EPOCH + 1 else good(ours, theirs))
    faulty = learner(begin, task)
    make(faulty, EPOCH)
    before = faulty.published()
    where = r"step 9 \(epoch 2, samples 9 to 17 of its order\)"
    with pytest.raises(kind, match=f"{where} {said}$" if said else f"^loss is nan at {where}; update refused$"):
        make(faulty, EPOCH + 4)
    assert (faulty.published() == before).all()
    assert faulty.n_steps == EPOCH


def test_a_batch_of_one_is_named_where_a_module_cannot_have_it(begin):
    """The last batch of an epoch is kept, however short."""
    faulty = learner(begin, begin(batch_size=23))
    with pytest.raises(
        RuntimeError, match=r"^step 3 \(epoch 1, samples 69 to 69 of its order\) raised ValueError: Expected more"
    ):
        make(faulty, 4)


def test_work_of_another_kind_is_no_data_set():
    """A spec without data has no epochs."""
    assert FitWork(name="a", program="m:f", total_timesteps=1).epoch_steps == 0

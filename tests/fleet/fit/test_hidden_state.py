"""What changes as work trains and is not saved is told before the run, by name; what is saved, or cached, is not."""

import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from drlnb.fleet.fit import fit
from drlnb.records.errors import ConfigError
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, Door, learner, make

CROSS_ENTROPY = nn.functional.cross_entropy


class Layer(nn.Module):
    """Does something with what it keeps, and passes its input on."""

    def __init__(self, kept, step):
        super().__init__()
        self.kept, self.step = kept, step

    def forward(self, inputs):
        self.step(self, inputs)
        return inputs


def count(layer, inputs):
    layer.kept += 1


def average(layer, inputs):
    layer.kept = 0.9 * layer.kept + 0.1 * float(inputs.detach().mean())


def collect(layer, inputs):
    layer.kept.append(len(inputs))


def mark(layer, inputs):
    layer.kept["seen"] = layer.kept.get("seen", 0) + len(inputs)


def draw(layer, inputs):
    layer.kept.normal()


def begin_once(layer, inputs):
    """Set a flag at the first call, as layers do that take their scale from the first batch."""
    layer.kept = True


def net(*more):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(10, 4), *more, nn.Linear(4, 2))


class Annealed:
    """A loss whose temperature falls from call to call."""

    n_calls = 0

    def __call__(self, ours, theirs):
        self.n_calls += 1
        return CROSS_ENTROPY(ours * (1 + self.n_calls), theirs)


def counting_loss():
    n_calls = 0

    def loss(ours, theirs):
        nonlocal n_calls
        n_calls += 1
        return CROSS_ENTROPY(ours, theirs)

    return loss


def watched():
    """Return a module whose hook collects what it sees."""
    module, seen = net(), []
    module[0].register_forward_hook(lambda layer, inputs, output: seen.append(output.detach()))
    return module


class OwnNumbers(work.Noisy):
    """Draws from a generator of its own."""

    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(1)

    def __getitem__(self, index):
        return self.inputs[index] + float(self.numbers.normal()), self.targets[index]


class Later(work.Noisy):
    """Gives harder samples from call to call."""

    n_calls = 0

    def __getitem__(self, index):
        self.n_calls += 1
        return self.inputs[index] * self.n_calls, self.targets[index]


class Warm(torch.optim.SGD):
    """Has a learning rate that grows with a count of its own."""

    n_steps = 0

    def step(self, closure=None):
        self.n_steps += 1
        self.param_groups[0]["lr"] = 0.01 * self.n_steps
        return super().step(closure)


def hooked(parameters, lr):
    made, steps = torch.optim.SGD(parameters, lr=lr), []
    made.register_step_pre_hook(lambda *_: steps.append(len(steps)))
    return made


KEEPS = "changes with each step and is not saved: it begins anew in each process that takes the task over, and each "
TOLD = [
    ({"module": net(Layer(0, count))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer(1.0, average))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer([], collect))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer({}, mark))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer(np.zeros(2), count))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer([torch.zeros(2)], lambda layer, _: layer.kept[0].add_(1)))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer(np.random.default_rng(1), draw))}, "module.1.kept " + KEEPS),
    ({"module": net(Layer(False, begin_once))}, "module.1.kept " + KEEPS),
    ({"module": net(nn.Sequential(Layer(0, count)), Layer(0, count))}, "module.1.0.kept, module.2.kept " + KEEPS),
    ({"module": watched()}, "module.0._forward_hooks " + KEEPS),
    ({"loss": Annealed()}, "attribute 'n_calls' of loss " + KEEPS),
    ({"loss": counting_loss()}, "variable 'n_calls' of loss " + KEEPS),
    ({"optimizer": Warm}, "optimizer.n_steps " + KEEPS),
    ({"optimizer": hooked}, "optimizer._optimizer_step_pre_hooks " + KEEPS),
    ({"dataset": OwnNumbers()}, "dataset gives other samples when it is read again from the same random numbers, so "),
    ({"dataset": Later()}, "dataset gives other samples when it is read again from the same random numbers, so "),
]


def asked(module=None, dataset=None, loss=CROSS_ENTROPY, optimizer=torch.optim.SGD, **more):
    door = Door()
    fit(door, module or net(), dataset or work.table(), loss, optimizer, **{**ADAM, **more})
    return door.begun[0]


@pytest.mark.parametrize(("given", "said"), TOLD)
@pytest.mark.parametrize("n_learners", [1, 2])
def test_what_is_kept_elsewhere_is_told_by_name(given, said, n_learners):
    """Once, of the line that calls fit, with what to do; and refused if all shall be exact."""
    # With two learners a loss that changes from call to call may be refused by the law, which it breaks.
    if n_learners == 1 or not isinstance(given.get("loss"), Annealed):
        with pytest.warns(RuntimeWarning) as told:
            asked(**given, n_learners=n_learners)
        (only,) = told
        assert str(only.message).startswith(said)
        assert only.filename == __file__
    with pytest.raises(ConfigError) as refused:
        asked(**given, n_learners=n_learners, exact=True)
    assert str(refused.value).startswith("exact=True: " + said)


class Cached(nn.Module):
    """Keeps its last input, how many there were, and their mean: what a step sets, and none reads."""

    last, n, mean = None, 0, None

    def forward(self, inputs):
        self.last, self.n, self.mean = inputs, len(inputs), float(inputs.detach().mean())
        return inputs


class Told(nn.Module):
    """Has a buffer that counts, which is saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("n_calls", torch.zeros(()))

    def forward(self, inputs):
        self.n_calls += 1
        return inputs


def grouped(parameters, lr):
    made = torch.optim.SGD(parameters, lr=lr)

    def count(optimizer, *_):
        optimizer.param_groups[0]["step"] = optimizer.param_groups[0].get("step", 0) + 1

    made.register_step_pre_hook(count)
    return made


class Sequences(Dataset):
    """Numbers in a row, for layers that keep much of their own."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.linspace(0.0, float(index), 12).reshape(3, 4), index % 2


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 8, batch_first=True, dropout=0.0), nn.Linear(8, 2)

    def forward(self, inputs):
        return self.head(self.layer(inputs)[0][:, -1])


QUIET = [
    {"module": net(Cached())},
    {"module": net(Told())},
    {"module": work.net(), "dataset": work.Noisy()},
    {"module": net(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)))},
    {"module": net(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))},
    {"module": net(nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)))},
    {"module": net(nn.utils.spectral_norm(nn.Linear(4, 4)))},
    {"module": Recurrent(), "dataset": Sequences()},
    {"optimizer": grouped},
    *({"optimizer": getattr(torch.optim, name)} for name in ("Adam", "RMSprop", "Adagrad", "NAdam", "ASGD", "Rprop")),
    {"module": net(Layer(0, lambda *_: 1 / 0))},
    {"module": net(Layer(0, lambda *_: sys.exit("no")))},
]


@pytest.mark.parametrize("given", QUIET)
def test_what_is_saved_or_only_cached_is_not_told(given):
    """Nor is what cannot be tried: it says so itself, where it trains."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked(**given).task.n_learners == 1


def test_a_large_module_is_not_tried(monkeypatch):
    """Four times its parameters would have to fit here; samples are looked at all the same."""
    monkeypatch.setattr("drlnb.fleet.tasks.hidden_state._MOST_BYTES", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(module=net(Layer(0, count)))
    with pytest.warns(RuntimeWarning, match="^dataset gives other samples"):
        asked(module=net(Layer(0, count)), dataset=OwnNumbers())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_module_is_tried_as_it_is():
    """To compile one for two samples takes seconds; the law of several learners is tried on it all the same."""

    def backend(graph, inputs):
        raise AssertionError("compiled")

    assert asked(module=torch.compile(net(), backend=backend), n_learners=2).task.n_learners == 2


def test_what_is_told_is_true(begin):
    """Who takes the task over begins to count anew, and what a lost lease has counted stays counted."""
    with pytest.warns(RuntimeWarning, match="module.1.kept"):
        task = begin(net(Layer(0, count)), optimizer=torch.optim.SGD)
    first, second = learner(begin, task), learner(begin, task)
    make(first, 3)
    second.restore(*first.state())
    make(second, 5)
    assert (first.module[1].kept, second.module[1].kept) == (3, 2)

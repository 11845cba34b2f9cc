"""The door of supervised work: what it packs trains as a plain loop, and is evaluated without a trace."""

import contextlib
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from drlnb.fleet.cluster.existing import differences
from drlnb.fleet.policies.modules import load_module
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.spec import read_work
from drlnb.rl.pickled import code_in
from drlnb.runtime.children.data_sets import DataSets
from drlnb.runtime.files.run_directory import RunDir
from drlnb.runtime.master.work import rounds_of
from tests.fleet.fit import work
from tests.fleet.fit.work import ADAM, BATCH, EPOCH, N_SAMPLES, assert_same, learner, make


# -- what it trains --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dataset", "optimizer", "more"),
    [
        (work.table, torch.optim.Adam, {}),
        (work.Noisy, torch.optim.AdamW, {"max_grad_norm": 0.5, "seed": 7}),
        (work.AtOnce, work.cosine, {"optimizer_kwargs": {"lr": 0.1, "n_steps": 3 * EPOCH}}),
        (lambda: Subset(work.table(), range(30)), torch.optim.Adam, {"batch_size": 30}),
    ],
    ids=["table", "noisy", "at once, scheduled", "subset in one batch"],
)
def test_it_is_the_plain_loop_bit_by_bit(begin, dataset, optimizer, more):
    """Whatever the rounds, with dropout, batch normalisation and noise in the data; also if another process goes on."""
    dataset, more = dataset(), {**ADAM, **more}
    task = begin(None, dataset, optimizer=optimizer, **more)
    first, second = learner(begin, task), learner(begin, task)
    half = task.total_timesteps // 2
    make(first, 1, half)
    facts, buffer = first.state()
    second.restore(pickle.loads(pickle.dumps(facts)), buffer)
    make(second, half + 1, task.total_timesteps)
    wanted = work.plain_loop(work.net(), dataset, nn.functional.cross_entropy, optimizer, **more)
    assert_same(second, wanted)


def test_what_is_given_stays_as_it_is(begin):
    """Neither the module nor anybody's random numbers are touched; a factory is called from the seed's."""
    module = work.net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(3), random.seed(3), np.random.seed(3)  # noqa: NPY002
    wanted = torch.rand(()), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(3), random.seed(3), np.random.seed(3)  # noqa: NPY002
    task = begin(module, lambda: TensorDataset(torch.rand(50, 10), torch.zeros(50).long()))
    make(learner(begin, task), 5)
    assert (torch.rand(()), random.random(), np.random.rand()) == wanted  # noqa: NPY002
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training


class Lookahead(torch.optim.SGD):
    """Has a step that takes anything, as many of users' own do."""

    def step(self, *args, **kwargs):
        return super().step(*args, **kwargs)


def test_an_optimizer_may_change_the_module_that_it_is_made_of_and_no_other(begin):
    """Its function freezes, fills and hooks parameters: of the copy that is trained, which is as in a plain loop."""

    def made(parameters, lr):
        first, *rest = parameters
        first.requires_grad_(requires_grad=False).zero_()
        rest[-1].register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        return Lookahead([first, *rest], lr=lr)

    module = work.net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    task = begin(module, None, optimizer=made)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(each.requires_grad and not each._backward_hooks for each in module.parameters())
    trained = learner(begin, task)
    make(trained, task.total_timesteps)
    assert_same(trained, work.plain_loop(work.net(), work.table(), nn.functional.cross_entropy, made, **work.ADAM))


def test_the_spec_says_epochs_and_names_files(begin):
    """The budget is in steps, the last one of an epoch short; code and data are in files, not in the spec."""
    assert rounds_of(begin(evaluate=dict))["epoch_steps"] == EPOCH
    task = begin()
    assert (task.total_timesteps, task.epoch_steps, task.n_samples, task.batch_size) == (3 * EPOCH, EPOCH, 70, 9)
    assert task.optimizer == "Adam(lr=0.01)"
    assert rounds_of(task)["epoch_steps"] == 0, "rounds end where they like if nobody looks at an epoch's end"
    assert read_work(task.to_plain()) == task
    assert len(str(task.to_plain())) < 1000
    assert code_in(task.to_plain()) == ["program"]
    files = [begin.out / task.program, begin.out / task.data]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}, "they hold code, and data of the user's"
    assert RunDir(begin.out).foreign() is None
    other = begin(dataset=lambda: work.table())
    assert not files[1].exists(), "only what the run needs is kept"
    assert (begin.out / other.data).is_file()


def test_a_loss_that_speaks_of_the_module_speaks_of_the_one_that_is_trained(begin):
    """So does an optimiser's factory with groups of its parameters; an evaluation sees the data set that is there."""
    module, dataset = work.net(), work.table()
    head = module.layers[4]

    def loss(ours, theirs):
        return nn.functional.cross_entropy(ours, theirs) + 0.01 * head.weight.square().sum()

    def groups(parameters, lr):
        return torch.optim.SGD(
            [{"params": head.parameters(), "lr": 0.1 * lr}, {"params": module.layers[0].parameters()}], lr=lr
        )

    def evaluate(trained):
        return {"same": float(trained.layers[4] is head), "n": len(dataset)}

    task = begin(module, dataset, loss, groups, evaluate=evaluate, n_epochs=1)
    data_sets = DataSets()
    trained = learner(begin, task, data_sets)
    (metrics,) = make(trained, EPOCH)
    assert (metrics["eval/same"], metrics["eval/n"]) == (1.0, N_SAMPLES)
    assert (begin.out / task.program).stat().st_size < (begin.out / task.data).stat().st_size + 20_000
    assert_same(trained, reference_with_groups(dataset))


def reference_with_groups(dataset):
    """Return what the loop above makes, with parts of its own module."""
    module = work.net()
    head = module.layers[4]
    optimizer = torch.optim.SGD(
        [{"params": head.parameters(), "lr": 0.001}, {"params": module.layers[0].parameters()}], lr=0.01
    )
    torch.manual_seed(0)
    order = np.random.default_rng((0, 0)).permutation(N_SAMPLES)
    for start in range(0, N_SAMPLES, BATCH):
        inputs, targets = dataset[torch.as_tensor(order[start : start + BATCH])]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs), targets) + 0.01 * head.weight.square().sum()
        loss.backward()
        optimizer.step()
    return module


# -- evaluation ------------------------------------------------------------------------------------------------------
def test_an_evaluation_does_not_disturb_the_training(begin):
    """It draws random numbers, and is in evaluation mode without gradients; a frozen part stays frozen."""
    module = work.net()
    module.layers[1].eval()  # as of a pretrained one

    def evaluate(trained):
        torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
        inputs, _ = work.tensors()
        twice = [trained(inputs) for _ in range(2)]
        assert not (trained.training)
        assert not (torch.is_grad_enabled())
        return {"same": torch.equal(*twice), "loss": torch.tensor(0.5), "n": np.int64(3)}

    evaluated, plain = (learner(begin, begin(module, evaluate=what)) for what in (evaluate, None))
    first, second, third = make(evaluated, 3, EPOCH, 2 * EPOCH)
    assert not any(name.startswith("eval/") for name in first)
    for metrics in (second, third):
        assert {name: metrics[name] for name in metrics if name.startswith("eval/")} == {
            "eval/same": 1.0,
            "eval/loss": 0.5,
            "eval/n": 3.0,
        }
    make(plain, 2 * EPOCH)
    assert (evaluated.published() == plain.published()).all()
    assert evaluated.module.training
    assert not evaluated.module.layers[1].training


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        (lambda module: 0.5, "must return scalars by name, such as {'loss': 0.1}, got 0.5"),
        (lambda module: {"a": torch.zeros(2)}, "must return scalars by name, got 'a': tensor([0., 0.])"),
        (lambda module: {"a": "good"}, "must return scalars by name, got 'a': 'good'"),
        (lambda module: {3: 1.0}, "must return scalars by name, got 3: 1.0"),
        (lambda module: 1 / 0, "raised ZeroDivisionError: division by zero"),
    ],
)
def test_an_evaluation_that_fails_undoes_its_round(begin, evaluate, said):
    faulty = learner(begin, begin(evaluate=evaluate))
    before = faulty.published()
    with pytest.raises(RuntimeError) as caught:
        make(faulty, EPOCH)
    assert str(caught.value) == f"evaluate() after epoch 1 {said}"
    assert (faulty.published() == before).all()
    assert faulty.module.training


def test_a_lease_that_is_taken_away_ends_an_evaluation(begin):
    """At its next forward pass, whatever the function does about it; the round is undone."""

    class Revoked(Exception):
        pass

    def evaluate(module):
        for _ in range(3):
            with contextlib.suppress(Exception):
                module(work.tensors()[0])
        return {}

    interrupted, n_calls = learner(begin, begin(evaluate=evaluate)), []

    def look(done, total):
        n_calls.append(done)
        if len(n_calls) == EPOCH + 2:  # the second forward pass of the evaluation
            raise Revoked

    interrupted.begin(1, EPOCH)
    with pytest.raises(Revoked):
        interrupted.finish(look)
    assert interrupted.n_steps == 0


# -- a run goes on ---------------------------------------------------------------------------------------------------
def test_a_data_set_is_made_once_in_a_process(begin, tmp_path):
    """It outlives the model, which is dropped where memory is short, and goes when the task has ended."""
    counted = tmp_path / "made"

    def factory():
        with counted.open("a") as file:
            file.write("x")
        return work.table()

    task, data_sets = begin(dataset=factory), DataSets()
    assert counted.read_text() == "x", "here, for its length"
    make(learner(begin, task, data_sets), 2)
    make(learner(begin, task, data_sets), 3)
    assert counted.read_text() == "xx"
    data_sets.drop("r/fit")
    learner(begin, task, data_sets)
    assert counted.read_text() == "xxx"


def test_who_goes_on_with_another_optimiser_is_refused(begin):
    """What was begun with is kept in the optimiser's state, so another learning rate would be ignored in silence."""
    tasks = begin(), begin(optimizer_kwargs={"lr": 0.1}), begin(n_epochs=9, dataset=lambda: work.table())
    here, faster, longer = (RunSpec(run="r", tasks=(task,)) for task in tasks)
    assert differences(here, faster) == ["fit: optimizer is 'Adam(lr=0.01)' there, 'Adam(lr=0.1)' was asked for"]
    assert differences(here, longer) == [], "more epochs, and data of the same size"


def test_what_is_loaded_needs_a_checkpoint(begin):
    with pytest.raises(CheckpointError, match=r"^task fit has no checkpoint in .*/checkpoints/fit yet$"):
        load_module(begin(), begin.out)


def test_a_directory_that_a_node_does_not_see_is_named(begin):
    task = begin()
    (begin.out / task.data).unlink()
    with pytest.raises(
        ConfigError, match=r"/fit/data-\w+\.pickle cannot be read .*: use a run directory that all nodes"
    ):
        learner(begin, task)

"""Optimisers on one flat tensor: the steps of torch's own on each tensor, with state that travels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drlnb.records.errors import NonFinite
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.local.train import LocalLoop
from drlnb.rl.networks.trained_state import FlatAdam
from drlnb.rl.settings.checks import OPTIMIZERS

#: Optimiser, and arguments of it.
GIVEN = [
    ("Adam", {"eps": 1e-4, "betas": [0.8, 0.95], "weight_decay": 0.01}),
    ("AdamW", {}),
    ("AdamW", {"weight_decay": 0.1, "eps": 1e-4}),
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.01, "eps": 1e-3}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.01}),
]


def gradients(n, seed=0):
    return torch.randn((n, 7), generator=torch.Generator().manual_seed(seed))


@pytest.mark.thorough  # torch's own classes load its compiler
@pytest.mark.parametrize(("kind", "given"), GIVEN)
def test_flat_steps_are_torchs_on_each_tensor(kind, given):
    """Twenty steps at falling step sizes, norms clipped: to 1e-6 of torch.optim on a matrix and a vector apart.

    After ten steps the state goes to a new one, which goes on with the same bits.
    """
    start = gradients(1, seed=1)[0]
    parts = [torch.nn.Parameter(part.clone()) for part in (start[:4].view(2, 2), start[4:])]
    theirs = getattr(torch.optim, kind)(parts, lr=1.0, **given)
    flat, norm = FlatAdam(start, given, kind=kind), torch.zeros(())
    early = FlatAdam(start, given, kind=kind)
    for step, gradient in enumerate(gradients(20)):
        rate = 0.05 * (1 - step / 25)
        for part, grad in zip(parts, (gradient[:4].view(2, 2), gradient[4:]), strict=True):
            part.grad = grad.clone()
        torch.nn.utils.clip_grad_norm_(parts, 1.5)
        theirs.param_groups[0]["lr"] = rate
        theirs.step()
        if step == 10:
            early.load_state(*flat.copy_state())
        for mine in (flat, early) if step >= 10 else (flat,):
            mine.grad.copy_(gradient)
            mine.learning_rate = rate
            mine.step(1.5, norm_out=norm)
        expected = torch.cat([part.detach().ravel() for part in parts])
        torch.testing.assert_close(flat.flat, expected, atol=1e-6, rtol=1e-5)
    assert (flat.flat - start).abs().max() > 0.01
    assert flat.flat.numpy().tobytes() == early.flat.numpy().tobytes()


def test_every_optimizer_that_is_named_is_tried():
    """One that is added to the table has a row above."""
    assert {kind for kind, _ in GIVEN} == set(OPTIMIZERS)


@pytest.mark.thorough
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
@pytest.mark.parametrize("kind", ["SGD", "RMSprop"])
def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(kind, algo, make_spec):
    """Through a checkpoint's state: momentum counts, of a target network beside it, too."""
    given = {"optimizer_class": kind, "optimizer_kwargs": {"momentum": 0.9}, "net_arch": [8]}
    hyper = {"batch_size": 32, "n_epochs": 2} if algo == "ppo" else {"learning_starts": 8, "batch_size": 8}
    spec = make_spec(policy_kwargs=given, learning_rate=0.01, **hyper)
    if algo == "dqn":
        kept = {name: value for name, value in spec.hyperparameters.items() if name in {"policy_kwargs", *hyper}}
        spec = replace(spec, algo="dqn", hyperparameters={**kept, "learning_rate": 0.01})
    whole, first = LocalLoop(spec), LocalLoop(spec)
    for _ in range(6):
        whole.round()
    for _ in range(4):
        first.round()
    second = LocalLoop(spec, first.trained())
    for _ in range(2):
        second.round()
    for loop in (whole, first, second):
        loop.close()
    assert second.parameters.tobytes() == whole.parameters.tobytes()
    assert first.parameters.tobytes() != whole.parameters.tobytes()


@pytest.mark.parametrize("kind", ["AdamW", pytest.param("SGD", marks=pytest.mark.thorough)])
def test_a_round_that_breaks_off_leaves_the_state_as_it_was(kind, make_spec):
    """A NaN in the second round: moments and parameters keep the bits from before it."""
    momentum = {"optimizer_kwargs": {"momentum": 0.9}} if kind == "SGD" else {}
    spec = make_spec(policy_kwargs={"optimizer_class": kind, **momentum}, batch_size=16)
    learner, collector = make_learner(spec), Collector(spec, env_indices=range(4))
    for number in (1, 2):
        fragment = collector.collect(learner.published(), version=number, round=number, n_steps=16)
        learner.begin(number, 64 * number)
        before = learner.state()[1].tobytes()
        if number == 2:
            fragment.arrays["reward"][3, 1] = np.nan
        learner.stage(0, fragment)
        if number == 1:
            learner.finish()
    with pytest.raises(NonFinite, match="nan at gradient step"):
        learner.finish()
    collector.close()
    assert learner.state()[1].tobytes() == before

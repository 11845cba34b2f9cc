"""Serial gradients, gradients at arrival, and settings that change while PPO trains."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.ppo import Batch, PpoLearner, _weighted_sum
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector, split_envs


def samples(learner: PpoLearner, n: int) -> Batch:
    """Return random samples of a policy a little off the learner's."""
    rng = torch.Generator().manual_seed(1)
    obs = torch.randn(n, learner.layout.obs_width, generator=rng)
    discrete = learner.layout.head.kind == "discrete"
    action = torch.randint(0, 2, (n,), generator=rng) if discrete else torch.randn(n, 1, generator=rng)
    value, advantage = torch.randn(n, generator=rng), 3.0 + torch.randn(n, generator=rng)
    log_prob = -0.7 - 0.3 * torch.rand(n, generator=rng)
    return Batch(obs, action, log_prob, advantage, value, value + advantage)


def gradients(learner: PpoLearner, parts: list[Batch]) -> list[torch.Tensor]:
    """Return the gradient of each part's mean loss, its statistics behind it."""
    found, told = [], torch.zeros(7)
    for part in parts:
        learner.gradient(part, told)
        found.append(torch.cat((learner.adam.grad, told)))
    return found


@pytest.mark.parametrize("sizes", [(384,), (256, 128), (256, 96, 32, 7, 1)], ids=["1", "2", "5"])
@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_s5_serial_parts_equal_the_concatenated_batch(env, by_hand, sizes, make_spec):
    """Gradients of 1, 2 or 5 unequal workers, summed by samples, equal the joined batch's to 1e-6, statistics too."""
    spec = make_spec(env, ent_coef=0.01, clip_range_vf=0.5, normalize_advantage=False)
    learner = PpoLearner(spec, by_hand=by_hand)
    whole = samples(learner, sum(sizes))
    (expected,) = gradients(learner, [whole])
    bounds = np.cumsum((0, *sizes))
    parts = gradients(learner, [whole.part(torch.arange(a, b)) for a, b in pairwise(bounds)])
    assert expected[:-7].norm().item() > 0.1
    torch.testing.assert_close(_weighted_sum(parts, sizes), expected, atol=1e-5, rtol=1e-5)


def test_parts_without_weights_would_be_wrong(make_spec):
    """The planted fault: plain means of workers with 256, 96 and 32 samples miss the batch's gradient by far."""
    learner = PpoLearner(make_spec(normalize_advantage=False))
    whole = samples(learner, 384)
    (expected,) = gradients(learner, [whole])
    parts = [whole.part(torch.arange(a, b)) for a, b in ((0, 256), (256, 352), (352, 384))]
    unweighted = torch.stack(gradients(learner, parts)).mean(0)
    assert (unweighted - expected)[:-7].abs().max().item() > 1e-3


def play(spec: RlWork, *, compute: str | None = None, order: int = 1, rounds: int = 2) -> tuple[Any, list[dict]]:
    learner = make_learner(spec)
    if compute:  # the same settings by the other way
        learner.__class__ = type("Forced", (PpoLearner,), {"compute": compute})
    shares = split_envs(spec.n_envs, spec.n_collectors)
    collectors, metrics = [Collector(spec, env_indices=share) for share in shares], []
    n_steps = spec.hyperparameters["n_steps"]
    for number in range(1, rounds + 1):
        parameters = learner.published()
        found = [c.collect(parameters, version=number, round=number, n_steps=n_steps) for c in collectors]
        learner.begin(number, number * n_steps * spec.n_envs)
        for worker, fragment in list(enumerate(found))[::order]:
            learner.stage(worker, fragment)
        metrics.append(learner.finish())
    for made in collectors:
        made.close()
    return learner, metrics


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("hyper", [{}, {"ent_coef": 0.1, "vf_coef": 1.0}, {"normalize_advantage": False}])
@pytest.mark.parametrize("n_workers", [1, 3, 5])
def test_gradients_at_arrival_equal_one_epoch(env, hyper, n_workers, make_spec):
    """One pass over the whole round: computed as the workers arrive or all at once, parameters agree to 1e-6."""
    spec = make_spec(env, n_envs=5, n_collectors=n_workers, n_epochs=1, batch_size=80, normalize=True, **hyper)
    streamed, told = play(spec)
    assert streamed.compute == "stream"
    joined, expected = play(spec, compute="epochs")
    assert (streamed.adam.flat - joined.adam.flat).abs().max().item() < 1e-6
    for name in ("loss", "policy_gradient_loss", "value_loss", "entropy", "grad_norm"):
        assert told[1][f"train/{name}"] == pytest.approx(expected[1][f"train/{name}"], abs=2e-5, rel=1e-4), name


def test_arrival_order_is_irrelevant_where_determinism_is_asked_for(make_spec):
    """Three workers staged forwards and backwards leave the same bits: sums run in the order of the workers."""
    spec = make_spec(n_envs=5, n_collectors=3, n_epochs=1, batch_size=80)
    assert play(spec)[0].state()[1].tobytes() == play(spec, order=-1)[0].state()[1].tobytes()
    loose = RlWork.from_plain({**spec.to_plain(), "deterministic": False})
    a, b = play(loose)[0], play(loose, order=-1)[0]
    assert (a.adam.flat - b.adam.flat).abs().max().item() < 1e-6


@pytest.mark.parametrize(
    ("hyper", "compute"),
    [
        ({}, "epochs"),
        ({"n_epochs": 1}, "epochs"),
        ({"batch_size": 64}, "epochs"),
        ({"n_epochs": 1, "batch_size": 64}, "stream"),
    ],
)
def test_streaming_takes_one_pass_over_the_whole_round(hyper, compute, make_spec):
    """Only n_epochs 1 with a batch of all samples can be computed at arrival."""
    assert make_learner(make_spec(**hyper)).compute == compute


def test_a_broken_stream_can_be_finished_again(make_spec):
    """A callback that raises undoes the step; finishing again gives the undisturbed bits."""
    spec = make_spec(n_epochs=1, batch_size=64)
    made = Collector(spec, env_indices=range(4))
    fragment = made.collect(make_learner(spec).published(), version=1, round=1, n_steps=16)
    results = []
    for disturbed in (False, True):
        learner = make_learner(spec)
        learner.begin(1, 64)
        learner.stage(0, fragment)
        if disturbed:

            def stop(step: int, of: int) -> None:
                raise KeyboardInterrupt(f"{step} of {of}")

            with pytest.raises(KeyboardInterrupt, match="1 of 1"):
                learner.finish(stop)
        learner.finish()
        results.append(learner.state()[1].tobytes())
    made.close()
    assert results[0] == results[1]


# --------------------------------------------------------------------------------------------------- live settings


def test_a_setting_changes_from_the_next_round_and_survives_a_restore(make_spec):
    """Set in round 1 it is not used there; in round 2 and after a restore it is."""
    spec = make_spec()
    learner, metrics = play(spec, rounds=1)
    learner.set("learning_rate", 0.25)
    learner.set("clip_range", "lin_0.5")
    assert learner.settings.learning_rate != 0.25
    other = make_learner(spec)
    other.restore(*learner.state())
    for one in (learner, other):
        one.begin(2, 500)
        assert (one.settings.learning_rate, one._terms().clip) == (0.25, 0.25)
    assert metrics[0]["train/learning_rate"] == 3e-4


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("gamma", 0.9, "gamma cannot change while training; these can: clip_range, ent_coef, learning_rate, n_epochs"),
        ("learning_rate", -1, "learning_rate must be a number >= 0.*got -1"),
        ("n_epochs", 0, "n_epochs must be a whole number >= 1, got 0"),
        ("target_kl", "much", "target_kl must be a number > 0, or none, got 'much'"),
    ],
)
def test_wrong_live_settings_are_refused(name, value, told, make_spec):
    """What cannot change, or not to that value, is told; the learner keeps what it had."""
    learner = make_learner(make_spec())
    with pytest.raises(ConfigError, match=told):
        learner.set(name, value)
    assert learner.state()[0]["live"] == {}


def test_target_kl_ends_the_round_early(make_spec):
    """KL target 1e-9, large step: of five epochs the first (KL 0: the acting policy itself) and a second are begun."""
    hyper = {"n_epochs": 5, "batch_size": 64, "learning_rate": 0.05}
    assert play(make_spec(target_kl=1e-9, **hyper), rounds=1)[1][0]["train/n_updates"] == 2
    assert play(make_spec(**hyper), rounds=1)[1][0]["train/n_updates"] == 5

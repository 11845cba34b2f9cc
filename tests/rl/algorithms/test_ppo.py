"""The PPO learner: equal to what it should be equal to."""

from typing import Any

import numpy as np
import pytest
import torch

from drlnb.records.errors import NonFinite
from drlnb.rl.acting.actors import Actor
from drlnb.rl.algorithms.on_policy import minibatches
from drlnb.rl.algorithms.ppo import Batch, PpoLearner
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import PI, layout_of
from drlnb.rl.networks.networks import dense
from drlnb.rl.networks.trained_state import FlatAdam, views
from tests.rl import METRICS


@pytest.fixture
def play(request) -> Any:
    """Train a few rounds; return learner and the metrics of each round."""

    def run(spec, *, rounds=2, shares=1, order=1, learner=None, collectors=None, first=0):
        learner = learner or make_learner(spec)
        if collectors is None:
            collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, shares)]
            for made in collectors:
                request.addfinalizer(made.close)
        n_steps, metrics = spec.hyperparameters["n_steps"], []
        for number in range(first, first + rounds):
            parameters = learner.published()
            found = [c.collect(parameters, version=number, round=number, n_steps=n_steps) for c in collectors]
            learner.begin(number, (number + 1) * n_steps * spec.n_envs)
            for worker, fragment in list(enumerate(found))[::order]:
                learner.stage(worker, fragment)
            metrics.append(learner.finish())
        return learner, metrics, collectors

    return run


def bits(learner) -> bytes:
    return learner.state()[1].tobytes()


def sample(spec, n_steps=16) -> Fragment:
    made = Collector(spec, env_indices=range(spec.n_envs))
    try:
        return made.collect(make_learner(spec).published(), version=0, round=0, n_steps=n_steps)
    finally:
        made.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_neither_split_nor_arrival_order_matters(env, make_spec, play):
    """After two normalised rounds, 1 collector, 3 collectors, and 3 staged backwards leave the same bits."""
    spec = make_spec(env, normalize=True, batch_size=24)
    expected = bits(play(spec)[0])
    assert bits(play(spec, shares=3)[0]) == expected
    assert bits(play(spec, shares=3, order=-1)[0]) == expected


def test_same_spec_twice_gives_the_same_bits_with_poisoned_generators(make_spec, play):
    """The global generator plays no part."""
    spec = make_spec()
    torch.manual_seed(1)
    expected = bits(play(spec)[0])
    torch.manual_seed(2)
    assert bits(play(spec)[0]) == expected


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_resumed_equals_uninterrupted(env, make_spec, play):
    """Both sides stopped after round 2 of 4 and restored in new objects: all state is equal, bit for bit."""
    spec = make_spec(env, normalize=True, learning_rate="lin_0.001")
    uninterrupted, metrics, _ = play(spec, rounds=4)
    learner, _, collectors = play(spec, rounds=2)
    meta, buffer = learner.state()
    state = collectors[0].state()
    fresh_learner, fresh = make_learner(spec), Collector(spec, env_indices=range(4))
    fresh_learner.restore(meta, buffer)
    assert fresh.restore(state) == 0
    resumed, later, _ = play(spec, rounds=2, first=2, learner=fresh_learner, collectors=[fresh])
    fresh.close()
    assert bits(resumed) == bits(uninterrupted)
    assert resumed.state()[0] == uninterrupted.state()[0]
    assert later == metrics[2:]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_numpy_forward_equals_torch(env, activation, make_spec, play):
    """Policy outputs of the numpy actor and of torch differ by less than 1e-5 after some training."""
    spec = make_spec(env, learning_rate=0.05, policy_kwargs={"net_arch": [16, 16], "activation_fn": activation})
    learner, _, _ = play(spec)
    actor = Actor(spec)
    actor.load(learner.published())
    obs = np.random.default_rng(0).standard_normal((9, actor.layout.obs_width)).astype(np.float32)
    tensors = views(learner.adam.flat, actor.layout)
    expected = dense(tensors, PI, torch.from_numpy(obs), getattr(torch, activation)).numpy()
    np.testing.assert_allclose(actor.forward(obs), expected, atol=1e-5)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_first_minibatch_has_ratio_one(env, make_spec, play):
    """One epoch, one minibatch, second round: KL below 1e-9 and no sample clipped at 1e-5, so |ratio - 1| < 1e-5."""
    spec = make_spec(env, n_epochs=1, batch_size=64, clip_range=1e-5, normalize=True, learning_rate=0.01)
    _, metrics, _ = play(spec)
    assert abs(metrics[1]["train/approx_kl"]) < 1e-7
    assert metrics[1]["train/clip_fraction"] == 0.0


def test_flat_fused_adam_equals_torch_adam_per_tensor():
    """20 clipped steps on random gradients: flat and fused = torch.optim.Adam and clip_grad_norm_, to 1e-7."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(4, 3), (4,), (2, 4), (2,)]
    tensors = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    flat = FlatAdam(torch.cat([tensor.detach().ravel() for tensor in tensors]))
    flat.learning_rate = 0.01
    plain = torch.optim.Adam(tensors, lr=0.01, eps=1e-5, foreach=False, fused=False)
    norm = torch.zeros(())
    for _ in range(20):
        for tensor in tensors:
            tensor.grad = torch.randn(tensor.shape, generator=generator)
        flat.grad.copy_(torch.cat([tensor.grad.ravel() for tensor in tensors]))
        expected = torch.nn.utils.clip_grad_norm_(tensors, 0.5)
        plain.step()
        flat.step(0.5, norm_out=norm)
        assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    expected = torch.cat([tensor.detach().ravel() for tensor in tensors])
    assert (flat.flat - expected).abs().max().item() < 1e-7


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize(
    "hyper",
    [{}, {"ent_coef": 0.1, "clip_range_vf": 0.1}, {"normalize_advantage": False, "vf_coef": 2.0, "clip_range": 0.05}],
    ids=["defaults", "entropy and value clip", "raw advantages"],
)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradients_by_hand_equal_autograd(env, hyper, activation, make_spec):
    """For a policy that has moved off the acting one, both ways give the same gradient and statistics, to 1e-6."""
    kwargs = {"net_arch": {"pi": [8, 6], "vf": [7]}, "activation_fn": activation}
    spec = make_spec(env, policy_kwargs=kwargs, n_epochs=1, batch_size=64, **hyper)
    fragment, found = sample(spec), []
    for by_hand in (True, False):
        learner = PpoLearner(spec, by_hand=by_hand)
        learner.begin(0, 64)
        learner.stage(0, fragment)
        moved = torch.randn(learner.layout.n_total, generator=torch.Generator().manual_seed(3))
        learner.adam.flat += 0.3 * moved  # padding moves too: nothing may read it
        batch = Batch.join([learner._staged[index] for index in range(4)])
        out = torch.zeros(7)
        learner.gradient(batch, out)
        found.append((learner.adam.grad.clone(), out))
    assert found[1][1][5] > 0.05  # some samples are clipped, or this would prove little
    scale = found[1][0].abs().max().item()
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6 * max(1.0, scale), rtol=1e-4)
    torch.testing.assert_close(found[0][1], found[1][1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("env", "value"), [("rl/Cut-v0", True), ("rl/Clock-v0", False)])
def test_only_time_limits_are_bootstrapped(env, value, make_spec):
    """Critic fixed at V = 10, gamma .5, lambda 0: the ending step's advantage is 1 + 5 - 10 cut, 1 - 10 ended."""
    spec = make_spec(env, n_envs=1, gamma=0.5, gae_lambda=0.0, n_steps=3)
    learner = make_learner(spec)
    tensors = views(learner.adam.flat, learner.layout)
    tensors["value.weight"].zero_()
    tensors["value.bias"].fill_(10.0)
    fragment = sample(spec, n_steps=3)
    learner.begin(0, 3)
    learner.stage(0, fragment)
    assert learner._staged[0]["advantage"].tolist() == [-4.0, -4.0, -4.0 if value else -9.0]


def test_a_nan_is_refused_and_nothing_changes(make_spec):
    """A NaN in the rewards raises NonFinite with the round; parameters, moments and counters keep their bits."""
    spec = make_spec()
    learner = make_learner(spec)
    before = bits(learner)
    fragment = sample(spec)
    fragment.arrays["reward"][3, 1] = np.nan
    learner.begin(7, 64)
    learner.stage(0, fragment)
    with pytest.raises(NonFinite, match="nan at gradient step 0 of round 7"):
        learner.finish()
    assert bits(learner) == before
    other, good = make_learner(spec), sample(spec)
    for each in (learner, other):  # nothing of the refused update, not even its gradient, is in the next one
        each.begin(8, 128)
        each.stage(0, good)
        each.finish()
    assert bits(learner) == bits(other)


def test_a_round_that_was_broken_off_can_be_finished_again(make_spec):
    """A callback that raises in step 3 undoes the update; finishing again gives the undisturbed result's bits."""
    spec = make_spec()
    fragment, results = sample(spec), []
    for disturbed in (False, True):
        learner = make_learner(spec)
        learner.begin(0, 64)
        learner.stage(0, fragment)
        if disturbed:

            def revoke(step: int, of: int) -> None:
                if step == 3:
                    raise KeyboardInterrupt(f"{step} of {of}")

            with pytest.raises(KeyboardInterrupt, match="3 of 4"):
                learner.finish(revoke)
        learner.finish()
        results.append(bits(learner))
    assert results[0] == results[1]


def test_progress_is_told_after_each_minibatch(make_spec):
    """64 samples, batches of 32, 2 epochs: the callback sees 1..4 of 4."""
    learner, seen = make_learner(make_spec()), []
    learner.begin(0, 64)
    learner.stage(0, sample(make_spec()))
    learner.finish(lambda step, of: seen.append((step, of)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_staging_an_environment_twice_is_refused(make_spec):
    """The second fragment of the same environments raises with worker and round; a new round takes it."""
    learner, fragment = make_learner(make_spec()), sample(make_spec())
    learner.begin(4, 64)
    learner.stage(0, fragment)
    with pytest.raises(ValueError, match=r"worker 1 staged environments \[0, 1, 2, 3\] again in round 4"):
        learner.stage(1, fragment)
    learner.begin(5, 64)
    assert learner.stage(1, fragment) > 0.0


def test_an_empty_round_is_refused(make_spec):
    """Nothing staged, nothing to finish."""
    learner = make_learner(make_spec())
    learner.begin(2, 64)
    with pytest.raises(ValueError, match="round 2 has nothing staged"):
        learner.finish()


def test_a_fragment_may_travel_as_read_only_bytes(make_spec):
    """Staging a fragment unpacked from bytes gives the same bits as staging the original."""
    spec, results = make_spec(normalize=True), []
    fragment = sample(spec)
    header, buffer = fragment.pack()
    for staged in (fragment, Fragment.unpack(header, bytes(buffer))):
        learner = make_learner(spec)
        learner.begin(0, 64)
        learner.stage(0, staged)
        learner.finish()
        results.append(bits(learner))
    assert results[0] == results[1]


def test_metrics_are_in_the_glossary_and_schedules_are_read_after_collecting(make_spec, play):
    """Round 1 of 1000 steps in rounds of 64: the rate is .001 (1 - .064); every metric has a glossary line."""
    spec = make_spec("Pendulum-v1", learning_rate="lin_0.001", clip_range_vf=0.2, ent_coef=0.01)
    _, metrics, _ = play(spec, rounds=1)
    assert metrics[0]["train/learning_rate"] == pytest.approx(0.001 * (1 - 0.064))
    assert metrics[0]["train/n_updates"] == 2
    assert metrics[0]["train/entropy_loss"] == -metrics[0]["train/entropy"]
    assert set(metrics[0]) <= METRICS.keys()


def test_the_normaliser_is_published_after_the_rounds_last_gradient(make_spec, play):
    """One round of 4 x 16 observations: the statistics count 64 + 1e-4, their moments are those of all environments."""
    spec = make_spec(normalize=True)
    fragment = sample(spec)
    learner, _, _ = play(spec, rounds=1)
    actor = Actor(spec)
    actor.load(learner.published())
    counts, means, squares = np.split(fragment.arrays["obs_moments"], [1, 5], axis=1)
    assert counts.tolist() == [[16.0]] * 4
    found, _ = actor.statistics
    np.testing.assert_allclose(found.mean, means.mean(axis=0) * 64 / (64 + 1e-4), rtol=1e-9)
    # Spread within the environments and between their means.
    np.testing.assert_allclose(found.var, squares.mean(axis=0) / 16 + means.var(axis=0), rtol=1e-3)


@pytest.mark.parametrize("batch_size", [16, 32, 64])
def test_target_kl_ends_the_steps_at_a_minibatch(batch_size, make_spec, play):
    """The first one has KL 0 and steps; the second one's is above a tiny target: no step, and it is in the means.

    As Stable-Baselines3 counts, the epoch that was broken off is one; without a target all 50 are.
    """
    hyper = {"n_epochs": 50, "learning_rate": 0.05, "batch_size": batch_size}
    assert play(make_spec(**hyper), rounds=1)[1][0]["train/n_updates"] == 50
    learner, (metrics,), _ = play(make_spec(target_kl=1e-6, **hyper), rounds=1)
    assert learner.state()[0]["adam_step"] == 1.0
    assert metrics["train/n_updates"] == (2 if batch_size == 64 else 1)
    assert metrics["train/approx_kl"] > (1.5e-6 if batch_size == 64 else 0.75e-6)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("n_samples", [1, 2, 63, 64, 65, 66])
def test_minibatches_partition_an_epoch(n_samples, joined):
    """Bounds touch, cover all samples once; if they are joined none holds a single sample unless there is only one."""
    bounds = minibatches(n_samples, 32, joined=joined)
    assert [b[0] for b in bounds] == [0, *[b[1] for b in bounds[:-1]]]
    assert bounds[-1][1] == n_samples
    assert not joined or all(stop - start > 1 for start, stop in bounds) or n_samples == 1


@pytest.mark.parametrize(("normalised", "n_steps"), [(True, 2), (False, 3)])
def test_one_sample_alone_is_a_minibatch_where_its_spread_is_not_asked_for(normalised, n_steps, make_spec, play):
    """65 samples in minibatches of 32: a third step of one sample, as in Stable-Baselines3, if not normalised."""
    spec = make_spec(n_envs=1, n_steps=65, n_epochs=1, normalize_advantage=normalised)
    assert play(spec, rounds=1)[0].state()[0]["adam_step"] == n_steps


@pytest.mark.parametrize(("given", "eps"), [({}, 1e-5), ({"optimizer_kwargs": None}, 1e-5),
    ({"optimizer_kwargs": {}}, 1e-8), ({"optimizer_kwargs": {"weight_decay": 0.1}}, 1e-8),
    ({"optimizer_kwargs": {"eps": 1e-3}}, 1e-3)])  # fmt: skip
def test_adams_eps_is_stable_baselines3s(given, eps, make_spec):
    """Its own value for PPO only where no arguments are given; torch's beside others; DQN's is torch's."""
    resolved = resolve("X-v0", "ppo", overrides={"policy_kwargs": given}).hyperparameters["policy_kwargs"]
    assert make_learner(make_spec(policy_kwargs=resolved)).adam._constants["eps"] == eps


def test_the_start_follows_stable_baselines(make_spec):
    """Towers are orthogonal with gain sqrt 2, the policy head has gain .01, the value head 1, biases are 0."""
    learner = make_learner(make_spec())
    tensors = views(learner.adam.flat, learner.layout)
    for name, gain in (("pi.1.weight", 2.0), ("action.weight", 1e-4), ("value.weight", 1.0)):
        product = tensors[name] @ tensors[name].T
        np.testing.assert_allclose(product.numpy(), gain * np.eye(len(product)), atol=1e-6 * gain + 1e-9)
    assert all(not tensor.any() for name, tensor in tensors.items() if name.endswith("bias"))


def test_without_orthogonal_starts_weights_and_biases_are_torchs(make_spec):
    """Uniform within 1 / sqrt(inputs), as ``nn.Linear`` draws: each tensor, biases too, has the spread of that law."""
    spec = make_spec(policy_kwargs={"ortho_init": False, "net_arch": [400, 400]})
    learner = make_learner(spec)
    for name, tensor in views(learner.adam.flat, learner.layout).items():
        inputs = 4 if name.split(".")[1] == "0" else 400
        bound = inputs**-0.5
        assert 0.0 < tensor.abs().max().item() <= bound, name
        if len(tensor.ravel()) >= 400:
            assert tensor.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name


def test_a_state_of_another_network_is_refused(make_spec):
    """The fingerprint of the layout is checked before anything is taken over."""
    meta, buffer = make_learner(make_spec()).state()
    with pytest.raises(ValueError, match="state has layout"):
        make_learner(make_spec(policy_kwargs={"net_arch": [4]})).restore(meta, buffer)


def test_only_the_policy_is_published(make_spec):
    """The published buffer is header + statistics + policy: 64 + 64 bytes and the policy's padded float32 numbers."""
    spec = make_spec()
    layout = layout_of(spec)
    assert layout.published_bytes == 64 + 64 + 4 * (32 + 16 + 64 + 16 + 16 + 16)
    assert make_learner(spec).published().shape == (layout.published_bytes,)

"""The DQN learner and actor: equal to what they should be equal to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drlnb.records.errors import ConfigError, NonFinite, UnsupportedSpace
from drlnb.rl.algorithms.dqn import DqnLearner, Rows
from drlnb.rl.algorithms.registry import make_actor, make_learner, make_replay, settings_of
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.fragments import Fragment
from drlnb.rl.local.train import train_local
from drlnb.rl.networks.layout import Q, layout_of
from drlnb.rl.networks.networks import dense
from drlnb.rl.networks.trained_state import views
from drlnb.rl.objectives.losses import dqn_loss, huber_gradient
from drlnb.rl.settings.dqn import DqnSettings
from tests.rl import METRICS


def rows(n: int, *, width: int = 4, n_actions: int = 2, seed: int = 0) -> Rows:
    """Random transitions, a fifth of them true ends; rewards large enough to leave Huber's parabola."""
    rng = np.random.default_rng(seed)
    obs, next_obs = (torch.from_numpy(rng.standard_normal((n, width)).astype(np.float32)) for _ in range(2))
    action = torch.from_numpy(rng.integers(0, n_actions, n))
    reward = torch.from_numpy((3.0 * rng.standard_normal(n)).astype(np.float32))
    return Rows(obs, next_obs, action, reward, torch.from_numpy((rng.random(n) < 0.2).astype(np.float32)))


def block(n_steps: int, batch_size: int, *, n_target_updates: int = 0, seed: int = 0) -> Fragment:
    """Make up what a replay draws."""
    flat = rows(n_steps * batch_size, seed=seed)
    shape = (n_steps, batch_size)
    arrays = {name: getattr(flat, name).numpy().reshape(*shape, -1) for name in ("obs", "next_obs")}
    arrays |= {name: getattr(flat, name).numpy().reshape(shape) for name in ("action", "reward")}
    arrays["terminated"] = flat.terminated.numpy().reshape(shape).astype(bool)
    header = {"n_timesteps": 100, "n_target_updates": n_target_updates, "n_gradient_steps": n_steps, "metrics": {}}
    return Fragment(header, arrays)


def learn(learner: DqnLearner, fragment: Fragment, round: int = 1) -> dict[str, float]:
    learner.begin(round, 100)
    learner.stage(0, fragment)
    return learner.finish()


def bits(learner: Any) -> bytes:
    return learner.state()[1].tobytes()


# ------------------------------------------------------------------------------------------------ loss and gradient


def test_huber_by_hand():
    """Errors 0.5 and -3: losses 0.125 and 2.5, mean 1.3125; gradients 0.25 and -0.5 at the actions taken."""
    q = torch.tensor([[1.5, 7.0], [7.0, -3.0]])
    action, target = torch.tensor([0, 1]), torch.tensor([1.0, 0.0])
    gradient, loss = huber_gradient(q, action, target)
    assert gradient.tolist() == [[0.25, 0.0], [0.0, -0.5]]
    assert loss.item() == pytest.approx(1.3125)
    assert dqn_loss(q, action, target).item() == pytest.approx(1.3125)


@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_gradient_by_hand_equals_autograd(double_q, activation, make_dqn_spec):
    """The written-out gradient and autograd's differ by less than 1e-6."""
    spec = make_dqn_spec(double_q=double_q, policy_kwargs={"net_arch": [16, 16], "activation_fn": activation})
    found = []
    for by_hand in (True, False):
        learner = DqnLearner(spec, by_hand=by_hand)
        learner.target.copy_(torch.linspace(-0.5, 0.5, len(learner.target)))
        loss = learner.gradient(rows(64))
        found.append((learner.adam.grad.clone(), loss))
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=0)
    torch.testing.assert_close(found[0][1], found[1][1])


def test_only_a_true_end_stops_the_bootstrap(make_dqn_spec):
    """Same transition, ended or not: the loss at an end follows from the reward alone."""
    learner = DqnLearner(make_dqn_spec(gamma=0.5))
    one = rows(1)
    with torch.no_grad():
        tensors = views(learner.adam.flat, learner.layout)
        q, q_next = (dense(tensors, Q, x, torch.relu)[0] for x in (one.obs, one.next_obs))
    for end, target in ((1.0, one.reward[0]), (0.0, one.reward[0] + 0.5 * q_next.max())):
        error = abs(q[one.action[0]] - target).item()
        expected = 0.5 * error**2 if error < 1.0 else error - 0.5
        told = Rows(one.obs, one.next_obs, one.action, one.reward, torch.tensor([end]))
        assert learner.gradient(told).item() == pytest.approx(expected, rel=1e-5)


def test_double_q_values_the_trained_networks_choice_by_the_target(make_dqn_spec):
    """With networks that disagree, single and double Q-learning give different losses."""
    losses = []
    for double_q in (False, True):
        learner = DqnLearner(make_dqn_spec(double_q=double_q))
        learner.target.neg_()
        losses.append(learner.gradient(rows(64)).item())
    assert abs(losses[0] - losses[1]) > 1e-3


# ---------------------------------------------------------------------------------------------------- target network


def test_target_moves_before_the_gradient_steps(make_dqn_spec):
    """Several updates with tau equal as many written out, towards the parameters from before the round."""
    learner = DqnLearner(make_dqn_spec(tau=0.25))
    learner.target.zero_()
    before = learner.adam.flat.clone()
    expected = torch.zeros_like(before)
    for _ in range(3):
        expected = 0.75 * expected + 0.25 * before
    learn(learner, block(2, 16, n_target_updates=3))
    torch.testing.assert_close(learner.target, expected)
    assert not torch.equal(learner.adam.flat, before)


def test_tau_one_copies_exactly(make_dqn_spec):
    """With tau 1 any number of updates is a copy, bit for bit; none leaves the target alone."""
    learner = DqnLearner(make_dqn_spec())
    learner.target.zero_()
    learn(learner, block(1, 16))
    assert not learner.target.any()
    before = learner.adam.flat.clone()
    learn(learner, block(1, 16, n_target_updates=2))
    assert torch.equal(learner.target, before)


# ------------------------------------------------------------------------------------------------------- whole rounds


@pytest.fixture
def play(request) -> Any:
    """Train a few rounds; return learner, replay, collectors and metrics."""

    def run(spec, *, rounds=8, shares=1, order=1, parts=None, first=1):
        learner, replay, collectors = parts or (make_learner(spec), make_replay(spec), None)
        if collectors is None:
            collectors = [Collector(spec, env_indices=share) for share in split_envs(spec.n_envs, shares)]
            for made in collectors:
                request.addfinalizer(made.close)
        n_steps, metrics = settings_of(spec).round_steps(), []
        for number in range(first, first + rounds):
            done = (number - 1) * n_steps * spec.n_envs
            sent = learner.published()
            found = [
                c.collect(sent, version=number, round=number, n_steps=n_steps, n_timesteps=done) for c in collectors
            ]
            drawn = replay.take(found[::order], round=number, n_timesteps=done)
            metrics.append(drawn.header["metrics"])
            if drawn.header["n_gradient_steps"]:
                learner.begin(number, drawn.header["n_timesteps"])
                learner.stage(0, Fragment.unpack(*drawn.pack()))
                metrics[-1] = learner.finish()
        return learner, replay, collectors, metrics

    return run


def test_neither_split_nor_arrival_order_matters(make_dqn_spec, play):
    """1 collector, 3 collectors, and 3 in reverse leave the same bits."""
    spec = make_dqn_spec(n_envs=5, gradient_steps=2, target_update_interval=40)
    expected = bits(play(spec)[0])
    assert bits(play(spec, shares=3)[0]) == expected
    assert bits(play(spec, shares=3, order=-1)[0]) == expected


def test_resumed_equals_uninterrupted(make_dqn_spec, play):
    """Learner, ring and environments stopped after round 5 of 9 and restored in new objects: equal, bit for bit."""
    spec = make_dqn_spec(learning_rate="lin_0.01", target_update_interval=30, tau=0.5, n_envs=3)
    uninterrupted, _, _, metrics = play(spec, rounds=9)
    learner, replay, collectors, _ = play(spec, rounds=5)
    fresh = make_learner(spec), make_replay(spec), [Collector(spec, env_indices=range(3))]
    try:
        fresh[0].restore(*learner.state())
        assert fresh[1].restore(Fragment.unpack(*replay.state().pack())) == 0
        assert fresh[2][0].restore(collectors[0].state()) == 0
        resumed, _, _, later = play(spec, rounds=4, parts=fresh, first=6)
    finally:
        fresh[2][0].close()
    assert bits(resumed) == bits(uninterrupted)
    assert resumed.state()[0] == uninterrupted.state()[0]
    assert later == metrics[5:]


def test_a_refused_round_leaves_everything_and_can_be_repeated(make_dqn_spec):
    """NaN in the last minibatch, and a lease lost between steps: parameters, moments and target are as before."""
    learner, other = (DqnLearner(make_dqn_spec()) for _ in range(2))
    for each in (learner, other):
        learn(each, block(2, 16))
    before, bad = bits(learner), block(3, 16, n_target_updates=1)
    bad.arrays["reward"][2, 0] = np.nan
    with pytest.raises(NonFinite, match="loss is nan at gradient step 2 of round 2"):
        learn(learner, bad, round=2)
    assert bits(learner) == before
    good = block(3, 16, n_target_updates=1, seed=1)
    learner.begin(3, 100)
    learner.stage(0, good)
    with pytest.raises(KeyboardInterrupt):
        learner.finish(on_minibatch=raise_at_two)
    assert bits(learner) == before
    learner.finish()
    learn(other, good, round=3)
    assert bits(learner) == bits(other)


def raise_at_two(done: int, total: int) -> None:
    if done == 2:
        raise KeyboardInterrupt


def test_a_live_setting_acts_from_the_next_round_and_survives_a_resume(make_dqn_spec):
    """The learning rate set after begin() is that of the next round, also in a restored learner; others are refused."""
    learner = DqnLearner(make_dqn_spec(learning_rate=0.5))
    learner.begin(1, 100)
    learner.set("learning_rate", 0.25)
    learner.stage(0, block(1, 16))
    assert learner.finish()["train/learning_rate"] == 0.5
    fresh = DqnLearner(make_dqn_spec(learning_rate=0.5))
    fresh.restore(*learner.state())
    assert learn(fresh, block(1, 16), round=2)["train/learning_rate"] == 0.25
    with pytest.raises(ConfigError, match="batch_size cannot change while training; these can: learning_rate, tau"):
        learner.set("batch_size", 8)
    with pytest.raises(ConfigError, match="tau must be a number from 0 to 1"):
        learner.set("tau", 2.0)


def test_every_metric_is_in_the_glossary(make_dqn_spec):
    """A whole local training logs nothing unexplained, and tells epsilon, ring and replay ratio."""
    result = train_local(make_dqn_spec(total_timesteps=60))
    assert {name for row in result.metrics for name in row} <= METRICS.keys()
    last = result.metrics[-1]
    assert last["train/replay_ratio"] == 1 / 8
    assert last["replay/size"] == 64
    assert last["train/n_updates"] == len([row for row in result.metrics if "train/loss" in row]) == 6


def test_a_second_block_in_one_round_and_a_round_without_one_are_refused(make_dqn_spec):
    """Each says which round."""
    learner = DqnLearner(make_dqn_spec())
    learner.begin(4, 0)
    with pytest.raises(ValueError, match="round 4 has nothing staged"):
        learner.finish()
    learner.stage(0, block(1, 16))
    with pytest.raises(ValueError, match=r"worker 1 staged environments \[0\] again in round 4"):
        learner.stage(1, block(1, 16))


def test_a_state_of_another_network_is_refused(make_dqn_spec):
    """Other widths: the layout differs; a torn buffer: its size is told."""
    learner = DqnLearner(make_dqn_spec())
    meta, buffer = learner.state()
    with pytest.raises(ValueError, match="state has layout"):
        DqnLearner(make_dqn_spec(policy_kwargs={"net_arch": [4]})).restore(meta, buffer)
    with pytest.raises(ValueError, match="state must hold"):
        learner.restore(meta, buffer[:-4])


# --------------------------------------------------------------------------------------------------------------- acting


def acted(spec, progress: float, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Return random choices and which of them are not the best action, for one vector step of `n` environments."""
    actor = make_actor(spec)
    actor.at(progress, 1)
    outputs = np.tile(np.array([0.0, 5.0], np.float32), (n, 1))
    noise = np.random.default_rng(0).gumbel(size=(n, 2)).astype(np.float32)
    actions = actor.choose(outputs, noise)
    return actions, actions != 1


def test_each_environment_explores_by_draws_of_its_own(make_dqn_spec):
    """Epsilon 0.5, 4000 environments in one step: a quarter takes the other action, not all or none (trap T21)."""
    hyper = {"exploration_initial_eps": 0.5, "exploration_final_eps": 0.5, "learning_starts": 0}
    _, other = acted(make_dqn_spec(**hyper), 0.5)
    assert 0.22 < other.mean() < 0.28


def test_all_actions_are_random_before_learning_starts(make_dqn_spec):
    """Half the actions are the other one before `learning_starts`; with a final epsilon of 0 none afterwards."""
    spec = make_dqn_spec(learning_starts=100, exploration_fraction=0.0, exploration_final_eps=0.0)
    assert 0.47 < acted(spec, 0.95)[1].mean() < 0.53
    assert not acted(spec, 0.85)[1].any()


def test_epsilon_moves_within_a_round(make_dqn_spec):
    """2 environments, 1000 steps, fall over 100: from 1 at step 0 to 0 at step 100, so choices 0 and 51 differ."""
    actor = make_actor(make_dqn_spec(learning_starts=0, exploration_final_eps=0.0))
    actor.at(1.0, 1)
    outputs = np.tile(np.array([0.0, 5.0], np.float32), (52, 500, 1))
    noise = np.random.default_rng(0).gumbel(size=(52, 500, 2)).astype(np.float32)
    actions = np.stack([actor.choose(o, n) for o, n in zip(outputs, noise, strict=True)])
    others = (actions == 0).mean(axis=1)
    assert 0.42 < others[0] < 0.58
    assert 0.18 < others[25] < 0.32
    assert others[51] == 0.0
    log_p = actor.log_prob(outputs, actions)
    assert log_p.shape == (52, 500)
    assert set(np.round(np.exp(log_p[25]), 4)) == {0.25, 0.75}


def test_exploration_takes_every_action_alike():
    """Three actions at epsilon 1: each a third of 9000 draws, although the size of the noise decides as well."""
    from drlnb.rl.algorithms.dqn_actor import _choose

    noise = np.random.default_rng(1).gumbel(size=(9000, 3)).astype(np.float32)
    for epsilon in (1.0, 0.5):
        chosen = _choose(np.tile(np.float32([0.0, 0.0, -1.0]), (9000, 1)), noise, epsilon)
        shares = np.bincount(chosen, minlength=3) / 9000
        expected = np.array([1 - epsilon, 0.0, 0.0]) + epsilon / 3
        assert np.abs(shares - expected).max() < 0.02


def test_evaluation_is_greedy(make_dqn_spec):
    """Noise 0 never explores, even with an epsilon of 1."""
    spec = make_dqn_spec(exploration_final_eps=1.0, exploration_fraction=0.0)
    actor, learner = make_actor(spec), make_learner(spec)
    actor.load(learner.published())
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    best = actor.forward(obs).argmax(axis=1)
    assert actor.predict(obs, deterministic=True)[0].tolist() == best.tolist()
    assert actor.predict(obs, deterministic=False)[0].tolist() != best.tolist()


def test_numpy_values_equal_torchs(make_dqn_spec):
    """Action values of the actor and of the learner's network differ by less than 1e-5."""
    spec = make_dqn_spec(policy_kwargs={"net_arch": [32, 32]})
    actor, learner = make_actor(spec), make_learner(spec)
    actor.load(learner.published())
    obs = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    expected = dense(views(learner.adam.flat, layout_of(spec)), Q, torch.from_numpy(obs), torch.relu)
    np.testing.assert_allclose(actor.forward(obs), expected.numpy(), atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ settings


def test_defaults_are_stable_baselines3s():
    """Written down from its 2.9.2 source."""
    expected = {"learning_rate": 1e-4, "buffer_size": 1_000_000, "learning_starts": 100, "batch_size": 32}
    expected |= {"tau": 1.0, "gamma": 0.99, "train_freq": 4, "gradient_steps": 1, "target_update_interval": 10_000}
    expected |= {"exploration_fraction": 0.1, "exploration_initial_eps": 1.0, "exploration_final_eps": 0.05}
    expected |= {"max_grad_norm": 10.0, "policy": "MlpPolicy", "policy_kwargs": {}}
    assert DqnSettings().to_plain() == expected | {"double_q": False, "periods_per_round": 1, "stats_window_size": 100}


def test_the_entry_is_found_and_text_is_read():
    """CartPole's entry by name; scientific text becomes whole numbers."""
    found = resolve("CartPole-v1", "dqn", overrides={"buffer_size": "2e4", "gradient_steps": "-1"})
    assert (found.n_envs, found.total_timesteps) == (4, 50_000)
    assert found.hyperparameters["buffer_size"] == 20_000
    assert found.hyperparameters["gradient_steps"] == -1
    assert found.hyperparameters["policy_kwargs"] == {"net_arch": [256, 256]}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gradient_steps", -2, "gradient_steps must be a whole number >= 0, or -1"),
        ("learning_starts", -1, "learning_starts must be a whole number >= 0"),
        ("exploration_final_eps", 1.5, "exploration_final_eps must be a number from 0 to 1"),
        ("policy_kwargs", {"net_arch": {"pi": [8]}}, "net_arch must be a list of widths"),
        ("policy_kwargs", {"ortho_init": True}, "takes the keys activation_fn, .*net_arch, .*not ortho_init"),
        ("normalize", True, "'normalize' is not supported: observations and rewards are not normalised for dqn"),
        ("n_steps", 3, "'n_steps' is not supported"),
        ("trainfreq", 3, "did you mean 'train_freq'"),
    ],
)
def test_wrong_settings_are_told_in_words(name, value, words):
    """One message with name, limit and value."""
    with pytest.raises(ConfigError, match=words):
        resolve("CartPole-v1", "dqn", overrides={name: value})


def test_box_actions_are_refused(make_dqn_spec):
    """The message names the space and what works."""
    with pytest.raises(UnsupportedSpace, match="dqn needs discrete actions, Pendulum-v1 takes box ones"):
        make_actor(make_dqn_spec("Pendulum-v1"))


def test_replay_ratio_falls_when_environments_are_added():
    """The zoo's gradient_steps kept with 16 environments: 16 times fewer steps per transition (trap T23)."""
    settings = DqnSettings(train_freq=8, gradient_steps=4)
    assert settings.n_gradient_steps(8) / 8 == 16 * settings.n_gradient_steps(128) / 128
    each = DqnSettings(train_freq=8, gradient_steps=-1, periods_per_round=2)
    assert (each.n_gradient_steps(128), each.round_steps()) == (128, 16)


@pytest.mark.parametrize("name", DqnSettings.names())
def test_the_page_names_every_setting(name):
    """Each setting appears on docs/reference/dqn.md as code."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "dqn.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page

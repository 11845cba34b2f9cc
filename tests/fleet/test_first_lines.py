"""What a user of Stable-Baselines3 types first: names, numbers and attributes that mean here what they mean there."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

import drlnb
from drlnb.fleet import learning
from drlnb.records.errors import ConfigError
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.networks.activations import NUMPY

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
RING = {"learning_starts": 8, "buffer_size": 64, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


def ppo(env="CartPole-v1", **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


def dqn(**given):
    return drlnb.DQN("MlpPolicy", "CartPole-v1", **{**RING, **given})


# -------------------------------------------------------------------- where it trains
def test_a_model_trains_in_this_process(capsys):
    """A line says so, once; nothing else is written, and no cluster is started."""
    model = ppo().learn(16)
    model.learn(16, reset_num_timesteps=False)
    line = "training in this process (local=False: on a cluster, to watch, stop and resume)"
    assert capsys.readouterr().err == f"drlnb: {line}\n"


@pytest.mark.parametrize(
    ("given", "local", "here"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"n_envs": 2}, None, True),
        ({"n_envs": 2, "n_collectors": 2}, None, False),
        ({"n_envs": 2, "n_collectors": 2}, True, True),
        ({"n_envs": 2, "n_collectors": 1}, None, True),
        ({"n_envs": 2, "n_learners": 2, "batch_size": 32}, None, False),
    ],
)
def test_a_cluster_trains_what_was_meant_for_several_processes(given, local, here):
    """Whoever says it is obeyed."""
    assert learning.trains_here(ppo(**given), local) is here


def test_a_fleet_that_is_up_is_used(monkeypatch):
    """So is one that the model was given."""
    monkeypatch.setattr(learning, "client_of", lambda: object())
    assert not learning.trains_here(ppo(), None)
    monkeypatch.setattr(learning, "client_of", lambda: "none")
    model = ppo()
    model.fleet = SimpleNamespace(closed=False)
    assert not learning.trains_here(model, None)


@pytest.mark.parametrize("total", [1e2, np.int64(100), np.array(100), "100"])
def test_a_budget_is_a_whole_number_of_any_kind(total):
    """As 1e5, or what a table of numpy's holds."""
    assert ppo().learn(total, local=True).num_timesteps == 112
    assert drlnb.Task("CartPole-v1", total_timesteps=total, n_envs=np.int64(8)).spec.total_timesteps == 100


@pytest.mark.parametrize("total", [1.5, 0, True, None, "many"])
def test_what_is_no_budget(total):
    """One line."""
    with pytest.raises(ConfigError, match="total_timesteps must be a whole number"):
        ppo().learn(total, local=True)


# -------------------------------------------------------------------- device
def test_a_device_is_where_it_computes():
    """The CPU, or a CUDA device that torch sees; a fleet's slots must be of that kind."""
    assert ppo(device="cpu").learn(16, local=True).num_timesteps == 16
    assert ppo(device=torch.device("cpu")).device == "cpu"
    model = ppo(device="cuda:77")
    with pytest.raises(ConfigError, match=r"device='cuda:77': torch .* sees \d+ CUDA devices in this process"):
        model.learn(16, local=True)
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or cuda:K, got 'gpu'"):
        ppo(device="gpu")
    slots = [SimpleNamespace(device="cpu")]
    with pytest.raises(ConfigError, match=r"device='cuda:77', but the fleet's slots are cpu: device='auto' takes them"):
        learning._check_fleet(model, SimpleNamespace(slots=slots))
    learning._check_fleet(ppo(device="cpu"), SimpleNamespace(slots=slots))
    learning._check_fleet(ppo(), SimpleNamespace(slots=slots))


def test_networks_of_images_take_a_cuda_device_that_is_there(monkeypatch):
    """An MLP is quicker on the CPU."""
    numbers = ppo().spec
    images = replace(numbers, hyperparameters={**numbers.hyperparameters, "policy": "CnnPolicy"})
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert learning._torch_device("auto", images) == device
        assert learning._torch_device("auto", numbers) == "cpu"


# -------------------------------------------------------------------- settings
def test_a_short_round_is_one_batch_where_nobody_says_another():
    """As there; a batch that was named must fit."""
    assert drlnb.PPO("MlpPolicy", "CartPole-v1", n_steps=32).batch_size == 32
    assert drlnb.PPO("MlpPolicy", "CartPole-v1", n_steps=32, n_envs=4).batch_size == 64
    with pytest.raises(ConfigError, match="batch_size must be <= n_steps"):
        drlnb.PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=64)


def test_steps_between_updates_may_have_their_unit():
    """Steps of each environment; whole episodes are refused."""
    assert dqn(train_freq=(4, "step")).train_freq == 4
    assert dqn(train_freq=(2, SimpleNamespace(value="step"))).train_freq == 2
    with pytest.raises(
        ConfigError, match=r"train_freq: counts steps of each environment, as 4 or \(4, 'step'\), got \(1,"
    ):
        dqn(train_freq=(1, "episode"))


@pytest.mark.parametrize("name", NUMPY)
def test_every_activation_serves_every_algorithm(name):
    """Actors without torch answer as the network does."""
    kind = {"silu": "SiLU", "relu6": "ReLU6", "leaky_relu": "LeakyReLU"}.get(name, name)
    for model in (
        ppo(policy_kwargs={"net_arch": [8], "activation_fn": name}),
        dqn(policy_kwargs={"activation_fn": name}),
    ):
        obs = np.random.default_rng(3).normal(size=(64, 4)).astype(np.float32) * 3
        with torch.no_grad():
            outputs = model.policy.outputs(torch.from_numpy(obs)).numpy()
        model.predict(obs)
        np.testing.assert_allclose(model._actor.forward(obs), outputs, rtol=1e-4, atol=1e-5)
    assert dqn(policy_kwargs={"net_arch": [8], "activation_fn": name}).learn(32, local=True).num_timesteps == 32
    assert hasattr(torch.nn, kind) or hasattr(torch.nn.functional, name)


def test_an_optimizer_is_named_by_its_class():
    """What trains beside Adam; another library's, and what is none, in one line with those that there are."""
    given = {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"alpha": 0.9}, "net_arch": [8]}
    model = ppo(policy_kwargs=given)
    assert model.spec.hyperparameters["policy_kwargs"] == {**given, "optimizer_class": "RMSprop"}
    assert dqn(policy_kwargs={"optimizer_class": torch.optim.AdamW}).learn(32, local=True).num_timesteps == 32
    for wrong in (theirs("Lion"), int):
        with pytest.raises(ConfigError) as refused:
            ppo(policy_kwargs={"optimizer_class": wrong})
        line = (
            "policy_kwargs: optimizer_class must be Adam, AdamW, SGD, RMSprop, Adagrad of torch.optim, or a class of "
            "optimizers, got "
        )
        assert str(refused.value).startswith(line)
        assert wrong.__name__ in str(refused.value)
        assert len(refused.value.problems) == 1


def test_a_models_optimizer_stays(tmp_path):
    """Its state would be read as another one's: at load and as an attribute it is refused, with the way."""
    model = ppo(policy_kwargs={"optimizer_class": torch.optim.AdamW})
    saved = model.learn(16, local=True).save(tmp_path / "model.zip")
    again = drlnb.PPO.load(saved)
    assert again.learn(16, local=True).num_timesteps == 16
    for change in (lambda: drlnb.PPO.load(saved, policy_kwargs={}), lambda: setattr(model, "policy_kwargs", {})):
        with pytest.raises(
            ConfigError, match=r"^optimizer_class .* is AdamW: .*set_parameters\(model.get_parameters\(\)"
        ):
            change()


def theirs(name, **of):
    """Return a class that seems to be Stable-Baselines3's."""
    return type(name, (), {"__module__": "stable_baselines3.common.policies", **of})


@pytest.mark.parametrize(
    ("name", "ours"),
    [("ActorCriticPolicy", "MlpPolicy"), ("DQNPolicy", "MlpPolicy"), ("MlpPolicy", "MlpPolicy")],
)
def test_their_policies_are_ours_by_name(name, ours):
    """A class derived from one is told what there is instead."""
    assert drlnb.PPO(theirs(name), "CartPole-v1", **SMALL).settings["policy"] == ours
    with pytest.raises(ConfigError, match=r"^policy: Mine is a class for Stable-Baselines3: here it is a name, with"):
        drlnb.PPO(type("Mine", (theirs(name),), {}), "CartPole-v1", **SMALL)


# -------------------------------------------------------------------- a model's parts
@pytest.mark.parametrize(
    ("env", "given"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"normalize": True}),
        ("Pendulum-v1", {"normalize": {"norm_obs": True, "norm_reward": False}}),
        ("Pendulum-v1", {"use_sde": True}),
        ("FrozenLake-v1", {}),
    ],
)
def test_a_policy_is_a_module_that_predicts_as_the_model(env, given):
    """The most likely actions, of the environment's type and shape; it can be traced, as exporters do."""
    model = ppo(env, **given).learn(64, local=True)
    policy, space = model.policy.greedy, model.observation_space
    space.seed(1)
    raw = [space.sample() for _ in range(50)]
    if isinstance(space, gymnasium.spaces.Discrete):
        rows, obs = np.eye(space.n, dtype=np.float32)[raw], np.array(raw)
    else:
        obs = np.clip(np.stack(raw), -5, 5)
        rows = obs
    predicted = model.predict(obs, deterministic=True)[0]
    with torch.no_grad():
        np.testing.assert_allclose(policy(torch.from_numpy(rows)).numpy(), predicted, rtol=1e-5, atol=1e-5)
        traced = torch.export.export(policy, (torch.from_numpy(rows),)).module()
        np.testing.assert_allclose(traced(torch.from_numpy(rows)).numpy(), predicted, rtol=1e-5, atol=1e-5)
    assert model.action_space == gymnasium.make(env).action_space


def test_a_q_net_is_a_dqns():
    """Another model says what it has."""
    assert dqn().q_net(torch.zeros(3, 4)).shape == (3, 2)
    with pytest.raises(AttributeError, match=r"'PPO' object has no attribute 'q_net': it is a DQN's; policy.get_dist"):
        _ = ppo().q_net


def test_parameters_can_be_read_and_set(tmp_path):
    """All tensors by their names; the model then acts with them, and learns on from them."""
    one, other = ppo(seed=1), ppo(seed=2)
    obs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    assert (one.predict(obs, deterministic=True)[0] != other.predict(obs, deterministic=True)[0]).any()
    other.set_parameters(one.get_parameters())
    assert (one.predict(obs, deterministic=True)[0] == other.predict(obs, deterministic=True)[0]).all()
    path = ppo(seed=3).save(tmp_path / "m")
    other.set_parameters(path)
    tensors = ppo(seed=3).get_parameters()["policy"]
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in other.get_parameters()["policy"].items())
    other.set_parameters({"policy": {"value.bias": torch.ones(1)}}, exact_match=False)
    assert other.get_parameters()["policy"]["value.bias"].item() == 1.0
    other.learn(16, local=True)
    assert other.get_parameters()["policy"]["value.bias"].item() != 1.0


def test_statistics_of_theirs_can_be_taken_over():
    """Observations are seen as their wrapper shows them: (x - mean) / sqrt(var), and counting goes on."""
    mean, var = np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 9.0, 16.0, 25.0])
    rms = SimpleNamespace(mean=mean, var=var, count=1000.0)
    model = ppo(normalize=True)
    model.set_statistics(SimpleNamespace(obs_rms=rms, ret_rms=SimpleNamespace(mean=0.0, var=2.0, count=1000.0)))
    plain = ppo()
    plain.set_parameters(model.get_parameters())
    obs = np.random.default_rng(2).normal(size=(300, 4)).astype(np.float32) * 5
    seen = ((obs - mean) / np.sqrt(var)).astype(np.float32)
    same = model.predict(obs, deterministic=True)[0] == plain.predict(seen, deterministic=True)[0]
    assert same.mean() > 0.99  # but for ties at the border
    model.learn(16, local=True)
    with pytest.raises(ConfigError, match="statistics are of 4 numbers, this model normalises 0 of its observations"):
        plain.set_statistics(SimpleNamespace(obs_rms=rms, ret_rms=rms))
    with pytest.raises(
        ConfigError, match="statistics must be a VecNormalize, with obs_rms and ret_rms of arrays, got 3"
    ):
        model.set_statistics(3)


def test_a_dqns_target_network_is_set_with_it():
    """Else it would learn towards another network's values until the next update of the target."""
    one, other = dqn(seed=1).learn(40, local=True), dqn(seed=2).learn(40, local=True)
    other.set_parameters(one.get_parameters())
    learner = make_learner(other.spec)
    learner.restore(other.trained.state.facts, other.trained.state.buffer)
    assert torch.equal(learner.adam.flat, learner.target)


@pytest.mark.parametrize(
    ("given", "exact", "line"),
    [
        (
            {"policy": {"pi.0.weigth": 0}},
            False,
            "parameters hold an unknown tensor 'pi.0.weigth'; did you mean 'pi.0.we",
        ),
        ({"policy": {}}, True, "parameters lack the tensor 'pi.0.weight'; exact_match=False leaves it as it is"),
        ({"value.bias": np.zeros(2)}, False, r"parameter value.bias must have the shape \(1,\), got \(2,\)"),
        (3, True, r"parameters must be what get_parameters\(\) returns, got int"),
    ],
)
def test_parameters_that_do_not_fit(given, exact, line):
    """One line; the model is as it was."""
    model = ppo()
    before = model.parameters
    with pytest.raises(ConfigError, match=line):
        model.set_parameters(given, exact_match=exact)
    assert (model.parameters == before).all()


def test_environments_can_be_stepped_by_hand():
    """As a vector environment of theirs: four answers, resets at ends, what the last step said kept apart."""
    model = ppo(n_envs=2)
    env = model.get_env()
    env.seed(3)
    obs = env.reset()
    assert (obs.shape, env.num_envs, env.unwrapped) == ((2, 4), 2, env)
    ended = []
    for _ in range(60):
        env.step_async(model.predict(obs)[0])
        obs, rewards, dones, infos = env.step_wait()
        ended += [info for done, info in zip(dones, infos, strict=True) if done]
    assert (rewards.dtype, rewards.shape, dones.dtype) == (np.float32, (2,), np.bool_)
    assert ended[0]["episode"]["r"] == ended[0]["episode"]["l"] > 1
    assert ended[0]["terminal_observation"].shape == (4,)
    assert env.get_attr("gravity") == [9.8, 9.8]
    env.set_attr("gravity", 5.0, indices=1)
    assert env.get_attr("gravity") == [9.8, 5.0]
    env.set_attr("mood", "good", indices=[0])
    assert env.envs[0].unwrapped.mood == "good"
    assert env.env_method("has_wrapper_attr", "gravity", indices=0) == [True]
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [True, True]
    assert env.env_is_wrapped(gymnasium.wrappers.RecordVideo) == [False, False]
    env.close()


def test_environments_can_be_drawn():
    """In the mode that was asked for."""
    pytest.importorskip("pygame")
    drawn = ppo().get_env(render_mode="rgb_array")
    drawn.reset()
    assert drawn.get_images()[0].shape == drawn.render().shape == (400, 600, 3)
    drawn.close()


def test_their_functions_take_it_for_theirs(monkeypatch):
    """They ask for their class; where it is loaded, ours counts as one."""
    from abc import ABC

    module = ModuleType("stable_baselines3.common.vec_env.base_vec_env")
    module.VecEnv = type("VecEnv", (ABC,), {})
    model = ppo()
    early = model.get_env()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert not isinstance(early, module.VecEnv)
    env = model.get_env()
    assert isinstance(env, module.VecEnv)
    assert env is early
    env.close()


def test_another_environment_can_be_set():
    """With the same spaces; the next budget begins new episodes there."""
    model = ppo("Pendulum-v1").learn(16, local=True)
    model.set_env(gymnasium.make("Pendulum-v1", g=5.0))
    assert model.spec.env_kwargs == {"g": 5.0}
    assert model.learn(16, local=True, reset_num_timesteps=False).num_timesteps == 32
    with pytest.raises(ValueError, match="CartPole-v1 has the observation space"):
        model.set_env("CartPole-v1")


def test_a_model_is_loaded_with_their_arguments(tmp_path, capsys):
    """Settings in `custom_objects`, a device, and the versions."""
    path = ppo().save(tmp_path / "m")
    loaded = drlnb.PPO.load(path, device="cpu", custom_objects={"gamma": 0.5}, print_system_info=True)
    assert (loaded.gamma, loaded.device) == (0.5, "cpu")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" python ")[0] for line in lines] == ["drlnb: saved with", "drlnb: this process has"]
    assert drlnb.PPO.load(path, n_envs=8).learn(128, local=True).num_timesteps == 128


def test_predict_of_what_reset_returns():
    """The tuple is told."""
    with pytest.raises(ValueError, match=r"got what reset\(\) returns: say obs, info = env.reset\(\)"):
        ppo().predict(gymnasium.make("CartPole-v1").reset())


def test_algorithms_that_are_not_here():
    """The line names those that are."""
    with pytest.raises(AttributeError, match="no attribute 'SAC': the algorithms are PPO, DQN and GPF"):
        _ = drlnb.SAC

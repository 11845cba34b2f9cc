"""Save, load, set parameters and environments as a script for Stable-Baselines3 does."""

import io
import tempfile
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import drlnb
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.rl.schedules import parse_schedule
from tests.fleet.compatibility.worlds import Pictures, dqn, ppo

SMALL_CNN = {"features_extractor_kwargs": {"features_dim": 8}}
KINDS = {
    "ppo": ppo,
    "dqn": dqn,
    "ppo of pictures": lambda: ppo(Pictures, "CnnPolicy", policy_kwargs=SMALL_CNN),
    "dqn of pictures": lambda: dqn(Pictures, "CnnPolicy", policy_kwargs=SMALL_CNN),
    "ppo by gSDE": lambda: ppo("Pendulum-v1", use_sde=True),
}


def seen(model, n=20):
    space = model.observation_space
    space.seed(1)
    return np.stack([space.sample() for _ in range(n)])


def acts(model):
    return model.predict(seen(model), deterministic=True)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_ones_own_are_saved_and_loaded(tmp_path, kind):
    """Random ones reach the policy and the file; a device of either spelling loads them, and learning goes on."""
    model = KINDS[kind]()
    before = model.get_parameters()["policy"]
    generator = torch.Generator().manual_seed(7)
    mine = {name: torch.rand(tensor.shape, generator=generator) for name, tensor in before.items()}
    model.set_parameters({"policy": mine})
    path = model.save(tmp_path / "m")
    for device in ("auto", torch.device("cpu")):
        loaded = type(model).load(path, device=device, trust=True)
        assert all(torch.equal(mine[name], tensor) for name, tensor in loaded.get_parameters()["policy"].items())
        assert not any(torch.equal(before[name], tensor) for name, tensor in mine.items())
        np.testing.assert_array_equal(acts(loaded), acts(model))
        assert loaded.policy.device == torch.device("cpu")
    assert loaded.learn(16, local=True).num_timesteps == 16


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", ["nobodys", "policy.optimizer"])
def test_a_part_that_is_not_there_is_not_set(exact, name):
    """It would be left out without a word; the model is as it was."""
    model = ppo()
    before = model.parameters
    with pytest.raises(ConfigError, match=f"parameters hold '{name}', which is not set: there is 'policy' alone"):
        model.set_parameters({**model.get_parameters(), name: {}}, exact_match=exact)
    assert (model.parameters == before).all()


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_what_is_left_out_stays(kind):
    """All but the last tensor are set; with `exact_match` the one that lacks is named."""
    model = kind()
    before = model.get_parameters()["policy"]
    *most, last = before
    given = {"policy": {name: before[name] + 1 for name in most}}
    with pytest.raises(ConfigError, match=f"parameters lack the tensor '{last}'"):
        model.set_parameters(given)
    model.set_parameters(given, exact_match=False)
    after = model.get_parameters()["policy"]
    assert torch.equal(after[last], before[last])
    assert all(torch.equal(after[name], before[name] + 1) for name in most)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_of_a_policy_are_saved_and_loaded(tmp_path, kind):
    """Random ones are loaded into it, the model acts with them, and the file holds them."""
    model = KINDS[kind]()
    before, generator = model.policy.state_dict(), torch.Generator().manual_seed(7)
    mine = {name: torch.rand(tensor.shape, generator=generator) for name, tensor in before.items()}
    model.policy.load_state_dict(mine)
    loaded = type(model).load(model.save(tmp_path / "m"), trust=True)
    for each in (model, loaded):
        assert all(torch.equal(mine[name], tensor) for name, tensor in each.policy.state_dict().items())
    np.testing.assert_array_equal(acts(loaded), acts(model))
    assert loaded.learn(16, local=True).num_timesteps == 16


def test_parameters_of_a_q_net_are_saved_and_loaded(tmp_path):
    """As those of its policy, by names of its own."""
    model = dqn()
    mine = {name: torch.rand_like(tensor) for name, tensor in model.q_net.state_dict().items()}
    model.q_net.load_state_dict(mine)
    loaded = drlnb.DQN.load(model.save(tmp_path / "m"))
    assert all(torch.equal(mine[name], tensor) for name, tensor in loaded.q_net.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_alone_is_saved(tmp_path, kind):
    """By torch, or into a file as the model's; it acts as the model did."""
    model, file = KINDS[kind](), io.BytesIO()
    torch.save(model.policy, file)
    file.seek(0)
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy.zip", trust=True)
    for alone in (torch.load(file, weights_only=False), loaded):
        np.testing.assert_array_equal(alone.predict(seen(model), deterministic=True)[0], acts(model))
        with torch.no_grad():
            np.testing.assert_allclose(alone.greedy(torch.from_numpy(seen(model))).numpy(), acts(model), atol=1e-5)
        assert torch.equal(next(iter(alone.parameters())), next(iter(model.policy.parameters())))


@pytest.mark.filterwarnings("error")
def test_a_model_goes_into_a_file_that_is_open(tmp_path):
    """It stays open, and needs no name; paths are texts or objects; nothing warns."""
    model = ppo()
    with tempfile.TemporaryFile() as file:
        assert model.save(file) is file
        loaded = drlnb.PPO.load(file, print_system_info=True)
        assert not file.closed
    memory = io.BytesIO()
    model.save(memory)
    assert drlnb.PPO.load(memory).seed == model.seed
    for path in (tmp_path / "a", str(tmp_path / "b")):
        model.save(path)
        np.testing.assert_array_equal(acts(drlnb.PPO.load(path)), acts(loaded))
    with pytest.raises(CheckpointError, match="the open file: damaged, or no zip file"):
        drlnb.PPO.load(io.BytesIO(b"nothing"))


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_attributes_are_in_a_file_unless_they_are_left_out(tmp_path, kind):
    """As `exclude` and `include` say; load may say another one, and a setting with it."""
    model = kind(verbose=2, tensorboard_log=tmp_path / "log")
    for given, verbose in (
        ({}, 2),
        ({"exclude": ["verbose", "replay_buffer"]}, 0),
        ({"exclude": "verbose"}, 0),
        ({"exclude": ["verbose"], "include": ["verbose", "gamma"]}, 2),
    ):
        loaded = type(model).load(model.save(tmp_path / "m", **given), custom_objects={"learning_rate": 2e-5})
        assert (loaded.verbose, loaded.learning_rate) == (verbose, 2e-5)
        assert loaded.tensorboard_log == str(tmp_path / "log")
    assert type(model).load(tmp_path / "m", verbose=1).verbose == 1
    plain = type(model).load(model.save(tmp_path / "n", {"tensorboard_log"}))
    assert (plain.verbose, plain.tensorboard_log) == (2, None)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dummy'"):
        type(model).load(tmp_path / "m", custom_objects={"dummy": 1.0})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"exclude": ["gamma"]}, r"exclude takes verbose and tensorboard_log, not gamma: .*load\(path, NAME=value\)"),
        ({"include": ["env"]}, "include: env is in no file; it holds verbose, tensorboard_log and all settings"),
    ],
)
def test_what_a_model_is_made_of_cannot_be_left_out(tmp_path, given, said):
    """Nor can what is in no file be put there; nothing is written."""
    with pytest.raises(ConfigError, match=said):
        ppo().save(tmp_path / "m", **given)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------- environments
def several(n):
    return gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="sync")


@pytest.mark.parametrize("kind", [ppo, dqn])
def test_environments_are_set_between_two_budgets(tmp_path, kind):
    """A new one by default counts from 0; steps go on where they shall; a loaded model has as many as it is given."""
    model = kind().learn(16, local=True)
    model.set_env(gymnasium.make("CartPole-v1"), force_reset=True)
    assert model.learn(16, local=True).num_timesteps == 16
    model.set_env(several(1))
    assert model.learn(16, reset_num_timesteps=False, local=True).num_timesteps == 32
    with pytest.raises(ConfigError, match=r"set_env got 2 environments for a model of 1: model.n_envs = 2 comes first"):
        model.set_env(several(2))
    path = model.save(tmp_path / "m")
    loaded = type(model).load(path, env=gymnasium.make("CartPole-v1"))
    assert loaded.learn(16, reset_num_timesteps=False, local=True).num_timesteps == 48
    loaded = type(model).load(path, env=several(2))
    assert (loaded.n_envs, loaded.learn(32, local=True).num_timesteps) == (2, 32)
    assert type(model).load(path, env=several(2), n_envs=4).n_envs == 4


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
def test_a_model_of_pictures_is_loaded_with_an_environment(tmp_path, first):
    """It predicts as before from pictures as they are shown, and learns on in an object that was made."""
    model = ppo(Pictures(2, first), "CnnPolicy", policy_kwargs=SMALL_CNN).learn(16, local=True)
    loaded = drlnb.PPO.load(model.save(tmp_path / "m"), env=Pictures(2, first), trust=True)
    picture = seen(model, 1)[0]
    assert loaded.predict(picture, deterministic=True) == model.predict(picture, deterministic=True)
    assert loaded.learn(16, local=True).num_timesteps == 16


# -------------------------------------------------------------------- a ring
def test_a_ring_is_saved_loaded_and_goes_on(tmp_path):
    """Row by row; a text and an object are names; two budgets on the loaded one warn of nothing."""
    model = dqn().learn(40, local=True)
    kept = model.trained.replay
    for path in (tmp_path / "ring", str(tmp_path / "other")):
        model.save_replay_buffer(path)
        other = dqn()
        other.load_replay_buffer(path)
        assert all(np.array_equal(other.trained.replay.arrays[name], kept.arrays[name]) for name in kept.arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.learn(16, reset_num_timesteps=False, local=True).learn(16, local=True).num_timesteps == 16


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"optimize_memory_usage": True},
        {"optimize_memory_usage": False, "replay_buffer_kwargs": {"handle_timeout_termination": True}},
    ],
)
def test_what_the_ring_does_in_any_case_may_be_asked_for(given):
    """Each observation is stored once, and a time limit is no end; budgets follow one another, nothing is cut off."""
    model, plain = dqn(**given), dqn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (model, plain):
            each.learn(24, local=True).learn(24, reset_num_timesteps=False, local=True).learn(24, local=True)
    assert np.array_equal(model.parameters, plain.parameters)
    with pytest.raises(ConfigError, match=r"replay_buffer_kwargs=.*False.* not supported: .*a time limit is no end"):
        dqn(replay_buffer_kwargs={"handle_timeout_termination": False})


# -------------------------------------------------------------------- settings in a file
@pytest.mark.parametrize("kind", [ppo, dqn])
def test_a_rate_of_numpys_is_a_number_after_a_load(tmp_path, kind):
    """A function of the progress that answers in numpy's numbers, before and after, at the ends and in the middle."""
    model = kind(learning_rate=lambda left: left * np.sin(1.0))
    loaded = type(model).load(model.save(tmp_path / "m"))
    for each in (model, loaded):
        rate = parse_schedule(each.learning_rate)
        assert [rate(left) for left in (1.0, 0.5, 0.0)] == pytest.approx([np.sin(1.0), 0.5 * np.sin(1.0), 0.0])
        assert type(rate(1.0)) is float


def test_functions_and_numbers_of_the_clip_range_come_back(tmp_path):
    """No code is in the file: it is loaded without trust."""
    for given, value in ((lambda _: 0.3, 0.3), (0.2, 0.2)):
        loaded = drlnb.PPO.load(ppo(clip_range=given, learning_rate=lambda _: 0.001).save(tmp_path / "m"))
        assert parse_schedule(loaded.clip_range)(0.0) == parse_schedule(loaded.clip_range)(1.0) == value
        assert parse_schedule(loaded.learning_rate)(0.0) == 0.001
        assert loaded.learn(16, local=True).num_timesteps == 16


def test_an_interval_stays_what_it_was(tmp_path):
    """With two environments, too: it counts the steps of both."""
    model = dqn(target_update_interval=100, n_envs=2)
    loaded = drlnb.DQN.load(model.save(tmp_path / "m"))
    assert (loaded.target_update_interval, loaded.n_envs) == (100, 2)


def test_a_network_of_none_is_the_usual_one(tmp_path):
    """Two layers of 64, in the file as well."""
    model = ppo(policy_kwargs={"net_arch": None})
    loaded = drlnb.PPO.load(model.save(tmp_path / "m"))
    for each in (model, loaded):
        shapes = {name: tuple(tensor.shape) for name, tensor in each.get_parameters()["policy"].items()}
        assert [shapes[f"{tower}.{i}.weight"] for tower in ("pi", "vf") for i in (0, 1)] == [(64, 4), (64, 64)] * 2


def test_spaces_come_back(tmp_path):
    """With bounds and type."""
    model = ppo("Pendulum-v1")
    loaded = drlnb.PPO.load(model.save(tmp_path / "m"))
    assert loaded.action_space == Box(-2.0, 2.0, (1,), np.float32)
    assert ppo().action_space == Discrete(2)
    assert loaded.observation_space == model.observation_space

"""Every name that a user of Stable-Baselines3 knows of a model, and of the package, works or says what does it here."""

import importlib

import numpy as np
import pytest
import torch

import drlnb
from drlnb.fleet.plain import COUNT
from drlnb.records.errors import ConfigError

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}
RING = {"learning_starts": 8, "buffer_size": 64, "seed": 0, "policy_kwargs": {"net_arch": [8]}}

#: Attributes of its PPO and DQN (2.9.2) after training, but for those that begin with an underscore.
OF_BOTH = """action_noise action_space batch_size device env ep_info_buffer ep_success_buffer gamma learning_rate
    lr_schedule max_grad_norm n_envs num_timesteps observation_space policy policy_class policy_kwargs sde_sample_freq
    seed start_time tensorboard_log use_sde verbose collect_rollouts get_env get_parameters get_vec_normalize_env learn
    load logger predict save set_env set_logger set_parameters set_random_seed train n_steps"""
OF_PPO = """clip_range clip_range_vf ent_coef gae_lambda n_epochs normalize_advantage rollout_buffer
    rollout_buffer_class rollout_buffer_kwargs target_kl vf_coef"""
OF_DQN = """buffer_size exploration_final_eps exploration_fraction exploration_initial_eps exploration_schedule
    gradient_steps learning_starts optimize_memory_usage q_net q_net_target replay_buffer replay_buffer_class
    replay_buffer_kwargs target_update_interval tau train_freq load_replay_buffer save_replay_buffer"""
#: Those with an underscore that scripts and callbacks read all the same.
PRIVATE = "_last_obs _n_updates _total_timesteps _current_progress_remaining _vec_normalize_env"


def ppo(env="CartPole-v1", **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


def dqn(**given):
    return drlnb.DQN("MlpPolicy", "CartPole-v1", **{**RING, **given})


@pytest.fixture(scope="module", params=["PPO", "DQN"])
def learnt(request):
    """Return a model after some rounds, and the names of its algorithm."""
    if request.param == "PPO":
        return ppo().learn(32, local=True), [*OF_BOTH.split(), *OF_PPO.split(), *PRIVATE.split()]
    return dqn().learn(32, local=True), [*OF_BOTH.split(), *OF_DQN.split(), *PRIVATE.split()]


# -------------------------------------------------------------------- attributes of a model
def test_every_attribute_is_there_or_names_the_way(learnt):
    """No bare AttributeError: what follows the name is a way."""
    model, names = learnt
    told = {}
    for name in names:
        try:
            getattr(model, name)
        except AttributeError as error:
            told[name] = str(error)
    beginning = f"'{type(model).__name__}' object has no attribute"
    assert [name for name, said in told.items() if len(said) < len(f"{beginning} {name!r}: ") + 8] == []
    assert all(said.startswith(f"{beginning} {name!r}: ") for name, said in told.items())


def test_every_attribute_counts_or_is_refused_when_it_is_set(learnt):
    """With the value that it has, or some other: a setting is one afterwards, all else raises in one line."""
    model, names = learnt
    told, counted = {}, {*model.settings, "seed", "n_envs", "device", "verbose", "tensorboard_log"} - {"policy"}
    for name in names:
        value = getattr(model, name, "something")
        try:
            setattr(model, name, value)
        except (AttributeError, ConfigError) as error:
            told[name] = str(error)
        else:
            assert getattr(model, name) == value
    of_ring = {"buffer_size", "n_envs"} if "buffer_size" in counted else set()  # it is filled
    assert told.keys() == {*names} - (counted - of_ring)
    assert all(name in said and len(said.splitlines()) == 1 for name, said in told.items())


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("lr_schedule", "settings has learning_rate"),
        ("rollout_buffer", "samples travel as fragments"),
        ("train", r"learn\(...\) makes gradient steps"),
        ("action_noise", "exploration is the algorithm's own"),
    ],
)
def test_what_nothing_reads_is_refused_with_the_way(name, way):
    """When it is set as when it is read."""
    model = ppo()
    with pytest.raises(AttributeError, match=f"{name} of a PPO cannot be assigned: {way}"):
        setattr(model, name, 3)
    with pytest.raises(AttributeError, match=way):
        getattr(model, name)


def test_a_policy_cannot_be_put_in_its_place():
    """Nor one that is compiled; another policy by its name is a setting."""
    model = ppo()
    for policy in (model.policy, torch.nn.Linear(4, 2)):
        with pytest.raises(
            AttributeError, match=r"policy of a PPO cannot be replaced: policy.load_state_dict\(...\) changes"
        ):
            model.policy = policy
    assert model.settings["policy"] == "MlpPolicy"


def test_verbose_is_a_number():
    """True as well; words are refused when they are given, and when they are set."""
    assert (ppo(verbose=True).verbose, ppo(verbose=2).verbose) == (1, 2)
    for wrong in ("x", None, -1, 1.5):
        with pytest.raises(ConfigError, match="verbose must be a whole number >= 0"):
            ppo(verbose=wrong)
    model = ppo()
    with pytest.raises(ConfigError, match="verbose must be a whole number >= 0, got 'loud'"):
        model.verbose = "loud"


# -------------------------------------------------------------------- names of the package
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("SAC", "the algorithms are PPO, DQN and GPF"),
        ("A2C", "the algorithms are PPO, DQN and GPF"),
        ("RecurrentPPO", "no algorithm here learns from sequences"),
        ("MaskablePPO", "use_masking=True"),
        ("HerReplayBuffer", "no goals are made of what was reached"),
        ("make_vec_env", "n_envs=4"),
        ("VecNormalize", "normalize=True"),
        ("evaluate_policy", "drlnb.rl.evaluate"),
        ("Monitor", "model.ep_info_buffer"),
        ("check_env", "a model tries its environment when it is built"),
    ],
)
def test_what_is_not_in_the_package(name, way):
    """As an attribute and by `from drlnb import`, whose own message would lose what is told."""
    with pytest.raises(AttributeError, match=f"module 'drlnb' has no attribute '{name}': .*{way}"):
        getattr(drlnb, name)
    with pytest.raises(ImportError, match=f"'{name}': .*{way}"):
        exec(f"from drlnb import {name}")
    assert not hasattr(drlnb, name)


@pytest.mark.parametrize(
    "statement",
    [
        "import drlnb.common.vec_env",
        "from drlnb.common.callbacks import BaseCallback",
        "from drlnb.common.evaluation import evaluate_policy",
        "from drlnb.ppo import MlpPolicy",
        "from drlnb.her import HerReplayBuffer",
        "from drlnb import common",
    ],
)
def test_modules_of_theirs_are_told_of(statement):
    """Their helpers take our models, so they are imported from where they are."""
    with pytest.raises(ImportError, match=r"'(drlnb\.)?\w+': from drlnb import PPO, .* from stable_baselines3.common$"):
        exec(statement)


def test_modules_of_the_package_are_imported_as_ever():
    """Only names with a way are told of."""
    exec("from drlnb import records, rl")
    assert importlib.import_module("drlnb.rl").__name__ == "drlnb.rl"
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from drlnb import Nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'drlnb.nothing'$"):
        exec("import drlnb.nothing")


# -------------------------------------------------------------------- arguments
@pytest.mark.parametrize("value", [np.int64(3), np.uint32(3), np.int8(3)])
def test_a_seed_may_be_numpys(value):
    """Given, set, or at load."""
    assert ppo(seed=value).seed == 3
    model = ppo()
    model.seed = value
    assert model.seed == 3
    assert np.array_equal(model.parameters, ppo(seed=3).parameters)


@pytest.mark.parametrize(
    ("kind", "given", "way"),
    [
        (drlnb.PPO, {"lr_schedule": None}, "learning_rate takes a function of the progress that remains"),
        (drlnb.PPO, {"lr": 1e-3}, "it is called learning_rate"),
        (drlnb.PPO, {"num_minibatches": 4}, "say batch_size"),
        (drlnb.PPO, {"total_timesteps": 4}, r"learn\(total_timesteps\)"),
        (drlnb.PPO, {"create_eval_env": True}, "EvalCallback"),
        (drlnb.DQN, {"normalize": True}, "observations and rewards are not normalised for dqn"),
        (drlnb.DQN, {"use_masking": True}, "only ppo learns with action masks"),
        (drlnb.DQN, {"action_noise": None}, "exploration is the algorithm's own"),
    ],
)
def test_arguments_that_are_not_here(kind, given, way):
    """A TypeError as of any function, which says what does it."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(given))}': .*{way}"):
        kind("MlpPolicy", "CartPole-v1", **given)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (drlnb.PPO, {"stats_window_size": 0}, "stats_window_size must be a whole number >= 1, got 0"),
        (drlnb.PPO, {"rollout_buffer_class": dict}, "rollout_buffer_class.*samples travel as fragments"),
        (drlnb.PPO, {"_init_setup_model": False}, "_init_setup_model=False is not supported"),
        (drlnb.DQN, {"n_steps": 3}, "n_steps=3 is not supported: returns of several steps are not built yet"),
        (drlnb.DQN, {"replay_buffer_class": dict}, "there is one ring, for all tasks alike"),
        (drlnb.DQN, {"train_freq": (1, "episode")}, r"^train_freq: counts steps of each environment, as 4 or \(4, "),
        (drlnb.PPO, {"device": "mps"}, "device must be auto, cpu, cuda or cuda:K, got 'mps'"),
    ],
)
def test_arguments_whose_values_are_not_here(kind, given, said):
    """No option is taken and left out."""
    with pytest.raises(ConfigError, match=said):
        kind("MlpPolicy", "CartPole-v1", **given)


def test_a_loaded_model_takes_their_arguments(tmp_path):
    """`force_reset` asks for what happens anyway; what is loaded for other versions of theirs is named."""
    path = ppo().save(tmp_path / "m")
    assert drlnb.PPO.load(path, force_reset=False).seed == 0
    with pytest.raises(TypeError, match="'lr_schedule': learning_rate takes a function"):
        drlnb.PPO.load(path, custom_objects={"lr_schedule": lambda _: 0.0})
    assert drlnb.PPO.load(path, custom_objects={"learning_rate": 0.0, "clip_range": lambda _: 0.1}).learning_rate == 0


# -------------------------------------------------------------------- learn
def test_a_wrong_budget_is_told_before_anything_is_said(capsys):
    """The line that names the place would promise a training."""
    for act in (lambda: ppo().learn("many"), lambda: ppo().submit("many")):
        with pytest.raises(ConfigError, match="total_timesteps must be a whole number >= 1, got 'many'"):
            act()
    assert capsys.readouterr().err == ""


def test_no_log_interval_means_no_tables(capsys):
    """As with `LogEveryNTimesteps`, which prints instead."""
    ppo(verbose=1).learn(32, log_interval=None, local=True)
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="log_interval must be a whole number >= 1, got 0"):
        ppo().learn(32, log_interval=0, local=True)
    assert COUNT.read("log_interval", 4) == 4

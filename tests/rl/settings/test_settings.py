"""Settings: tuned entries, overrides, and every problem told at once."""

import json
import threading

import pytest
import torch

from drlnb.records.errors import ConfigError, InputError
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.settings.ppo import PpoSettings


def test_defaults_are_stable_baselines():
    """An environment without an entry gets Stable-Baselines3's PPO defaults, 1 environment and a million steps."""
    found = resolve("Nowhere-v0")
    assert found.hyperparameters == {
        "policy": "MlpPolicy",
        "learning_rate": 3e-4,
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_range": 0.2,
        "clip_range_vf": None,
        "normalize_advantage": True,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "target_kl": None,
        "use_masking": False,
        "use_sde": False,
        "sde_sample_freq": -1,
        "normalize": False,
        "policy_kwargs": {},
        "stats_window_size": 100,
    }
    assert (found.n_envs, found.total_timesteps) == (1, 1_000_000)
    assert found.origin == "Stable-Baselines3's defaults"


def test_cartpole_is_tuned():
    """CartPole-v1 comes with tuned values, also behind a module prefix."""
    for env in ("CartPole-v1", "gymnasium.envs:CartPole-v1"):
        found = resolve(env)
        assert (found.n_envs, found.total_timesteps) == (8, 100_000)
        assert found.hyperparameters["clip_range"] == "lin_0.2"
        assert found.hyperparameters["gae_lambda"] == 0.9
        assert found.origin == f"tuned settings for {env} (rl/settings/tuned.yml)"


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"])
def test_every_shipped_entry_is_valid(env):
    """Each entry resolves, and its settings build the dataclass."""
    found = resolve(env)
    assert PpoSettings.from_mapping(found.hyperparameters).to_plain() == found.hyperparameters


def test_a_command_lines_text_is_read():
    """Text becomes numbers, truth values, none, schedules and JSON."""
    given = {"gamma": "0.9", "n_steps": "1e2", "normalize": "true", "target_kl": "none", "learning_rate": "lin_1e-3"}
    found = resolve("X-v0", overrides={**given, "policy_kwargs": '{"net_arch": [8]}'}).hyperparameters
    assert (found["gamma"], found["n_steps"], found["normalize"], found["target_kl"]) == (0.9, 100, True, None)
    assert (found["learning_rate"], found["policy_kwargs"]) == ("lin_1e-3", {"net_arch": [8]})


def test_overrides_are_named_in_the_origin():
    """The origin says which settings are the caller's."""
    assert resolve("CartPole-v1", overrides={"gamma": 0.9}).origin.endswith("(rl/settings/tuned.yml), with gamma")


def test_an_unknown_name_gets_the_nearest_one():
    """A slip of the finger is answered with the name that was meant."""
    with pytest.raises(ConfigError, match="unknown hyper-parameter 'n_step'; did you mean 'n_steps'\\?"):
        resolve("X-v0", overrides={"n_step": 8})


def test_all_problems_are_told_at_once():
    """Three wrong settings are three problems in one error, each with its value, and it is the caller's to mend."""
    with pytest.raises(InputError) as caught:
        resolve("X-v0", overrides={"gamma": 1.5, "n_epochs": 0, "learnin_rate": 1})
    assert caught.value.problems == (
        "unknown hyper-parameter 'learnin_rate'; did you mean 'learning_rate'?",
        "n_epochs must be a whole number >= 1, got 0",
        "gamma must be a number from 0 to 1, got 1.5",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", "lin_x"),
        ("batch_size", 2.5),
        ("clip_range", -0.1),
        ("normalize_advantage", 1),
        ("normalize", {"norm_obz": True}),
        ("policy_kwargs", {"net_arch": [0]}),
        ("policy_kwargs", {"activation_fn": "step"}),
        ("policy_kwargs", {"net_arhc": [8]}),
        ("policy_kwargs", {"log_std_init": "low"}),
        ("policy_kwargs", {"optimizer_kwargs": {"momentum": 0.9}}),
        ("policy_kwargs", {"optimizer_kwargs": {"betas": [0.9]}}),
        ("policy_kwargs", {"features_extractor_class": "resnet"}),
        ("policy", "LstmPolicy"),
        ("clip_range", {"points": [[1.0, 0.1], [0.0, 0.2]]}),
        ("max_grad_norm", 0),
        ("n_envs", "many"),
    ],
)
def test_wrong_values_name_the_setting(name, value):
    """A value of the wrong type or range is refused under its setting's name."""
    with pytest.raises(ConfigError, match=name):
        resolve("X-v0", overrides={name: value})


def test_a_batch_larger_than_a_round_shows_all_numbers():
    """batch_size 256 with 32 steps of 4 environments is refused with 32, 4, 128 and 256."""
    with pytest.raises(ConfigError, match=r"batch_size must be <= n_steps \* n_envs = 32 \* 4 = 128, got 256"):
        resolve("CartPole-v1", n_envs=4)


def test_budget_and_environments_are_checked_too():
    """A budget of 0 is not "no budget given": it is refused like 0 environments."""
    with pytest.raises(ConfigError) as caught:
        resolve("CartPole-v1", total_timesteps=0, n_envs=0)
    assert caught.value.problems[:2] == (
        "total_timesteps must be a whole number >= 1, got 0",
        "n_envs must be a whole number >= 1, got 0",
    )


@pytest.mark.parametrize("name", sorted(PpoSettings.UNSUPPORTED))
def test_unsupported_names_get_their_reason(name):
    """Stable-Baselines3's arguments without a meaning here are refused with the reason."""
    with pytest.raises(ConfigError, match=f"{name!r} is not supported: {PpoSettings.UNSUPPORTED[name]}"):
        resolve("X-v0", overrides={name: 1})


def test_text_is_never_evaluated(tmp_path):
    """A hostile text stays text and is refused; nothing runs."""
    target = tmp_path / "made"
    with pytest.raises(ConfigError, match="gamma must be a number"):
        resolve("X-v0", overrides={"gamma": f"__import__('pathlib').Path({str(target)!r}).touch()"})
    assert not target.exists()


def test_dqn_has_no_orthogonal_weights():
    """What the others learnt is not silently ignored."""
    assert resolve("X-v0", "dqn", overrides={"policy": "CnnPolicy"}).hyperparameters["policy"] == "CnnPolicy"
    with pytest.raises(ConfigError, match=r"policy_kwargs takes the keys .*net_arch, .*not ortho_init"):
        resolve("X-v0", "dqn", overrides={"policy_kwargs": {"ortho_init": False}})


@pytest.mark.parametrize("algo", ["ppo", "gpf", "dqn"])
def test_recurrent_policies_are_refused_with_what_helps(algo):
    """sb3-contrib's names of recurrent policies get a reason and a way out."""
    more = {"reward_scale": 1.0} if algo == "gpf" else {}
    with pytest.raises(ConfigError, match=r"policy cannot be recurrent: .*FrameStack.*, got 'MlpLstmPolicy'"):
        resolve("X-v0", algo, overrides={"policy": "MlpLstmPolicy", **more})


def test_objects_of_python_become_plain_data():
    """A schedule becomes points, an activation's class its name, a network's class a name and text; JSON holds all."""

    class Mine(torch.nn.Module):
        pass

    kwargs = {"activation_fn": torch.nn.LeakyReLU, "features_extractor_class": Mine}
    given = {"learning_rate": lambda p: 0.001 * p, "policy_kwargs": kwargs}
    found = json.loads(json.dumps(resolve("X-v0", overrides=given).hyperparameters))
    assert found["learning_rate"] == {"points": [[0.0, 0.0], [1.0, 0.001]]}
    assert found["policy_kwargs"]["activation_fn"] == "leaky_relu"
    assert found["policy_kwargs"]["features_extractor_class"]["name"] == "Mine"


def test_a_schedule_that_fails_is_told_when_it_is_given():
    """A function that raises or goes below 0 is refused with the progress at which it did."""
    with pytest.raises(ConfigError, match=r"learning_rate: a schedule must return numbers >= 0, at progress 0.0 .*-1"):
        resolve("X-v0", overrides={"learning_rate": lambda p: p - 1})
    with pytest.raises(ConfigError, match=r"clip_range: a schedule raised at progress 0.0: ZeroDivisionError"):
        resolve("X-v0", overrides={"clip_range": lambda p: 1 / p})


def test_a_network_that_cannot_travel_is_told_by_name():
    """A lock in a factory's closure is named, among the other problems."""
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"policy: lambda cannot travel .*variable 'lock'"):
        resolve("X-v0", overrides={"policy": lambda *_: lock})

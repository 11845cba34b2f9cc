"""Every kind of check says what would be good, and all of it at once."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records.errors import ConfigError
from drlnb.records.settings import parse_text
from drlnb.rl.algorithms.registry import settings_class
from drlnb.rl.algorithms.resolve import resolve

GPF = {"reward_scale": 1.0}


def problems(algo, n_envs=4, **overrides):
    """Return what is told of some settings."""
    given = {**(GPF if algo == "gpf" else {}), **overrides}
    with pytest.raises(ConfigError) as caught:
        resolve("X-v0", algo, overrides=given, n_envs=n_envs)
    return caught.value.problems


@pytest.mark.parametrize(
    ("algo", "name", "value", "said"),
    [
        ("ppo", "n_steps", True, "must be a whole number >= 1, got True"),
        ("ppo", "gamma", math.nan, "must be a number from 0 to 1, got nan"),
        ("ppo", "gamma", True, "must be a number from 0 to 1, got True"),
        ("ppo", "max_grad_norm", math.inf, "must be a number > 0, got inf"),
        ("ppo", "ent_coef", -1, "must be a number >= 0, got -1"),
        ("ppo", "target_kl", 0, "must be a number > 0, or none, got 0"),
        ("ppo", "use_sde", 1, "must be true or false, got 1"),
        ("ppo", "sde_sample_freq", 0, "must be a whole number >= 1, or -1 for the start of each round only, got 0"),
        ("ppo", "clip_range_vf", "half",
         "must be a number >= 0, lin_NUMBER, or a function of the progress that remains, or none, got 'half'"),
        ("ppo", "normalize", "yes", "must be true, false or {norm_obs, norm_reward}, got 'yes'"),
        ("ppo", "normalize", {"norm_obs": 1}, ": norm_obs must be true or false, got 1"),
        ("ppo", "normalize", {"obs": True}, "takes the keys norm_obs, norm_reward, not obs"),
        ("ppo", "policy_kwargs", {1: 2}, "must be a mapping, with names as keys, got {1: 2}"),
        ("ppo", "policy_kwargs", [8], "must be a mapping, with names as keys, got [8]"),
        ("ppo", "policy_kwargs", {"normalize_images": 1},
         ": normalize_images must be true or false, got 1"),
        ("ppo", "policy_kwargs", {"optimizer_kwargs": {"eps": -1}},
         ": optimizer_kwargs of Adam: eps must be a number >= 0, got -1"),
        ("ppo", "policy_kwargs", {"optimizer_kwargs": {"betas": [0.9, 2]}},
         ": optimizer_kwargs of Adam: betas must be two numbers from 0 to 1, got [0.9, 2]"),
        ("ppo", "policy_kwargs", {"optimizer_kwargs": 3},
         ": optimizer_kwargs must be a mapping, or none, got 3"),
        ("ppo", "policy_kwargs", {"optimizer_class": "SGD", "optimizer_kwargs": {"eps": 1e-5}},
         ": optimizer_kwargs of SGD takes the keys momentum, nesterov, weight_decay, not eps"),
        ("dqn", "policy_kwargs", {"optimizer_class": "SGD", "optimizer_kwargs": {"nesterov": True}},
         ": optimizer_kwargs nesterov needs a momentum > 0"),
        ("ppo", "policy_kwargs", {"optimizer_class": "LBFGS"},
         ": optimizer_class must be Adam, AdamW, SGD, RMSprop, Adagrad of torch.optim, or a class of "
         "optimizers, got 'LBFGS'"),
        ("dqn", "policy_kwargs", {"optimizer_class": 3},
         ": optimizer_class must be Adam, AdamW, SGD, RMSprop, Adagrad of torch.optim, or a class of "
         "optimizers, got 3"),
        ("ppo", "policy_kwargs", {"net_arch": "64"},
         ": net_arch holds widths, whole numbers >= 1, got '64'"),
        ("ppo", "policy_kwargs", {"net_arch": {"pi": [8], "vff": [8]}},
         ": net_arch takes the keys pi, vf, not vff"),
        ("ppo", "policy_kwargs", {"features_extractor_kwargs": {"features_dim": 8}},
         ": features_extractor_kwargs need features_extractor_class: MlpPolicy has none"),
        ("ppo", "policy_kwargs", {"net_arch": {"pi": 8}},
         ": net_arch holds widths, whole numbers >= 1, got {'pi': 8}"),
        ("gpf", "eps", 1.5,
         "must be a number from 0 to 1, or a path [start, end] of two such numbers, got 1.5"),
        ("gpf", "tau1", [0.5, 0],
         "must be a number > 0, or a path [start, end] of two such numbers, got [0.5, 0]"),
        ("gpf", "tau2", [1, 1, 1],
         "must be a number > 0, or a path [start, end] of two such numbers, got [1, 1, 1]"),
        ("gpf", "members", [], "must be a list of at least one mapping of eps, tau1, tau2, or none, got []"),
        ("gpf", "members", [{}, {"tau3": 1}],
         "[1] takes the keys eps, tau1, tau2, not tau3"),
        ("gpf", "members", [{"tau1": -1}],
         "[0]: tau1 must be a number > 0, or a path [start, end] of two such numbers, got -1"),
        ("gpf", "expectation", "mean", "must be one of behavior, target, samples, got 'mean'"),
        ("gpf", "n_action_samples", 4, "must be a whole number >= 5, or none, got 4"),
        ("dqn", "gradient_steps", -2, "must be a whole number >= 0, or -1 for one per transition, got -2"),
        ("dqn", "learning_starts", -1, "must be a whole number >= 0, got -1"),
        ("dqn", "double_q", "no", "must be true or false, got 'no'"),
        ("dqn", "policy_kwargs", {"net_arch": {"pi": [8]}},
         ": net_arch must be a list of widths, whole numbers >= 1, got {'pi': [8]}"),
    ],
)  # fmt: skip
def test_one_line_says_the_name_the_limit_and_the_value(algo, name, value, said):
    """A value that is wrong is the only problem, under its setting's name."""
    assert problems(algo, **{name: value}) == (f"{name}{'' if said[0] in ':[' else ' '}{said}",)


def test_a_whole_number_beyond_all_floats_is_refused():
    """As any other that is too large."""
    for name, said in (
        ("gamma", "gamma must be a number from 0 to 1, got 1000"),
        ("learning_rate", "learning_rate must"),
    ):
        (problem,) = problems("ppo", **{name: 10**400})
        assert problem.startswith(said)


def test_settings_that_are_good_alone_may_not_fit_together():
    """Members beyond the environments, one sample with a spread, batches beyond the round."""
    family = [{}] * 3
    assert problems("gpf", 2, members=family) == (
        "members must be at most n_envs = 2 (member i mod M acts in env i), got 3",
    )
    assert problems("ppo", batch_size=1) == (
        "batch_size must be >= 2 with normalize_advantage (one sample has no spread), got 1",
    )
    assert problems("ppo", n_steps=8, batch_size=64) == ("batch_size must be <= n_steps * n_envs = 8 * 4 = 32, got 64",)


def test_without_a_unit_of_reward_gpf_warns():
    """Temperatures are in units of reward: neither scaled nor normalised, the value of tau1 is told."""
    with pytest.warns(UserWarning, match=r"neither reward_scale nor norm_reward is set; tau1 = 0\.25 is in units"):
        resolve("X-v0", "gpf", overrides={"tau1": 0.25})
    resolve("X-v0", "gpf", overrides={"tau1": 0.25, "normalize": {"norm_obs": False}})  # rewards are normalised


def test_a_long_value_is_cut_and_stays_one_line():
    """Neither a pickle nor a page of text floods the message."""
    (told,) = problems("ppo", policy="a\nb" * 500)
    assert told.endswith("...")
    assert len(told) < 350
    assert "\n" not in told


def test_the_dataclass_itself_refuses():
    """Who builds the settings without `resolve` gets the same problems; a name of no setting is told."""
    kind = settings_class("dqn")
    with pytest.raises(ConfigError) as caught:
        kind(gamma=2, buffer_size=0)
    assert [problem.partition(" ")[0] for problem in caught.value.problems] == ["buffer_size", "gamma"]
    with pytest.raises(ConfigError, match="unknown key 'lambda'"):
        kind.from_mapping({"gamma": 0.5, "lambda": 1})
    with pytest.raises(ConfigError, match="algo must be one of ppo, gpf, dqn, got 'a2c'"):
        settings_class("a2c")


@given(st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none())
def test_what_python_prints_is_read_as_the_same_value(value):
    """Numbers, truth values and none come back from a command line with value and type."""
    read = parse_text(f"  {value} ")
    assert (read, type(read)) == (value, type(value))

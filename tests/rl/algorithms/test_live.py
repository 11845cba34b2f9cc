"""A change of a running task's setting is checked before anything is sent."""

import re
from dataclasses import replace

import numpy as np
import pytest

from drlnb.records.errors import ConfigError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.resolve import live_keys, live_value


def task(algo="ppo"):
    return RlWork(name="a", env="CartPole-v1", algo=algo, total_timesteps=1000, n_envs=4)


@pytest.mark.parametrize(
    ("algo", "keys"),
    [
        ("ppo", {"rl.clip_range", "rl.ent_coef", "rl.learning_rate", "rl.n_epochs", "rl.target_kl"}),
        ("gpf", {"rl.eps", "rl.learning_rate", "rl.n_epochs", "rl.target_kl", "rl.tau1", "rl.tau2"}),
        ("dqn", {"rl.learning_rate", "rl.tau"}),
    ],
)
def test_each_algorithm_says_what_can_change(algo, keys):
    """What the learners take, and nothing else."""
    assert set(live_keys(task(algo))) == keys


@pytest.mark.parametrize(
    ("algo", "key", "given", "sent"),
    [
        ("ppo", "rl.learning_rate", 1e-4, 1e-4),
        ("ppo", "rl.learning_rate", np.float32(0.5), 0.5),
        ("ppo", "rl.clip_range", "lin_0.2", "lin_0.2"),
        ("ppo", "rl.learning_rate", lambda progress: 0.25 * progress, {"points": [[0.0, 0.0], [1.0, 0.25]]}),
        ("ppo", "rl.n_epochs", 3.0, 3),
        ("ppo", "rl.target_kl", None, None),
        ("gpf", "rl.tau1", (0.5, 0.1), (0.5, 0.1)),
        ("dqn", "rl.tau", 1, 1),
    ],
)
def test_good_values_become_plain_data(algo, key, given, sent):
    """Numbers of numpy and functions too."""
    value = live_value(task(algo), key, given)
    assert (value, type(value)) == (sent, type(sent))


def test_several_learners_keep_gradients_that_are_computed_at_arrival():
    """A second pass over the round would leave all slots but one without work."""
    gang = replace(task("gpf"), n_envs=2, n_collectors=2, n_learners=2, hyperparameters={"n_epochs": 1})
    assert live_value(gang, "rl.learning_rate", 0.5) == 0.5
    assert live_value(gang, "rl.n_epochs", 1) == 1
    said = "rl.n_epochs = 3 cannot be: n_learners must be 1 for gpf here, got 2: its minibatches are drawn from the "
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}whole round; .* computed at arrival with n_epochs=1; "):
        live_value(gang, "rl.n_epochs", 3)
    with pytest.raises(
        ConfigError, match="= 3 cannot be: its 2 learners share gradients that are computed at arrival; "
    ):
        live_value(replace(gang, deterministic=False), "rl.n_epochs", 3)  # its shares have been dealt whole


def test_several_learners_keep_minibatches():
    """With one pass over the round each of them would compute all of it."""
    gang = replace(task("gpf"), n_envs=2, n_collectors=2, n_learners=2, hyperparameters={"n_epochs": 4})
    shared = replace(gang, deterministic=False)
    assert live_value(shared, "rl.n_epochs", 3) == 3
    with pytest.raises(
        ConfigError, match=r"^rl.n_epochs = 1 cannot be: its 2 learners share minibatches; .* a new run$"
    ):
        live_value(shared, "rl.n_epochs", 1)


@pytest.mark.parametrize(
    ("algo", "key", "value", "said"),
    [
        ("dqn", "rl.lerning_rate", 1.0, "unknown setting 'rl.lerning_rate'; did you mean 'rl.learning_rate'?; "
         "while dqn trains these can change: rl.learning_rate, rl.tau"),
        ("dqn", "learning_rate", 1.0, "unknown setting 'learning_rate'; did you mean 'rl.learning_rate'?; "
         "while dqn trains these can change: rl.learning_rate, rl.tau"),
        ("dqn", "rl.zzz", 1.0, "unknown setting 'rl.zzz'; while dqn trains these can change: rl.learning_rate, rl.tau"),
        ("dqn", "rl.gamma", 0.9, "rl.gamma cannot change in a running task (a); "
         "while dqn trains these can change: rl.learning_rate, rl.tau"),
        ("ppo", "rl.n_epochs", 0, "rl.n_epochs must be a whole number >= 1, got 0"),
        ("ppo", "rl.ent_coef", -0.5, "rl.ent_coef must be a number >= 0, got -0.5"),
        ("ppo", "rl.learning_rate", lambda progress: -1.0,
         "rl.learning_rate: a schedule must return numbers >= 0, at progress 0.0 it returned -1.0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_limit_and_the_way_out(algo, key, value, said):
    """One line: the name or the value, and what would be good."""
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        live_value(task(algo), key, value)

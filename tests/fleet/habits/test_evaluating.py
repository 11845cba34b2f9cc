"""Evaluating a model, by ours and by Stable-Baselines3's own function, where it is installed."""

import gymnasium
import numpy as np
import pytest

import drlnb
from drlnb.records.errors import EnvError
from tests.fleet.compatibility.worlds import Own, ppo


@pytest.fixture(scope="module")
def model():
    return ppo(Own)


@pytest.mark.parametrize(
    ("env", "mean"), [(None, 10.0), (Own, 10.0), (Own(reward=3.0), 30.0), (lambda: Own(reward=2.0), 20.0)]
)
def test_a_model_is_evaluated_where_its_user_says(model, env, mean):
    """A class, a function, an object as it stands; where it was trained if nobody says."""
    assert drlnb.rl.evaluate(model, env, n_episodes=3).returns == (mean,) * 3


def test_environments_that_do_not_fit(model):
    """One line names both; what is none is told."""
    with pytest.raises(ValueError, match=r"CartPole-v1 has the observation space .* the model was trained on"):
        drlnb.rl.evaluate(model, gymnasium.make("CartPole-v1"))
    with pytest.raises(EnvError, match="env must be an environment, its id, a class or function"):
        drlnb.rl.evaluate(model, 3)


def test_an_environment_that_cannot_be_copied_names_the_way(model):
    """Evaluations play on copies."""
    env = Own()
    env.file = (n for n in range(3))
    with pytest.raises(EnvError, match=r"cannot travel to another process.*: pass its class, or a function"):
        drlnb.rl.evaluate(model, env)


def test_copies_that_a_model_gives_are_played_by_hand(model):
    """As their `evaluate_policy` does: reset, predict with its arguments, step, until enough have ended."""
    env = model.get_env()
    obs, states, starts, returns = env.reset(), None, np.ones(1, bool), []
    while len(returns) < 3:
        actions, states = model.predict(obs, state=states, episode_start=starts, deterministic=True)
        obs, rewards, starts, infos = env.step(actions)
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    assert returns == [10.0] * 3
    assert rewards.shape == (1,)


def test_their_function_evaluates_a_model(model):
    """With every argument of it, on copies of ours and on an environment of the caller's."""
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    heard = []
    for env in (model.get_env(), Own()):
        given = {"deterministic": True, "render": False, "warn": False, "callback": lambda *_: heard.append(1)}
        assert evaluation.evaluate_policy(model, env, n_eval_episodes=2, **given) == (10.0, 0.0)
        returns, lengths = evaluation.evaluate_policy(model, env, 2, return_episode_rewards=True, warn=False)
        assert (returns, lengths) == ([10.0, 10.0], [10, 10])
        with pytest.raises(AssertionError):
            evaluation.evaluate_policy(model, env, 2, reward_threshold=11.0, warn=False)
    assert len(heard) == 40

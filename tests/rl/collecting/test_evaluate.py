"""Evaluation, the numpy actor's predict, and training in one process."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from drlnb.rl.acting.actors import Actor
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting import evaluation
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.collecting.evaluation import evaluate_parameters as evaluate
from drlnb.rl.envs.wrappers import wrap
from drlnb.rl.local.train import train_local
from tests.rl import METRICS


def test_returns_are_raw_and_episodes_are_fixed_beforehand(make_spec):
    """11 episodes of 3 steps with reward 1 give 11 returns of 3, although rewards are scaled in training."""
    spec = make_spec("rl/Clock-v0", normalize=True)
    found = evaluate(spec, make_learner(spec).published(), n_episodes=11)
    assert (found.returns, found.lengths, found.mean, found.std) == ((3.0,) * 11, (3,) * 11, 3.0, 0.0)


def test_evaluation_freezes_the_statistics(make_spec):
    """The parameters keep their bits, and a second evaluation of them gives the same returns."""
    spec = make_spec(normalize=True)
    parameters = make_learner(spec).published()
    before = parameters.tobytes()
    first = evaluate(spec, parameters, n_episodes=3, deterministic=False)
    assert parameters.tobytes() == before
    assert evaluate(spec, parameters, n_episodes=3, deterministic=False) == first


def test_an_episode_does_not_depend_on_how_many_are_played(make_spec):
    """The first 3 of 10 episodes are the 3 of 3; another seed gives others."""
    spec = make_spec()
    parameters = make_learner(spec).published()
    ten = evaluate(spec, parameters, n_episodes=10, seed=1)
    assert evaluate(spec, parameters, n_episodes=3, seed=1).returns == ten.returns[:3]
    assert evaluate(spec, parameters, n_episodes=10, seed=2).returns != ten.returns


class Endless(gymnasium.Env):
    """Never ends; its reward is 1, its observation the steps so far; what it was reset with is written down."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self._t = 0
        self.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._t += 1
        return np.array([self._t], np.float32), 1.0, False, False, {}


@pytest.mark.parametrize("wrappers", [(), [{"name": "RepeatAction", "kwargs": {"num_repeats": 3}}]])
def test_an_episode_without_an_end_is_cut(make_spec, wrappers):
    """After `eval_max_steps` steps of the policy; beneath a wrapper of 3 frames its return is three times that."""
    spec = replace(make_spec("rl/Clock-v0"), eval_max_steps=7)
    envs = [wrap(Endless(), wrappers)]
    found = evaluate(spec, make_learner(spec).published(), n_episodes=3, envs=envs)
    frames = 21 if wrappers else 7
    assert (found.returns, found.lengths) == ((float(frames),) * 3, (frames,) * 3)
    assert None not in envs[0].unwrapped.seeds, "each of them began anew"


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_environments_that_have_acted_play_the_same_episodes(make_spec, monkeypatch, n):
    """None is made beside a collector's own, however many it has; returns are those of fresh ones, bit for bit."""
    spec = make_spec(n_envs=9, normalize=True)
    parameters = make_learner(spec).published()
    wanted = evaluate(spec, parameters, n_episodes=11, deterministic=False)
    collector = Collector(spec, env_indices=range(n))
    collector.collect(parameters, version=1, round=1, n_steps=16)
    monkeypatch.setattr(evaluation, "make_env", None)
    assert evaluate(spec, parameters, n_episodes=11, deterministic=False, envs=collector.envs) == wanted
    collector.close()


def test_an_episode_under_way_counts_for_nothing(make_spec):
    """Its raw return beneath wrappers is forgotten when the environment plays an evaluation."""
    spec = replace(make_spec("rl/Clock-v0"), env_wrappers=[{"name": "RepeatAction", "kwargs": {"num_repeats": 2}}])
    collector = Collector(spec, env_indices=[0])
    collector.envs[0].step(0)
    found = evaluate(spec, make_learner(spec).published(), n_episodes=2, envs=collector.envs)
    assert (found.returns, found.lengths) == ((3.0, 3.0), (3, 3))
    collector.close()


def test_no_episode_is_refused(make_spec):
    """n_episodes must be at least 1."""
    with pytest.raises(ValueError, match="n_episodes must be >= 1, got 0"):
        evaluate(make_spec(), np.zeros(0, np.uint8), n_episodes=0)


def test_predict_takes_one_observation_or_many(make_spec):
    """A single observation gives a single action, a batch a batch; deterministic ones are the most likely."""
    spec = make_spec()
    actor = Actor(spec)
    actor.load(make_learner(spec).published())
    rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    batch, state = actor.predict(rows, deterministic=True)
    single, _ = actor.predict(rows[2], deterministic=True)
    assert state is None
    assert batch.tolist() == actor.forward(rows).argmax(axis=1).tolist()
    assert np.shape(single) == ()
    assert single == batch[2]


def test_predicted_box_actions_stay_in_their_bounds(make_spec):
    """With deviation e^3 the sampled torques are cut at +-2, of the space's shape and dtype."""
    spec = make_spec("Pendulum-v1", policy_kwargs={"net_arch": [4], "log_std_init": 3.0})
    actor = Actor(spec)
    actor.load(make_learner(spec).published())
    found, _ = actor.predict(np.zeros((50, 3), np.float32))
    assert (found.shape, found.dtype, np.abs(found).max()) == ((50, 1), np.float32, 2.0)


def test_sampled_actions_follow_the_softmax(make_spec):
    """100 000 Gumbel draws for logits log(.7), log(.3) choose action 0 in 70 % (+- 1 %); log-probs are the logs."""
    actor = Actor(make_spec())
    outputs = np.log(np.full((100_000, 2), (0.7, 0.3), np.float32))
    actions = actor.choose(outputs, np.random.default_rng(0).gumbel(size=outputs.shape).astype(np.float32))
    assert abs((actions == 0).mean() - 0.7) < 0.01
    expected = np.where(actions == 0, np.log(0.7), np.log(0.3))
    np.testing.assert_allclose(actor.log_prob(outputs, actions), expected, atol=1e-6)


def test_gaussian_log_probs_by_hand(make_spec):
    """One dimension, mean 0, deviation 1: the log-density at 2 is -2 - log(2 pi) / 2 = -2.918939."""
    spec = make_spec("Pendulum-v1")
    actor = Actor(spec)
    actor.load(make_learner(spec).published())
    found = actor.log_prob(np.zeros((1, 1), np.float32), np.full((1, 1), 2.0, np.float32))
    assert found[0] == pytest.approx(-2.918939, abs=1e-6)


def test_local_training_is_the_same_with_two_collectors(make_spec):
    """130 steps in rounds of 64 make 192; parameters are equal with 1 and 2 collectors; metrics have meanings."""
    one, two = (train_local(make_spec(total_timesteps=130, n_collectors=n)) for n in (1, 2))
    assert one.n_timesteps == 192
    assert one.parameters.tobytes() == two.parameters.tobytes()
    assert [row["time/total_timesteps"] for row in one.metrics] == [64, 128, 192]
    assert all(set(row) <= METRICS.keys() for row in one.metrics)


def test_a_callback_ends_local_training(make_spec):
    """False after the first round leaves one round."""
    found = train_local(make_spec(), callback=lambda metrics: metrics["time/iterations"] < 1)
    assert (len(found.metrics), found.n_timesteps) == (1, 64)

"""Wrapped environments in collectors and evaluations: the learner sees the wrappers, episodes do not."""

import pytest

from drlnb.records.errors import EnvError, MissingExtra
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.collecting.evaluation import evaluate_parameters as evaluate
from drlnb.rl.collecting.video import record_episode
from drlnb.rl.envs import suites
from drlnb.rl.envs.make import make_env, probe
from drlnb.rl.envs.snapshots import restorable
from drlnb.rl.pickled import pack
from tests.rl.envs.test_wrappers import Counting

CLIP = {"name": "ClipReward", "kwargs": {"min_reward": -1, "max_reward": 1}}
STACK = {"name": "FrameStack", "kwargs": {"n_stack": 3}}
SKIP = {"name": "RepeatAction", "kwargs": {"num_repeats": 2}}
LIMIT = {"name": "TimeLimit", "kwargs": {"max_episode_steps": 2}}


@pytest.fixture
def wrapped(make_spec):
    """Return the spec of a task of 2 environments whose rewards are 1, 2, ... 5, under wrappers."""

    def make(*wrappers, **given):
        source = {"env": "Counting", "env_factory": pack(Counting), "env_wrappers": list(wrappers)}
        plain = {**make_spec(**given).to_plain(), **source, "n_envs": 2, "n_collectors": 1}
        return RlWork.from_plain({**plain, **probe(source)})

    return make


def test_the_probe_sees_the_wrapped_spaces(wrapped):
    """Three stacked vectors of 2 are one of 6: what the network is built for."""
    assert wrapped(STACK).observation_space["shape"] == [6]
    assert make_env(wrapped(STACK)).observation_space.shape == (6,)


@pytest.mark.parametrize(
    ("wrappers", "rewards", "episodes"),
    [
        ([CLIP], [1, 1, 1, 1, 1, 1, 1], [[15.0, 5]]),
        ([SKIP], [3, 7, 5, 3, 7, 5, 3], [[15.0, 5], [15.0, 5]]),
        ([CLIP, STACK], [1, 1, 1, 1, 1, 1, 1], [[15.0, 5]]),
        ([LIMIT], [1, 2, 1, 2, 1, 2, 1], [[3.0, 2], [3.0, 2], [3.0, 2]]),
    ],
)
def test_wrapped_rewards_train_raw_returns_are_reported(wrapped, wrappers, rewards, episodes):
    """A fragment holds the rewards that the wrappers hand out; its episodes hold 1 + 2 + ... of the game (T38)."""
    spec = wrapped(*wrappers)
    collector = Collector(spec, env_indices=[0, 1])
    fragment = collector.collect(make_learner(spec).published(), version=1, round=1, n_steps=7)
    assert fragment.arrays["reward"].tolist() == [[r, r] for r in rewards]
    assert sorted(fragment.header["episodes"]) == sorted(episodes * 2)
    collector.close()


def test_a_resumed_collector_goes_on_counting(wrapped):
    """Snapshots hold the tally: an episode that began before the stop is counted whole after it."""
    spec = wrapped(CLIP, STACK)
    assert restorable(spec)
    parameters = make_learner(spec).published()
    first = Collector(spec, env_indices=[0, 1])
    first.collect(parameters, version=1, round=1, n_steps=3)
    second = Collector(spec, env_indices=[0, 1])
    state = first.state()
    actions = first.collect(parameters, version=1, round=2, n_steps=3).arrays["action"]
    assert second.restore({**state, "actions": [actions]}) == 0
    fragments = [made.collect(parameters, version=1, round=3, n_steps=4) for made in (first, second)]
    assert [fragment.header["episodes"] for fragment in fragments] == [[[15.0, 5], [15.0, 5]]] * 2
    assert fragments[0].arrays["obs"].tobytes() == fragments[1].arrays["obs"].tobytes()
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("wrappers", "total", "length"), [([CLIP], 15.0, 5), ([SKIP, STACK], 15.0, 5), ([LIMIT], 3.0, 2)]
)
def test_evaluation_reports_raw_returns(wrapped, wrappers, total, length):
    """Each of 10 episodes (more than environments) has the game's own return and length."""
    spec = wrapped(*wrappers)
    found = evaluate(spec, make_learner(spec).published(), n_episodes=10)
    assert found.returns == (total,) * 10
    assert found.lengths == (length,) * 10


def test_a_recorded_episode_reports_its_raw_return(wrapped):
    """The return under the picture is the game's, whatever the agent saw; the steps are the agent's."""

    class Zero:
        spec = RlWork.from_plain({
            **wrapped().to_plain(),
            "env": "drlnb/Catch-v0",
            "env_factory": None,
            "env_wrappers": [{"name": "tests.rl.envs.test_wrappers:Delayed", "kwargs": {"delay": 3}}, SKIP],
        })

        def predict(self, obs, deterministic=True):
            return 0, None

    seen = record_episode(Zero())
    assert seen.total_reward in {-1.0, 1.0}
    assert (seen.length, len(seen.frames)) == (10, 11)


def test_an_unknown_wrapper_is_refused_before_anything_steps():
    """A spec that somebody edited by hand is told like a file."""
    with pytest.raises(EnvError, match="unknown wrapper 'Nothing'"):
        make_env({"env": "CartPole-v1", "env_wrappers": [{"name": "Nothing", "kwargs": {}}]})
    with pytest.raises(
        EnvError, match=r"^wrapper nowhere:A cannot be imported where environments run: No module named"
    ):
        make_env({"env": "CartPole-v1", "env_wrappers": [{"name": "nowhere:A", "kwargs": {}}]})


@pytest.mark.parametrize(
    ("env", "extra"), [("HalfCheetah-v5", "mujoco"), ("LunarLander-v3", "box2d"), ("ALE/Pong-v5", "atari")]
)
def test_a_missing_extra_is_a_pip_line(monkeypatch, env, extra):
    """Where the physics or the games are not installed, the message is the pip line that brings them."""
    monkeypatch.setattr(suites, "find_spec", lambda module: None)
    with pytest.raises(MissingExtra, match=rf'{env} needs .*; install it with: pip install "drlnb\[{extra}\]"'):
        make_env(env)
    assert make_env("CartPole-v1").close() is None

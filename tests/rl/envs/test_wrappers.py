"""Wrappers are built from plain data, by known names; they never change what an episode's return is."""

import pickle
import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from drlnb.records.errors import ConfigError, EnvError, MissingExtra
from drlnb.rl.envs.wrappers import KNOWN, check_wrappers, make_options, read_wrappers, tally_of, wrap


class Counting(gymnasium.Env):
    """Observation = steps so far; reward = 1, 2, 3, ...; ends after 5 steps."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, length=5):
        self.length, self.t, self.taken = length, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0, 5], np.float32), {}

    def step(self, action):
        self.t += 1
        self.taken.append(np.array(action))
        return np.array([self.t, 5], np.float32), float(self.t), self.t >= self.length, False, {}


class Pixels(gymnasium.Env):
    """Frames of 4 x 6 whose every pixel is the number of the step."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, shape):
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.t = 1
        return np.full(self.observation_space.shape, self.t, np.uint8), {}

    def step(self, action):
        self.t += 1
        return np.full(self.observation_space.shape, self.t, np.uint8), 1.0, False, False, {}


def built(env, *wrappers):
    named = [{"name": name, "kwargs": kwargs} for name, kwargs in wrappers]
    return wrap(env, named)


def play(env, n_episodes=1, action=None):
    """Play episodes; return the rewards that an agent sees, per episode."""
    seen = []
    for _ in range(n_episodes):
        env.reset()
        rewards, ended = [], False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample() if action is None else action)
            rewards.append(reward)
            ended = terminated or truncated
        seen.append(rewards)
    return seen


def test_without_wrappers_nothing_is_added():
    """An environment without wrappers is handed back itself: no tally, no cost."""
    env = Counting()
    assert wrap(env, []) is env
    assert tally_of(env) is None


@pytest.mark.parametrize(
    ("name", "kwargs", "seen"),
    [
        ("ClipReward", {"min_reward": -1, "max_reward": 1}, [1, 1, 1, 1, 1]),
        ("DelayedRewardWrapper", {"delay": 2}, [0, 3, 0, 7, 5]),
        ("FrameSkip", {"skip": 2}, [3, 7, 5]),
        ("TimeLimit", {"max_episode_steps": 3}, [1, 2, 3]),
    ],
)
def test_rewards_change_but_raw_returns_do_not(name, kwargs, seen):
    """The agent sees the wrapper's rewards; the tally beneath says 1 + 2 + ... of the steps that were taken."""
    env = built(Counting(), (name, kwargs))
    assert play(env, 2) == [seen, seen]
    env.reset()
    raw = (6.0, 3) if name == "TimeLimit" else (15.0, 5)
    assert tally_of(env).drain() == [raw, raw]
    assert tally_of(env).drain() == []


def test_a_reset_in_mid_episode_ends_the_episode():
    """What was begun and reset counts with what it had, an environment only reset counts not at all."""
    env = built(Counting(), ("ClipAction", {}))
    env.reset()
    env.reset()
    env.step(np.zeros(2, np.float32))
    env.step(np.zeros(2, np.float32))
    assert tally_of(env).drain() == []
    env.reset()
    assert tally_of(env).drain() == [(3.0, 2)]


def test_frames_are_stacked_along_the_channels_newest_last():
    """A stack of 3 starts with zeros and ends with the newest frame, as Stable-Baselines3 stacks channels last."""
    env = built(Pixels((4, 6, 1)), ("FrameStack", {"n_stack": 3}))
    assert env.observation_space.shape == (4, 6, 3)
    assert env.observation_space.dtype == np.uint8
    first = env.reset()[0]
    assert first[0, 0].tolist() == [0, 0, 1]
    second = env.step(0)[0]
    assert second[0, 0].tolist() == [0, 1, 2]
    assert env.step(0)[0][3, 5].tolist() == [1, 2, 3]
    assert env.step(0)[0][3, 5].tolist() == [2, 3, 4]
    assert first[0, 0].tolist() == [0, 0, 1], "an observation that was handed out never changes"
    assert env.reset()[0][0, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("shape", "stacked", "channels"),
    [
        ((4, 6), (4, 6, 2), np.s_[0, 0]),
        ((4, 6, 3), (4, 6, 6), np.s_[0, 0]),
        ((1, 4, 6), (2, 4, 6), np.s_[:, 0, 0]),
        ((3, 4, 6), (6, 4, 6), np.s_[:, 0, 0]),
    ],
)
def test_stacks_of_other_images(shape, stacked, channels):
    """Grey images without a channel axis get one; colours stay together, frame by frame, where the channels are."""
    env = built(Pixels(shape), ("FrameStack", {"n_stack": 2}))
    assert env.observation_space.shape == stacked
    obs, _ = env.reset()
    obs = env.step(0)[0]
    half = len(obs[channels]) // 2
    assert obs[channels].tolist() == [1] * half + [2] * half
    assert env.observation_space.contains(obs)


def test_numbers_of_three_axes_are_no_image():
    """Floats whose first axis is the shortest are stacked along the last one, as by `VecFrameStack`."""
    env = Pixels((2, 4, 6))
    env.observation_space = gymnasium.spaces.Box(0.0, 255.0, (2, 4, 6), np.float32)
    assert built(env, ("FrameStack", {"n_stack": 3})).observation_space.shape == (2, 4, 18)


def test_vectors_are_stacked_end_to_end():
    """Two vectors of length 2 become one of 4, zeros before the first, whose bounds hold them."""
    env = built(Counting(), ("FrameStack", {"n_stack": 2}))
    assert env.reset()[0].tolist() == [0, 0, 0, 5]
    assert env.step(np.zeros(2))[0].tolist() == [0, 5, 1, 5]


def test_history_holds_observations_then_actions():
    """Two observations, then two actions, oldest first, zeros before the first."""
    env = built(Counting(), ("HistoryWrapper", {"horizon": 2}))
    assert env.reset()[0].tolist() == [0, 0, 0, 5, 0, 0, 0, 0]
    assert env.step(np.array([0.5, -0.5]))[0].tolist() == [0, 5, 1, 5, 0, 0, 0.5, -0.5]
    assert env.step(np.array([0.25, 0.75]))[0].tolist() == [1, 5, 2, 5, 0.5, -0.5, 0.25, 0.75]
    assert env.reset()[0].tolist() == [0, 0, 0, 5, 0, 0, 0, 0]


def test_smoothing_is_the_moving_average():
    """With coefficient 0.5, the actions 1, 1, 0 reach the environment as 0.5, 0.75, 0.375."""
    base = Counting()
    env = built(base, ("ActionSmoothingWrapper", {"smoothing_coef": 0.5}))
    env.reset()
    for value in (1.0, 1.0, 0.0):
        env.step(np.full(2, value, np.float32))
    assert [float(action[0]) for action in base.taken] == [0.5, 0.75, 0.375]


def test_action_noise_comes_from_the_environments_own_seed():
    """The same seed gives the same noise, another one another; the result stays inside the space."""
    taken = {}
    for seed in (1, 1, 2):
        np.random.seed(len(taken))  # noqa: NPY002 - the global generator must not matter
        base = Counting(50)
        env = built(base, ("ActionNoiseWrapper", {"noise_std": 0.7}))
        env.reset(seed=seed)
        for _ in range(50):
            env.step(np.zeros(2, np.float32))
        noise = np.array(base.taken)
        assert np.abs(noise).max() <= 1
        assert 0.3 < noise.std() < 0.8
        assert seed not in taken or np.array_equal(taken[seed], noise)
        taken[seed] = noise
    assert not np.array_equal(taken[1], taken[2])


def test_velocities_are_masked():
    """CartPole's positions 1 and 3 are 0, the others are not touched; an unknown environment is refused."""
    env = built(gymnasium.make("CartPole-v1"), ("MaskVelocityWrapper", {}))
    plain = gymnasium.make("CartPole-v1")
    obs, want = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    assert obs.tolist() == [want[0], 0, want[2], 0]
    with pytest.raises(EnvError, match="MaskVelocityWrapper cannot be put around Counting: ValueError: velocities"):
        built(Counting(), ("MaskVelocityWrapper", {}))


def test_time_that_remains_is_a_feature():
    """CartPole's own limit of 500 wins over the argument; each step takes 1/500; test mode says 1."""
    env = built(gymnasium.make("CartPole-v1"), ("TimeFeatureWrapper", {"max_steps": 7}))
    assert env.reset(seed=0)[0][4] == 1.0
    assert env.step(0)[0][4] == pytest.approx(0.998)
    assert env.observation_space.contains(env.step(1)[0])
    still = built(Counting(), ("TimeFeatureWrapper", {"max_steps": 7, "test_mode": True}))
    still.reset()
    assert still.step(np.zeros(2))[0].tolist() == [1, 5, 1]


#: Wrapper -> arguments, and an environment that it fits.
FITS = {
    "ActionNoiseWrapper": ({}, Counting),
    "ActionSmoothingWrapper": ({}, Counting),
    "ClipAction": ({}, Counting),
    "ClipReward": ({"min_reward": -1}, Counting),
    "DelayObservation": ({"delay": 1}, Counting),
    "DelayedRewardWrapper": ({}, Counting),
    "DtypeObservation": ({"dtype": "int32"}, Counting),
    "FlattenObservation": ({}, Counting),
    "FrameSkip": ({}, Counting),
    "FrameStack": ({"n_stack": 2}, Counting),
    "FrameStackObservation": ({"stack_size": 2}, Counting),
    "GrayscaleObservation": ({"keep_dim": True}, lambda: Pixels((4, 6, 3))),
    "HistoryWrapper": ({}, Counting),
    "MaskVelocityWrapper": ({}, lambda: gymnasium.make("CartPole-v1")),
    "MaxAndSkipObservation": ({}, Counting),
    "RepeatAction": ({"num_repeats": 2}, Counting),
    "RescaleAction": ({"min_action": -2, "max_action": [2, 3]}, Counting),
    "RescaleObservation": ({"min_obs": -1, "max_obs": 1}, Counting),
    "ReshapeObservation": ({"shape": [1, 2]}, Counting),
    "StickyAction": ({"repeat_action_probability": 0.5}, Counting),
    "TimeAwareObservation": ({}, lambda: gymnasium.make("CartPole-v1")),
    "TimeFeatureWrapper": ({}, Counting),
    "TimeLimit": ({"max_episode_steps": 2}, Counting),
}


@pytest.mark.parametrize("name", FITS)
def test_each_known_wrapper_builds_and_steps(name):
    """A wrapper that may be named can be built from JSON's data alone, reset and stepped, inside its own space."""
    kwargs, make = FITS[name]
    env = built(make(), (name, kwargs))
    env.action_space.seed(0)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    obs, reward, *_ = env.step(env.action_space.sample())
    assert env.observation_space.contains(obs)
    assert isinstance(float(reward), float)
    env.close()


def test_the_matrix_above_is_complete():
    """Only what needs a dict, OpenCV or a game is not in it; those have tests of their own."""
    assert KNOWN.keys() - FITS.keys() == {
        "AtariPreprocessing",
        "AtariWrapper",
        "FilterObservation",
        "ResizeObservation",
    }


def test_filter_takes_keys_of_a_dict():
    """A dict observation is cut down to the named keys, then flattened to a vector."""

    class Told(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(
            a=gymnasium.spaces.Box(0, 9, (1,)), b=gymnasium.spaces.Box(0, 9, (2,))
        )
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"a": np.ones(1, np.float32), "b": np.full(2, 2, np.float32)}, {}

    env = built(Told(), ("FilterObservation", {"filter_keys": ["b"]}), ("FlattenObservation", {}))
    assert env.reset()[0].tolist() == [2, 2]


@pytest.mark.skipif(find_spec("cv2") is not None, reason="OpenCV is installed")
@pytest.mark.parametrize("name", ["AtariPreprocessing", "AtariWrapper", "ResizeObservation"])
def test_a_missing_opencv_is_a_pip_line(name):
    """Without OpenCV the message is the pip line of the extra that brings it."""
    kwargs = {"shape": [8, 8]} if name == "ResizeObservation" else {}
    with pytest.raises(MissingExtra, match=rf'{name} needs OpenCV; .*pip install "drlnb\[atari\]"'):
        built(Pixels((4, 6, 3)), (name, kwargs))


@pytest.mark.skipif(find_spec("cv2") is None, reason="OpenCV is not installed (extra atari)")
def test_images_are_resized():
    """A file's ``shape: 64`` is 64 x 64."""
    (named,) = read_wrappers({"gym.wrappers.ResizeObservation": {"shape": 64}})
    env = wrap(Pixels((4, 6, 3)), [named])
    assert env.reset()[0].shape == (64, 64, 3)


def test_a_wrapped_environment_pickles_in_mid_episode():
    """A copy taken in mid-episode goes on alike: frames, tally and delayed rewards included."""
    env = built(Counting(), ("DelayedRewardWrapper", {"delay": 3}), ("FrameStack", {"n_stack": 3}))
    env.reset(seed=0)
    env.step(np.zeros(2))
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(4):
        a, b = env.step(np.zeros(2)), copy.step(np.zeros(2))
        assert a[0].tolist() == b[0].tolist()
        assert a[1:4] == b[1:4]
    assert tally_of(copy).drain() == tally_of(env).drain() == [(15.0, 5)]


def test_names_are_of_one_table_only():
    """Modules are never imported by a name in a file; what would fight the learner is refused with the way out."""
    with pytest.raises(ConfigError) as caught:
        read_wrappers(["os.system", {"gymnasium.wrappers.NormalizeReward": {}}, "TimeLimit", 3, {"FrameStack": 4}])
    told = "\n".join(caught.value.problems)
    for part in (
        "unknown wrapper 'os.system': only wrappers of gymnasium and of the zoo can be named in a file",
        "env_wrapper takes a name or {name: arguments}, got 3",
        "wrapper NormalizeReward is not supported: statistics are merged over all collectors; say normalize: true",
        "wrapper TimeLimit needs max_episode_steps",
        "wrapper FrameStack takes a mapping of arguments, got 4",
    ):
        assert part in told
    assert len(caught.value.problems) == 5
    with pytest.raises(ConfigError, match="did you mean 'FrameStack'"):
        wrap(Counting(), [{"name": "FrameStak", "kwargs": {}}])


def test_one_mapping_may_hold_several():
    """``{A: .., B: ..}`` means A, then B around it; None stands for no arguments."""
    assert read_wrappers({"FrameSkip": None, "ClipReward": {"min_reward": -1}}) == [
        {"name": "FrameSkip", "kwargs": {}},
        {"name": "ClipReward", "kwargs": {"min_reward": -1}},
    ]
    assert read_wrappers(None) == []


def test_a_wrapper_that_does_not_fit_is_an_environment_error():
    """The constructor's own words are told with the wrapper's and the environment's names."""
    with pytest.raises(EnvError, match="HistoryWrapper cannot be put around CartPole-v1: TypeError: observations must"):
        built(gymnasium.make("CartPole-v1"), ("HistoryWrapper", {}))


def test_games_are_told_not_to_skip_frames_twice():
    """A wrapper that skips frames switches the game's own skipping off; without one, the game keeps its own."""
    skips = [{"name": "AtariWrapper", "kwargs": {}}]
    assert make_options("ale_py:ALE/Pong-v5", skips) == {"frameskip": 1}
    assert make_options("ALE/Pong-v5", [{"name": "ClipReward", "kwargs": {}}]) == {}
    assert make_options("PongNoFrameskip-v4", skips) == {}
    assert make_options("CartPole-v1", skips) == {}


def test_checking_needs_no_gymnasium():
    """A Dask worker and a client check wrappers without loading gymnasium or torch."""
    code = (
        "import sys; from drlnb.rl.envs.wrappers import check_wrappers\n"
        "assert not check_wrappers([{'name': 'FrameStack', 'kwargs': {'n_stack': 4}}])\n"
        "print([m for m in ('gymnasium', 'torch', 'cv2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert check_wrappers([{"name": "FrameStack", "kwargs": {}}]) == ["wrapper FrameStack needs n_stack"]

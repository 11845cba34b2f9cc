"""Wrappers are built from plain data, by known names; they never change what an episode's return is."""

import pickle
import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from drlnb.records.errors import ConfigError, EnvError, MissingExtra
from drlnb.rl.envs.wrappers import make_options, read_wrappers, tally_of, wrap


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


class Delayed(gymnasium.Wrapper):
    """A user's own wrapper: rewards are handed out every `delay` steps, and at the end."""

    def __init__(self, env, delay=10):
        super().__init__(env)
        self._delay, self._kept = delay, []

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._kept.append(reward)
        given = 0.0
        if terminated or truncated or len(self._kept) == self._delay:
            given, self._kept = sum(self._kept), []
        return obs, given, terminated, truncated, info


class Vectors(gymnasium.ObservationWrapper):
    """A user's own wrapper that judges what it is put around."""

    def __init__(self, env):
        super().__init__(env)
        if len(env.observation_space.shape) != 1:
            raise TypeError(f"observations must be vectors, got {env.observation_space}")

    def observation(self, observation):
        return observation


def no_class(env):
    """Return it as it is."""
    return env


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
        (f"{__name__}:Delayed", {"delay": 2}, [0, 3, 0, 7, 5]),
        ("RepeatAction", {"num_repeats": 2}, [3, 7, 5]),
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


def test_keys_of_a_dict_are_stacked_each_on_its_own():
    """As by `VecFrameStack`: a vector end to end, an image along its channels; an episode begins with zeros."""

    class Seen(Counting):
        observation_space = gymnasium.spaces.Dict(
            at=gymnasium.spaces.Box(-9, 9, (2,)), camera=gymnasium.spaces.Box(0, 255, (4, 6, 1), np.uint8)
        )

        def reset(self, *, seed=None, options=None):
            return self.shown(super().reset(seed=seed)[0]), {}

        def step(self, action):
            obs, *rest = super().step(action)
            return self.shown(obs), *rest

        def shown(self, at):
            return {"at": at.astype(np.float32), "camera": np.full((4, 6, 1), 7 + at[0], np.uint8)}

    env = built(Seen(), ("FrameStack", {"n_stack": 2}))
    assert [(key, space.shape) for key, space in env.observation_space.items()] == [("at", (4,)), ("camera", (4, 6, 2))]
    env.reset()
    obs = env.step(np.zeros(2))[0]
    assert env.observation_space.contains(obs)
    assert obs["at"].tolist() == [0, 5, 1, 5]
    assert obs["camera"][3, 5].tolist() == [7, 8]
    obs, _ = env.reset()
    assert obs["at"].tolist() == [0, 0, 0, 5]
    assert obs["camera"][3, 5].tolist() == [0, 7]
    chosen = Seen()
    chosen.observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(3))
    with pytest.raises(EnvError, match=r"TypeError: observation 'a' must be a Box, got Discrete\(3\)"):
        built(chosen, ("FrameStack", {"n_stack": 2}))


#: Wrapper -> arguments, and an environment that it fits.
FITS = {
    "ClipAction": ({}, Counting),
    "ClipReward": ({"min_reward": -1}, Counting),
    "DelayObservation": ({"delay": 1}, Counting),
    "DtypeObservation": ({"dtype": "int32"}, Counting),
    "FlattenObservation": ({}, Counting),
    "FrameStack": ({"n_stack": 2}, Counting),
    "FrameStackObservation": ({"stack_size": 2}, Counting),
    "GrayscaleObservation": ({"keep_dim": True}, lambda: Pixels((4, 6, 3))),
    "MaxAndSkipObservation": ({}, Counting),
    "RepeatAction": ({"num_repeats": 2}, Counting),
    "RescaleAction": ({"min_action": -2, "max_action": [2, 3]}, Counting),
    "RescaleObservation": ({"min_obs": -1, "max_obs": 1}, Counting),
    "ReshapeObservation": ({"shape": [1, 2]}, Counting),
    "StickyAction": ({"repeat_action_probability": 0.5}, Counting),
    "TimeAwareObservation": ({}, lambda: gymnasium.make("CartPole-v1")),
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
    env = built(Counting(), (f"{__name__}:Delayed", {"delay": 3}), ("FrameStack", {"n_stack": 3}))
    env.reset(seed=0)
    env.step(np.zeros(2))
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(4):
        a, b = env.step(np.zeros(2)), copy.step(np.zeros(2))
        assert a[0].tolist() == b[0].tolist()
        assert a[1:4] == b[1:4]
    assert tally_of(copy).drain() == tally_of(env).drain() == [(15.0, 5)]


def test_what_cannot_be_named_is_told_at_once():
    """All of it in one error; what would fight the learner is refused with the way out."""
    with pytest.raises(ConfigError) as caught:
        read_wrappers([
            "os.system", {"gymnasium.wrappers.NormalizeReward": {}}, "TimeLimit", 3, {"FrameStack": 4}, "a b:C", "a:",
            ("mine:Sparse", 3),
        ])  # fmt: skip
    assert sorted(caught.value.problems) == [
        "env_wrapper takes a name, {name: arguments} or (name, arguments), got 3",
        "unknown wrapper 'os.system': name a class as module:Class, such as os:system",
        "wrapper 'a b:C' must be module:Class, such as mine.wrappers:Sparse",
        "wrapper 'a:' must be module:Class, such as mine.wrappers:Sparse",
        "wrapper FrameStack takes a mapping of arguments, got 4",
        "wrapper NormalizeReward is not supported: statistics are merged over all collectors; say normalize: true",
        "wrapper mine:Sparse takes a mapping of arguments, got 3",
    ]


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("FrameStak", {}, r"unknown wrapper 'FrameStak'; did you mean 'FrameStack'\?"),
        ("TimeLimit", {}, "wrapper TimeLimit cannot be put around Counting: TypeError: .* missing 1 required .*"),
        ("TimeLimit", {"steps": 3}, "wrapper TimeLimit cannot be put around Counting: TypeError: .* 'steps'"),
        ("FrameStack", {}, "wrapper FrameStack cannot be put around Counting: TypeError: .* 'n_stack'"),
    ],
)
def test_what_a_class_does_not_take_is_one_line(name, kwargs, said):
    """Of names alone, too: the class judges its arguments, where the environment is made."""
    with pytest.raises(EnvError, match=f"^{said}$"):
        wrap(Counting(), [{"name": name, "kwargs": kwargs}])


def test_a_class_is_named_with_its_module():
    """Alone, with arguments as a mapping or a pair; the zoo's own are those of its package."""
    assert read_wrappers(["mine:A", ("mine.b:C.D", {"x": 1}), {"e:F": None}, "rl_zoo3.wrappers.FrameSkip"]) == [
        {"name": "mine:A", "kwargs": {}},
        {"name": "mine.b:C.D", "kwargs": {"x": 1}},
        {"name": "e:F", "kwargs": {}},
        {"name": "rl_zoo3.wrappers:FrameSkip", "kwargs": {}},
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere_to_be_found:A", "cannot be imported where environments run: No module named 'nowhere_to_be_found'"),
        (f"{__name__}:Nothing", f"cannot be imported where environments run: module '{__name__}' has no attribute"),
        (f"{__name__}:no_class", "must be a class derived from gymnasium.Wrapper, got <function no_class"),
        (f"{__name__}:Counting", "must be a class derived from gymnasium.Wrapper, got <class"),
    ],
)
def test_a_class_that_is_no_wrapper_is_one_line(name, said):
    """Whether its module, its name or what it is is wrong."""
    with pytest.raises(EnvError) as caught:
        built(Counting(), (name, {}))
    assert str(caught.value).startswith(f"wrapper {name} {said}")
    assert "\n" not in str(caught.value)


def test_a_module_that_raises_when_it_is_imported_is_one_line(tmp_path, monkeypatch):
    """Whatever it raises, over however many lines."""
    (tmp_path / "breaks_here.py").write_text("raise RuntimeError('a\\nb')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvError, match=r"^wrapper breaks_here:A cannot be imported where environments run: a b$"):
        built(Counting(), ("breaks_here:A", {}))


def test_one_mapping_may_hold_several():
    """``{A: .., B: ..}`` means A, then B around it; None stands for no arguments."""
    assert read_wrappers({"ClipAction": None, "ClipReward": {"min_reward": -1}}) == [
        {"name": "ClipAction", "kwargs": {}},
        {"name": "ClipReward", "kwargs": {"min_reward": -1}},
    ]
    assert read_wrappers(None) == []


def test_a_wrapper_that_does_not_fit_is_an_environment_error():
    """The constructor's own words are told with the wrapper's and the environment's names."""
    named = f"{__name__}:Vectors"
    with pytest.raises(EnvError, match=f"^wrapper {named} cannot be put around FrozenLake-v1: TypeError: observations"):
        built(gymnasium.make("FrozenLake-v1"), (named, {}))
    assert built(gymnasium.make("CartPole-v1"), (named, {})).reset(seed=0)[0].shape == (4,)


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

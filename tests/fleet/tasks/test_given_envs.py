"""Environments that a script holds already: its own objects, several in one, functions that count their copies."""

import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.wrappers import FlattenObservation, RecordVideo, TimeLimit

import drlnb
from drlnb.records.errors import ConfigError, EnvError
from drlnb.rl import pickled
from drlnb.rl.envs.make import make_env
from tests.fleet.compatibility.worlds import Own

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "policy_kwargs": {"net_arch": [8]}}


class Locked(Own):
    """One that cannot be copied."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Untold(gymnasium.Wrapper):
    """A wrapper that keeps no arguments."""

    def __init__(self, env, factor):
        super().__init__(env)
        self.factor = factor


def model(env, **given):
    return drlnb.PPO("MlpPolicy", env, **{**SMALL, **given})


def copies(built, n=2):
    return [make_env(built.spec, index=i) for i in range(n)]


# -------------------------------------------------------------------- one object
def test_an_object_of_an_own_class_is_copied_as_it_stands():
    """It learns; what it was made with comes along; the script's own is neither stepped nor closed."""
    mine = Own(level=3)
    built = model(mine, n_envs=2)
    assert built.spec.env == "Own"
    assert [env.unwrapped.level for env in copies(built)] == [3, 3]
    assert built.learn(64, local=True).num_timesteps == 64
    assert (mine.steps, mine.closed) == (0, False)


def test_generators_of_copies_are_their_own():
    """The first copy draws as the original would, others do not repeat it."""
    mine = Own()
    mine.draws = np.random.default_rng(5)
    first, second = copies(model(mine, n_envs=2))
    assert first.unwrapped.draws.random() == np.random.default_rng(5).random()
    assert second.unwrapped.draws.random() != np.random.default_rng(5).random()
    mine = Own()
    mine.draws = np.random.RandomState(5)
    first, second = copies(model(mine))
    assert first.unwrapped.draws.rand() == np.random.RandomState(5).rand()
    assert second.unwrapped.draws.rand() != np.random.RandomState(5).rand()


def test_wrappers_of_an_own_object_come_along():
    """Only those that look on are left away."""
    env = copies(model(gymnasium.wrappers.RecordEpisodeStatistics(TimeLimit(Own(), 4))), 1)[0]
    assert isinstance(env, TimeLimit)
    assert env._max_episode_steps == 4


def test_a_wrapper_that_keeps_no_arguments_is_copied_with_what_it_wraps():
    """Gymnasium cannot make it again; a copy can."""
    env = copies(model(Untold(gymnasium.make("Pendulum-v1"), 3.0)), 1)[0]
    assert (type(env), env.factor, env.spec.id) == (Untold, 3.0, "Pendulum-v1")


def test_what_cannot_be_copied_trains_in_this_process(capsys):
    """One line says so; it is stepped itself, and stays open for its owner."""
    mine = Locked()
    built = model(mine)
    assert capsys.readouterr().err == "drlnb: Locked cannot be copied, so it trains in this process\n"
    built.learn(16, local=True)
    assert (mine.steps, mine.closed) == (6, False)
    with pytest.raises(EnvError, match=r"Locked cannot be copied, so there is one of it alone: pass its class, or a"):
        model(mine, n_envs=2).learn(32, local=True)
    for elsewhere in (lambda: built.learn(16, local=False), lambda: built.submit(16)):
        with pytest.raises(
            ConfigError, match=r"Locked cannot be copied, so it trains in this process alone: learn\(\) d"
        ):
            elsewhere()


def test_a_model_of_what_cannot_be_copied_acts_elsewhere(tmp_path, monkeypatch):
    """It is loaded without trust, since no code is in it; to learn on it needs another environment."""
    built = model(Locked()).learn(16, local=True)
    path = built.save(tmp_path / "m")
    monkeypatch.setattr(pickled, "_KEPT", {})  # as in another process
    loaded = drlnb.PPO.load(path)
    assert (
        loaded.predict(np.zeros((9, 3)), deterministic=True)[0]
        == built.predict(np.zeros((9, 3)), deterministic=True)[0]
    ).all()
    with pytest.raises(EnvError, match=r"the factory of Locked lives in the process that made it alone, it could not"):
        loaded.learn(16, local=True)
    assert drlnb.PPO.load(path, env=Own).learn(16, local=True).num_timesteps == 16


@pytest.mark.parametrize("reward", [np.array([2.0]), np.array([[2.0]], np.float32), np.float64(2.0), 2, True])
def test_a_reward_of_one_element_is_a_number(reward):
    """Arrays of one element, numpy's numbers and Python's."""
    mine = Own()
    mine.reward = reward
    (episode,) = model(mine).learn(16, local=True).trained.episodes
    assert episode[0] == 10 * float(np.asarray(reward).item())


def test_a_reward_of_two_elements_is_none():
    """One line names the environment, the step and the value."""
    mine = Own()
    mine.reward = np.array([1.0, 2.0])
    with pytest.raises(EnvError, match=r"Own raised in step 0 \(its reward array\(\[1., 2.\]\) must be a number\)"):
        model(mine)


def test_an_observation_that_is_reused_is_copied():
    """An environment may return the same array each time, filled anew."""

    class Reusing(Own):
        def __init__(self):
            super().__init__()
            self.seen = np.zeros(3, np.float32)

        def step(self, action):
            _, reward, ended, _, info = super().step(action)
            self.seen[:] = self.steps / 10
            return self.seen, reward, ended, False, info

    from drlnb.rl.collecting.collector import Collector

    spec = model(Reusing()).spec
    collector = Collector(spec, env_indices=[0])
    fragment = collector.collect(model(Reusing()).parameters, version=1, round=1, n_steps=4)
    collector.close()
    assert fragment.arrays["obs"][:, 0, 0].tolist() == pytest.approx([0.0, 0.1, 0.2, 0.3])


# -------------------------------------------------------------------- several
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_several_of_gymnasium_are_as_many_here(mode):
    """Their number is theirs."""
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode=mode)
    built = model(vector)
    vector.close()
    assert (built.spec.env, built.n_envs) == ("CartPole-v1", 3)
    assert [env.spec.id for env in copies(built, 3)] == ["CartPole-v1"] * 3


def test_functions_of_several_make_them_here():
    """Those of gymnasium's that run in processes have nothing else; each copy is made by its own."""
    functions = [lambda: Own(level=1), lambda: Own(level=2)]
    processes = SimpleNamespace(env_fns=functions, num_envs=2, step=None, reset=None, spec=None)
    assert [env.level for env in copies(model(processes), 3)] == [1, 2, 1]


def dummy(*envs):
    """Return what Stable-Baselines3's ``DummyVecEnv`` shows of itself."""
    return SimpleNamespace(envs=list(envs), num_envs=len(envs), step=None, reset=None)


def around(name, venv, **more):
    return type(name, (), {"venv": venv, "num_envs": venv.num_envs, "step": None, "reset": None, **more})()


def test_several_that_differ_are_each_their_own():
    """The copy of a number is made as the one of that number was; further ones begin again."""
    built = model(dummy(Own(level=1), Own(level=2)))
    assert [env.unwrapped.level for env in copies(built, 3)] == [1, 2, 1]
    registered = model(dummy(*[gymnasium.make("Pendulum-v1", g=g) for g in (5.0, 7.0)]))
    assert [env.unwrapped.g for env in copies(registered)] == [5.0, 7.0]
    alike = model(dummy(*[gymnasium.make("Pendulum-v1", g=5.0) for _ in range(2)]))
    assert (alike.spec.env_factory, alike.spec.env_kwargs, alike.n_envs) == (None, {"g": 5.0}, 2)


def test_those_in_processes_are_made_by_their_specs():
    """Wrappers with arguments, too; what tells nothing is refused with the way."""
    spec = FlattenObservation(gymnasium.make("Pendulum-v1", g=5.0)).spec
    remote = SimpleNamespace(num_envs=2, get_attr=lambda name: [spec, spec], step=None, reset=None)
    env = copies(model(remote), 1)[0]
    assert (type(env), env.unwrapped.g) == (FlattenObservation, 5.0)
    silent = SimpleNamespace(num_envs=2, get_attr=lambda name: [None, None], step=None, reset=None)
    with pytest.raises(EnvError, match=r"SimpleNamespace does not tell what its environments were made with: pass "):
        model(silent)
    untold = Untold(gymnasium.make("Pendulum-v1"), 1.0).spec
    with pytest.raises(EnvError, match=r"does not tell what its environments were made with"):
        model(SimpleNamespace(num_envs=2, get_attr=lambda name: [untold] * 2, step=None, reset=None))


def test_a_number_beside_several_must_be_theirs():
    """Two truths would be one too many."""
    with pytest.raises(EnvError, match="2 environments are given, n_envs=4 asks for another number: leave it out"):
        model(dummy(Own(), Own()), n_envs=4)
    assert model(dummy(Own(), Own()), n_envs=2).n_envs == 2


def test_wrappers_around_several():
    """Those that look on are left away, stacked frames are kept, normalising is a setting, others are told."""
    vector = dummy(Own(), Own())
    assert model(around("VecMonitor", vector)).n_envs == 2
    for space, skip in ((Box(0, 255, (3, 40, 40)), True), (Box(0, 255, (50, 41, 40)), False)):
        assert model(around("VecTransposeImage", vector, skip=skip, observation_space=space)).n_envs == 2
    for space in (Box(0, 255, (50, 41, 40)), Dict(seen=Box(0, 255, (50, 41, 40)))):
        with pytest.raises(EnvError, match=r"VecTransposeImage\(skip=True\) does not count: the smallest axis"):
            model(around("VecTransposeImage", vector, skip=True, observation_space=space))
    stacked = model(around("VecFrameStack", vector, stacked_obs=SimpleNamespace(n_stack=4)))
    assert stacked.spec.observation_space["shape"] == [12]
    plain = model(around("VecFrameStack", dummy(gymnasium.make("CartPole-v1")), stacked_obs=SimpleNamespace(n_stack=2)))
    assert plain.spec.observation_space["shape"] == [8]
    with pytest.raises(
        EnvError, match=r"VecNormalize is a setting here: give the environments in it, and normalize=True; model.set_"
    ):
        model(around("VecNormalize", vector))
    with pytest.raises(EnvError, match="VecVideoRecorder films what is stepped here: give RecordVideo of gymnasium"):
        model(around("VecVideoRecorder", vector))
    with pytest.raises(EnvError, match=r"VecOdd goes around several environments: give the id or a function, n_envs=2"):
        model(around("VecOdd", vector))
    normalised = gymnasium.wrappers.vector.NormalizeReward(gymnasium.make_vec("CartPole-v1", num_envs=2))
    with pytest.raises(EnvError, match="NormalizeReward is a setting here"):
        model(normalised)
    normalised.close()


# -------------------------------------------------------------------- functions
def test_a_function_may_take_the_number_of_its_copy():
    """As for a port of its own; evaluations have numbers behind those of training."""
    built = model(lambda index: Own(level=index), n_envs=2)
    assert [env.level for env in copies(built, 3)] == [0, 1, 2]
    named = model(lambda level, offset: Own(level=level + offset), env_kwargs={"offset": 10})
    assert make_env(named.spec, index=2).level == 12


def test_a_class_that_needs_an_argument_says_so():
    """Its number would be taken for something else."""

    class Sized(Own):
        def __init__(self, size):
            super().__init__()

    with pytest.raises(EnvError, match=r"missing 1 required positional argument: 'size'"):
        model(Sized)


def test_one_copy_makes_the_videos(tmp_path):
    """All would write the same files; pictures are drawn where a wrapper needs them."""
    pytest.importorskip("moviepy")
    made = RecordVideo(gymnasium.make("CartPole-v1", render_mode="rgb_array"), str(tmp_path))
    built = model(made, n_envs=2)
    made.close()
    first, second = copies(built)
    assert isinstance(first, RecordVideo)
    assert not isinstance(second, RecordVideo)
    assert first.render_mode == "rgb_array"


class Videos(RecordVideo):
    """One that needs no encoder."""

    def __init__(self, env):
        gymnasium.Wrapper.__init__(self, env)
        self.name_prefix = "rl-video"


def test_videos_of_a_functions_copies_have_names_of_their_own():
    """They share a folder: each would write over the others' files, in silence."""
    spec = drlnb.Task(lambda: FlattenObservation(Videos(Own())), n_envs=3).spec
    made = [make_env(spec, index=index).env for index in range(3)]
    assert [env.name_prefix for env in made] == ["rl-video", "rl-video-1", "rl-video-2"]


def test_a_task_takes_them_too():
    """Its collectors make others like them, wherever they are; several say how many there are."""
    task = drlnb.Task(Own(level=3), total_timesteps=64, n_envs=2, **{**SMALL, "seed": 4})
    assert (task.spec.env, task.spec.name, task.spec.n_envs) == ("Own", "Own", 2)
    assert [make_env(task.spec, index=index).unwrapped.level for index in range(2)] == [3, 3]
    known = drlnb.Task(gymnasium.make("MountainCar-v0", goal_velocity=0.01)).spec
    assert (known.env, known.env_factory, known.env_kwargs) == ("MountainCar-v0", None, {"goal_velocity": 0.01})
    several = gymnasium.vector.SyncVectorEnv([lambda level=level: Own(level) for level in (5, 6, 7)])
    task = drlnb.Task(several, "dqn", total_timesteps=64)
    assert [make_env(task.spec, index=i).unwrapped.level for i in range(task.spec.n_envs)] == [5, 6, 7]
    with pytest.raises(EnvError, match=r"^Locked cannot be copied: pass its class, or a function \("):
        drlnb.Task(Locked())
    for wrong in (None, 3, object()):
        with pytest.raises(EnvError, match=r"env must be an environment, its id, a class or function .*, got "):
            drlnb.Task(wrong)


def test_what_is_no_environment():
    """One line."""
    with pytest.raises(
        EnvError, match=r"env must be an environment, its id, a class or .*, or a vector environment, got 3"
    ):
        model(3)
    with pytest.raises(EnvError, match="env_kwargs are for an id or a class; this environment is made already"):
        model(Own(), env_kwargs={"level": 1})

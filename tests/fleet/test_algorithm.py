"""PPO, DQN and GPF as a person who knows Stable-Baselines3 uses them, in this process."""

import importlib.util
import inspect
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

import drlnb
from drlnb.fleet.callbacks import progress
from drlnb.fleet.callbacks.base import BaseCallback
from drlnb.fleet.callbacks.progress import budget_folder
from drlnb.records.errors import CheckpointError, ConfigError, EnvError, LayoutMismatch, MissingExtra
from drlnb.rl import evaluate
from drlnb.rl.envs.make import make_env

KINDS = {"ppo": drlnb.PPO, "dqn": drlnb.DQN, "gpf": drlnb.GPF}
SMALL = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "n_envs": 4, "seed": 3, "policy_kwargs": {"net_arch": [8]}}


def small(**given):
    return drlnb.PPO("MlpPolicy", "CartPole-v1", **{**SMALL, **given})


@pytest.fixture(scope="module")
def learnt():
    """Return a model after two rounds; tests do not train it further."""
    return small().learn(128, local=True)


# ---------------------------------------------------------------------------------------------- the constructor
@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_the_constructor_is_stable_baselines3s(name):
    """Names, order and defaults of its arguments are equal; ours come behind, by keyword."""
    theirs = inspect.signature(getattr(pytest.importorskip("stable_baselines3"), name)).parameters
    ours = inspect.signature(getattr(drlnb, name)).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert {n: p.default for n, p in theirs.items()} == {n: ours[n].default for n in theirs}
    rest = list(ours.values())[len(theirs) :]
    assert {p.kind for p in rest} == {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}


def test_a_model_has_the_defaults_of_stable_baselines3_not_tuned_ones():
    """CartPole has tuned settings for tasks; a model that is built by hand does not take them."""
    model = drlnb.PPO("MlpPolicy", "CartPole-v1")
    assert (model.n_envs, model.settings["n_steps"], model.settings["batch_size"]) == (1, 2048, 64)
    assert drlnb.Task("CartPole-v1").spec.n_envs == 8
    assert (model.spec.eval_episodes, drlnb.PPO("MlpPolicy", "CartPole-v1", eval_episodes=0).spec.eval_episodes) == (
        20,
        0,
    )


def test_arguments_may_come_by_position():
    """As in Stable-Baselines3: learning rate, steps, batch, epochs."""
    settings = drlnb.PPO("MlpPolicy", "CartPole-v1", 1e-3, 64, 32, 5).settings
    assert [settings[n] for n in ("learning_rate", "n_steps", "batch_size", "n_epochs")] == [1e-3, 64, 32, 5]


def test_without_a_seed_one_is_drawn_and_kept():
    """Two models differ; the drawn seed gives the same parameters again."""
    a, b = small(seed=None), small(seed=None)
    assert a.seed != b.seed
    assert np.array_equal(small(seed=a.seed).parameters, a.parameters)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"n_step": 8}, TypeError, r"PPO\(\) got an unexpected keyword argument 'n_step'; did you mean 'n_steps'\?"),
        ({"xyz": 8}, TypeError, "unexpected keyword argument 'xyz'$"),
        ({"device": "gpu"}, ConfigError, "device must be auto, cpu, cuda or cuda:K, got 'gpu'"),
        (
            {"rollout_buffer_class": dict, "stats_window_size": 0},
            ConfigError,
            "rollout_buffer_class=.* is not supported",
        ),
        ({"n_envs": 2, "n_collectors": 3}, ConfigError, "n_collectors must be <= n_envs = 2, got 3"),
        ({"batch_size": 1000}, ConfigError, r"batch_size must be <= n_steps \* n_envs = 16 \* 4 = 64, got 1000"),
        ({"gamma": 2, "n_epochs": 0}, ConfigError, "n_epochs must be .*got 0.*; gamma must be|gamma must be.*; n_ep"),
    ],
    ids=["near", "far", "device", "two", "collectors", "batch", "values"],
)
def test_wrong_arguments_are_told(given, error, said):
    """Unknown names are TypeErrors with the nearest one; values are told all at once, with the reason."""
    with pytest.raises(error, match=said):
        small(**given)


def test_what_stable_baselines3_has_at_its_default_is_taken():
    """Arguments without a meaning here do no harm as long as they say nothing: the task is the same."""
    said = small(use_sde=False, stats_window_size=100, tensorboard_log=None, device="auto", verbose=0)
    assert replace(said.spec, origin="") == replace(small().spec, origin="")  # what was said is kept as said


def test_an_activation_may_be_torchs_class():
    """`policy_kwargs` as people write them for Stable-Baselines3."""
    kwargs = {"net_arch": {"pi": [8], "vf": [8]}, "activation_fn": torch.nn.ReLU}
    model = small(policy_kwargs=kwargs)
    assert model.settings["policy_kwargs"]["activation_fn"] == "relu"
    named = small(policy_kwargs={**kwargs, "activation_fn": "relu"})
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    assert np.array_equal(model.predict(obs, deterministic=True)[0], named.predict(obs, deterministic=True)[0])


def test_an_environment_that_gymnasium_has_made_is_made_again():
    """Its id and arguments are taken; collectors make their own."""
    made = gymnasium.make("Pendulum-v1", g=5.0, render_mode="rgb_array")
    spec = drlnb.PPO("MlpPolicy", made, n_steps=64).spec
    assert (spec.env, spec.env_kwargs) == ("Pendulum-v1", {"g": 5.0})
    made.close()


class Doubled(gymnasium.RewardWrapper):
    """Doubles rewards; gymnasium is not told its argument."""

    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward


def limited(steps, **given):
    return gymnasium.wrappers.TimeLimit(gymnasium.make("Pendulum-v1", **given), steps)


@pytest.mark.parametrize(
    ("make", "kwargs", "length"),
    [
        (lambda: gymnasium.make("Pendulum-v1", max_episode_steps=20, g=5.0), {"g": 5.0, "max_episode_steps": 20}, 20),
        (lambda: limited(20), {"max_episode_steps": 20}, 20),
        (lambda: limited(500), {}, 200),
        (lambda: limited(20, max_episode_steps=-1), {"max_episode_steps": 20}, 20),
        (lambda: gymnasium.wrappers.RecordEpisodeStatistics(limited(20)), {"max_episode_steps": 20}, 20),
        (lambda: gymnasium.wrappers.TimeLimit(gymnasium.wrappers.MaxAndSkipObservation(limited(20), 4), 3), {}, 3),
        (lambda: gymnasium.wrappers.MaxAndSkipObservation(limited(20), 4), {}, 5),
    ],
    ids=["make", "shorter", "longer", "only", "looked on", "above a skip", "beneath a skip"],
)
def test_a_time_limit_of_the_callers_is_kept(make, kwargs, length):
    """The shortest limit rules, and one above frames that are skipped counts what it sees; here as in the given one."""
    given = make()
    spec = drlnb.PPO("MlpPolicy", given, n_steps=64).spec
    assert spec.env_kwargs == kwargs
    for env in (given, make_env(spec)):
        env.reset(seed=0)
        n = next(n for n in range(1, 300) if env.step(np.zeros(1, np.float32))[3])
        assert n == length
        env.close()


def test_an_environment_without_its_limit_stays_without():
    """What `unwrapped` gives has none: collectors' copies have none either."""
    made = gymnasium.make("Pendulum-v1")
    assert drlnb.PPO("MlpPolicy", made.unwrapped, n_steps=64).spec.env_kwargs == {"max_episode_steps": -1}
    made.close()


def test_wrappers_go_around_the_environment():
    """As of a task: known names, innermost first; an unknown one is told with the nearest."""
    model = drlnb.PPO("MlpPolicy", "CartPole-v1", env_wrappers=[{"FrameStackObservation": {"stack_size": 3}}])
    assert model.spec.observation_space["shape"] == [3, 4]
    assert model.predict(np.zeros((3, 4), np.float32))[0].shape == ()
    with pytest.raises(EnvError, match="unknown wrapper 'FrameStac'; did you mean 'FrameStack"):
        drlnb.PPO("MlpPolicy", "CartPole-v1", env_wrappers="FrameStac")


def test_an_unknown_id_is_told_with_the_nearest():
    """Before anything starts."""
    with pytest.raises(EnvError, match="unknown environment 'CartPool-v1'; did you mean CartPole-v1"):
        drlnb.PPO("MlpPolicy", "CartPool-v1")


# ---------------------------------------------------------------------------------------------- predict
def test_predict_has_stable_baselines3s_shapes(learnt):
    """One observation gives one action, a batch a batch; samples are the default, as there."""
    one, state = learnt.predict(np.zeros(4, np.float32))
    many, _ = learnt.predict(np.zeros((500, 4), np.float32))
    best, _ = learnt.predict(np.zeros((500, 4), np.float32), deterministic=True)
    assert (np.shape(one), state, many.shape) == ((), None, (500,))
    assert (len(set(many.tolist())), len(set(best.tolist()))) == (2, 1)
    with pytest.raises(ValueError, match=r"must have the shape \(4,\) or \(n, \*\(4,\)\), got \(3,\)"):
        learnt.predict(np.zeros(3))


# ---------------------------------------------------------------------------------------------- learn
class EachRound(BaseCallback):
    """Calls a function with each round's metrics."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def on_round_end(self, metrics):
        self.function(metrics)


def test_whole_rounds_are_made(learnt):
    """100 steps in rounds of 64 make 128."""
    assert small().learn(100, local=True).num_timesteps == learnt.num_timesteps == 128


def test_going_on_is_the_same_as_one_longer_training():
    """`reset_num_timesteps=False` twice 128 steps equals 256 at once, bitwise, where no schedule ends meanwhile."""
    twice = small().learn(128, local=True).learn(128, reset_num_timesteps=False, local=True)
    once = small().learn(256, local=True)
    assert twice.num_timesteps == once.num_timesteps == 256
    assert np.array_equal(twice.parameters, once.parameters)


def test_a_budget_of_its_own_keeps_what_was_learnt():
    """By default steps count from 0 and schedules begin again; the version goes on, and parameters change."""
    model = small(learning_rate="lin_0.01").learn(128, local=True)
    before, rates = model.parameters.copy(), []

    def note(metrics):
        rates.append((model.num_timesteps, metrics["train/learning_rate"]))

    model.learn(128, EachRound(note), local=True)
    assert rates == [(64, pytest.approx(0.005)), (128, 0.0)]
    assert (model.num_timesteps, model.version) == (128, 5)
    assert not np.array_equal(model.parameters, before)


def test_a_ring_goes_on_into_a_new_budget():
    """DQN keeps its ring: the second budget learns from its first round on, and exploration begins again."""
    settings = {"learning_starts": 40, "batch_size": 8, "train_freq": 16, "n_envs": 2, "seed": 1}
    model = drlnb.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, **settings)
    rows = []
    for _ in range(2):
        model.learn(96, EachRound(rows.append), local=True)
    assert ["train/loss" in row for row in rows] == [False, True, True, True, True, True]
    assert [row["replay/size"] for row in rows] == [32, 64, 96, 128, 160, 192]
    assert rows[0]["rollout/exploration_rate"] == rows[3]["rollout/exploration_rate"]
    assert min(row["replay/age_mean"] for row in rows[1:]) > 0


class Stop(BaseCallback):
    """Says False in the round that ends at `at` steps, or raises."""

    def __init__(self, at, error=None):
        super().__init__()
        self.at, self.error, self.ends = at, error, 0

    def on_round_end(self, metrics):
        if self.num_timesteps < self.at:
            return None
        if self.error is not None:
            raise self.error
        return False

    def on_training_end(self):
        self.ends += 1


def test_a_callback_stops_at_once_in_this_process():
    """False in the second round leaves two; the end is told."""
    stop = Stop(128)
    assert small().learn(1000, stop, local=True).num_timesteps == 128
    assert stop.ends == 1


def test_a_callback_may_count_steps_by_its_calls():
    """128 steps of 4 environments are 32 calls, in two rounds."""
    calls = []
    small().learn(128, lambda *_: calls.append(True), local=True)
    assert len(calls) == 32


def test_a_callback_that_raises_ends_the_training_with_its_error():
    """The error comes out as it is; what was learnt until then stays, and training can go on."""
    model = small()
    with pytest.raises(ZeroDivisionError, match="mine"):
        model.learn(1000, Stop(128, ZeroDivisionError("mine")), local=True)
    assert model.num_timesteps == 128
    assert model.learn(64, reset_num_timesteps=False, local=True).num_timesteps == 192


def test_evaluation_while_training_changes_nothing(tmp_path):
    """Same parameters with and without (statistics too: they are normalised); the best one is saved and is the best."""
    quiet = small(normalize=True).learn(192, local=True)
    callback = drlnb.EvalCallback(eval_freq=16, n_eval_episodes=2, best_model_save_path=tmp_path, verbose=0)
    watched = small(normalize=True).learn(192, callback, local=True)
    assert np.array_equal(quiet.parameters, watched.parameters)
    assert [e.n_timesteps for e in callback.evaluations] == [64, 128, 192]
    best = drlnb.PPO.load(tmp_path / "best_model.zip")
    assert evaluate(best, n_episodes=2).mean == callback.best_mean_reward
    means = [e.mean_reward for e in callback.evaluations]
    assert best.version == callback.evaluations[means.index(max(means))].version


def test_evaluation_plays_in_the_environment_that_was_given():
    """Its episodes of 7 steps are those of the evaluation; other spaces are refused, the trained one is no other."""
    callback = drlnb.EvalCallback(limited(7), eval_freq=16, n_eval_episodes=2, verbose=0)
    given = {"n_steps": 16, "batch_size": 32, "n_envs": 4}
    model = drlnb.PPO("MlpPolicy", "Pendulum-v1", **given).learn(64, callback, local=True)
    assert [length for _, length in callback.evaluations[0].episodes] == [7, 7]
    assert model.spec.eval_source is None
    with pytest.raises(ValueError, match="CartPole-v1 has the observation space"):
        model.learn(64, drlnb.EvalCallback("CartPole-v1"), local=True)
    same = drlnb.EvalCallback(gymnasium.make_vec("Pendulum-v1", 2, vectorization_mode="sync"))
    same.init_callback(model)
    assert "eval_source" not in same.settings(4)
    same.eval_env.close()


def test_predictions_in_a_callback_draw_anew_and_know_the_newest_parameters():
    """Twice the same observations in each of three rounds: six different answers; the best action changes by round."""
    model = drlnb.PPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=32, n_envs=2, seed=1)
    obs, found, best = np.zeros((5, 3), np.float32), [], []

    def note(_):
        found.extend(model.predict(obs)[0].tobytes() for _ in range(2))
        best.append(model.predict(obs, deterministic=True)[0].tobytes())

    model.learn(96, EachRound(note), local=True)
    assert len(set(found)) == 6
    assert len(set(best)) == 3
    assert model.predict(obs, deterministic=True)[0].tobytes() == best[-1]


def test_checkpoints_are_saved_by_their_steps(tmp_path):
    """`save_freq` 30 of 4 environments is every 120 steps: after 128, 256 (240 was passed) and 384."""
    small().learn(384, drlnb.CheckpointCallback(30, tmp_path, verbose=0), local=True)
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == [f"rl_model_{n}_steps.zip" for n in (128, 256, 384)]


def test_progress_is_said_now_and_then(capsys):
    """With `verbose=1` each second round is a table of its scalars; a bar is one line."""
    small(verbose=1).learn(256, log_interval=2, local=True)
    tables = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "total_timesteps" in line]
    assert [value.strip() for _, value in tables] == ["128", "256"]
    small().learn(128, local=True, progress_bar=True)
    bars = capsys.readouterr().err.split("\r")[1:]
    assert [bar[:27] for bar in bars] == [" 50% [##########          ]", "100% [####################]"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"total_timesteps": 0}, "total_timesteps must be a whole number >= 1, got 0"),
        ({"total_timesteps": 64, "log_interval": 0}, "log_interval must be .* got 0"),
        ({"total_timesteps": 64, "tb_log_name": "x"}, "tb_log_name='x' needs tensorboard_log"),
        ({"total_timesteps": 64, "callback": 3}, "callback must be a drlnb callback"),
    ],
    ids=["steps", "interval", "tb", "callback"],
)
def test_wrong_wishes_are_told_before_anything_starts(given, said):
    """The argument and its value are named."""
    with pytest.raises(ConfigError, match=said):
        small().learn(**given, local=True)


# ---------------------------------------------------------------------------------------------- event files
def test_each_budget_has_a_folder_of_its_own(tmp_path):
    """Numbers count up from 1; a budget that goes on has the newest; other names do not count."""
    assert budget_folder(tmp_path, "PPO", anew=False).name == "PPO_1"
    for name in ("PPO_1", "PPO_9", "PPO_x", "PPO_2_old", "DQN_30"):
        (tmp_path / name).mkdir()
    assert budget_folder(tmp_path, "PPO", anew=True).name == "PPO_10"
    assert budget_folder(tmp_path, "PPO", anew=False).name == "PPO_9"


def test_scalars_go_to_the_folder_of_the_log(tmp_path, monkeypatch):
    """Each round at its steps and each evaluation, under Stable-Baselines3's names; closed at the end."""
    made = []

    class Kept:
        def __init__(self, folder, *, alone):
            self.folder, self.alone, self.rows, self.facts, self.closed = folder, alone, [], None, 0
            made.append(self)

        def open(self, facts):
            self.facts = facts

        def scalars(self, task, step, metrics):
            self.rows.append((task, step, metrics))

        def close(self):
            self.closed += 1

    monkeypatch.setattr(progress, "TensorBoard", Kept)
    model = small(tensorboard_log=tmp_path)
    model.learn(128, drlnb.EvalCallback(eval_freq=32, n_eval_episodes=2, verbose=0), tb_log_name="mine", local=True)
    with pytest.raises(ZeroDivisionError):
        model.learn(128, Stop(64, ZeroDivisionError()), local=True)
    first, second = made
    assert (first.folder, first.alone, first.closed) == (tmp_path / "mine_1", True, 1)
    rounds = [(task, step) for task, step, metrics in first.rows if "train/loss" in metrics]
    assert rounds == [("CartPole-v1", 64), ("CartPole-v1", 128)]
    evaluations = [(step, sorted(metrics)) for _, step, metrics in first.rows if "train/loss" not in metrics]
    assert evaluations == [(128, ["eval/mean_ep_length", "eval/mean_reward"])]
    assert (second.folder.name, second.closed) == ("PPO_1", 1)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is not None, reason="tensorboard is installed")
def test_a_missing_library_is_told_before_anything_starts(tmp_path):
    """With the line that installs it."""
    with pytest.raises(MissingExtra, match=r"drlnb\[track\]"):
        small(tensorboard_log=tmp_path).learn(64, local=True)


def test_event_files_are_read_back_by_the_library(tmp_path):
    """What TensorBoard reads is what the callback heard."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra track)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    losses = []
    model = small(tensorboard_log=str(tmp_path))
    model.learn(128, EachRound(lambda metrics: losses.append(metrics["train/loss"])), local=True)
    found = EventAccumulator(str(tmp_path / "PPO_1"))
    found.Reload()
    scalars = found.Scalars("train/loss")
    assert [scalar.step for scalar in scalars] == [64, 128]
    assert [scalar.value for scalar in scalars] == pytest.approx(losses, rel=1e-6)


def test_threads_of_torch_are_given_back():
    """Training takes one thread, and leaves the caller's number."""
    before = torch.get_num_threads()
    small().learn(64, local=True)
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------------------------------------- save and load
@pytest.mark.parametrize("algo", KINDS)
@pytest.mark.filterwarnings("ignore:.*reward_scale")
def test_a_loaded_model_acts_and_learns_like_the_saved_one(tmp_path, algo):
    """Same actions; trained on for a round from the same environments' start, the same parameters."""
    given = {"policy_kwargs": {"net_arch": [8]}, "n_envs": 2, "seed": 1}
    given |= {"learning_starts": 10, "train_freq": 16} if algo == "dqn" else {"n_steps": 32, "batch_size": 64}
    model = KINDS[algo]("MlpPolicy", "CartPole-v1", **given).learn(64, local=True)
    model.save(tmp_path / "m")
    again = KINDS[algo].load(tmp_path / "m")
    obs = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    assert (again.num_timesteps, again.version) == (model.num_timesteps, model.version)
    assert np.array_equal(again.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    twin = KINDS[algo].load(tmp_path / "m.zip")
    for one in (again, twin):
        one.learn(128, local=True)  # two rounds: a schedule that falls to 0 leaves the last one without effect
    assert np.array_equal(again.parameters, twin.parameters)
    assert not np.array_equal(again.parameters, model.parameters)


def test_statistics_travel_with_the_model(tmp_path):
    """A normalised model acts alike after a load: its statistics are in the file."""
    model = drlnb.PPO("MlpPolicy", "Pendulum-v1", normalize=True, **SMALL).learn(128, local=True)
    model.save(tmp_path / "m.zip")
    obs = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    found = drlnb.PPO.load(tmp_path / "m.zip").predict(obs, deterministic=True)[0]
    assert np.array_equal(found, model.predict(obs, deterministic=True)[0])


@pytest.mark.parametrize(
    ("load", "error", "said"),
    [
        (lambda p: drlnb.DQN.load(p), CheckpointError, r"holds a PPO model, not DQN: drlnb.PPO.load reads it"),
        (lambda p: drlnb.PPO.load(p, env="Acrobot-v1"), ValueError, r"Acrobot-v1 has .*\[6\].* trained on .*\[4\]"),
        (
            lambda p: drlnb.PPO.load(p, policy_kwargs={"net_arch": [9]}),
            LayoutMismatch,
            r"it holds pi.0.weight of shape \(8, 4\), this task needs pi.0.weight of shape \(9, 4\)",
        ),
        (lambda p: drlnb.PPO.load(p, n_step=3), TypeError, "did you mean 'n_steps'"),
    ],
    ids=["algorithm", "spaces", "network", "name"],
)
def test_what_does_not_fit_is_told_at_load(tmp_path, learnt, load, error, said):
    """Another algorithm, other spaces, another network, an unknown setting."""
    with pytest.raises(error, match=said):
        load(learnt.save(tmp_path / "m"))


def test_settings_may_change_at_load(tmp_path, learnt):
    """Another learning rate and seed; what is not named stays."""
    model = drlnb.PPO.load(learnt.save(tmp_path / "m"), learning_rate=0.5, seed=9)
    assert (model.settings["learning_rate"], model.seed, model.settings["n_steps"]) == (0.5, 9, 16)


class Net(torch.nn.Module):
    """A network of one's own."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.pi = torch.nn.Linear(observation_space.shape[0], int(action_space.n))
        self.vf = torch.nn.Linear(observation_space.shape[0], 1)

    def actor(self, obs):
        return self.pi(obs)

    def critic(self, obs):
        return self.vf(obs)[:, 0]


def test_somebody_elses_code_runs_only_if_it_is_trusted(tmp_path):
    """A model with a network (or environment) of its author's own is refused with the reason; `trust=True` loads it."""
    model = drlnb.PPO(Net, "CartPole-v1", **{**SMALL, "policy_kwargs": None}).learn(64, local=True)
    path = model.save(tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"m.zip: its policy came from its author's own code.*trust=True"):
        drlnb.PPO.load(path)
    obs = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    found = drlnb.PPO.load(path, trust=True).predict(obs, deterministic=True)[0]
    assert np.array_equal(found, model.predict(obs, deterministic=True)[0])
    with pytest.raises(CheckpointError, match="its env came from its author's own code"):
        drlnb.PPO.load(drlnb.PPO("MlpPolicy", lambda: gymnasium.make("CartPole-v1"), **SMALL).save(tmp_path / "e"))


def test_an_image_policys_tensors_are_read_without_building_it(tmp_path):
    """A CnnPolicy's layout comes from its file; trained or not, the same tensors come back."""
    kwargs = {"n_steps": 4, "batch_size": 4, "n_epochs": 1, "seed": 1}
    small_net = {"features_extractor_kwargs": {"features_dim": 4}}
    model = drlnb.PPO("CnnPolicy", "drlnb/Catch-v0", policy_kwargs=small_net, **kwargs)
    again = drlnb.PPO.load(model.save(tmp_path / "m"))
    assert np.array_equal(again.parameters, model.parameters)


def test_evaluate_takes_a_model(learnt):
    """`drlnb.rl.evaluate` names version and kind, and leaves the parameters as they are; other spaces are refused."""
    before = learnt.parameters.tobytes()
    found = evaluate(learnt, "CartPole-v1", n_episodes=4, seed=1)
    assert (len(found.returns), found.deterministic, found.version) == (4, True, 3)
    assert learnt.parameters.tobytes() == before
    with pytest.raises(ValueError, match=r"Pendulum-v1 has the observation space .* the model was trained on"):
        evaluate(learnt, "Pendulum-v1")


class Lamps(gymnasium.Env):
    """Shows a picture and a choice by key; cut after 6 steps."""

    observation_space = gymnasium.spaces.Dict({
        "lamp": gymnasium.spaces.Discrete(3),
        "picture": gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8),
    })
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._t = 0

    def _seen(self):
        return {"lamp": self._t % 3, "picture": self.np_random.integers(0, 256, (36, 36, 1), np.uint8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._seen(), {}

    def step(self, action):
        self._t += 1
        return self._seen(), float(action), False, self._t == 6, {}


def test_a_model_of_keyed_observations_learns_evaluates_and_comes_back(tmp_path):
    """Dict observations go through learn, evaluate, save, load and predict; MlpPolicy is refused at once."""
    with pytest.raises(ConfigError, match=r"MlpPolicy takes arrays, .*Lamps has Dict observations: say policy"):
        drlnb.PPO("MlpPolicy", Lamps)
    given = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "seed": 1, "normalize": True}
    kwargs = {"features_extractor_kwargs": {"cnn_output_dim": 4}, "net_arch": [8]}
    model = drlnb.PPO("MultiInputPolicy", Lamps, policy_kwargs=kwargs, **given).learn(16, local=True)
    assert evaluate(model, n_episodes=2).lengths == (6, 6)
    model.save(tmp_path / "m")
    again = drlnb.PPO.load(tmp_path / "m", trust=True)
    rng = np.random.default_rng(0)
    obs = {"lamp": rng.integers(0, 3, 20), "picture": rng.integers(0, 256, (20, 36, 36, 1), np.uint8)}
    assert np.array_equal(again.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])

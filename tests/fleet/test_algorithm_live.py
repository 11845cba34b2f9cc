"""Models that learn on a real cluster: the same bits as in one process, callbacks by the journal, resumes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils import EzPickle

import drlnb
from drlnb.fleet.callbacks.base import BaseCallback
from drlnb.records import round as words
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster

SMALL = {"n_steps": 32, "batch_size": 64, "n_epochs": 4, "n_envs": 4, "seed": 3, "policy_kwargs": {"net_arch": [16]}}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_cluster_gives_the_bits_of_one_process(fleet):
    """A linear schedule, evaluations elsewhere, going on, a budget of its own: equal after each, whoever trained."""
    kwargs = {**SMALL, "learning_rate": "lin_0.003", "normalize": True, "fleet": fleet}
    models = [drlnb.PPO("MlpPolicy", "CartPole-v1", **kwargs) for _ in range(2)]
    told = []
    for model, local in zip(models, (False, True), strict=True):
        short = gymnasium.make("CartPole-v1", max_episode_steps=15)
        callback = drlnb.EvalCallback(short, eval_freq=64, n_eval_episodes=2, verbose=0)
        model.learn(512, callback, local=local)
        told.append([(e.n_timesteps, e.episodes) for e in callback.evaluations if e.n_timesteps < 512])
        assert max(length for e in callback.evaluations for _, length in e.episodes) <= 15  # the last one, too
    assert told[0] == told[1] != []
    assert np.array_equal(models[0].parameters, models[1].parameters)
    for reset in (False, True):
        for model, local in zip(models, (True, False), strict=True):  # each goes on where the other one was
            model.learn(256, reset_num_timesteps=reset, local=local)
        assert models[0].num_timesteps == models[1].num_timesteps == (256 if reset else 768)
        assert np.array_equal(models[0].parameters, models[1].parameters)
    check_laws(models[1].fleet.trainings[-1].out)


def test_what_is_set_before_the_first_round_is_learnt_on_from(fleet):
    """On a cluster as in this process: parameters that were set in the policy of a model that has learnt nothing."""
    there, here = (drlnb.PPO("MlpPolicy", "CartPole-v1", fleet=fleet, **SMALL) for _ in range(2))
    for model in (there, here):
        for parameter in model.policy.parameters():
            parameter.data.mul_(0.5)
    there.learn(256)
    here.learn(256, local=True)
    assert np.array_equal(there.parameters, here.parameters)
    assert not np.array_equal(there.parameters, drlnb.PPO("MlpPolicy", "CartPole-v1", **SMALL).learn(256).parameters)
    check_laws(there.fleet.trainings[-1].out)


def test_a_policy_shows_what_a_run_has_learnt_when_it_has_ended(fleet, capsys):
    """Until then it is as it was; what is changed is undone, with a line: at the next use, or when the run ends."""
    model = drlnb.PPO("MlpPolicy", "CartPole-v1", fleet=fleet, **SMALL)
    policy, obs = model.policy, np.zeros(4, np.float32)
    before = policy.value_net.bias.item()
    run = model.submit(10_000_000)
    policy.value_net.bias.data.fill_(7.0)
    with pytest.raises(ConfigError, match=rf"changed in model.policy while run {run.id} trains it is undone: wait"):
        model.predict(obs)
    assert policy.value_net.bias.item() == before
    model.predict(obs)
    policy.value_net.bias.data.fill_(7.0)
    wait_until(lambda: run.tasks["CartPole-v1"].n_timesteps >= 256, "two rounds")
    run.stop()
    run.wait()
    assert model.policy is policy
    assert policy.value_net.bias.item() not in (7.0, before)
    assert "while run" in capsys.readouterr().err
    assert model.num_timesteps > 0


@pytest.mark.filterwarnings("ignore:.*reward_scale")
def test_rings_and_temperatures_go_on_as_in_one_process(fleet):
    """DQN and GPF: first budget, going on, a new budget, each on a cluster and here; equal after each."""
    common = {"n_envs": 2, "seed": 1, "policy_kwargs": {"net_arch": [8]}}
    dqn = {"learning_starts": 40, "train_freq": 16, "target_update_interval": 20}
    for kind, given in ((drlnb.DQN, dqn), (drlnb.GPF, {"n_steps": 32, "batch_size": 64})):
        there, here = (kind("MlpPolicy", "CartPole-v1", fleet=fleet, **common, **given) for _ in range(2))
        for reset in (True, False, True):
            there.learn(128, reset_num_timesteps=reset)
            here.learn(128, reset_num_timesteps=reset, local=True)
            assert np.array_equal(there.parameters, here.parameters)


def test_the_best_and_the_asked_for_are_saved_and_false_stops(fleet, tmp_path):
    """Files have the parameters of their steps; the run is stopped with a checkpoint, which the model takes over."""

    class Stop(BaseCallback):
        n_heard = 0

        def on_checkpoint(self, checkpoint):
            self.n_heard += 1
            return checkpoint.reason != "checkpoint"

    best = drlnb.EvalCallback(eval_freq=128, n_eval_episodes=3, best_model_save_path=tmp_path, verbose=0)
    model = drlnb.PPO("MlpPolicy", "CartPole-v1", **SMALL, fleet=fleet)
    model.learn(10**6, [best, drlnb.CheckpointCallback(256, tmp_path, verbose=0), Stop()])
    run = fleet.trainings[-1]
    assert run.status == "stopped"
    assert model.num_timesteps == run.tasks["CartPole-v1"].n_timesteps
    saved = list(tmp_path.glob("rl_model_*_steps.zip"))
    assert saved  # one, or two where the second was asked for before the stop had arrived
    for path in saved:
        assert drlnb.PPO.load(path).num_timesteps == int(path.name.split("_")[2]) >= 1024
    found = drlnb.PPO.load(tmp_path / "best_model.zip")
    assert drlnb.rl.evaluate(found, n_episodes=3).mean == best.best_mean_reward
    journal = check_laws(run.out)
    written = journal.of(words.WriteCheckpoint)
    assert {"best", "checkpoint"} <= {row.reason for row in written}
    # By `stop`, unless the round that was the last one has been written for another reason.
    assert max(row.n_timesteps for row in written) == model.num_timesteps


def test_a_checkpoint_that_was_asked_for_comes_with_its_ring(fleet, tmp_path):
    """Another model goes on from both; whoever did not ask for rings has none, and nobody has what others asked for."""

    class Stop(BaseCallback):
        def on_checkpoint(self, checkpoint):
            return checkpoint.reason != "checkpoint"

    dqn = {"learning_starts": 40, "train_freq": 16, "buffer_size": 512, "policy_kwargs": {"net_arch": [8]}}
    model = drlnb.DQN("MlpPolicy", "CartPole-v1", n_envs=2, seed=1, fleet=fleet, **dqn)
    asking = drlnb.CheckpointCallback(64, tmp_path, save_replay_buffer=True, verbose=0)
    model.learn(10**6, [asking, drlnb.CheckpointCallback(10**7, tmp_path, "never", verbose=0), Stop()])
    rings = list(tmp_path.glob("rl_model_replay_buffer_*_steps.safetensors"))
    assert rings
    for ring in rings:
        steps = int(ring.stem.split("_")[4])
        loaded = drlnb.DQN.load(tmp_path / f"rl_model_{steps}_steps.zip")
        loaded.load_replay_buffer(ring)
        assert loaded.num_timesteps == steps >= 128
        assert loaded.learn(64, reset_num_timesteps=False, local=True).num_timesteps == steps + 64
    assert len(list(tmp_path.glob("*.zip"))) == len(rings)


def test_a_callback_that_raises_stops_the_run(fleet):
    """The error comes out of `learn`, the run ends as stopped, and the model holds its last checkpoint."""

    def broken(locals_, globals_):
        raise ZeroDivisionError("mine")

    model = drlnb.PPO("MlpPolicy", "CartPole-v1", **SMALL, fleet=fleet)
    with pytest.raises(ZeroDivisionError, match="mine"):
        model.learn(10**6, broken)
    assert fleet.trainings[-1].status == "stopped"
    assert model.num_timesteps == fleet.trainings[-1].tasks["CartPole-v1"].n_timesteps > 0


def test_false_stops_within_seconds(fleet):
    """What a callback says takes 3 s and the round that is on its way at most, by the run's own clock."""
    model = drlnb.PPO("MlpPolicy", "CartPole-v1", **SMALL, fleet=fleet)
    model.learn(10**6, lambda locals_, _: locals_["metrics"]["time/total_timesteps"] < 512)
    run = fleet.trainings[-1]
    assert run.status == "stopped"
    rows = Journal.read(run.out).of(words.MetricsRecorded)
    said = next(row.metrics["time/time_elapsed"] for row in rows if row.n_timesteps >= 512)
    longest = max(row.metrics["round/time_s"] for row in rows)
    assert rows[-1].metrics["time/time_elapsed"] - said <= 3.0 + longest
    assert model.num_timesteps == rows[-1].n_timesteps


def test_a_submitted_run_calls_back_in_a_thread(fleet, tmp_path, capsys):
    """`submit` returns at once; the callback hears of rounds and its False stops; one that raises is said in a line."""
    heard = []

    def callback(locals_, globals_):
        heard.append(locals_["metrics"]["time/total_timesteps"])
        return heard[-1] < 512

    model = drlnb.PPO("MlpPolicy", "CartPole-v1", **SMALL, fleet=fleet)
    run = model.submit(10**6, callback, out=tmp_path / "a")
    run.wait(60)
    wait_until(lambda: heard and heard[-1] == model.num_timesteps, "the last round's news")
    assert run.status == "stopped"
    assert sorted(set(heard))[:4] == [128, 256, 384, 512]

    def broken(locals_, globals_):
        raise ZeroDivisionError("mine")

    run = model.submit(10**6, broken, out=tmp_path / "b")
    run.wait(60)
    assert run.status == "stopped"
    told = []
    wait_until(
        lambda: (
            told.append(capsys.readouterr().err)
            or "a callback of CartPole-v1 raised ZeroDivisionError: mine" in "".join(told)
        ),
        "the line",
    )


def lamps():
    """Return a class of environments with keyed observations, a picture among them, and masks; it travels by value."""

    class Lamps(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict({
            "lamp": gymnasium.spaces.Discrete(3),
            "picture": gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "speed": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
        })
        action_space = gymnasium.spaces.Discrete(4)
        _t = 0

        def _seen(self):
            speed = self.np_random.normal(3.0, 2.0, 2).astype(np.float32)
            picture = self.np_random.integers(0, 256, (36, 36, 1), np.uint8)
            return {"lamp": self._t % 3, "picture": picture, "speed": speed}

        def action_masks(self):
            return np.arange(4) != self._t % 4

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self._t = 0
            return self._seen(), {}

        def step(self, action):
            assert action != self._t % 4 or type(self).bears, f"{action} is forbidden at {self._t}"
            self._t += 1
            return self._seen(), float(action), False, self._t == 7, {}

        bears = False

    return Lamps


@pytest.mark.parametrize("name", ["PPO", "DQN"])
def test_keys_masks_and_convolutions_have_the_bits_of_one_process(name, fleet, tmp_path):
    """PPO with masks, and DQN, on observations by key: equal parameters there and here, and the file goes on."""
    kind, env = getattr(drlnb, name), lamps()
    given = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "use_masking": True, "normalize": True}
    if name == "DQN":  # which knows no masks
        env.bears = True
        given = {"learning_starts": 8, "train_freq": 4, "batch_size": 4, "target_update_interval": 8, "buffer_size": 64}
    features = {"features_extractor_kwargs": {"cnn_output_dim": 4}, "net_arch": [8]}
    given |= {"policy_kwargs": features, "n_envs": 2, "n_collectors": 2, "seed": 1, "fleet": fleet}
    there, here = (kind("MultiInputPolicy", env, **given) for _ in range(2))
    there.learn(32)
    here.learn(32, local=True)
    assert np.array_equal(there.parameters, here.parameters)
    check_laws(fleet.trainings[-1].out)
    there.save(tmp_path / "m")
    again = kind.load(tmp_path / "m", trust=True).learn(32, reset_num_timesteps=False, local=True)
    assert again.num_timesteps == 64


def test_submit_returns_at_once_and_resume_goes_on_exactly(fleet, tmp_path):
    """Stopped three times wherever it was, resumed each time: the bits of one process that never stopped."""
    kwargs = {**SMALL, "normalize": True}
    model = drlnb.PPO("MlpPolicy", "Pendulum-v1", **kwargs, fleet=fleet)
    steps = 0
    for how in ("error", "resume", "resume"):
        run = model.submit(10**6, out=tmp_path / "r", on_existing=how)
        with pytest.raises(ConfigError, match="is training this model: wait for it, or stop it"):
            model.learn(128)
        wait_until(lambda run=run, steps=steps: run.tasks["Pendulum-v1"].n_timesteps > steps, "a round")
        run.stop()
        steps = run.wait(60)["Pendulum-v1"].n_timesteps
        assert model.num_timesteps == steps
        assert np.array_equal(run.load().parameters, model.parameters)
        model = drlnb.PPO("MlpPolicy", "Pendulum-v1", **kwargs, fleet=fleet)
    model.submit(steps + 256, out=tmp_path / "r", on_existing="resume").wait(60)
    straight = drlnb.PPO("MlpPolicy", "Pendulum-v1", **kwargs).learn(steps + 256, local=True)
    assert model.num_timesteps == straight.num_timesteps
    assert np.array_equal(model.parameters, straight.parameters)
    check_laws(tmp_path / "r")


def test_episodes_that_a_resume_loses_are_said(fleet, tmp_path):
    """4 environments without snapshots: the metric says 4, and the notice says it in words."""

    class Forgetful(CartPoleEnv, EzPickle):
        """Pickles silently wrong: only constructor arguments travel."""

        def __init__(self, **kwargs):
            EzPickle.__init__(self, **kwargs)
            super().__init__(**kwargs)

    task = drlnb.Task(Forgetful, name="f", n_collectors=2, total_timesteps=10**6, **SMALL)
    run = fleet.train(task, out=tmp_path / "r")
    wait_until(lambda: run.tasks["f"].n_timesteps, "a round")
    run.stop()
    steps = run.wait(60)["f"].n_timesteps
    longer = drlnb.Task(Forgetful, name="f", n_collectors=2, total_timesteps=steps + 256, **SMALL)
    again = fleet.train(longer, out=tmp_path / "r", on_existing="resume")
    again.wait(60)
    assert any("4 episodes lost" in notice for notice in again.notices)
    rows = [row.metrics for row in Journal.read(again.out).of(words.MetricsRecorded)]
    assert [row["resume/episodes_lost"] for row in rows if "resume/episodes_lost" in row] == [4]
    check_laws(again.out)

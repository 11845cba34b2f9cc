"""Action masks: forbidden choices are never taken, count for nothing, and travel with the samples."""

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from drlnb.records.errors import ConfigError, EnvError
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.ppo import PpoLearner
from drlnb.rl.algorithms.registry import check_fit, make_actor, make_learner
from drlnb.rl.algorithms.resolve import resolve
from drlnb.rl.checkpoints.files import pack, unpack
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.envs.make import probe
from drlnb.rl.envs.masks import masked, read_masks
from drlnb.rl.envs.snapshots import restorable
from drlnb.rl.fragments import Fragment
from drlnb.rl.heads import Head
from drlnb.rl.local.train import LocalLoop, train_local
from drlnb.rl.pickled import pack as pickled


class Doors(gymnasium.Env):
    """Opens doors t and t + 1 of 4 (mod 4), or of both rooms; a closed one raises.  Door t + 1 pays 1."""

    observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)

    def __init__(self, rooms: int = 0, by: str = "method", end: int = 6) -> None:
        self.action_space = spaces.MultiDiscrete([4] * rooms) if rooms else spaces.Discrete(4)
        self._rooms, self._by, self._end, self._t = rooms, by, end, 0
        if by == "method":
            self.action_masks = self._open

    def _open(self) -> np.ndarray:
        mask = np.zeros(4, bool)
        mask[[self._t % 4, (self._t + 1) % 4]] = True
        return np.tile(mask, max(self._rooms, 1)) & (self._by != "none left")

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._open().astype(np.int8)} if self._by in ("info", "none left") else {}

    def _obs(self) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[self._t % 4]

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._obs(), self._info()

    def step(self, action: Any) -> Any:
        for taken in np.ravel(action):
            if self._by != "nothing" and (taken - self._t) % 4 > 1:
                raise RuntimeError(f"door {taken} is closed at {self._t}")
        paid = float(np.mean((np.ravel(action) - self._t) % 4 == 1))
        self._t += 1
        return self._obs(), paid, False, self._t == self._end, self._info()


def task(rooms: int = 0, *, by: str = "method", end: int = 6, algo: str = "ppo", **given: Any) -> RlWork:
    """Return a small task that learns with masks."""
    source = {"env": "Doors", "env_factory": pickled(Doors), "env_kwargs": {"rooms": rooms, "by": by, "end": end}}
    top = {"name": "a", "seed": 5, "n_envs": 2, "total_timesteps": 400, "n_collectors": 1, "algo": algo}
    top |= {key: given.pop(key) for key in list(given) if key in top}
    hyper = {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}, "use_masking": True}
    action = [spaces.Discrete(4), spaces.MultiDiscrete([4] * max(rooms, 1))][rooms > 0]
    from drlnb.rl.envs.make import describe

    told = {"observation_space": describe(Doors.observation_space), "action_space": describe(action)}
    return RlWork(hyperparameters=hyper | given, **source, **top, **told)


# ---------------------------------------------------------------------------------------------------- masks


def test_a_forbidden_choice_has_probability_zero():
    """Exactly 0, and what is left sums to 1; the entropy of two equal choices is ln 2."""
    head = Head("discrete", 4)
    outputs = masked(np.zeros((1, 4), np.float32), np.array([[True, False, True, False]]))
    probs = np.exp(head.log_prob(np.repeat(outputs, 4, 0), np.arange(4)))
    assert probs.tolist() == [0.5, 0.0, 0.5, 0.0]
    from drlnb.rl.algorithms.ppo import evaluate

    log_p, entropy = evaluate(head, torch.from_numpy(outputs), torch.tensor([2]))
    assert entropy.item() == pytest.approx(np.log(2.0), rel=1e-6)
    assert log_p.item() == pytest.approx(-np.log(2.0), rel=1e-6)


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ([1, 0, 1], "must hold 4 truth values, got 3"),
        ([1, 0, 2, 0], "must hold truth values, got"),
        ([0, 0, 0, 0], "the action mask allows no action$"),
    ],
)
def test_wrong_masks_are_told(told, wrong):
    """Length, values, and a state without any action."""
    with pytest.raises(ValueError, match=wrong):
        read_masks(told, Head("discrete", 4))


def test_several_decisions_have_their_masks_side_by_side_or_apart():
    """Both forms of sb3-contrib's and gymnasium's masks give the same; a decision without a choice is named."""
    head = Head("multidiscrete", 5, (2, 3))
    assert read_masks([1, 0, 0, 1, 1], head).tolist() == [True, False, False, True, True]
    apart = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    assert read_masks(apart, head).tolist() == [True, False, False, True, True]
    with pytest.raises(ValueError, match="the action mask allows no action for decision 1"):
        read_masks([1, 1, 0, 0, 0], head)


# ---------------------------------------------------------------------------------------------------- collecting


@pytest.mark.parametrize("by", ["method", "info"])
@pytest.mark.parametrize("rooms", [0, 2])
def test_collectors_take_allowed_actions_and_send_the_masks(rooms, by):
    """Closed doors would raise; each sample's mask is the one of its own observation, also after a reset."""
    spec = task(rooms, by=by)
    found = Collector(spec, env_indices=[0, 1]).collect(make_learner(spec).published(), version=0, round=0, n_steps=16)
    mask = found.arrays["action_mask"]
    assert (mask.dtype, mask.shape) == (np.bool_, (16, 2, 4 * max(rooms, 1)))
    shown = found.arrays["obs"].argmax(axis=-1)
    expected = np.zeros((16, 2, 4), bool)
    for door in (0, 1):
        np.put_along_axis(expected, ((shown + door) % 4)[..., None], True, axis=-1)
    assert np.array_equal(mask, np.tile(expected, max(rooms, 1)))
    assert (found.arrays["log_prob"] > -5.0).all()


def test_masks_travel_packed():
    """A fragment's masks are the same after the journey."""
    spec = task()
    found = Collector(spec, env_indices=[1]).collect(make_learner(spec).published(), version=0, round=0, n_steps=5)
    again = Fragment.unpack(*found.pack())
    assert np.array_equal(again.arrays["action_mask"], found.arrays["action_mask"])


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("nothing", "gives no action mask: use_masking needs a method action_masks"),
        ("none left", "the action mask allows no action"),
    ],
)
def test_an_environment_without_masks_is_told(by, told):
    """By the collector's first reset, and by the probe where the task is known."""
    spec = task(by=by)
    with pytest.raises(EnvError, match=f"Doors, environment 0, reset: {told}"):
        Collector(spec, env_indices=[0])
    with pytest.raises(EnvError, match=f"Doors, reset: {told}"):
        probe(spec)


def test_the_probe_and_the_snapshots_trial_take_allowed_actions():
    """An environment that raises at a forbidden action passes both, whoever asks."""
    for by in ("method", "info"):
        source = {"env": "Doors", "env_factory": pickled(Doors), "env_kwargs": {"rooms": 2, "by": by}}
        assert probe(source)["action_space"]["kind"] == "multidiscrete"
        assert restorable(source)


# ---------------------------------------------------------------------------------------------------- learning


def rollout(spec: RlWork, learner: PpoLearner) -> Fragment:
    """Return one round of all environments."""
    return Collector(spec, env_indices=range(spec.n_envs)).collect(learner.published(), version=0, round=0, n_steps=8)


@pytest.mark.parametrize("rooms", [0, 2])
@pytest.mark.parametrize("by_hand", [True, False])
def test_the_first_ratio_is_one_and_entropy_counts_what_is_allowed(rooms, by_hand):
    """What acted is what learns; two open doors of four give at most ln 2 nats per decision."""
    spec = task(rooms, n_epochs=1, ent_coef=0.1)
    learner = PpoLearner(spec, by_hand=by_hand)
    learner.begin(0, 16)
    learner.stage(0, rollout(spec, learner))
    metrics = learner.finish()
    assert abs(metrics["train/approx_kl"]) < 1e-6
    n = max(rooms, 1)
    assert n * 0.68 < metrics["train/entropy"] <= n * np.log(2.0) + 1e-6  # near uniform at the start: gain .01


@pytest.mark.parametrize("epochs", [1, 3])
def test_gradients_by_hand_equal_autograds(epochs):
    """With masks and an entropy bonus, streamed and in epochs: equal parameters to 1e-6."""
    spec = task(n_epochs=epochs, ent_coef=0.05, learning_rate=0.01)
    flats = []
    for by_hand in (True, False):
        learner = PpoLearner(spec, by_hand=by_hand)
        learner.begin(0, 16)
        learner.stage(0, rollout(spec, learner))
        learner.finish()
        flats.append(learner.adam.flat.clone())
    torch.testing.assert_close(flats[0], flats[1], rtol=0, atol=1e-6)


def test_no_gradient_reaches_a_forbidden_output():
    """Door 3 is closed in every sample (episodes of 2 steps): its row of the policy head stays as it was."""
    spec = task(end=2, ent_coef=0.1)
    learner = PpoLearner(spec)
    entry = learner.layout["action.weight"]
    before = learner.adam.flat[entry.start : entry.stop].clone().view(entry.shape)
    learner.begin(0, 16)
    learner.stage(0, rollout(spec, learner))
    learner.finish()
    after = learner.adam.flat[entry.start : entry.stop].view(entry.shape)
    assert torch.equal(after[3], before[3])
    assert not torch.equal(after[1], before[1])


def test_split_and_resume_change_nothing():
    """Masks are part of where an environment stands: two collectors, and a stop (by files), give the same bits."""
    spec = task(by="info", total_timesteps=64)
    whole = train_local(spec).parameters
    assert train_local(RlWork.from_plain({**spec.to_plain(), "n_collectors": 2})).parameters.tobytes() == (
        whole.tobytes()
    )
    first = LocalLoop(spec)
    first.round()
    facts, files = pack(spec, first.trained())
    second = LocalLoop(spec, unpack(json.loads(json.dumps(facts)), files, "here", spec)[1])
    while second.n_timesteps < 64:
        second.round()
    first.close()
    second.close()
    assert second.parameters.tobytes() == whole.tobytes()


def test_a_state_without_masks_begins_new_episodes_with_them():
    """A model that learnt without masks goes on with them: those of its environments were never read."""
    before, after = (Collector(task(by="info", use_masking=on), env_indices=[0, 1]) for on in (False, True))
    before.envs[0].step(0)
    assert after.restore(before.state()) == 2
    assert after.state()["envs"]["0"]["mask"] == bytes([1, 1, 0, 0])


def test_the_paying_door_is_learnt():
    """Evaluation, with masks, finds door t + 1 in (nearly) each of the 6 steps; chance is 3."""
    spec = task(n_envs=4, n_steps=16, batch_size=64, n_epochs=8, learning_rate=0.01, gae_lambda=0.0,
                total_timesteps=512)  # fmt: skip
    assert evaluate_parameters(spec, train_local(spec).parameters, n_episodes=8).mean > 5.5


# ---------------------------------------------------------------------------------------------------- acting


def test_predict_obeys_masks():
    """One mask or one per observation; samples and the most likely action alike."""
    spec = task()
    actor = make_actor(spec)
    actor.load(make_learner(spec).published())
    obs = np.eye(4, dtype=np.float32)[np.zeros(200, int)]
    only = np.tile([False, False, True, False], (200, 1))
    assert set(actor.predict(obs, action_masks=only)[0].tolist()) == {2}
    assert actor.predict(obs[0], deterministic=True, action_masks=[0, 1, 0, 0])[0] == 1
    assert len(set(actor.predict(obs)[0].tolist())) == 4
    with pytest.raises(ValueError, match="action_masks must hold 200 masks, one per observation, got 3"):
        actor.predict(obs, action_masks=only[:3])
    with pytest.raises(ValueError, match="must hold 4 truth values, got 2"):
        actor.predict(obs[0], action_masks=[1, 0])


def test_masks_where_they_have_no_place_are_refused():
    """Boxes, other algorithms, and a policy that never saw a mask: one line each."""
    box = RlWork.from_plain({**task().to_plain(), "action_space": {
        "kind": "box", "shape": [1], "dtype": "float32", "low": [-1.0], "high": [1.0]}})  # fmt: skip
    with pytest.raises(ConfigError, match="use_masking needs discrete or multidiscrete actions, Doors takes box ones"):
        check_fit(box)
    for algo in ("gpf", "dqn"):
        with pytest.raises(ConfigError, match="'use_masking' is not supported: only ppo learns with action masks"):
            resolve("", algo, overrides={"use_masking": True, **({"reward_scale": 1} if algo == "gpf" else {})})
    plain = task(use_masking=False)
    actor = make_actor(plain)
    actor.load(make_learner(plain).published())
    with pytest.raises(ValueError, match="for a policy that was trained with use_masking=True"):
        actor.predict(np.zeros(4), action_masks=[1, 1, 1, 1])

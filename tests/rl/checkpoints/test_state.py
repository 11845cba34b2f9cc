"""What is saved comes back with the same bits, under names; what goes on, goes on exactly."""

import random
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load

from drlnb.records.errors import CheckpointError, LayoutMismatch
from drlnb.records.spec import ALGORITHMS
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.checkpoints.files import MODEL, NORMALISER, OPTIMIZER, check_layout, describe_layout, from_files, to_files
from drlnb.rl.checkpoints.trained import State
from drlnb.rl.local.train import LocalLoop

DQN = {"algo": "dqn", "learning_starts": 40, "batch_size": 8, "buffer_size": 400, "train_freq": 8, "gradient_steps": 4,
       "target_update_interval": 30}  # fmt: skip
PPO = {"n_steps": 8, "batch_size": 16, "n_epochs": 2}
#: Tasks whose every kind of state matters: normalisers, a target network, a ring, schedules, a Gaussian.
TASKS = {
    "ppo": ("CartPole-v1", {**PPO, "learning_rate": "lin_0.001"}),
    "ppo-normalised-box": ("Pendulum-v1", {**PPO, "normalize": True}),
    "ppo-normalised": ("MountainCar-v0", {**PPO, "normalize": True}),
    "dqn": ("CartPole-v1", DQN),
    "gpf": ("CartPole-v1", {**PPO, "algo": "gpf", "reward_scale": 0.1}),
}


@pytest.fixture
def task(request, make_task):
    return make_task(*TASKS[request.param])


@pytest.fixture(scope="session")
def make_task(make_spec):
    """Build a task of any algorithm; skip one that this version does not have."""

    def make(env, given, **top):
        hyper = dict(given)
        algo = hyper.pop("algo", "ppo")
        if algo not in ALGORITHMS:
            pytest.skip(f"{algo} is not there yet")
        spec = make_spec(env, total_timesteps=4000, **top)
        return replace(spec, algo=algo, hyperparameters={**hyper, "policy_kwargs": {"net_arch": [8, 8]}})

    return make


def _state(spec, n_rounds=2):
    loop = LocalLoop(spec)
    try:
        for _ in range(n_rounds):
            loop.round()
        return loop.trained().state
    finally:
        loop.close()


def _layout(spec):
    return make_learner(spec).layout


@pytest.mark.parametrize("task", TASKS, indirect=True)
def test_a_state_comes_back_bit_for_bit(task):
    """What actors and what the learner need are the same bytes after a way through named tensors."""
    layout, state = _layout(task), _state(task, 3)
    files = to_files(layout, state)
    assert all(name.endswith(".safetensors") for name in files)
    found = from_files(layout, files, state.facts, "")
    assert found.published.tobytes() == state.published.tobytes()
    assert found.buffer.tobytes() == state.buffer.tobytes()


def test_tensors_have_names_and_shapes(make_task):
    """A CartPole policy of [8, 8] is found by the names that a person expects, optimiser and statistics beside it."""
    spec = make_task("CartPole-v1", {**PPO, "normalize": True})
    files = to_files(_layout(spec), _state(spec))
    model = load(files[MODEL])
    shapes = {name: tensor.shape for name, tensor in model.items()}
    towers = {f"{t}.{n}.{p}": s for t in ("pi", "vf") for n, p, s in
              ((0, "weight", (8, 4)), (0, "bias", (8,)), (1, "weight", (8, 8)), (1, "bias", (8,)))}  # fmt: skip
    heads = {"action.weight": (2, 8), "action.bias": (2,), "value.weight": (1, 8), "value.bias": (1,)}
    assert shapes == towers | heads
    assert set(load(files[OPTIMIZER])) == {f"{row}/{name}" for row in ("exp_avg", "exp_avg_sq") for name in shapes}
    statistics = load(files[NORMALISER])
    assert statistics["obs/mean"].shape == (4,)
    assert statistics["obs/n"] == pytest.approx(64 + 1e-4)  # 2 rounds of 8 steps in 4 environments


def test_a_policy_alone_can_be_saved(make_task):
    """Without the learner's buffer there is no optimiser's file, and what actors need comes back."""
    spec = make_task("CartPole-v1", PPO)
    state = State(published=_state(spec).published, facts={}, buffer=np.zeros(0, np.uint8))
    files = to_files(_layout(spec), state)
    assert set(files) == {MODEL, NORMALISER}
    assert from_files(_layout(spec), files, {}, "").published.tobytes() == state.published.tobytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy_kwargs": {"net_arch": [9, 8]}}, r"m: it holds pi.0.weight of shape \(8, 4\), this task needs pi.0"),
        ({"policy_kwargs": {"net_arch": [8]}}, r"it holds pi.1.weight of shape \(8, 8\), this task needs action"),
        ({"policy_kwargs": {"net_arch": [8, 8], "activation_fn": "relu"}}, "it holds activation = tanh"),
        ({"normalize": True}, "it holds norm_obs = False, this task needs norm_obs = True"),
    ],
)
def test_another_network_is_refused_by_its_first_difference(make_spec, given, said):
    """The message names the first entry that differs, as it is there and as it is needed here."""
    saved = describe_layout(_layout(make_spec()))
    with pytest.raises(LayoutMismatch, match=said):
        check_layout(saved, _layout(make_spec(**given)), "m")
    check_layout(saved, _layout(make_spec()), "m")


def test_damage_is_told(make_task):
    """A cut file, a missing file and a tensor of another shape are one clear error each."""
    spec = make_task("CartPole-v1", PPO)
    layout, state = _layout(spec), _state(spec)
    files = to_files(layout, state)
    for damaged, said in (
        ({**files, MODEL: files[MODEL][:-7]}, "here: damaged"),
        ({OPTIMIZER: files[OPTIMIZER], NORMALISER: files[NORMALISER]}, r"here: model.safetensors is missing"),
        ({**files, MODEL: files[NORMALISER]}, "here: pi.0.weight is missing"),
        ({**files, OPTIMIZER: files[MODEL]}, "here: exp_avg/pi.0.weight is missing"),
    ):
        with pytest.raises(CheckpointError, match=said):
            from_files(layout, damaged, state.facts, "here")


def _timeless(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith(("time/time", "time/fps", "round/"))}


@pytest.mark.thorough
@pytest.mark.parametrize("task", TASKS, indirect=True)
def test_going_on_is_as_if_it_had_never_stopped(task):
    """Stopped 3 times anywhere, saved, loaded, gone on with another split: same metrics and parameters, bitwise."""
    stops = random.sample(range(1, 6), 3)  # the seed is the test run's, printed at its top
    layout = _layout(task)
    whole = LocalLoop(task)
    history = [_timeless(whole.round()) for _ in range(6)]
    loop, found = LocalLoop(task), []
    for number in range(1, 7):
        found.append(_timeless(loop.round()))
        if number in stops:
            trained = loop.trained()
            loop.close()
            files = to_files(layout, trained.state)
            state = from_files(layout, files, trained.state.facts, "")
            loop = LocalLoop(replace(task, n_collectors=1 + number % 2), replace(trained, state=state))
    np.testing.assert_equal(found, history)
    assert loop.parameters.tobytes() == whole.parameters.tobytes()
    assert loop.trained().state.buffer.tobytes() == whole.trained().state.buffer.tobytes()
    assert loop.episodes_lost == 0
    loop.close()
    whole.close()


def test_environments_that_forget_are_counted(make_task):
    """An environment that pickles silently wrong loses its 4 episodes, says so, and training goes on."""
    spec = make_task("rl/Forgetful-v0", PPO)
    loop = LocalLoop(spec)
    loop.round()
    again = LocalLoop(spec, loop.trained())
    assert again.episodes_lost == 4
    assert again.round()["time/iterations"] == 2
    assert again.n_timesteps == 64

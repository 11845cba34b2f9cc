"""A checkpoint that is damaged in any way is one clear error that names the place; a new budget keeps what it must."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from drlnb.records.errors import CheckpointError, LayoutMismatch
from drlnb.rl.checkpoints.files import MODEL, NORMALISER, OPTIMIZER, pack, unpack
from drlnb.rl.checkpoints.trained import anew, joined
from drlnb.rl.local.train import LocalLoop


@pytest.fixture(scope="module")
def saved(make_dqn_spec):
    """Make a DQN's checkpoint, which has every kind of file."""
    spec = make_dqn_spec(learning_starts=8, train_freq=8)
    loop = LocalLoop(spec)
    loop.round()
    facts, blobs = pack(spec, loop.trained())
    loop.close()
    return spec, json.loads(json.dumps(facts)), blobs


FILES = (MODEL, OPTIMIZER, NORMALISER, "envs.safetensors", "replay.safetensors")
FACTS = ("spec", "layout", "learner", "n_rounds", "n_timesteps", "elapsed_s", "episodes")


def refused(facts, blobs, spec=None):
    with pytest.raises(CheckpointError) as caught:
        unpack(facts, blobs, "here", spec)
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__cause__ is None, "the message is all that a user needs"
    return text


def test_every_file_is_there(saved):
    """Model, optimiser with a target network, statistics, environments and the ring."""
    _, facts, blobs = saved
    assert set(blobs) == set(FILES)
    assert {name.partition("/")[0] for name in load(blobs[OPTIMIZER])} == {"exp_avg", "exp_avg_sq", "target"}
    assert set(facts) == {*FACTS, "envs", "replay"}


@pytest.mark.parametrize("name", [MODEL, NORMALISER, "envs.safetensors", "replay.safetensors"])
def test_a_file_that_is_missing_is_named(saved, name):
    """An optimiser alone may be missing: then only acting is possible."""
    _, facts, blobs = saved
    assert refused(facts, {key: blob for key, blob in blobs.items() if key != name}) == f"here: {name} is missing"


def test_without_the_optimiser_only_acting_is_possible(saved):
    """The published bytes are the same, the learner's buffer is empty."""
    spec, facts, blobs = saved
    _, whole = unpack(facts, blobs, "here")
    found, policy = unpack(facts, {key: blob for key, blob in blobs.items() if key != OPTIMIZER}, "here")
    assert found == spec
    assert policy.state.buffer.size == 0
    assert policy.state.published.tobytes() == whole.state.published.tobytes()


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_that_is_missing_is_named(saved, name):
    """Each key of the plain data is needed."""
    _, facts, blobs = saved
    assert refused({key: value for key, value in facts.items() if key != name}, blobs) == f"here: {name} is missing"


@pytest.mark.parametrize(
    ("name", "value"), [("n_rounds", "many"), ("elapsed_s", [1]), ("episodes", [[1.0]]), ("episodes", 5)]
)
def test_a_fact_of_another_kind_is_refused(saved, name, value):
    """Text for a number and lists of another length are one line."""
    _, facts, blobs = saved
    assert refused({**facts, name: value}, blobs).startswith("here: cannot be read by this version (")


def test_a_spec_of_a_later_version_is_refused(saved):
    """Its unknown fields are named."""
    _, facts, blobs = saved
    later = {**facts, "spec": {**facts["spec"], "colour": 1}}
    assert refused(later, blobs) == "here: cannot be read by this version (task spec has unknown fields: colour)"


def test_a_task_of_another_algorithm_or_network_does_not_go_on(saved, make_spec, make_dqn_spec):
    """Both algorithms are named; of networks the first entry that differs."""
    _, facts, blobs = saved
    assert refused(facts, blobs, make_spec()) == "here: it was trained by dqn, this task is ppo"
    wider = make_dqn_spec(policy_kwargs={"net_arch": [9, 8]})
    with pytest.raises(LayoutMismatch, match=r"here: it holds q.0.weight of shape \(8, 4\), this task needs q.0"):
        unpack(facts, blobs, "here", wider)


@given(st.data())
def test_any_tensor_that_is_missing_or_of_another_form_is_named(saved, data):
    """Whichever tensor of model and optimiser is lost, cut or of doubles: the message has its name."""
    _, facts, blobs = saved
    file = data.draw(st.sampled_from([MODEL, OPTIMIZER]))
    tensors = load(blobs[file])
    name = data.draw(st.sampled_from(sorted(tensors)))
    broken = data.draw(st.sampled_from([None, tensors[name].astype(np.float64), tensors[name].ravel()[1:]]))
    others = {key: tensor for key, tensor in tensors.items() if key != name}
    text = refused(facts, {**blobs, file: save(others if broken is None else {**others, name: broken})})
    if broken is None:
        assert text == f"here: {name} is missing"
    else:
        said = f"{name} is {broken.dtype} {broken.shape}, not float32 {tensors[name].shape}"
        assert text == f"here: damaged ({said})"


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0, 7, 0.5, -1])
def test_a_file_that_is_cut_anywhere_is_told(saved, name, keep):
    """An interrupted copy is found, however much of it arrived."""
    _, facts, blobs = saved
    end = int(keep * len(blobs[name])) if 0 < keep < 1 else keep
    assert refused(facts, {**blobs, name: blobs[name][:end]}).startswith("here: ")


def test_a_new_budget_begins_new_episodes_and_keeps_what_was_learnt(saved):
    """Counters and environments begin again; parameters, moments and the ring stay, its ages too."""
    spec, facts, blobs = saved
    _, ended = unpack(facts, blobs, "here")
    begun = anew(ended, spec.n_envs)
    assert (begun.n_timesteps, begun.elapsed_s, begun.episodes, begun.n_rounds) == (0, 0.0, (), ended.n_rounds)
    assert begun.state.facts == {**ended.state.facts, "n_timesteps": 0}
    assert begun.state.buffer is ended.state.buffer
    assert (ended.replay.arrays["made"] - begun.replay.arrays["made"] == ended.n_timesteps // spec.n_envs).all()
    assert begun.replay.header["target_step"] == 0
    assert ended.replay.header["target_step"] > 0, "what was given is not changed"
    assert set(begun.envs["envs"]) == {"0", "1"}
    loop = LocalLoop(spec, replace(begun, state=begun.state))
    assert (loop.episodes_lost, loop.n_timesteps) == (0, 0)
    loop.close()


def test_states_of_collectors_join_whatever_their_rounds():
    """The latest round counts, and each environment is there once."""
    parts = [{"round": 3, "envs": {"0": "a"}}, {"round": 4, "envs": {"2": "b"}}]
    assert joined(parts) == joined(parts[::-1]) == {"round": 4, "envs": {"0": "a", "2": "b"}}

"""The child that holds a replay ring: its frames in this process, against the ring itself."""

import pytest

import drlnb
from drlnb.rl.algorithms.registry import make_replay
from drlnb.rl.fragments import Fragment
from drlnb.runtime.children import replay
from drlnb.runtime.ipc.step_count import StepCount

NOTHING = memoryview(b"")


@pytest.fixture
def frames(monkeypatch):
    """Return its frames; this process keeps its own title."""
    monkeypatch.setattr(replay, "become", lambda title: None)
    return replay.ReplayChild().frames


def configured(frames, spec, ring=None, payload=NOTHING):
    with StepCount.shared() as (count, path):
        header, _ = frames["configure"]({"steps": path, "spec": spec.to_plain(), "ring": ring}, payload)
        count.close()
    return header["event"]


def test_a_task_without_a_ring_is_refused(frames):
    """By its name and its algorithm."""
    with pytest.raises(ValueError, match=r"CartPole-v1.*: ppo has no replay ring"):
        configured(frames, drlnb.PPO("MlpPolicy", "CartPole-v1").spec)


def test_a_new_ring_is_empty_and_its_state_is_restored(frames):
    """What it says of itself makes another one like it."""
    spec = drlnb.DQN("MlpPolicy", "CartPole-v1", buffer_size=64, learning_starts=8).spec
    assert configured(frames, spec) == {"n_transitions": 0, "n_bytes_lost": 0}
    header, (buffer,) = frames["state"]({"since": 0}, NOTHING)
    assert configured(frames, spec, header["ring"], memoryview(buffer)) == {"n_transitions": 0, "n_bytes_lost": 0}
    own = make_replay(spec)
    own.restore(Fragment.unpack(header["ring"], memoryview(buffer)))
    assert own.ring.size == 0

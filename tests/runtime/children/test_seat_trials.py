"""An executor child records rounds and tries them again, without a trace in what its tasks learn."""

import copy

import numpy as np
import pytest

from drlnb.records.ids import Fence
from drlnb.rl.algorithms.registry import make_learner
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.children.seat_trials import Trials
from drlnb.runtime.ipc.frames import plain
from tests.fleet.conftest import small_task
from tests.runtime.learning import FENCE, Channel, LearningChild


@pytest.fixture
def child():
    made = LearningChild()
    yield made
    for collector in made.collectors:
        collector.close()


def _record(child, on=True):
    return child.child.answer({"op": "record", "on": on}, memoryview(b""))[0]


def test_nothing_is_recorded_unless_asked_for(child):
    """A round costs no copy as long as nobody wants it."""
    child.round()
    assert _record(child)["tasks"] == []
    child.round()
    assert _record(child)["tasks"] == ["r/a"]
    assert _record(child, on=False)["tasks"] == []


def test_half_a_round_is_no_round(child):
    """What is staged and not finished is not offered."""
    _record(child)
    child.stage(1)
    assert _record(child)["tasks"] == []
    assert child.ask("trial-export")[0]["trials"] == []


@pytest.mark.thorough
def test_a_trial_changes_nothing_that_its_task_learns(child):
    """The task's state before and after a trial is the same, bitwise, and so is its next round beside one without."""
    _record(child)
    child.round()
    meta, before = copy.deepcopy(child.learner.state())
    exported, payload = child.ask("trial-export")
    (row,) = exported["trials"]
    assert (row["task"], row["round"], len(row["fragments"])) == ("r/a", 1, 2)
    assert row["n_bytes"] == len(payload)
    assert child.ask("trial-load", payload, trials=exported["trials"])[0]["op"] == "loaded"
    tried, _ = child.ask("trial-run", measure_s=0.02, first=0, n_least=2)
    assert len(tried["times"]["r/a"]) >= 2
    assert tried["elapsed_s"] >= sum(tried["times"]["r/a"])
    after_meta, after = child.learner.state()
    assert np.array_equal(before, after)
    assert plain(meta) == plain(after_meta)
    assert child.ask("trial-end")[0]["op"] == "ended"
    with pytest.raises(RuntimeError, match="no trial was loaded"):
        child.ask("trial-run", measure_s=0.02, first=0, n_least=1)
    # The next round is that of a learner that never saw a trial.
    other = make_learner(child.spec)
    other.restore(meta, before)
    child.stage(2)
    collected = child.child.trials._open["r/a"]
    other.begin(2, 64)
    from drlnb.rl.fragments import Fragment

    for collector, header, data in collected.fragments:
        other.stage(collector, Fragment.unpack(header, memoryview(data)))
    other.finish()
    child.ask("finish", round=2)
    assert np.array_equal(other.published(), child.learner.published())


def test_another_executor_computes_the_same_round(child):
    """What one executor exports, an executor that never saw the task can try."""
    _record(child)
    child.round()
    exported, payload = child.ask("trial-export")
    other = ExecutorChild(Channel(), Device("cpu"))
    header = {"op": "trial-load", "fence": FENCE, "trials": plain(exported["trials"])}
    other.answer(header, memoryview(payload))
    answer, _ = other.answer(
        {"op": "trial-run", "fence": FENCE, "measure_s": 0.0, "first": 3, "n_least": 1}, memoryview(b"")
    )
    assert list(answer["times"]) == ["r/a"]


def test_a_trial_under_a_stale_fence_is_refused(child):
    """A probe that lost its lease computes nothing more."""
    answer, _ = child.ask("trial-run", fence=Fence(1, 4), measure_s=1.0, first=0, n_least=1)
    assert answer["op"] == "refused"


def test_a_batch_from_a_replay_ring_is_a_whole_round():
    """Off-policy rounds are one batch without environments' numbers; a second one would be too many."""
    trials = Trials(Device("cpu"), None, {})
    trials.record(on=True)
    header = {"task": "d", "round": 4, "collector": 0, "after_timesteps": 8, "settings": {}, "n_state": 2}
    trials.staged({**header, "fragment": {"n_samples": 3}}, memoryview(b"..abc"))
    spec = small_task()
    trials.finished("d", spec)
    assert trials.record(on=True)["tasks"] == ["d"]
    assert trials._whole["d"].fragments[0][2] == b"abc"

"""Whose models stay on a slot between leases, and what ends an update before its end."""

from drlnb.records.ids import Fence
from drlnb.runtime.children.device import MEMORY_FRAC, Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.children.model_cache import Model, Residency
from tests.runtime.learning import FENCE, Channel, LearningChild


def sized(models, task, n_state, budget_bytes):
    models[task].sized(n_state)
    return models.shrink(budget_bytes, task)


def test_the_longest_unused_models_make_room():
    """300 bytes of state are 400 of model; within 1,000 bytes two of them stay, and whoever was used last is one."""
    models = Residency()
    for task in "ab":
        models.put(task, Model(None))
        assert sized(models, task, 300, 1000) == ()
    assert models.use("a") is not None
    models.put("c", Model(None))
    assert sized(models, "c", 300, 1000) == ("b",)
    assert "a" in models
    assert models.use("b") is None
    assert models.n_bytes == 800
    assert sized(models, "c", 700, 1000) == ("a",)


def test_the_model_in_use_stays_however_large():
    """A budget cannot refuse the one task that computes."""
    models = Residency()
    models.put("a", Model(None))
    assert sized(models, "a", 300, 10) == ()
    assert "a" in models
    assert models.drop("a")
    assert not models.drop("a")


def test_a_task_that_was_dropped_brings_its_state_and_learns_the_same(child):
    """The other task's model takes the room; then the state comes with the first batch, and nothing has changed."""
    meta, state = child.learner.state()
    frames = child.frames(2)
    child.child.device.total_bytes = 1.5 * child.child.models.n_bytes / MEMORY_FRAC
    answer, _ = child.child.answer(
        {"op": "initialise", "task": "r/b", "fence": FENCE, "spec": child.spec.to_plain()}, memoryview(b"")
    )
    assert answer["op"] == "made"
    assert "r/a" not in child.child.models
    first, data = frames[0]
    assert child.ask("stage", data, **first)[0]["op"] == "need-state"
    again = {**first, "n_state": len(state), "state": meta, "spec": child.spec.to_plain()}
    assert child.ask("stage", state.tobytes() + data, **again)[0]["op"] == "staged"
    assert child.ask("stage", frames[1][1], **frames[1][0])[0]["op"] == "staged"
    assert "r/b" not in child.child.models
    answer, made = child.ask("finish", round=2)

    other = LearningChild()
    other.child = ExecutorChild(Channel(), Device("cpu"))
    assert other.ask("stage", state.tobytes() + data, **again)[0]["op"] == "staged"
    assert other.ask("stage", frames[1][1], **frames[1][0])[0]["op"] == "staged"
    assert other.ask("finish", round=2)[1] == made
    for collector in other.collectors:
        collector.close()


class _Waiting(Channel):
    """A channel in which frames wait for who looks."""

    def __init__(self, *frames):
        super().__init__()
        self.frames = list(frames)

    @property
    def waiting(self):
        return bool(self.frames)

    def receive(self):
        return self.frames.pop(0), memoryview(b"")


def test_a_lease_that_is_taken_away_ends_its_update_at_the_next_minibatch(child):
    """The update is undone, the process and the other tasks' models live, and the round can be computed again."""
    _, before = child.learner.state()
    child.stage(2)
    child.child.channel = _Waiting({"op": "revoked", "fence": FENCE})
    answer, made = child.ask("finish", round=2)
    assert answer == {"op": "refused", "reason": "the lease was taken away while the round was computed"}
    assert made == b""
    assert child.learner.state()[1].tobytes() == before.tobytes()
    fence = Fence(FENCE.epoch, FENCE.token + 1)
    for header, data in child.frames(2):
        assert child.ask("stage", data, fence=fence, **header)[0]["op"] == "staged"
    child.child.channel = _Waiting({"op": "revoked", "fence": FENCE})  # said once more, too late
    assert child.ask("finish", round=2, fence=fence)[0]["op"] == "made"

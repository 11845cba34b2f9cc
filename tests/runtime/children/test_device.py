"""What an executor does when its device breaks, and when memory runs out there; a CPU stands in for the device."""

import gc

import pytest
import torch

from drlnb.records.ids import Fence
from drlnb.rl.algorithms.registry import make_learner
from drlnb.runtime.children.device import MEMORY_FRAC, Device
from drlnb.runtime.ipc.pickling import pack_call, unpack_error
from tests.runtime.learning import FENCE, LearningChild

ASSERTED = "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` to enable it."
FULL = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.50 GiB is "
    "free. Including non-PyTorch memory, this process has 60.00 GiB memory in use. See documentation."
)


#: The device of the test that runs: functions reach it by name.
_PLAYED = []


class PlayedCuda:
    """What torch says of a device: how much of it is used, and whether a kernel has failed."""

    def __init__(self, monkeypatch):
        self.failed = False
        self.n_freed = self.n_resets = 0
        self.most = self.now = self.reserved = 0
        played = {
            "is_initialized": lambda: True,
            "synchronize": self._synchronise,
            "empty_cache": self._free,
            "get_rng_state": self._synchronise,
            "max_memory_allocated": lambda: self.most,
            "memory_allocated": lambda: self.now,
            "memory_reserved": lambda: self.reserved,
            "reset_peak_memory_stats": self._reset,
        }
        for name, function in played.items():
            monkeypatch.setattr(torch.cuda, name, function)

    def _synchronise(self):
        if self.failed:
            raise RuntimeError(ASSERTED)

    def _free(self):
        self._synchronise()
        self.n_freed += 1

    def _reset(self):
        self.n_resets += 1


@pytest.fixture
def cuda(child, monkeypatch):
    """Have an executor that learns take its CPU for a CUDA device."""
    child.child.device.name = "cuda"
    monkeypatch.setattr("drlnb.runtime.children.executor.make_learner", lambda spec, device: make_learner(spec))
    _PLAYED.append(PlayedCuda(monkeypatch))
    yield _PLAYED[-1]
    _PLAYED.clear()


def run(child, fn):
    header = {"op": "job", "fence": FENCE, "slot": "0/gpu0", "name": "a", "rank": 0, "n_slots": 1}
    return child.child.answer(header, memoryview(pack_call(fn, (), {})))


def _fails_at_once():
    _PLAYED[-1].failed = True
    raise RuntimeError(ASSERTED)


def _fails_later():
    _PLAYED[-1].failed = True


@pytest.mark.parametrize("wrong", [_fails_at_once, _fails_later])
def test_a_function_that_breaks_the_device_gets_its_error_and_is_the_last_of_its_process(child, cuda, wrong):
    """The error of a kernel comes late, and stays: it belongs to the function, and no other task may meet it."""
    answer, (data,) = run(child, wrong)
    assert not answer["ok"]
    assert "device-side assert" in str(unpack_error(data))
    with pytest.raises(SystemExit, match=r"^the device must be opened anew: CUDA error: device-side assert triggered$"):
        child.child.receive()


def test_a_function_that_fails_on_a_sound_device_ends_nothing(child, cuda):
    """Its holder goes on, and so does the process."""
    answer, _ = run(child, lambda: 1 / 0)
    assert not answer["ok"]
    child.child._later.append(({"op": "own"}, memoryview(b"")))
    assert child.child.receive()[0] == {"op": "own"}
    assert run(child, lambda: 1)[0]["ok"]


def test_a_round_on_a_broken_device_is_not_answered(child, cuda, monkeypatch):
    """The process ends instead, so the agent reports its death and another one computes the round."""
    child.stage(child.version)

    def fails(notify):
        raise RuntimeError(ASSERTED)

    monkeypatch.setattr(child.learner, "finish", fails)
    with pytest.raises(RuntimeError):  # a fault of the task: its master hears of it
        child.ask("finish", round=child.version)
    cuda.failed = True
    with pytest.raises(SystemExit, match="the device must be opened anew"):
        child.ask("finish", round=child.version)


def initialise(child, task):
    header = {"op": "initialise", "task": task, "fence": FENCE, "spec": child.spec.to_plain()}
    return child.child.answer(header, memoryview(b""))[0]["op"]


@pytest.mark.parametrize("where", ["stage", "finish"])
def test_where_memory_runs_out_other_models_go_and_the_work_is_done_once_more(child, cuda, monkeypatch, where):
    """The result has the bits that it has with room enough."""
    other = LearningChild()
    for _ in range(2):  # ours has computed one
        other.round()
    assert initialise(child, "r/b") == "made"
    real = getattr(child.learner, where)
    tries = []

    def tight(*arguments):
        tries.append(len(child.child.models))
        if len(child.child.models) > 1:
            raise torch.OutOfMemoryError(FULL)
        return real(*arguments)

    monkeypatch.setattr(child.learner, where, tight)
    child.round()
    assert tries[:2] == [2, 1]
    assert cuda.n_freed >= 1
    assert set(child.child.models) == {"r/a"}
    assert child.learner.state()[1].tobytes() == other.learner.state()[1].tobytes()
    for collector in other.collectors:
        collector.close()


def test_where_memory_still_lacks_the_task_fails_and_names_the_bytes(child, cuda, monkeypatch):
    """One line: wanted, free, and what needs less.  What was staged can be computed once there is room."""
    child.stage(child.version)

    def tight(notify):
        raise torch.OutOfMemoryError(FULL)

    with monkeypatch.context() as full:
        full.setattr(child.learner, "finish", tight)
        with pytest.raises(torch.OutOfMemoryError) as failed:
            child.ask("finish", round=child.version)
    message = str(failed.value)
    assert message.startswith("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0")
    assert "of which 1.50 GiB is free, with no other task's model on this slot; a smaller batch_size" in message
    assert "\n" not in message
    assert initialise(child, "r/b") == "made"
    assert child.ask("finish", round=child.version)[0]["op"] == "made"


def test_shared_minibatches_are_not_tried_again_by_one_member_alone(child, cuda, monkeypatch):
    """The others would wait for what it has brought already: its lease ends, and the round begins with room for it."""
    child.stage(child.version)
    tries = []

    def tight(notify):
        tries.append(len(child.child.models))
        raise torch.OutOfMemoryError(FULL)

    monkeypatch.setattr(child.learner, "finish", tight)
    gang = {
        "gang": [["s0", "here"], ["s1", "here"]],
        "members": ["s0", "s1"],
        "sizes": [1, 1],
        "slot": "s0",
        "swap": None,
        "slowed": 1.0,
    }
    assert initialise(child, "r/b") == "made"
    answer, _ = child.ask("finish", round=child.version, **gang)
    said = "memory ran out in minibatches that several slots share"
    assert (answer, tries) == ({"op": "refused", "reason": said}, [2])
    assert initialise(child, "r/b") == "made"
    with pytest.raises(torch.OutOfMemoryError, match="with no other task's model on this slot"):
        child.ask("finish", round=child.version, **gang)
    assert tries == [2, 1]


def test_gradients_are_restored_whole_or_not_at_all(child, cuda, monkeypatch):
    """Memory runs out at the second one: both are restored anew."""
    for header, data in child.frames(child.version):
        child.ask("stage", data, **header, keep=True)
    parts = dict(child.child.models["r/a"].parts)
    fence = Fence(FENCE.epoch, FENCE.token + 1)
    real, n_calls = child.learner.import_partial, []

    def tight(part):
        n_calls.append(1)
        if len(n_calls) == 2:
            raise torch.OutOfMemoryError(FULL)
        real(part)

    monkeypatch.setattr(child.learner, "import_partial", tight)
    sizes = [len(part) for part in parts.values()]
    frame = {"version": child.version, "round": child.version, "after_timesteps": 64, "settings": {}, "n_state": 0}
    answer, _ = child.ask("restore", b"".join(parts.values()), **frame, keys=[*parts], sizes=sizes, fence=fence)
    assert answer["op"] == "restored"
    assert len(n_calls) == 4
    assert child.ask("finish", round=child.version, fence=fence)[0]["op"] == "made"


def test_models_take_what_computing_leaves(cuda):
    """60 % of this executor's share, less where computing took more than the rest; what lies idle goes back."""
    device = Device("cuda", 1000, 2)
    assert device.models_bytes == MEMORY_FRAC * 500
    cuda.most, cuda.now, cuda.reserved = 420, 100, 500
    device.computed()
    assert device.models_bytes == 500 - 320
    assert (cuda.n_freed, cuda.n_resets) == (0, 1)
    cuda.most, cuda.reserved = 150, 501
    device.computed()
    assert device.models_bytes == 500 - 320, "the most so far counts"
    assert cuda.n_freed == 1


# -- on a real device ------------------------------------------------------------------------------------------------


@pytest.fixture
def on_cuda():
    """Return what makes an executor child on the real device; memory is unlimited again afterwards."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    made = []

    def make(**settings):
        made.append(LearningChild(device=Device("cuda", torch.cuda.mem_get_info()[1]), **settings))
        return made[-1]

    yield make
    torch.cuda.set_per_process_memory_fraction(1.0)
    for child in made:
        for collector in child.collectors:
            collector.close()


@pytest.mark.gpu
def test_two_trainings_on_a_device_have_the_same_bits(on_cuda):
    """Convolutions among them, whose fastest kernels add in any order."""
    states = []
    for _ in range(2):
        child = on_cuda(env="drlnb/Catch-v0", policy="CnnPolicy")
        for _ in range(3):
            child.round()
        states.append(child.learner.state()[1].tobytes())
    assert states[0] == states[1]


@pytest.mark.gpu
def test_a_device_that_is_full_has_room_for_one(on_cuda):
    """A second task's model does not fit beside the first one's, which goes and comes back."""
    gc.collect()  # of tests before this one
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    child = on_cuda(policy_kwargs={"net_arch": [2048, 2048]})
    making_bytes = torch.cuda.max_memory_allocated() - before
    child.round()
    torch.cuda.empty_cache()
    room_bytes = torch.cuda.memory_allocated() + making_bytes / 2.0  # torch keeps its workspaces beside the models
    torch.cuda.set_per_process_memory_fraction(room_bytes / torch.cuda.mem_get_info()[1])
    assert initialise(child, "r/b") == "made"
    assert set(child.child.models) == {"r/b"}

"""A person's function on a slot: what it is given, what it leaves, and what becomes of its errors."""

import functools
import gc
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from drlnb.records.errors import ConfigError
from drlnb.records.ids import Fence
from drlnb.runtime.children.device import Device
from drlnb.runtime.children.pulse import Pulse
from drlnb.runtime.children.user_functions import Jobs, here
from drlnb.runtime.ipc.pickling import JobFailed, pack_call, unpack, unpack_error

torch = pytest.importorskip("torch")


#: Tokens of holders who are asked to give way, as the agent's frames say while a function runs.
_WORDS = []


def _watch(word=None):
    before = here().asked_to_yield
    if word is not None:
        _WORDS.append(word)
    return before, here().asked_to_yield


def _watch_in_a_thread():
    seen = []
    _WORDS.append(1)
    other = threading.Thread(target=lambda: seen.append(here().asked_to_yield))
    other.start()
    other.join()
    return [*seen, here().asked_to_yield]


class Owner:
    """An executor's jobs, asked as the agent asks."""

    def __init__(self):
        self.sent = []
        self.jobs = Jobs(Device("cpu"), Pulse(self.sent.append), self.look)

    def look(self):
        while _WORDS:
            self.jobs.asked(Fence(epoch=1, token=_WORDS.pop(0)))

    def ask(self, fn, *args, token=1, rank=0, n_slots=1, fresh=False):
        header = {"slot": "n0/cpu0", "name": "mine", "rank": rank, "n_slots": n_slots, "fresh": fresh}
        return self.jobs.run(header | {"fence": Fence(epoch=1, token=token)}, memoryview(pack_call(fn, args, {})))

    def run(self, fn, *args, **where):
        answer, (data,) = self.ask(fn, *args, **where)
        assert answer["ok"], unpack(data)[2]
        return unpack(data)

    def fail(self, fn, *args):
        answer, (data,) = self.ask(fn, *args)
        assert not answer["ok"]
        return unpack_error(data)


@pytest.fixture
def owner():
    """Make jobs as in an executor that has imported everything: what was there before is not looked through again."""
    gc.freeze()
    yield Owner()
    gc.unfreeze()


def test_a_function_sees_its_slot(owner):
    """Device, rank and number of slots are those of the lease; outside of a function there is no slot."""
    seen = owner.run(lambda: (here().device, here().rank, here().n_slots, here().slot, here().name), rank=1, n_slots=3)
    assert seen == ("cpu", 1, 3, "n0/cpu0", "mine")
    with pytest.raises(RuntimeError, match="functions that it runs"):
        here()


def test_a_function_sees_that_somebody_waits(owner):
    """The word may come before it runs, or while it runs; it stays true in the lease, and is not the next one's."""
    assert owner.run(_watch) == (False, False)
    assert owner.run(_watch, 1) == (False, True)
    assert owner.run(_watch) == (True, True)
    assert owner.run(_watch, token=2) == (False, False)
    assert owner.run(_watch, 1, token=2) == (False, False), "a word that came late was for another lease"
    owner.jobs.asked(Fence(epoch=1, token=3))
    assert owner.run(_watch, token=3) == (True, True)


def test_the_word_travels_with_a_function_that_starts_after_it(owner):
    """A holder that knows it already tells its slot."""
    header = {"slot": "n0/cpu0", "name": "mine", "rank": 0, "n_slots": 1, "asked": True}
    header["fence"] = Fence(epoch=1, token=1)
    payload = memoryview(pack_call(lambda: here().asked_to_yield, (), {}))
    _, (data,) = owner.jobs.run(header, payload)
    assert unpack(data) is True


def test_other_threads_are_told_what_the_function_saw(owner):
    """Only the function's thread may read frames: another one looks at what is known."""
    assert owner.run(_watch_in_a_thread) == [False, True]


def test_state_lives_from_one_function_to_the_next_and_no_longer(owner):
    """What one function keeps the next one of the lease finds; under another fence there is nothing."""
    owner.run(lambda: here().state.update(n=41))
    assert owner.run(lambda: here().state["n"] + 1) == 42
    assert owner.run(lambda: dict(here().state), token=2) == {}


def test_the_end_of_a_lease_frees_what_it_kept(owner):
    """After the end of a lease its objects are gone, cycles among them, too; another fence frees nothing."""

    def keep(alive):
        class Node:
            def __del__(self):
                os.close(alive)

        node = Node()
        node.self = node
        here().state["node"] = node

    read, write = os.pipe()
    owner.run(keep, write)
    owner.jobs.end(Fence(epoch=1, token=7))
    assert os.fstat(write)
    owner.jobs.end(Fence(epoch=1, token=1))
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write)
    os.close(read)


def test_no_process_group_outlives_its_lease(owner):
    """It lasts from function to function of a lease; its end ends it, and the holder's word after an error."""

    def join(error=None):
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        if error is not None:
            raise error

    joined = torch.distributed.is_initialized
    owner.run(join)
    assert owner.run(joined)
    owner.jobs.end(Fence(epoch=1, token=1))
    assert not joined()
    owner.run(join, token=2)
    assert not owner.run(joined, token=3)
    owner.ask(join, ValueError(), token=4, n_slots=2)
    assert owner.run(joined, token=4, n_slots=2), "its holder says when: it has to hear of the error first"
    owner.jobs.leave()
    assert not joined()


def test_random_numbers_and_modes_of_others_stay_as_they_were(owner):
    """A function that seeds, changes threads, types and modes changes them for its own holder only."""

    def change():
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return torch.rand(()).item(), np.random.rand(), random.random()  # noqa: NPY002

    def more():
        modes = torch.get_default_dtype() is torch.float64, torch.is_grad_enabled()
        return modes, (torch.rand((), dtype=torch.float32).item(), np.random.rand(), random.random())  # noqa: NPY002

    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    first = owner.run(change)
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()
    modes, second = owner.run(more)
    assert modes == (True, False)
    wanted = np.random.RandomState(5)
    wanted.rand()
    assert second[1] == wanted.rand(), "the second function goes on where the first one stopped"
    assert first[1] != second[1]


def _flag(path, *value):
    """Set a flag of torch's backends, or return it; whole modules of theirs do not travel."""
    *modules, name = path.split(".")
    holder = functools.reduce(getattr, modules, sys.modules["torch"].backends)
    return setattr(holder, name, *value) if value else getattr(holder, name)


#: What a function sets, and what shows it.
MODES = {
    "precision": (lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision),
    "its newer name": (
        lambda: _flag("cuda.matmul.fp32_precision", "tf32"),
        lambda: _flag("cuda.matmul.fp32_precision"),
    ),
    "of everything": (lambda: _flag("fp32_precision", "tf32"), lambda: _flag("cudnn.fp32_precision")),
    "device": (lambda: torch.set_default_device("meta"), lambda: str(torch.zeros(1).device)),
    "anomalies": (
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    ),
    "cudnn": (lambda: _flag("cudnn.benchmark", True), lambda: _flag("cudnn.benchmark")),
    "cudnn off": (lambda: _flag("cudnn.enabled", False), lambda: _flag("cudnn.enabled")),
    "TF32": (lambda: _flag("cudnn.allow_tf32", False), lambda: _flag("cudnn.conv.fp32_precision")),
    "variables": (
        lambda: (os.environ.update(MINE="1"), os.environ.pop("HOME")),
        lambda: (os.environ.get("MINE"), "HOME" in os.environ),
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_its_holders_alone(owner, mode):
    """Whoever sets one finds it again in the next function; everybody else, torch's older names too, has what was."""
    change, look = MODES[mode]
    before = look()

    def changed():
        change()
        return look()

    mine = owner.run(changed)
    assert mine != before
    assert look() == before
    assert torch.get_float32_matmul_precision() == "highest"
    assert owner.run(look) == mine
    assert owner.run(look, token=2) == before
    assert look() == before


def test_a_directory_that_a_function_removes_costs_nobody_else_anything(owner, tmp_path):
    """Others find modes and directory as they were, and the next function of the same holder runs, too."""

    def stay(folder):
        os.chdir(folder)
        return os.getcwd()  # noqa: PTH109

    def leave(folder):
        torch.set_grad_enabled(False)
        os.rmdir(folder)  # noqa: PTH106

    before, folder = os.getcwd(), tmp_path / "gone"  # noqa: PTH109
    folder.mkdir()
    assert owner.run(stay, str(folder)) == str(folder)
    owner.run(leave, str(folder))
    assert os.getcwd() == before  # noqa: PTH109
    assert torch.is_grad_enabled()
    assert owner.run(os.getcwd) == str(Path.home())


def test_two_leases_draw_different_numbers(owner):
    """A new lease has random numbers of its own, though torch begins every process with the same ones."""
    draw = [owner.run(lambda: torch.rand(4).tolist(), token=token) for token in (1, 2, 3)]
    assert len({tuple(one) for one in draw}) == 3


def test_an_error_comes_with_its_remote_traceback(owner):
    """The caller gets the same error, and reads where on the slot it was raised."""

    def broken():
        return {}["absent"]

    error = owner.fail(broken)
    assert isinstance(error, KeyError)
    assert error.args == ("absent",)
    assert "in broken" in str(error.__cause__)


@pytest.mark.parametrize("what", [SystemExit, KeyboardInterrupt])
def test_what_would_end_the_process_is_only_told(owner, what):
    """A function that exits ends itself, neither the executor nor its caller."""

    def leave():
        raise what(3)

    error = owner.fail(leave)
    assert isinstance(error, JobFailed)
    assert what.__name__ in str(error)


def test_an_error_that_cannot_travel_is_told_in_words(owner):
    """An error that holds a lock is raised as another one, with class, message and traceback as text."""

    def broken():
        class Odd(Exception):
            pass

        error = Odd("with a lock")
        error.lock = threading.Lock()
        raise error

    error = owner.fail(broken)
    assert isinstance(error, JobFailed)
    assert str(error) == "Odd: with a lock"
    assert "in broken" in str(error.__cause__)


def test_a_result_that_cannot_travel_is_named(owner):
    """A returned lock is an error that names it; a returned lease as well."""
    error = owner.fail(lambda: {"lock": threading.Lock()})
    assert isinstance(error, TypeError)
    assert "what the function returned cannot travel back: dict: attribute 'lock' (lock)" in str(error)
    assert "return what is in it" in str(owner.fail(here).__cause__)


def test_a_call_that_cannot_travel_is_one_clear_line():
    """The culprit is named, whether the function's own variable or an argument; no function at all is told, too."""
    lock = threading.Lock()

    def step():
        return lock

    with pytest.raises(ConfigError, match=r"^step cannot travel to a slot: .*variable 'lock' \(lock\).*") as error:
        pack_call(step, (), {})
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"argument 0 \(lock\)"):
        pack_call(len, (lock,), {})
    with pytest.raises(ConfigError, match="pass the function and its arguments, do not call it"):
        pack_call(3, (), {})


def test_what_is_printed_comes_back(owner, capsys):
    """Printed text is in the answer, and in the executor's log, too."""
    answer, _ = owner.ask(lambda: print("loss", 0.5))
    assert answer["said"] == "loss 0.5\n"
    assert capsys.readouterr().out == "loss 0.5\n"


def test_progress_is_said_now_and_then(owner, monkeypatch):
    """A function that says it works sends one frame per half second at most; from another thread it is refused."""
    now = [time.perf_counter() + 1.0]
    monkeypatch.setattr("drlnb.runtime.children.pulse.time.perf_counter", lambda: now[0])

    def work(now):
        for _ in range(10):
            now[0] += 0.2
            here().progress()

    monkeypatch.setattr("drlnb.runtime.children.user_functions.unpack", lambda payload: (work, (now,), {}))
    owner.ask(len, ())
    assert [frame["op"] for frame in owner.sent] == ["progress"] * 4

    def elsewhere():
        found = []

        def say():
            try:
                slot.progress()
            except RuntimeError as error:
                found.append(str(error))

        slot = here()
        thread = threading.Thread(target=say)
        thread.start()
        thread.join()
        return found

    monkeypatch.undo()
    assert owner.run(elsewhere) == ["progress() is for the thread that the function was started in"]


def test_a_signal_interrupts_a_function_and_nothing_else(owner):
    """SIGINT ends a function with an error that shows where it was, or before it began; too late it ends nothing."""
    before = signal.getsignal(signal.SIGINT)
    owner.jobs.begin()
    try:
        signal.raise_signal(signal.SIGINT)
        assert owner.ask(lambda: 1, fresh=True)[0]["ok"], "it was meant for the one before"
        signal.raise_signal(signal.SIGINT)
        answer, _ = owner.ask(lambda: 1)
        assert (answer["ok"], answer["interrupted"]) == (False, True), "it had not begun yet"

        def endless():
            signal.raise_signal(signal.SIGINT)
            return "not reached"

        answer, (data,) = owner.ask(endless)
        assert answer["interrupted"]
        assert "in endless" in str(unpack_error(data).__cause__)
        assert owner.run(lambda: 1) == 1
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.gpu
def test_tensors_come_back_from_a_device_and_its_memory_is_free_again():
    """What a function returns is on the CPU, parameters and optimizers, too; the end of the lease frees the device."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    owner = Owner()
    owner.jobs._device = Device("cuda")
    x = torch.ones(1, 256, device="cuda", requires_grad=True)
    torch.nn.Linear(256, 256, device="cuda")(x).sum().backward()  # torch keeps the workspace of its products
    gc.collect()  # of tests before this one
    before = torch.cuda.memory_allocated()

    def train():
        model = torch.nn.Linear(256, 256).to(here().device)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 256, device=here().device)).sum().backward()
        optimizer.step()
        here().state.update(model=model, optimizer=optimizer)
        return model.state_dict(), optimizer.state_dict(), model.weight, torch.ones(3, device=here().device)

    weights, moments, weight, ones = owner.run(train)
    found = [*weights.values(), weight, ones, moments["state"][0]["exp_avg"]]
    assert {tensor.device.type for tensor in found} == {"cpu"}
    assert torch.equal(weight, weights["weight"])
    assert torch.cuda.memory_allocated() > before
    owner.jobs.end(Fence(epoch=1, token=1))
    assert torch.cuda.memory_allocated() == before

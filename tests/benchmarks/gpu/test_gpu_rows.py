"""The benchmark ``gpu`` with a CPU and a played stage in the device's place, and its refusal without one."""

import contextlib
import sys
from types import SimpleNamespace

import pytest
import torch

from benchmarks.benches import BENCHES
from benchmarks.gpu import device, failures
from benchmarks.seats.sharing import Shared
from drlnb.records.errors import ConfigError, TrainingFailed

EFFORT = SimpleNamespace(repeats=2, seconds=1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_measured(tmp_path):
    """One line says why; no file is written."""
    with pytest.raises(ConfigError, match=r"bench gpu needs a CUDA device, and torch .* sees none here"):
        BENCHES["gpu"].main(["--json", str(tmp_path / "x.json")])
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def played(monkeypatch):
    """Have tensors of the device lie in memory, whose free bytes fall by 7 with each look."""
    free = iter(range(10**6, 0, -7))

    def empty(n_bytes, *, dtype, device=None, pin_memory=False):
        return torch.empty(n_bytes, dtype=dtype)

    cuda = SimpleNamespace(synchronize=lambda: None, mem_get_info=lambda: (next(free), 10**6))
    fake = SimpleNamespace(cuda=cuda, empty=empty, Tensor=torch.Tensor, uint8=torch.uint8)
    monkeypatch.setattr(device, "torch", fake)
    monkeypatch.setattr(device, "_SIZES", {"small": 64})


def test_copies_go_both_ways_from_both_kinds_of_memory(played):
    """Every copy is a sample; the ratio is that of the turn."""
    to, back = device.copies(EFFORT)
    assert (to.id, back.id) == ("copy-small-to", "copy-small-from")
    for row in (to, back):
        assert len(row.samples) == len(row.baseline_samples) == 2 * device._COPIES
        assert len(row.pairs) == 2
        assert min(row.samples) > 0


def test_a_context_costs_seconds_and_memory(played, monkeypatch):
    """The child says when its first work is done; memory is compared while it still has it."""
    child = device._CONTEXT.replace("import sys, torch", "import sys").replace(
        "torch.zeros(1, device='cuda').item()", "0"
    )
    assert child.count("torch") == 0
    monkeypatch.setattr(device, "_CONTEXT", child)
    seconds, n_bytes = device.context(EFFORT)
    assert 0 < min(seconds.samples) <= max(seconds.samples) < 60
    assert tuple(n_bytes.samples) == (7.0, 7.0)


@pytest.mark.parametrize(("lines", "expected"), [("40\n60\n", 0.5), ("No devices were found\n", None)])
def test_utilisation_is_that_of_the_driver_beside_the_journals(monkeypatch, lines, expected):
    """Means of the samples; where the driver's tool prints none, that is an error with its reason."""

    def leased(regime, seconds, n_seats, *, meanwhile):
        with meanwhile():
            return Shared(rounds_per_s=1.0, n_rounds=4, busy=0.4)

    tool = (sys.executable, "-c", f"print({lines!r}, end='', flush=True); import time; time.sleep(60)")
    monkeypatch.setattr(device, "_SAMPLES", tool)
    monkeypatch.setattr(device, "leased", leased)
    printed = contextlib.nullcontext()
    if expected is None:
        printed = pytest.raises(TrainingFailed, match="no utilisation")
    monkeypatch.setattr(device.subprocess, "Popen", _after_its_lines(device.subprocess.Popen))
    with printed:
        (row,) = device.utilisation(EFFORT)
        assert (tuple(row.samples), tuple(row.baseline_samples)) == ((0.4, 0.4), (expected, expected))


def _after_its_lines(popen):
    """Return a Popen whose process has printed something before it is ended."""

    class Printed(popen):
        def terminate(self):
            self.first = self.stdout.readline()
            super().terminate()

        def communicate(self, *arguments, **keywords):
            rest, errors = super().communicate(*arguments, **keywords)
            return self.first + (rest or ""), errors

    return Printed


class PlayedStage:
    """A stage whose trainings write a file per task, and whose leases run here."""

    def __init__(self, folder, wrong=()):
        self.folder, self.fleet, self._wrong = folder, self, set(wrong)
        self.trained, self.ran = [], []

    def train(self, tasks, name):
        self.trained.append((name, [task.name for task in tasks]))
        for task in tasks:
            folder = self.folder / name / "checkpoints" / task.name
            (folder / "1").mkdir(parents=True)
            (folder / "LATEST").write_text("1")
            (folder / "1" / "model.safetensors").write_bytes(f"{name in self._wrong} {task.name}".encode())

    @contextlib.contextmanager
    def lease(self, *, name, wait_s=None):
        def run(function):
            self.ran.append(name)
            if name == "wrong":
                raise RuntimeError("CUDA error: device-side assert triggered")
            return 2.0

        yield SimpleNamespace(run=run)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """Open a played stage; the device is said to be filled, and nothing is."""

    def opened(**keywords):
        played = PlayedStage(tmp_path, **keywords)
        monkeypatch.setattr(failures, "open_stage", lambda cuda: contextlib.nullcontext(played))
        monkeypatch.setattr(failures, "_filled", lambda: contextlib.nullcontext(played.trained.append("filled")))
        return played

    return opened


def test_a_full_device_is_compared_with_room_and_gives_the_same_parameters(stage):
    """In turn; a task whose parameters differ misses the bar."""
    played = stage(wrong=["tight1"])
    took, same = failures.full(EFFORT)
    names = [row if isinstance(row, str) else row[0] for row in played.trained]
    assert names == ["room0", "filled", "tight0", "room1", "filled", "tight1"]
    assert (len(took.pairs), took.against) == (2, "room for all")
    assert list(same.samples) == [4.0, 0.0]
    assert not same.holds


def test_a_broken_device_is_timed_until_the_next_holder_computes(stage):
    """Each turn breaks it once, and the next function's answer is checked."""
    played = stage()
    (row,) = failures.broken(EFFORT)
    assert played.ran == ["wrong", "next"] * 2
    assert len(row.samples) == 2
    assert min(row.samples) > 0


def test_what_fills_a_device_keeps_all_but_a_little(monkeypatch):
    """The child takes what is free less what shall be left, and holds it until the block ends."""
    said = failures._FILL.replace("import sys, torch", "import sys").replace("torch.cuda.mem_get_info()[0]", "10**9")
    said = said.replace(
        'torch.empty(max(1, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")', "free - int(sys.argv[1])"
    )
    assert said.count("torch") == 0
    monkeypatch.setattr(
        failures, "_FILL", said.replace("print(flush=True)", "print(taken == 10**9 - (400 << 20), flush=True)")
    )
    with failures._filled() as child:
        assert child is None
    monkeypatch.setattr(failures, "_FILL", "raise SystemExit(1)")
    with pytest.raises(TrainingFailed, match="could not be filled"), failures._filled():
        pass

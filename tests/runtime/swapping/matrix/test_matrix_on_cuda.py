"""C1 on a CUDA device: the steps of the matrix, whose copies come late, against plain PyTorch bit by bit.

Kernels are asked to be deterministic.  A step whose own bits differ from one run to the next is skipped and says so;
one with an operation that has no deterministic kernel, as torch warns, may be off by rounding.
"""

import gc
import itertools
import warnings
from contextlib import suppress

import pytest
import torch

from drlnb.runtime.swapping.tiers.slab import SlabTier
from tests.runtime.swapping.matrix.steps import STEPS, seeded
from tests.runtime.swapping.matrix.test_matrix import LONG, ROOMS, run
from tests.runtime.swapping.nets import differing
from tests.runtime.swapping.rig import swapper
from tests.runtime.swapping.test_swapping_on_cuda import LateStreams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]
#: Planners, by turns: each step has two of them.
TURNS = [("all", "hybrid"), ("auto", "greedy:actions=block"), ("capuchin", "greedy:actions=derive")]
#: How far a step may be off whose operations have no deterministic kernel, relative to the largest number of a tensor.
ROUNDED = 1e-4


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch):
    """Make what the steps make on the device, for the time of a test."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_default_device("cuda")
    torch.use_deterministic_algorithms(True, warn_only=True)
    with suppress(ImportError):  # compiling shows a bar, which would have a thread for the life of the process
        monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_default_device(None)
    with suppress(RuntimeError):  # a broken device fails the tests after this one, each with its own error
        torch.cuda.synchronize()


def late(meter):
    """Return a tier whose sources leave as soon as they may, by copies that begin late."""
    return SlabTier(meter, LateStreams(torch.device("cuda", 0)), 0)


def allocated():
    """Return the bytes on the device that something refers to."""
    gc.collect()
    return torch.cuda.memory_allocated()


def saved_bytes(name):
    """Return the peak of a step that keeps all, and what is on the device before it."""
    made, peaks, before = seeded(STEPS[name]), [], []
    with swapper(made.net, planner="none", tier=late) as swap:
        for i in range(3):
            before.append(allocated())
            with swap.step() as told:
                made.step(i)
            peaks.append(told.peak_bytes)
    return max(peaks), max(before)


def plain(name):
    """Return what the step leaves behind, and the operations that have no deterministic kernel."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            one, other = run(name), run(name)
        except torch.AcceleratorError:
            raise
        except (Exception, KeyboardInterrupt) as problem:  # noqa: BLE001 - what it cannot do without us is no claim of ours
            pytest.skip(f"plain PyTorch on CUDA: {type(problem).__name__}: {problem}")
    if unsteady := [each for a, b in zip(one, other, strict=True) for each in differing(a, b)]:
        pytest.skip(f"plain PyTorch's own bits differ from run to run: {unsteady[:3]}")
    said = {str(each.message).split("\n")[0] for each in seen}
    return one, [each for each in said if "does not have a deterministic implementation" in each]


def is_near(one, other):
    """Return whether two tensors are equal but for rounding."""
    if one.shape != other.shape or not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, other)
    scale = one.abs().max().clamp(min=1e-30) if one.numel() else 1.0
    return torch.allclose(one / scale, other / scale, rtol=0.0, atol=ROUNDED, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "planners"),
    [*zip([name for name in STEPS if name not in LONG], itertools.cycle(TURNS), strict=False)],
    ids=str,
)
def test_c1_each_step_on_cuda(name, planners):
    """Every copy is late in some step or other: no bit differs."""
    expected, unordered = plain(name)
    peak, before = saved_bytes(name)
    for planner, room in zip(planners, ROOMS.values(), strict=True):
        budget = before + max(int(room * (peak - before)), 1)
        swapped = run(name, lambda net, p=planner, b=budget: swapper(net, planner=p, budget=b, tier=late))
        for i, (one, other) in enumerate(zip(expected, swapped, strict=True)):
            others = differing(one, other)
            if unordered:
                others = [each for each in others if not is_near(one[each], other[each])]
            assert others == [], f"{planner}, step {i}, without a deterministic kernel: {unordered}"

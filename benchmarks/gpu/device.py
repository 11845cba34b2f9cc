"""Measure what a CUDA device costs before anything is shared: copies, contexts; and how busy leases keep it."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from statistics import fmean

import torch

from benchmarks.efforts import Gpu
from benchmarks.frame.rows import Row, in_turn, pair_up
from benchmarks.seats.sharing import REGIMES, leased
from drlnb.records.errors import TrainingFailed

__all__ = ["context", "copies", "utilisation"]

#: Copies per sample, and their sizes in bytes: a small model's parameters, and a large batch of experience.
_COPIES = 20
_SIZES = {"small": 1 << 16, "large": 1 << 27}
#: A child that opens a context, says so, and keeps it until its input is closed.
_CONTEXT = (
    "import sys, torch; print(); sys.stdin.readline(); torch.zeros(1, device='cuda').item(); print(); sys.stdin.read()"
)
_SAMPLES = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200", "-i", "0")


def copies(effort: Gpu) -> Iterator[Row]:
    """Copy to the device and back, from page-locked and from ordinary memory in turn."""
    for name, n_bytes in _SIZES.items():
        there = torch.empty(n_bytes, dtype=torch.uint8, device="cuda")
        locked, plain = (torch.empty(n_bytes, dtype=torch.uint8, pin_memory=pinned) for pinned in (True, False))
        for way in ("to", "from"):
            turns = in_turn(
                effort.repeats,
                {"locked": partial(_copied, way, there, locked), "plain": partial(_copied, way, there, plain)},
            )
            title = f"{n_bytes / 1024:.0f} KiB {way} the device, page-locked"
            yield Row(
                f"copy-{name}-{way}", title, against="ordinary memory", **pair_up(turns["locked"], turns["plain"])
            )


def _copied(way: str, there: torch.Tensor, here: torch.Tensor) -> list[float]:
    """Return the seconds of some copies ``to`` the device or ``from`` it."""
    to, of = (there, here) if way == "to" else (here, there)
    seconds = []
    for _ in range(_COPIES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        to.copy_(of)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds


def context(effort: Gpu) -> Iterator[Row]:
    """Open the device in a process of its own, as each executor does: seconds, and memory that is gone with it."""
    seconds, n_bytes = [], []
    for _ in range(effort.repeats):
        before = torch.cuda.mem_get_info()[0]
        with subprocess.Popen([sys.executable, "-c", _CONTEXT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdout.readline()
            began = time.perf_counter()
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()
            seconds.append(time.perf_counter() - began)
            n_bytes.append(float(before - torch.cuda.mem_get_info()[0]))
    yield Row("context", "the first work of a process on the device, torch imported before", seconds)
    yield Row("context-bytes", "memory of the device that a process takes before any tensor", n_bytes, "bytes")


@contextlib.contextmanager
def _watched(percent: list[float]) -> Iterator[None]:
    """Sample the share of time in which a kernel ran, as the driver counts it."""
    with subprocess.Popen(_SAMPLES, stdout=subprocess.PIPE, text=True) as sampler:
        try:
            yield
        finally:
            sampler.terminate()
            percent += [float(line) for line in sampler.communicate()[0].splitlines() if line.strip().isdigit()]


def utilisation(effort: Gpu) -> Iterator[Row]:
    """Train on one slot; compare the time in which the slot computed, by the journal, with that of the driver."""
    journal, driver = [], []
    for _ in range(effort.repeats):
        percent: list[float] = []
        shared = leased(REGIMES["cnn"], effort.seconds, 1, meanwhile=partial(_watched, percent))
        if not percent:
            raise TrainingFailed("nvidia-smi printed no utilisation")
        journal.append(shared.busy)
        driver.append(fmean(percent) / 100)
    title = "4 cnn tasks on one slot: share of the time in which the slot computed, by the journal"
    yield Row(
        "utilisation", title, unit="of the time", against="in which a kernel ran, by NVML", **pair_up(journal, driver)
    )

"""Make torch compute the same bits each time and everywhere: one thread, fixed kernels, seeded random numbers."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["one_thread", "own_draws", "same_kernels", "seed_all"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Make torch compute with one thread, as an executor does; the caller's number comes back at the end.

    Small networks lose by more threads, and sums over several threads have other last bits.
    """
    import torch  # here, so that a collector may import this module

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def same_kernels(device: "torch.device", wanted: bool = True) -> Iterator[None]:
    """If `wanted`, make CUDA compute the same bits each time: deterministic kernels that no race chooses, no TF32.

    Where an operation has no deterministic kernel, torch warns once and names it.  What the caller had set comes back.
    """
    if device.type != "cuda" or not wanted:
        yield
        return
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is used first
    kernels = torch.backends.cudnn
    mode, precision = torch.get_deterministic_debug_mode(), torch.get_float32_matmul_precision()
    torch.set_deterministic_debug_mode("warn")
    torch.set_float32_matmul_precision("highest")
    try:
        with kernels.flags(enabled=kernels.enabled, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        torch.set_float32_matmul_precision(precision)


def seed_all(seed: int, device: "torch.device | None" = None) -> None:
    """Seed the random numbers of Python, numpy and torch.

    Parameters
    ----------
    seed
        In 32 bits.
    device
        Torch's generators of the CPU and of this device alone, which is quick; None: all.
    """
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - users draw from the global generator
    if device is None:
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def own_draws() -> Iterator[None]:
    """Have what is drawn and seeded in the body not count outside: Python's, numpy's and torch's numbers go on."""
    import torch

    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - users draw from the global one
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002

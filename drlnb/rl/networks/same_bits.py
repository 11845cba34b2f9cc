"""Make torch compute the same bits each time and everywhere: one thread on a CPU, deterministic kernels on CUDA."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["one_thread", "same_kernels"]


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

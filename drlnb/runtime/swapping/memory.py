"""Measure and mend what a process holds in memory."""

import ctypes
from collections.abc import Iterator

import torch

from drlnb.runtime.swapping.torch_private import storage_number

__all__ = ["fix_malloc", "fixed_bytes", "kept_tensors"]

#: ``mallopt``'s name for the size from which memory is mapped and, once freed, given back; and that size.
_M_MMAP_THRESHOLD, _MAPPED_BYTES = -3, 128 << 10


def fix_malloc() -> bool:
    """Have freed tensors leave the process: glibc's threshold would grow to 32 MiB and keep hundreds of MiB of heap.

    Returns
    -------
    bool
        Whether this C library has such a threshold.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) == 1


def kept_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield parameters and buffers."""
    yield from module.parameters()
    yield from module.buffers()


def fixed_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of parameters, their gradients and buffers, each storage once."""
    sizes = {storage_number(each.untyped_storage()): each.untyped_storage().nbytes() for each in kept_tensors(module)}
    gradients = sum(each.numel() * each.element_size() for each in module.parameters() if each.requires_grad)
    return sum(sizes.values()) + gradients

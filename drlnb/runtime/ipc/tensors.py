"""Write tensors as bytes, each alone or several as a safetensors file, whatever their dtype."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

__all__ = ["as_bytes", "bytes_of", "from_bytes", "reduced", "tensor_of"]

#: Complex dtypes that the format lacks are written as pairs of real numbers, the dtype behind their name.
_PAIRED = {f"@{kind}".replace("torch.", ""): kind for kind in (torch.complex32, torch.complex128)}
#: What torch's own pickles can be read back: it writes those of younger dtypes, and its unpickler fails on them.
_PICKLED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128})
_PICKLED |= {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes, as a tensor of shape ``(n_bytes,)`` on its device."""
    flat: Tensor = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return flat


def tensor_of(flat: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Return the tensor whose bytes :func:`bytes_of` gave."""
    return flat.view(dtype).reshape(shape) if len(flat) else torch.empty(shape, dtype=dtype, device=flat.device)


def reduced(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[object, ...]] | None:
    """Return how a tensor is pickled; None: as torch does it."""
    if tensor.dtype in _PICKLED or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        return None
    return tensor_of, (bytes_of(tensor).cpu(), tensor.dtype, tuple(tensor.shape))


def as_bytes(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return tensors as the bytes of a safetensors file; those that share memory are each written."""
    alone: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        mark = f"@{tensor.dtype}".replace("torch.", "")
        paired = torch.view_as_real(tensor.detach().resolve_conj()) if mark in _PAIRED else tensor.detach()
        alone[name + mark * (mark in _PAIRED)] = paired.cpu().contiguous().clone()
    return np.frombuffer(safetensors.torch.save(alone), np.uint8)


def from_bytes(buffer: bytes) -> dict[str, Tensor]:
    """Return the tensors that :func:`as_bytes` has written."""
    tensors: dict[str, Tensor] = {}
    for key, tensor in safetensors.torch.load(buffer).items():
        name, mark, kind = key.rpartition("@")
        is_paired = mark + kind in _PAIRED
        tensors[name if is_paired else key] = torch.view_as_complex(tensor) if is_paired else tensor
    return tensors

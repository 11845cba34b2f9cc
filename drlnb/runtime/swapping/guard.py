"""Know which storage a saved tensor views, and see whether its contents were written since."""

from collections.abc import Iterable

import torch

from drlnb.runtime.swapping.torch_private import storage_number

__all__ = ["Geometry", "Guard", "Identity", "Kept", "given_back", "identity", "is_plain", "kept"]

#: Number of a storage, and the write counter of its contents.
Identity = tuple[int, int]
#: Type, offset, shape and strides of a tensor.
Geometry = tuple[torch.dtype, int, torch.Size, tuple[int, ...]]


def identity(tensor: torch.Tensor) -> Identity:
    """Return which storage a tensor views, and in which state of its contents."""
    return storage_number(tensor.untyped_storage()), tensor._version


class Guard:
    """Sees later changes of a tensor's contents: with hooks, autograd leaves this check to us."""

    __slots__ = ("_tensor", "_version", "geometry")

    def __init__(self, tensor: torch.Tensor) -> None:
        # Without its graph: the live output of an operation, kept by that operation, is a cycle that nobody collects.
        self._tensor, self._version = tensor.detach(), tensor._version
        #: Type, offset, shape and strides.
        self.geometry: Geometry = (tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())
        self._tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)  # the write counter stays shared

    def check(self) -> None:
        """Raise if the contents were written since."""
        _unchanged(self._tensor, self._version, self.geometry[2])

    def view(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return the tensor as it was, over a storage."""
        dtype, offset, size, stride = self.geometry
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)

    def sharing(self, restored: torch.Tensor) -> torch.Tensor:
        """Return what was restored with the saved tensor's write counter.

        The graph of a backward pass may save it once more: the same storage in the same state, and what is written
        before that graph is run must be seen.
        """
        tensor = self._tensor.detach()
        tensor.data = restored
        return tensor


#: A saved tensor that stays (a parameter, a small one, a subclass; or any one where all stay), its write counter, and
#: what lives as long, and is counted so.
Kept = tuple[torch.Tensor, int, object]


def kept(tensor: torch.Tensor, counted: object = None) -> Kept:
    """Keep a tensor, without its graph: see :class:`Guard`."""
    return tensor if tensor.grad_fn is None else tensor.detach(), tensor._version, counted


def given_back(kept: Kept) -> torch.Tensor:
    """Return it, unless its contents were written since."""
    tensor = kept[0]
    if tensor._version != kept[1]:
        _unchanged(tensor, kept[1], tensor.shape)
    return tensor


def _unchanged(tensor: torch.Tensor, saved: int, shape: Iterable[int]) -> None:
    if tensor._version != saved:
        raise RuntimeError(
            f"a tensor of shape {tuple(shape)} that the backward pass needs was modified by an inplace operation: it "
            f"is at version {tensor._version}, and was saved at version {saved}"
        )


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's bytes are all that there is of it."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    return not (tensor.is_quantized or tensor.is_inference() or tensor.is_conj() or tensor.is_neg())

"""Hold what autograd saves: one entry per storage, and a handle for each saved tensor that views it.

What autograd saves is an alias: at the backward pass plain PyTorch reads what the storage holds *then*, and a write
counter says whether that was written since.  So tensors of one storage have one entry, whatever their counters say, and
an entry is parted with once nobody but autograd can write it any more (:meth:`Saved.is_free`).
"""

import sys
import weakref
from collections.abc import Callable, Iterable

import torch

from drlnb.planning.swapping.profile import Action, RowKey
from drlnb.runtime.swapping.tiers.base import Held, Meter, Ticket
from drlnb.runtime.swapping.torch_private import (
    StorageRef,
    holders,
    is_wrapper,
    is_zero,
    packed_in,
    set_data,
    storage_number,
)

__all__ = [
    "Form",
    "Geometry",
    "Guard",
    "Handle",
    "Kept",
    "Original",
    "Saved",
    "given_back",
    "given_data",
    "is_own",
    "kept",
    "storage_of",
]

#: Type, offset, shape and strides of a tensor.
Geometry = tuple[torch.dtype, int, torch.Size, tuple[int, ...]]
#: Makes a tensor from something smaller.
Form = Callable[[], torch.Tensor]


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage that is all there is of a tensor; None if there is more to it than bytes that it owns."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    if (
        is_wrapper(tensor)
        or is_zero(tensor)
        or tensor.is_meta
        or tensor.is_quantized
        or tensor.is_inference()
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    return tensor.untyped_storage()


class Original(weakref.ref[torch.Tensor]):
    """Refers to the very tensor that autograd saved: where it was an operation's input, plain PyTorch reads its data.

    Of a result plain PyTorch keeps an alias of its own.
    """

    is_result = False
    #: That tensor, once it was given other data that plain PyTorch would read: it has to live as long as this does.
    with_other_data: torch.Tensor | None = None


def given_data(tensor: torch.Tensor) -> None:
    """Follow a tensor that is given other data: where it was saved as an operation's input, these count."""
    saved = [each for each in weakref.getweakrefs(tensor) if isinstance(each, Original)]
    if not saved:
        return
    for packed in packed_in(tensor.grad_fn):
        original = packed.guard.original if isinstance(packed, Handle) else _original(packed)
        if original is not None and original() is tensor:
            original.is_result = True
    for each in saved:
        if not each.is_result:
            each.with_other_data = tensor


def _original(packed: object) -> Original | None:
    found = packed[-1] if isinstance(packed, tuple) else None
    return found if isinstance(found, Original) else None


class Guard:
    """Sees later changes of a tensor's contents: with hooks, autograd leaves this check to us."""

    __slots__ = ("_tensor", "_version", "geometry", "original")

    def __init__(self, tensor: torch.Tensor) -> None:
        # Without its graph: the live output of an operation, kept by that operation, is a cycle that nobody collects.
        self._tensor, self._version, self.original = tensor.detach(), tensor._version, Original(tensor)
        #: Type, offset, shape and strides.
        self.geometry: Geometry = (tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())
        set_data(
            self._tensor, torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        )  # the write counter stays shared

    @property
    def is_unwritten(self) -> bool:
        """Whether nothing has counted a write to the contents since."""
        return bool(self._tensor._version == self._version)

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
        set_data(tensor, restored)
        return tensor


#: A saved tensor that stays (a parameter, a small one, a subclass; or any one where all stay), its write counter, what
#: lives as long, and is counted so, and, where it has a graph, whose alias it is.
Kept = tuple[torch.Tensor, int, object, Original | None]


def kept(tensor: torch.Tensor, counted: object = None) -> Kept:
    """Keep a tensor, without its graph: see :class:`Guard`."""
    if tensor.grad_fn is None:
        return tensor, tensor._version, counted, None
    return tensor.detach(), tensor._version, counted, Original(tensor)


def given_back(kept: Kept) -> torch.Tensor:
    """Return it, unless its contents were written since."""
    tensor = kept[0]
    if tensor._version != kept[1]:
        _unchanged(tensor, kept[1], tensor.shape)
    if kept[3] is not None and (other := kept[3].with_other_data) is not None:
        return other.detach()
    return tensor


def _unchanged(tensor: torch.Tensor, saved: int, shape: Iterable[int]) -> None:
    if tensor._version != saved:
        raise RuntimeError(
            f"a tensor of shape {tuple(shape)} that the backward pass needs was modified by an inplace operation: it "
            f"is at version {tensor._version}, and was saved at version {saved}"
        )


def _references(held: Held) -> int:
    """Return how often Python refers to a storage: all that hold it as a storage have one and the same object."""
    return sys.getrefcount(held.storage)


#: Of one that only its holder has.
_OWN = _references(Held(Meter(), torch.UntypedStorage(1)))


def is_own(held: Held) -> bool:
    """Return whether nobody else has a storage."""
    return holders(storage_number(held.storage)) == 1 and _references(held) == _OWN


class Saved:
    """One storage that autograd keeps."""

    __slots__ = (
        "__weakref__", "_live", "_returned", "_waiting", "action", "again", "buffer", "forms", "held", "key",
        "layer_type", "makers", "n_bytes", "number", "parted_s", "ref", "ticket",
    )  # fmt: skip

    def __init__(self, key: RowKey, layer_type: str, held: Held, action: Action) -> None:
        self.key, self.layer_type, self.n_bytes, self.action = key, layer_type, held.storage.nbytes(), action
        #: While the reference lives, no other storage gets the same number.
        self.number, self.ref = storage_number(held.storage), StorageRef(held.storage)
        #: The storage: as long as it stays on the device.
        self.held: Held | None = held
        self.ticket: Ticket | None = None
        #: When it went to the tier.
        self.parted_s = 0.0
        #: Computes it again.
        self.again: Callable[[], Held] | None = None
        #: What came back; stays until the last handle was unpacked.
        self.buffer: Held | None = None
        self._returned: object = None
        #: Number of a handle -> what makes its tensor from something smaller; and what can make that of the storage.
        self.forms: dict[int, Form] = {}
        self.makers: dict[int, Callable[[torch.UntypedStorage], Form | None]] = {}
        self._live: set[int] = set()
        self._waiting: set[int] = set()

    @property
    def is_free(self) -> bool:
        """Whether it is on the device, and nobody else has the storage: what it holds now it will hold for good."""
        return self.held is not None and holders(self.number) == 1 and _references(self.held) == _OWN

    def restored(self) -> Held:
        """Return its contents on the device."""
        if self.held is not None:
            return self.held
        if self.buffer is None:
            if self.again is not None:
                self.buffer = self.again()
            elif self.ticket is not None:
                self.buffer = self.ticket.wait()
            else:
                raise RuntimeError(f"swapping lost {self.key}: a defect of drlnb")
        return self.buffer

    def returned(self, storage: torch.UntypedStorage) -> int:
        """Return the number of what came back, which no other storage gets until the next time that it comes back."""
        self._returned = StorageRef(storage)
        return storage_number(storage)

    @property
    def is_covered(self) -> bool:
        """Whether each of its handles has a maker."""
        return self._live <= self.makers.keys()

    def joined(self, handle: int) -> None:
        """Count a new handle."""
        self._live.add(handle)
        self._waiting.add(handle)

    def unpacked(self, handle: int) -> None:
        """Count a handle that was read: after the last one the buffer goes, until another pass begins."""
        self._waiting.discard(handle)
        if not self._waiting:
            self.rest()

    def rest(self) -> None:
        """Drop the buffer until another pass begins."""
        self.buffer, self._waiting = None, set(self._live)

    def left(self, handle: int) -> None:
        """Forget a handle that autograd dropped."""
        self._live.discard(handle)
        self.forms.pop(handle, None)
        self.makers.pop(handle, None)
        self.unpacked(handle)


class Handle:
    """What autograd holds for one saved tensor."""

    __slots__ = ("__weakref__", "guard", "saved")

    def __init__(self, saved: Saved, guard: Guard) -> None:
        self.saved, self.guard = saved, guard
        saved.joined(id(self))

    def __del__(self) -> None:
        self.saved.left(id(self))

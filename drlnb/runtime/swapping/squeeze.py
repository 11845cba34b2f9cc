"""Keep a smaller form of a saved tensor where the operation that saved it gets bit by bit the same gradient from it.

A max-pool never reads the values of its input (``void``), its indices fit in fewer bits (``narrow``), and a ReLU reads
of its result only where it is not positive (``mask``, a bit each).  Which operation a tensor was saved by is seen when
the module that runs it returns, on the graph of its output.  A storage stays in full until that is known of all that
saved it, and nobody else has it any more: who has it may write it.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial

import torch

from drlnb.planning.swapping.profile import SQUEEZE
from drlnb.runtime.swapping.attribution import Call
from drlnb.runtime.swapping.saved import Form, Geometry, Guard, Handle, Saved
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Held, Meter

__all__ = ["KINDS", "left_frac", "nodes", "plane_of", "recognise", "squeeze", "tensors_in"]

#: Operation of the graph -> name under which it holds a tensor -> form that will do.
KINDS: Mapping[str, Mapping[str, str]] = {
    "MaxPool2DWithIndicesBackward0": {"_saved_self": "void", "_saved_result1": "narrow"},
    "ReluBackward0": {"_saved_result": "mask"},
}
#: Of eight bytes that are 0 or 1: moves the i-th to bit i of the last; back: a byte to all eight, bit i of the i-th.
_GATHER, _SPREAD, _DIAGONAL = 0x0102040810204080, 0x0101010101010101, 0x8040201008040201 - (1 << 64)
#: So many operations back of a module's output are looked at.
_DEPTH = 64
#: (form, device, type, memory format) -> whether it gave the same gradients.
_tested: dict[tuple[object, ...], bool] = {}


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in what a module takes or returns."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_in(each)


def nodes(output: object) -> Iterator[torch.autograd.graph.Node]:
    """Yield the operations that made a module's output, the last ones first."""
    waiting = deque(tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None)
    seen = set(waiting)
    while waiting and len(seen) < _DEPTH:
        node = waiting.popleft()
        yield node
        for before, _ in node.next_functions:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)


def recognise(tape: Tape, call: Call, output: object) -> None:
    """Find out which tensors that a call has saved are of an operation that needs less, where that is the plan."""
    wanted = {each for each in call.pending if isinstance(each, Handle) and each.saved.action == SQUEEZE}
    for node in nodes(output) if wanted else ():
        for name, kind in KINDS.get(node.name(), {}).items():
            handle = tape.handle_of(node, name)
            if handle in wanted:
                wanted.discard(handle)
                plane = plane_of(tape, node)
                handle.saved.makers[id(handle)] = partial(_maker, kind, handle.guard, plane, tape.meter)
        if not wanted:
            return


def squeeze(saved: Saved) -> bool:
    """Keep something smaller for each tensor that views a storage, or all of it; return whether that is settled."""
    if saved.held is None or not saved.is_covered:
        return saved.held is None
    forms = {handle: make(saved.held.storage) for handle, make in saved.makers.items()}
    if all(forms.values()):
        saved.forms = {handle: form for handle, form in forms.items() if form is not None}
        saved.held = None
    return True


def plane_of(tape: Tape, node: torch.autograd.graph.Node) -> int:
    """Return how many numbers a plane of a max-pool's input has, which its indices count; many if nobody knows."""
    pooled = tape.handle_of(node, "_saved_self")
    return pooled.guard.geometry[2][-2:].numel() if pooled else 1 << 31


def left_frac(kind: str, itemsize: int, plane: int) -> float:
    """Return which share of a tensor's bytes a form leaves.

    Examples
    --------
    >>> left_frac("narrow", 8, 84 * 84), left_frac("mask", 4, 0), left_frac("void", 4, 0)
    (0.25, 0.03125, 0.0)
    """
    return float({"void": 0, "narrow": _fitting(plane).itemsize, "mask": 1 / 8}[kind] / itemsize)


def _fitting(plane: int) -> torch.dtype:
    return torch.int16 if plane <= 1 << 15 else torch.int32


def _maker(kind: str, guard: Guard, plane: int, meter: Meter, storage: torch.UntypedStorage) -> Form | None:
    with torch.no_grad():
        exact = _is_exact(kind, storage.device, guard.geometry)
        return _form(kind, guard.view(storage), plane, meter) if exact else None


def _form(kind: str, tensor: torch.Tensor, plane: int, meter: Meter) -> Form | None:
    """Return what makes the tensor, or one that will do, from less; None if nothing does."""
    dtype, device, size, stride = tensor.dtype, tensor.device, tensor.size(), tensor.stride()
    if kind == "void":
        return lambda: torch.empty_strided(size, stride, dtype=dtype, device=device)
    small = (
        ~(tensor <= 0) if kind == "mask" else tensor.to(_fitting(plane))
    )  # not `> 0`: a NaN lets the gradient through
    if small.stride() != stride or plane > 1 << 31:
        return None  # not dense: what is made of it would lie otherwise
    kept = _bits(small) if kind == "mask" else small
    held = Held(meter, kept.untyped_storage())
    return lambda: (held, (_bools(kept, size, stride) if kind == "mask" else kept).to(dtype))[1]


def _bits(flags: torch.Tensor) -> torch.Tensor:
    """Return dense flags in their order in memory, eight to a byte: shape ``(ceil(n / 8),)``, uint8."""
    n = flags.numel()
    octets = torch.nn.functional.pad(flags.as_strided((n,), (1,)).view(torch.uint8), (0, -n % 8)).view(torch.int64)
    return (octets * _GATHER).bitwise_right_shift_(56).to(torch.uint8)


def _bools(bits: torch.Tensor, size: torch.Size, stride: tuple[int, ...]) -> torch.Tensor:
    """Return what :func:`_bits` was given."""
    octets = (bits.to(torch.int64) * _SPREAD).bitwise_and_(_DIAGONAL)
    return (octets.view(torch.uint8) != 0).as_strided(size, stride)


def _is_exact(kind: str, device: torch.device, geometry: Geometry) -> bool:
    """Return whether a form gives the same gradients here; tried once per device, type and memory format."""
    dtype, _, size, stride = geometry
    shaped = torch.empty_strided(size, stride, device="meta")
    last = len(size) == 4 and shaped.is_contiguous(memory_format=torch.channels_last)
    case = (kind, device.type, device.index, dtype, last)
    if case not in _tested:
        x = (torch.arange(1536, device=device) * 787 % 1536 / 768 - 1).reshape(4, 6, 8, 8)
        x = x.to(torch.float32 if kind == "narrow" else dtype)
        _tested[case] = _same_gradient(kind, x.to(memory_format=torch.channels_last if last else torch.preserve_format))
    return _tested[case]


def _same_gradient(kind: str, x: torch.Tensor) -> bool:
    meter, window = Meter(), ([3, 3], [2, 2], [1, 1], [1, 1], False)
    pooled, indices = torch.ops.aten.max_pool2d_with_indices(x, *window)
    backward = torch.ops.aten.max_pool2d_with_indices_backward
    if kind == "mask":
        x[0, 0, 0, 0], x[0, 0, 0, 1] = torch.nan, torch.inf
        result, backward = torch.relu(x), torch.ops.aten.threshold_backward
        form = _form(kind, result, 64, meter)
        grads = [backward(x, result, 0), backward(x, form(), 0)] if form else []
    elif kind == "narrow":
        form = _form(kind, indices, 64, meter)
        grads = [backward(pooled, x, *window, each) for each in (indices, form())] if form else []
    else:
        unread = torch.full_like(x, torch.nan)
        grads = [backward(pooled, each, *window, indices) for each in (x, unread)]
    return len(grads) == 2 and torch.equal(grads[0].nan_to_num(7.0), grads[1].nan_to_num(7.0))

"""Trace what a module's forward pass does and saves for its backward pass, on the meta device: no memory."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from drlnb.planning.swapping.profile import RowKey, SavedRow, SwapBlock
from drlnb.planning.swapping.trace import Op, SwapTrace
from drlnb.runtime.swapping.squeeze import left_frac

__all__ = ["DERIVABLE", "N_DERIVED", "squeezed", "trace"]

#: Operations whose result can be computed again from what they read, bit by bit.
DERIVABLE = frozenset({"batch_norm", "relu", "relu_", "layer_norm", "gelu"})
#: Most operations between a row and the one that it is derived from.
N_DERIVED = 3


def squeezed(consumers: Sequence[str], dtype: torch.dtype, *, of_relu: bool, plane: int) -> tuple[str, float]:
    """Return how a saved tensor can be kept in fewer bytes, and the share of them that is left.

    Parameters
    ----------
    consumers
        Names of the operations that saved it.
    dtype
        Its numbers.
    of_relu
        It is the result of a ReLU.
    plane
        How many numbers its indices count, if it holds indices.

    Examples
    --------
    >>> squeezed(("max_pool2d",), torch.float32, of_relu=False, plane=0)
    ('void', 0.0)
    """
    names = set(consumers)
    if dtype == torch.int64 and names == {"max_pool2d"}:
        return "narrow", left_frac("narrow", dtype.itemsize, plane)
    if names == {"max_pool2d"}:
        return "void", 0.0
    if of_relu and names <= {"max_pool2d", "relu", "relu_"}:
        return "mask", left_frac("mask", dtype.itemsize, plane)
    return "", 1.0


@dataclass(slots=True)
class _Saved:
    """One saved storage on the way to its row."""

    key: RowKey
    layer_type: str
    n_bytes: int
    dtype: torch.dtype
    memory: int
    ticks: list[int] = field(default_factory=list)
    consumers: list[str] = field(default_factory=list)
    #: Numbers of one plane of what was saved before it: what indices point into.
    plane: int = 0


@dataclass(slots=True)
class _Made:
    """One operation and the storages that it read and wrote, with their bytes."""

    name: str
    flops: int
    read: dict[int, int]
    wrote: dict[int, int]
    param_bytes: int
    gradient_bytes: int

    def figures(self, kept: Collection[int]) -> tuple[int, ...]:
        """Return operations, bytes read, bytes written, those of storages that are not kept, and of gradients."""
        moved = {**self.read, **self.wrote}
        idle = sum(size for place, size in moved.items() if place not in kept)
        return self.flops, sum(self.read.values()), sum(self.wrote.values()), idle, self.gradient_bytes


class _Flops(TorchDispatchMode):  # type: ignore[misc]  # torch is skipped
    """Counts the floating-point operations of what is called within."""

    n = 0

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        self.n += count(*args, **(kwargs or {}), out_val=out) if count else 0
        return out


class _Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch is skipped
    """Notes every operation, every saved storage and every call of a module."""

    def __init__(self, module: nn.Module, held: set[int], inputs: set[int]) -> None:
        super().__init__()
        self._paths = {each: path for path, each in module.named_modules()}
        self._held = held
        #: Storages that are there before the first operation.
        self.inputs = inputs
        #: Keeps what was seen, so that no address comes twice.
        self._alive: list[Tensor] = []
        self.ops: list[_Made] = []
        #: Storage -> the operations that wrote it.
        self.writers: defaultdict[int, list[int]] = defaultdict(list)
        self.saved: dict[int, _Saved] = {}
        self.stack: list[nn.Module] = []
        #: Path -> (first tick, tick after the last one) of each call.
        self.calls: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        #: Path -> storages of the inputs of the last call, with their bytes.
        self.given: dict[str, dict[int, int]] = {}
        self._ordinals: defaultdict[str, int] = defaultdict(int)
        self._name = ""
        self._plane = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._name, n_saved = getattr(func, "__name__", "op"), len(self.saved)
        read = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        versions = [each._version for each in read]
        with _Flops() as flops:
            out = func(*args, **(kwargs or {}))
        changed = versions != [each._version for each in read]
        wrote = [each for each in tree_leaves(out) if isinstance(each, Tensor) and self._place(each) not in self._held]
        moved = {self._place(each): _size(each) for each in read if self._place(each) not in self._held}
        made = {self._place(each): _size(each) for each in wrote}
        if moved and made and (changed or made.keys() - moved.keys() or len(self.saved) > n_saved):
            held = sum(_size(each) for each in read if self._place(each) in self._held)
            gradients = sum(_size(each) for each in (*read, *wrote) if each.grad_fn is not None)
            for place in made:
                self.writers[place].append(len(self.ops))
            self.ops.append(_Made(self._name, flops.n, moved, made, held, gradients))
        return out

    def _place(self, tensor: Tensor) -> int:
        self._alive.append(tensor.detach())
        return int(tensor.untyped_storage()._cdata)

    def pack(self, tensor: Tensor) -> Tensor:
        """Record a saved tensor under its storage."""
        place = self._place(tensor)
        if tensor.dtype != torch.int64 and tensor.ndim > 1:
            self._plane = tensor.shape[-1] * tensor.shape[-2]
        if place not in self._held and tensor.ndim:
            if place not in self.saved:
                self.saved[place] = self._first(tensor, place)
            row = self.saved[place]
            row.ticks += [len(self.ops)] if len(self.ops) not in row.ticks else []
            row.consumers += [self._name] if self._name not in row.consumers else []
        return tensor

    def _first(self, tensor: Tensor, place: int) -> _Saved:
        path, kind = self._paths.get(self.stack[-1], ""), type(self.stack[-1]).__name__
        self._ordinals[path] += 1
        layer = kind if not any(True for _ in self.stack[-1].children()) else f"{kind}/{self._name}"
        n_bytes = tensor.untyped_storage().nbytes()
        return _Saved((path, self._ordinals[path] - 1), layer, n_bytes, tensor.dtype, place, plane=self._plane)

    def row(self, saved: _Saved, bytes_per_sample: int, source: RowKey | None) -> SavedRow:
        """Return a saved storage as a row that can be derived from another one, or from none."""
        writers = self.writers.get(saved.memory, [])
        of_relu = bool(writers) and self.ops[writers[-1]].name in {"relu", "relu_"}
        kind, left = squeezed(saved.consumers, saved.dtype, of_relu=of_relu, plane=saved.plane)
        return SavedRow(
            key=saved.key,
            layer_type=saved.layer_type,
            bytes_per_sample=float(bytes_per_sample),
            born_tick=writers[0] if writers else -1 if saved.memory in self.inputs else saved.ticks[0],
            packed_ticks=tuple(saved.ticks),
            consumers=tuple(saved.consumers),
            squeeze_kind=kind,
            squeeze_left_frac=left,
            derive_from=source,
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the calls of modules and what they save."""
        starts: list[int] = []

        def enter(module: nn.Module, args: object) -> None:
            self.stack.append(module)
            given = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
            self.given[self._paths.get(module, "")] = {self._place(each): _size(each) for each in given}
            starts.append(len(self.ops))

        def leave(module: nn.Module, args: object, out: object) -> None:
            self.calls[self._paths.get(self.stack.pop(), "")].append((starts.pop(), len(self.ops)))

        hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor), self:
                yield
        finally:
            for hook in hooks:
                hook.remove()


def _size(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.itemsize)


def _record(module: nn.Module, sample: Sequence[Tensor], n_samples: int) -> _Recorder:
    """Run the forward pass once on the meta device with so many copies of the sample."""
    state = {name: each.to("meta") for name, each in (*module.named_parameters(), *module.named_buffers())}
    for name, parameter in module.named_parameters():
        state[name].requires_grad_(parameter.requires_grad)
    given = [torch.empty((n_samples, *each.shape[1:]), dtype=each.dtype, device="meta") for each in sample]
    held, inputs = ({each.untyped_storage()._cdata for each in tensors} for tensors in (state.values(), given))
    recorder = _Recorder(module, held, inputs)
    with recorder.watching():
        torch.func.functional_call(module, state, tuple(given), tie_weights=False)
    return recorder


def trace(module: nn.Module, *sample: Tensor, name: str = "") -> SwapTrace:
    """Trace a module's forward pass, in its own mode (training or evaluation).

    Parameters
    ----------
    module
        The network; it is not changed.
    sample
        Its inputs, the batch first; shapes and types alone are read.
    name
        What the profile calls it; empty: its class.

    Returns
    -------
    SwapTrace
        Operations and saved storages with their bytes per sample, from two batch sizes.
        How long callers hold a storage beyond its last pack is not seen.

    Raises
    ------
    TypeError
        If it is not a module, or its inputs are not tensors.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"trace takes a torch.nn.Module, got {module!r:.80}")
    if not sample or not all(isinstance(each, Tensor) and each.ndim for each in sample):
        kinds = ", ".join(type(each).__name__ for each in sample) or "none"
        raise TypeError(f"trace takes a module and its inputs, tensors with the batch first, got {kinds}")
    two, three = (_record(module, sample, n) for n in (2, 3))
    scales = [a.n_bytes != b.n_bytes for a, b in zip(two.saved.values(), three.saved.values(), strict=True)]
    saved = list(itertools.compress(two.saved.values(), scales))
    larger = itertools.compress(three.saved.values(), scales)
    keys = {each.memory: each.key for each in saved}
    chains = [_chain(two, each.memory, keys) for each in saved]
    rows = [
        two.row(each, other.n_bytes - each.n_bytes, keys.get(source))
        for each, other, (source, _) in zip(saved, larger, chains, strict=True)
    ]
    return SwapTrace(
        shape_key=f"{name or type(module).__name__} " + " ".join("x".join(map(str, each.shape[1:])) for each in sample),
        param_bytes=float(sum(map(_size, module.parameters()))),
        ops=tuple(_ops(two, three, scales)),
        rows=tuple(rows),
        derive_ops=tuple(ops for _, ops in chains),
        blocks=tuple(_blocks(two, three, rows)),
    )


def _ops(two: _Recorder, three: _Recorder, scales: Sequence[bool]) -> Iterator[Op]:
    """Yield the operations, with what one sample more adds to each."""
    figures = [
        np.array([
            each.figures({row.memory for row in itertools.compress(run.saved.values(), scales)}) for each in run.ops
        ])
        for run in (two, three)
    ]
    for each, (flops, read, wrote, idle, gradient) in zip(two.ops, figures[1] - figures[0], strict=True):
        yield Op(
            name=each.name, flops=float(flops), in_bytes=float(read), out_bytes=float(wrote),
            param_bytes=float(each.param_bytes), transient_bytes=float(idle), gradient_bytes=float(gradient),
        )  # fmt: skip


def _chain(run: _Recorder, place: int, keys: Mapping[int, RowKey]) -> tuple[int, tuple[int, ...]]:
    """Return the saved storage that another one can be computed from, as far back as may be, and how."""
    source, ops = -1, tuple[int, ...]()
    best = source, ops
    while place in run.writers:
        ops = (*run.writers[place], *ops)
        read = run.ops[ops[0]].read.keys() - {place}
        if len(ops) > N_DERIVED or len(read) != 1 or any(run.ops[i].name not in DERIVABLE for i in ops):
            break
        (place,) = read
        best = (place, ops) if place in keys else best
    return best


def _blocks(run: _Recorder, larger: _Recorder, rows: Sequence[SavedRow]) -> Iterator[SwapBlock]:
    """Yield the modules that are called once and save two rows or more, none of which anybody else saves or made."""
    seen = set[tuple[RowKey, ...]]()
    for path, calls in run.calls.items():
        first, stop = calls[0]
        inside = tuple(row.key for row in rows if first <= row.born_tick and row.packed_ticks[-1] < stop)
        if path and len(calls) == 1 and len(inside) > 1 and inside not in seen:
            seen.add(inside)
            kept = {each.memory for each in run.saved.values() if each.key not in inside}
            sizes = zip(run.given[path].items(), larger.given[path].values(), strict=True)
            more = float(sum(other - size for (place, size), other in sizes if place not in kept))
            yield SwapBlock(path=path, first_tick=first, last_tick=stop - 1, rows=inside, input_bytes=(0.0, more))

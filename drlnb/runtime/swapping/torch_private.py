"""Reach the private names of torch that swapping needs: no other file does."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
from torch.autograd import graph

__all__ = [
    "NormBase",
    "StorageRef",
    "SwapUnavailable",
    "assignments_told",
    "free_pinned",
    "graph_task",
    "holders",
    "in_compiler",
    "in_transform",
    "innermost_hooks",
    "is_wrapper",
    "is_zero",
    "operation",
    "packed_by",
    "packed_in",
    "set_data",
    "storage_number",
    "storages_in",
    "submodules",
    "transforms_allowed",
    "unhookable",
]


class SwapUnavailable(RuntimeError):
    """Raised where a build of torch lacks something that swapping needs."""


def _private(home: str, name: str) -> Any:  # whatever torch has there
    try:
        return attrgetter(name)(import_module(home))
    except (ImportError, AttributeError):
        raise SwapUnavailable(f"swapping needs {home}.{name}, which torch {torch.__version__} lacks") from None


#: Refers to a storage without keeping its bytes; while it lives, no other storage gets the same number.
StorageRef = _private("torch.multiprocessing.reductions", "StorageWeakRef")
#: Base class of the modules that keep batch statistics.
NormBase = _private("torch.nn.modules.batchnorm", "_NormBase")
_current_graph_task = _private("torch._C", "_current_graph_task_id")
_sequence_number = _private("torch._C._autograd", "_get_sequence_nr")
_top_hooks = _private("torch._C._autograd", "_top_saved_tensors_default_hooks")
_push_hooks = _private("torch._C._autograd", "_push_saved_tensors_default_hooks")
_pop_hooks = _private("torch._C._autograd", "_pop_saved_tensors_default_hooks")
_disabled = graph.disable_saved_tensors_hooks
_lock = threading.RLock()  # a swapper may be collected by the thread that has it
_open, _told = list[None](), list[Callable[[torch.Tensor], None]]()
#: Layout -> the methods that return its indices.
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"), torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"), torch.sparse_bsc: ("ccol_indices", "row_indices"),
}  # fmt: skip
_use_count = _private("torch._C", "_storage_Use_Count")
#: Whether a tensor is a transform's wrapper, which has no bytes of its own.
is_wrapper = _private("torch._C._functorch", "is_functorch_wrapped_tensor")
#: Whether it is the zero of forward derivatives, which has none either.
is_zero = _private("torch", "Tensor._is_zerotensor")
_forward_ad = _private("torch.autograd", "forward_ad")
_forward_ad._current_level  # noqa: B018 - whether it is there
_transform_level = _private("torch._C._functorch", "maybe_current_level")
_n_modes = _private("torch._C", "_len_torch_dispatch_stack")
_function_modes = _private("torch.overrides", "_get_current_function_mode_stack")
_DeviceMode = _private("torch.utils._device", "DeviceContext")
_private("torch._C._autograd", "SavedTensor.data")  # whether they are there
_data = _private("torch._C", "TensorBase.data")
#: Gives a tensor other data, as ``tensor.data = other`` does, without a word to :func:`assignments_told`.
set_data = _data.__set__
_private("torch", "UntypedStorage._cdata")


def free_pinned() -> None:
    """Give the host's memory back that torch has pinned and keeps for later; older builds keep it."""
    getattr(torch.accelerator.memory, "empty_host_cache", getattr(torch._C, "_host_emptyCache", lambda: None))()


def storage_number(storage: torch.UntypedStorage) -> int:
    """Return the number of a storage: its address, which only a held :data:`StorageRef` keeps from being used again."""
    return int(storage._cdata)


def holders(number: int) -> int:
    """Return how many have a storage: each tensor, what stands for it in an array, and Python's one object of it."""
    return int(_use_count(number))


def packed_by(node: object, name: str) -> object:
    """Return what a hook made of the tensor that a node has saved under a name; None if it has none; runs no hook."""
    raw = getattr(node, f"_raw{name}", None)
    return raw.data if raw is not None else None


def packed_in(node: object) -> Iterator[object]:
    """Yield what hooks made of the tensors that a node has saved; runs no hook."""
    for name in [each for each in dir(node) if each.startswith("_raw_saved_")]:
        try:
            raw = getattr(node, name)
            yield from [each.data for each in (raw if isinstance(raw, list | tuple) else [raw]) if each is not None]
        except RuntimeError:  # it has run, and holds nothing any more
            return


@contextmanager
def assignments_told(tell: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Have a function called before a tensor is given other data (``x.data = y``), in the context."""
    with _lock:
        _told.append(tell)
        torch.Tensor.data = _followed
    try:
        yield
    finally:
        with _lock:
            _told.remove(tell)
            if not _told:
                del torch.Tensor.data


def _put(tensor: torch.Tensor, other: torch.Tensor) -> None:
    for tell in dict.fromkeys(_told):
        tell(tensor)
    set_data(tensor, other)


_followed = property(_data.__get__, _put, doc=_data.__doc__)


def storages_in(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Return the storages of the indices and values of a sparse tensor; others have none."""
    parts = []
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in _COMPRESSED:
        parts = [*[getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]], tensor.values()]
    return [each.untyped_storage() for each in parts]


@contextmanager
def transforms_allowed() -> Iterator[None]:
    """Have transforms that refuse hooks of saved tensors (``torch.func.grad``) run without ours, in the context.

    They refuse hooks that are in force already.  Ours, which know themselves by ``gives_way``, are taken away as long
    as they run; other hooks are refused as ever.
    """
    with _lock:
        _open.append(None)
        graph.disable_saved_tensors_hooks = _without_ours
    try:
        yield
    finally:
        with _lock:
            _open.pop()
            if not _open:
                graph.disable_saved_tensors_hooks = _disabled


@contextmanager
def _without_ours(message: str) -> Iterator[None]:
    aside = []
    while (top := _top_hooks(True)) is not None and getattr(getattr(top[0], "__self__", None), "gives_way", False):
        aside.append(top)
        _pop_hooks()
    try:
        with _disabled(message):
            yield
    finally:
        for pack, unpack in reversed(aside):
            _push_hooks(pack, unpack)


def graph_task() -> int:
    """Return the number of the backward pass that this thread is in; -1 outside of one."""
    return int(_current_graph_task())


def operation() -> int:
    """Return a number that the tensors which one operation saves have in common; the next operation has another."""
    return int(_sequence_number())


def in_transform() -> bool:
    """Return whether operations mean more than what they say: forward differentiation, a transform, or a mode."""
    if _forward_ad._current_level >= 0 or _transform_level() is not None or _n_modes():
        return True
    return not all(isinstance(each, _DeviceMode) for each in _function_modes())


def innermost_hooks() -> tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]:
    """Return the hooks of saved tensors that are in force; there must be some."""
    pack, unpack = _top_hooks(False)
    return pack, unpack


def in_compiler() -> bool:
    """Return whether this code is traced by a compiler, or recorded into a CUDA graph."""
    capturing = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    return bool(torch.compiler.is_compiling() or capturing)


def submodules(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return a module and those within it, each once; quicker than `modules`, which makes their names."""
    modules, seen = [module], {id(module)}
    for each in modules:
        for child in each._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                modules.append(child)
    return modules


def unhookable(module: torch.nn.Module, device: torch.device) -> str:
    """Return why a step must have no hooks now; empty if it may."""
    if _compiled(module):
        return "the module is compiled: hooks of saved tensors would break its code"
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return "the step is recorded into a CUDA graph" if capturing else ""


def _compiled(module: torch.nn.Module) -> bool:
    """Return whether torch.compile has taken a module, or one within it."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:  # nothing is compiled
        return False
    kind = getattr(dynamo, "OptimizedModule", ())
    return any(isinstance(each, kind) or each._compiled_call_impl is not None for each in submodules(module))

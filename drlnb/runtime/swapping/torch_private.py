"""Reach the private names of torch that swapping needs: no other file does."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

__all__ = [
    "NormBase",
    "StorageRef",
    "SwapUnavailable",
    "graph_task",
    "in_compiler",
    "innermost_hooks",
    "operation",
    "storage_number",
    "submodules",
    "unhookable",
]


class SwapUnavailable(RuntimeError):
    """Raised where a build of torch lacks something that swapping needs."""


def _private(home: str, name: str) -> Any:  # whatever torch has there
    try:
        return getattr(import_module(home), name)
    except (ImportError, AttributeError):
        raise SwapUnavailable(f"swapping needs {home}.{name}, which torch {torch.__version__} lacks") from None


#: Refers to a storage without keeping its bytes; while it lives, no other storage gets the same number.
StorageRef = _private("torch.multiprocessing.reductions", "StorageWeakRef")
#: Base class of the modules that keep batch statistics.
NormBase = _private("torch.nn.modules.batchnorm", "_NormBase")
_current_graph_task = _private("torch._C", "_current_graph_task_id")
_sequence_number = _private("torch._C._autograd", "_get_sequence_nr")
_top_hooks = _private("torch._C._autograd", "_top_saved_tensors_default_hooks")
_private("torch", "UntypedStorage")._cdata  # noqa: B018 - whether it is there


def storage_number(storage: torch.UntypedStorage) -> int:
    """Return the number of a storage: its address, which only a held :data:`StorageRef` keeps from being used again."""
    return int(storage._cdata)


def graph_task() -> int:
    """Return the number of the backward pass that this thread is in; -1 outside of one."""
    return int(_current_graph_task())


def operation() -> int:
    """Return a number that the tensors which one operation saves have in common; the next operation has another."""
    return int(_sequence_number())


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

"""Follow which module is running, so that each saved storage gets a name: its module's path and a number."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from types import TracebackType

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.rnn import PackedSequence

from drlnb.planning.swapping.profile import RowKey
from drlnb.runtime.swapping.torch_private import graph_task

__all__ = ["Attribution", "Call"]

#: Path of what is saved within a backward pass (a graph of gradients).
_BACKWARD = "(backward)"


@dataclass(slots=True)
class Call:
    """One call of a module that has not returned yet."""

    path: str
    module: torch.nn.Module | None
    inputs: tuple[object, ...] = ()
    #: Whatever waits for the end of this call.
    pending: list[object] = field(default_factory=list)
    #: The state of the one tensor that it takes; for whoever computes its output again.
    source: object = None


def _leading_size(value: object) -> int | None:
    """Return the number of sequences that are packed first in a nest, or the leading size of its first tensor."""
    if isinstance(value, PackedSequence):
        return int(value.batch_sizes[0])
    if isinstance(value, torch.Tensor):
        return int(value.shape[0]) if value.dim() else None
    parts: Iterable[object] = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, tuple | list):
        parts = value
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, each.name) for each in fields(value)]
    return next((n for each in parts if (n := _leading_size(each)) is not None), None)


class Attribution:
    """Knows the stack of modules that run in the step's thread.

    The hooks are torch's global ones, in place during a step only: a copy of the module made meanwhile has none.

    Parameters
    ----------
    module
        Its submodules have paths; others do not count.
    entered, left
        Called with each call that begins, or has ended: then with its output, ``None`` after an exception.
    """

    def __init__(
        self, module: torch.nn.Module, *, entered: Callable[[Call], None], left: Callable[[Call, object], None]
    ) -> None:
        self._module, self._entered, self._left = module, entered, left
        self._paths: dict[torch.nn.Module, str] = {}
        self._stack: list[Call] = []
        self._counts: dict[str, int] = {}
        self._thread = 0
        #: Samples that the module was given first in this step, as far as its inputs show that.
        self.n_samples: int | None = None

    def __enter__(self) -> None:
        self._paths = {module: path for path, module in self._module.named_modules()}
        self._stack, self._counts, self._thread = [Call("", None)], {}, threading.get_ident()
        self.n_samples = None
        self._hooks = (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        )

    @contextmanager
    def size_alone(self) -> Iterator[None]:
        """Look at the size of the module's first input, and follow nothing."""
        self.n_samples, thread = None, threading.get_ident()

        def mine(module: torch.nn.Module) -> bool:
            return module is self._module and threading.get_ident() == thread

        def look(module: torch.nn.Module, inputs: tuple[object, ...]) -> None:
            if mine(module):
                self.n_samples = _leading_size(inputs)
                hooks.pop().remove()
                if self.n_samples is None:  # these hooks know no keywords
                    hooks.append(register_module_forward_hook(look_again, with_kwargs=True))

        def look_again(module: torch.nn.Module, _: object, named: Mapping[str, object], output: object) -> None:
            if mine(module):
                self.n_samples = _leading_size(named)
                hooks.pop().remove()

        hooks = [register_module_forward_pre_hook(look)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for hook in self._hooks:
            hook.remove()
        self._stack, self._paths = [Call("", None)], {}

    @property
    def call(self) -> Call:
        """The innermost call; outside of all: one without a module."""
        return self._stack[-1]

    def name(self) -> tuple[RowKey, str]:
        """Return the key of a storage that is packed for the first time now, and its layer type."""
        call = self.call
        inside = graph_task() != -1
        path = _BACKWARD if inside else call.path
        ordinal = self._counts.get(path, 0)
        self._counts[path] = ordinal + 1
        module = call.module
        layer_type = "(outside)" if module is None else type(module).__name__
        return (path, ordinal), _BACKWARD if inside else layer_type

    def _mine(self, module: torch.nn.Module) -> bool:
        # A checkpoint calls modules again within the backward pass: their storages have their names already.
        return module in self._paths and threading.get_ident() == self._thread and graph_task() == -1

    def _before(self, module: torch.nn.Module, inputs: tuple[object, ...]) -> None:
        if not self._mine(module):
            return
        call = Call(self._paths[module], module, inputs)
        self._stack.append(call)
        self._entered(call)

    def _after(self, module: torch.nn.Module, inputs: tuple[object, ...], *rest: object) -> None:
        *named, output = rest  # after an exception torch leaves the keywords out
        if self._mine(module) and any(call.module is module for call in self._stack):
            while (call := self._stack.pop()).module is not module:
                pass  # its own hook failed before it ran
            if self.n_samples is None and module is self._module:
                self.n_samples = _leading_size((*inputs, *named))
            self._left(call, output)

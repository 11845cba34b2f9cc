"""Have classes of modules ask, for a step, whether the forward pass of this very module is meant, in this thread.

Nothing is put on the module itself: a copy or a pickle that is made meanwhile is what it would be without a plan.
"""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType

import torch
from torch import nn

__all__ = ["Forward", "can_be_asked", "instead", "not_asked"]

#: A forward pass, bound to its module.
Forward = Callable[..., object]
#: What to do instead: given the forward pass, and what it is called with.
Instead = Callable[[Forward, tuple[object, ...], dict[str, object]], object]
#: Number of a module and of a thread -> what to do.
_MEANT: dict[tuple[int, int], Instead] = {}
#: How often classes are asked now, and the forward pass of their own; None: they have inherited it.
_ASKED: defaultdict[type[nn.Module], int] = defaultdict(int)
_OWN: dict[type[nn.Module], Forward | None] = {}
_LOCK = threading.Lock()


def can_be_asked(module: nn.Module) -> bool:
    """Return whether the forward pass of a module is its class's, in Python."""
    if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
        return False
    return isinstance(type(module).forward, FunctionType)


@contextmanager
def instead(of: Mapping[nn.Module, Instead]) -> Iterator[None]:
    """Have something else done than forward passes of modules, by this thread, while the context is open."""
    thread, kinds = threading.get_ident(), {type(module) for module in of}
    meant = {(id(module), thread): do for module, do in of.items()}
    with _LOCK:
        for kind in kinds:
            _ASKED[kind] += 1
            if _ASKED[kind] == 1:
                _OWN[kind] = vars(kind).get("forward")
                kind.forward = _asking(kind.forward)
    try:
        _MEANT.update(meant)
        yield
    finally:
        for each in meant:
            _MEANT.pop(each, None)
        with _LOCK:
            for kind in kinds:
                _ASKED[kind] -= 1
                if _ASKED[kind] == 0:
                    _forget(kind)


def _forget(kind: type[nn.Module]) -> None:
    own = _OWN.pop(kind)
    if own is None:
        del kind.forward
    else:
        kind.forward = own
    del _ASKED[kind]


def _asking(forward: Forward) -> Forward:
    @functools.wraps(forward)
    def asks(self: nn.Module, *args: object, **kwargs: object) -> object:
        if torch.compiler.is_compiling():
            return forward(self, *args, **kwargs)
        return _ask(forward, self, args, kwargs)

    return asks


def _ask(forward: Forward, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    with not_asked(module) as do:
        if do is None:
            return forward(module, *args, **kwargs)
        return do(functools.partial(forward, module), args, kwargs)


@contextmanager
def not_asked(module: nn.Module) -> Iterator[Instead | None]:
    """Have the forward pass of a module run as it is: it may call that of its base class, which would ask again."""
    meant = id(module), threading.get_ident()
    do = _MEANT.pop(meant, None)
    try:
        yield do
    finally:
        if do is not None:
            _MEANT[meant] = do

"""Make the forward pass of a submodule again in the backward pass, instead of keeping what it saved."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from drlnb.runtime.swapping.memory import storages_of
from drlnb.runtime.swapping.torch_private import NormBase, innermost_hooks

__all__ = ["can_run_again", "recomputed"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Remaking = Callable[[Collection[int]], Callable[[torch.Tensor], None]]


def can_run_again(module: nn.Module) -> bool:
    """Return whether a second forward pass gives the same: the only buffers that it may write are batch statistics."""
    return all(isinstance(each, NormBase) or not each._buffers for each in module.modules())


@contextmanager
def recomputed(module: nn.Module, paths: Sequence[str], remaking: _Remaking) -> Iterator[None]:
    """Checkpoint submodules, with exact batch statistics and random numbers, while the context is open.

    Parameters
    ----------
    module
        The model.
    paths
        Of its submodules; none lies within another.
    remaking
        Called as a submodule is run again, with the numbers of the storages of its parameters and buffers, for what is
        to see the tensors that it saves then.

    Raises
    ------
    ValueError
        If a submodule is missing, or has buffers besides batch statistics.
    """
    known = dict(module.named_modules()) if paths else {}
    for path in paths:
        if path not in known or not can_run_again(known[path]):
            raise ValueError(f"block {path!r} is no submodule whose forward pass can be made again")
    before = {path: vars(known[path]).get("forward") for path in paths}
    try:
        for path in paths:
            known[path].forward = _checkpointed(known[path], known[path].forward, remaking)
        yield
    finally:
        for path, forward in before.items():
            if forward is None:
                del known[path].forward
            else:
                known[path].forward = forward


def _checkpointed(module: nn.Module, forward: Callable[_P, _T], remaking: _Remaking) -> Callable[_P, _T]:
    def outer(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        runs: list[None] = []

        def inner(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            runs.append(None)
            if len(runs) == 1:
                return forward(*args, **kwargs)
            with _statistics_kept(module), _seen(remaking(storages_of(module)[0])):
                return forward(*args, **kwargs)

        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        result: _T = checkpoint(inner, *args, use_reentrant=False, **kwargs)
        return result

    return outer


@contextmanager
def _seen(look: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Look at what the checkpoint's hooks, which are the innermost ones, are given."""
    pack, unpack = innermost_hooks()

    def both(tensor: torch.Tensor) -> object:
        look(tensor)  # first: the last tensor ends the run by an error
        return pack(tensor)

    with saved_tensors_hooks(both, unpack):
        yield


@contextmanager
def _statistics_kept(module: nn.Module) -> Iterator[None]:
    """Have batch normalisation write copies of its statistics: the first pass has counted this batch already."""
    norms = [each for each in module.modules() if isinstance(each, NormBase)]
    buffers = [dict(norm._buffers) for norm in norms]
    try:
        for norm in norms:
            norm._buffers.update({name: None if each is None else each.clone() for name, each in norm._buffers.items()})
        yield
    finally:
        for norm, kept in zip(norms, buffers, strict=True):
            norm._buffers.update(kept)

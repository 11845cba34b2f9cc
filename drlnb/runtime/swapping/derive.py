"""Compute a saved tensor again from another saved one, by the operations that made it.

Known are the outputs of batch and layer normalisation, ReLU and GELU modules, and chains of them.  What an output was
made of is noted when its module returns; whether the result is bit by bit the same is tried, on the tensors themselves,
the first time that a chain meets a device, type, shape and memory format.  That is while steps are recorded, if any
is: a trial needs room for one row more, which a plan does not leave.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from drlnb.planning.swapping.profile import DERIVE, KEEP, SWAP, RowKey
from drlnb.runtime.swapping.attribution import Call
from drlnb.runtime.swapping.guard import Guard, Identity, identity
from drlnb.runtime.swapping.squeeze import tensors_in
from drlnb.runtime.swapping.tape import Handle, Saved, Tape
from drlnb.runtime.swapping.tiers.base import Held, flat
from drlnb.runtime.swapping.torch_private import StorageRef

__all__ = ["Recipes"]

_Operation = Callable[[torch.Tensor], torch.Tensor]
#: So many operations lie at most between a saved tensor and the one that it is computed from.
_CHAIN = 3


def _copied(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Copy parameters: writing them before the backward pass is allowed where autograd did not save them."""
    return [None if each is None else each.detach().clone() for each in tensors]


def _batch_norm(module: nn.BatchNorm2d) -> _Operation:
    weight, bias = _copied(module.weight, module.bias)
    if module.training or module.running_mean is None:
        return lambda x: functional.batch_norm(x, None, None, weight, bias, True, 0.0, module.eps)
    mean, var = _copied(module.running_mean, module.running_var)
    return lambda x: functional.batch_norm(x, mean, var, weight, bias, False, 0.0, module.eps)


def _layer_norm(module: nn.LayerNorm) -> _Operation:
    weight, bias = _copied(module.weight, module.bias)
    return lambda x: functional.layer_norm(x, module.normalized_shape, weight, bias, module.eps)


def _gelu(module: nn.GELU) -> _Operation:
    return lambda x: functional.gelu(x, approximate=module.approximate)


#: Modules whose output can be computed again, and by what.
_OPERATIONS: Mapping[type[nn.Module], Callable[..., _Operation]] = {
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm3d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GELU: _gelu,
    nn.ReLU: lambda module: torch.relu,
}


@dataclass(slots=True)
class _Recipe:
    """How an output was made."""

    module: type[nn.Module]
    operation: _Operation
    made_of: Identity
    #: Of the input.
    guard: Guard
    #: While these live, no other storage gets the numbers of input and output.
    refs: tuple[object, object]


@dataclass(slots=True)
class _Source:
    """The input of a call that has not returned yet, as it is before the call: an operation may write it."""

    made_of: Identity
    guard: Guard
    ref: object


class Recipes:
    """Knows how the outputs of one step were made.

    Parameters
    ----------
    tape
        Holds the saved tensors.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._made: dict[Identity, _Recipe] = {}
        self._wanted = False
        self._tested: dict[tuple[object, ...], bool] = {}

    def begin(self, *, wanted: bool) -> None:
        """Forget the last step.

        Parameters
        ----------
        wanted
            Something of the next one is derived, or may be.
        """
        self._made.clear()
        self._wanted = wanted

    def entered(self, call: Call) -> None:
        """Remember the input of a module whose output could be computed again."""
        module, tensors = call.module, [each for each in call.inputs if isinstance(each, torch.Tensor)]
        if self._wanted and type(module) in _OPERATIONS and "forward" not in vars(module) and len(tensors) == 1:
            x = tensors[0]
            if type(x) in {torch.Tensor, nn.Parameter} and x.layout is torch.strided and not x.is_inference():
                call.source = _Source(identity(x), Guard(x), StorageRef(x.untyped_storage()))

    def left(self, call: Call, output: object) -> None:
        """Remember how an output was made, and let go of what the plan derives among what was saved during the call."""
        source, module = call.source, call.module
        if isinstance(source, _Source) and module is not None and isinstance(output, torch.Tensor):
            operation = _as_then(_OPERATIONS[type(module)](module), output.device.type)
            refs = (source.ref, StorageRef(output.untyped_storage()))
            self._made[identity(output)] = _Recipe(type(module), operation, source.made_of, source.guard, refs)
        for handle in call.pending:
            if isinstance(handle, Handle) and handle.full is not None and handle.saved.action == DERIVE:
                self._derive(handle, handle.full)

    def source_of(self, saved: Saved, tensors: object) -> RowKey | None:
        """Return the key of what a storage could be computed from; tried if it is among some tensors."""
        chain = self._chain(saved)
        if chain is None:
            return None
        for each in tensors_in(tensors):
            if identity(each) == saved.identity and not self._is_exact(*chain, each.untyped_storage()):
                return None
        return chain[0].key

    def _is_exact(self, source: Saved, recipes: list[_Recipe], made: torch.UntypedStorage) -> bool:
        """Return whether operations give the same bits again; tried once, on the tensors themselves."""
        guard = recipes[0].guard
        case = (*[recipe.module for recipe in recipes], made.device, guard.geometry)
        if case not in self._tested:
            self._tape.make_room(made.nbytes())
            with torch.no_grad():
                again = self._run(recipes, source.restored())
            self._tested[case] = _same(again.storage, made)
            source.rest()
        return self._tested[case]

    def _run(self, recipes: list[_Recipe], held: Held) -> Held:
        x = recipes[0].guard.view(held.storage)
        for recipe in recipes:
            x = recipe.operation(x)
        return Held(self._tape.meter, x.untyped_storage())

    def _chain(self, saved: Saved) -> tuple[Saved, list[_Recipe]] | None:
        recipes: list[_Recipe] = []
        while recipe := self._made.get(recipes[-1].made_of if recipes else saved.identity):
            recipes.append(recipe)
            source = self._tape.saved_at(recipe.made_of)
            if source is not None and source.action in {KEEP, SWAP}:
                return source, recipes[::-1]
            if len(recipes) == _CHAIN:
                break
        return None

    def _derive(self, handle: Handle, full: Held) -> None:
        saved = handle.saved
        chain = self._chain(saved) if saved.again is None else None
        if chain is not None and self._is_exact(*chain, full.storage):
            recipes = chain[1]
            source = Handle(chain[0], recipes[0].guard)

            def again() -> Held:
                source.guard.check()
                made = self._run(recipes, self._tape.restored(source.saved))
                source.saved.unpacked(id(source))
                return made

            saved.again = again
        if saved.again is not None:
            handle.full = None


def _same(first: torch.UntypedStorage, second: torch.UntypedStorage) -> bool:
    return bool(first.nbytes() == second.nbytes() and torch.equal(flat(first), flat(second)))


def _as_then(operation: _Operation, device: str) -> _Operation:
    """Return an operation that runs under the autocast state of now."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False):
            return operation(x)

    return run

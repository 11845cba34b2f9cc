"""Compute a saved tensor again from another saved one, by the operations that made it.

Known are the outputs of batch and layer normalisation, ReLU and GELU modules, and chains of them.  What an output was
made of is noted when its module returns.  Whether the result is bit by bit the same is tried on the tensors themselves,
once nobody else has the result any more: of each row in each recorded step, and otherwise the first time that a chain
meets a device, type, shape and memory format.  A trial needs room for one row more, which a plan does not leave.

Not every write is counted (``x.data``), so in every step a thousand bytes of each tensor on the way are looked at as a
module begins, as it returns, and as the tensor is parted with: where they differ, nothing is derived.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from drlnb.planning.swapping.profile import KEEP, SWAP, RowKey
from drlnb.runtime.swapping.attribution import Call
from drlnb.runtime.swapping.looks import look
from drlnb.runtime.swapping.saved import Guard, Handle, Saved, storage_of
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.tiers.base import Held, flat
from drlnb.runtime.swapping.torch_private import StorageRef, storage_number

__all__ = ["Recipes"]

_Operation = Callable[[torch.Tensor], torch.Tensor]
#: Number of a storage, and the write counter of a tensor in it.
_State = tuple[int, int]
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


class _Seen:
    """A tensor as it is now: an operation may write it later."""

    __slots__ = ("guard", "look", "ref", "state")

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.state: _State = (storage_number(storage), tensor._version)
        self.guard, self.look = Guard(tensor), look(storage)
        #: While it lives, no other storage gets the number.
        self.ref = StorageRef(storage)

    def is_as(self, other: torch.Tensor | None) -> bool:
        """Return whether its storage was not written since, as far as counters and a look at it say."""
        return other is not None and self.guard.is_unwritten and torch.equal(self.look, other)


@dataclass(slots=True)
class _Recipe:
    """How an output was made."""

    module: type[nn.Module]
    operation: _Operation
    source: _Seen
    made: _Seen


class Recipes:
    """Knows how the outputs of one step were made.

    Parameters
    ----------
    tape
        Holds the saved tensors.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._made: dict[_State, _Recipe] = {}
        self._last: dict[int, _State] = {}  # of each storage, the state that an operation has left it in
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
        self._last.clear()
        self._wanted = wanted

    def entered(self, call: Call) -> None:
        """Remember the input of a module whose output could be computed again."""
        module, tensors = call.module, [each for each in call.inputs if isinstance(each, torch.Tensor)]
        if self._wanted and type(module) in _OPERATIONS and "forward" not in vars(module) and len(tensors) == 1:
            x = tensors[0]
            if storage_of(x) is not None:
                call.source = _Seen(x)

    def left(self, call: Call, output: object) -> None:
        """Remember how an output was made, if that is the whole of its storage."""
        source, module = call.source, call.module
        if not isinstance(source, _Seen) or module is None or not isinstance(output, torch.Tensor):
            return
        storage = storage_of(output)
        if storage is not None and output.nbytes == storage.nbytes():
            operation = _as_then(_OPERATIONS[type(module)](module), output.device.type)
            made = _Seen(output)
            self._made[made.state] = _Recipe(type(module), operation, source, made)
            self._last[made.state[0]] = made.state
            self._tape.looks.ask(source.state[0])

    def source_of(self, saved: Saved) -> RowKey | None:
        """Return the key of what a storage, that nobody else has any more, can be computed from; tried now."""
        chain = self._chain(saved, final=False)
        known = chain is not None and saved.held is not None and self._is_exact(*chain, saved.held.storage, anew=True)
        return chain[0].key if chain is not None and known else None

    def derive(self, saved: Saved) -> bool:
        """Drop a storage that can be computed again; return whether that is settled."""
        if saved.held is None:
            return True
        chain = self._chain(saved, final=True)
        if chain is None or not self._is_exact(*chain, saved.held.storage):
            return chain is not None or not self._is_waiting(saved)
        recipes = chain[1]
        source = Handle(chain[0], recipes[0].source.guard)

        def again() -> Held:
            source.guard.check()
            made = self._run(recipes, self._tape.restored(source.saved))
            source.saved.unpacked(id(source))
            return made

        saved.again, saved.held = again, None
        return True

    def _is_exact(
        self, source: Saved, recipes: list[_Recipe], made: torch.UntypedStorage, *, anew: bool = False
    ) -> bool:
        """Return whether operations give the same bits again; tried once, or anew, on the tensors themselves."""
        guard = recipes[0].source.guard
        case = (*[recipe.module for recipe in recipes], made.device, made.nbytes(), guard.geometry)
        if anew or case not in self._tested:
            self._tape.make_room(made.nbytes())
            with torch.no_grad():
                again = self._run(recipes, source.restored())
            self._tested[case] = _same(again.storage, made)
            if source.held is None:
                source.rest()
        return self._tested[case]

    def _run(self, recipes: list[_Recipe], held: Held) -> Held:
        x = recipes[0].source.guard.view(held.storage)
        for recipe in recipes:
            x = recipe.operation(x)
        return Held(self._tape.meter, x.untyped_storage())

    def _chain(self, saved: Saved, *, final: bool) -> tuple[Saved, list[_Recipe]] | None:
        """Return what a storage was made of, and how, if nothing on the way was written since; final: nor can be."""
        recipes, now = list[_Recipe](), look(saved.held.storage) if saved.held is not None else None
        state = self._last.get(saved.number)
        while state is not None and (recipe := self._made.get(state)) is not None:
            after = recipes[-1].source.look if recipes else now
            if after is None or not torch.equal(recipe.made.look, after):
                return None
            if not recipes and not recipe.made.guard.is_unwritten:
                return None
            recipes.append(recipe)
            state = recipe.source.state
            source = self._tape.saved_in(state[0])
            if source is not None and source is not saved and source.action in {KEEP, SWAP}:
                return (source, recipes[::-1]) if self._is_as(source, recipe.source, final=final) else None
            if len(recipes) == _CHAIN:
                break
        return None

    def _is_as(self, source: Saved, seen: _Seen, *, final: bool) -> bool:
        if source.held is None:
            return seen.is_as(self._tape.looks.last(source.number))
        return (source.is_free or not final) and seen.is_as(look(source.held.storage))

    def _is_waiting(self, saved: Saved) -> bool:
        """Return whether somebody else still has what a storage was made of."""
        state = self._last.get(saved.number)
        for _ in range(_CHAIN):
            recipe = self._made.get(state) if state is not None else None
            if recipe is None:
                return False
            state = recipe.source.state
            source = self._tape.saved_in(state[0])
            if source is not None and source is not saved:
                return source.held is not None and not source.is_free
        return False


def _same(first: torch.UntypedStorage, second: torch.UntypedStorage) -> bool:
    return bool(first.nbytes() == second.nbytes() and torch.equal(flat(first), flat(second)))


def _as_then(operation: _Operation, device: str) -> _Operation:
    """Return an operation that runs under the autocast state of now."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=False):
            return operation(x)

    return run

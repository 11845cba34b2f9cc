"""Make the forward pass of a submodule again in the backward pass, instead of keeping what it saved."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from drlnb.runtime.swapping.blocks.asking import Forward, not_asked
from drlnb.runtime.swapping.blocks.state import draws, keeps_statistics, surroundings
from drlnb.runtime.swapping.memory import storages_of
from drlnb.runtime.swapping.saved import given_back, kept
from drlnb.runtime.swapping.torch_private import innermost_hooks, submodules

__all__ = ["Then", "checkpointed", "seen", "statistics_kept"]

#: Given the numbers of the storages of a block's parameters and buffers, returns what is to see the tensors that the
#: block saves when it is made again.
Remaking = Callable[[Collection[int]], Callable[[torch.Tensor], None]]


class Then:
    """A submodule as it was in its forward pass: attributes, and which parameters, buffers and submodules it had.

    Parameters
    ----------
    path
        Its path, for errors.
    module
        The submodule.
    """

    def __init__(self, path: str, module: nn.Module) -> None:
        self._path, self._surroundings = path, surroundings()
        self._parts = [(each, _parts(each)) for each in submodules(module)]
        # Batch statistics have been written by then, and are not read but where they are not written.
        self._tensors = [
            kept(tensor)
            for each, (_, parameters, buffers, _) in self._parts
            for tensor in (*parameters.values(), *_read(each, buffers))
            if isinstance(tensor, torch.Tensor)
        ]

    def changed(self) -> bool:
        """Return whether a parameter, or a buffer that is read, was written since, or settings of torch differ."""
        try:
            self._check()
        except RuntimeError:
            return True
        return False

    def _check(self) -> None:
        for each in self._tensors:
            given_back(each)
        if surroundings() != self._surroundings:
            raise RuntimeError(
                f"block {self._path!r} ran under other settings of torch than its backward pass does (sdpa_kernel, "
                f"default dtype, ...): run both under the same, or choose a planner without blocks"
            )

    @contextmanager
    def again(self) -> Iterator[None]:
        """Have everything as it was, while the context is open.

        Raises
        ------
        RuntimeError
            If a parameter was written since, settings of torch differ, or numbers of Python or numpy are drawn
            meanwhile, which would be others.
        """
        self._check()
        before = draws()
        now = [(each, _parts(each)) for each, _ in self._parts]
        try:
            for each, parts in self._parts:
                _put(each, parts)
            yield
        finally:
            for each, parts in now:
                _put(each, parts)
            if draws() != before:  # here: an error ends the run once all is made that is needed
                raise RuntimeError(
                    f"block {self._path!r} draws numbers of Python or numpy, as it did not when it was tried out: its "
                    f"gradients would be wrong; choose a planner without blocks, such as 'hybrid:actions=swap'"
                )


def _parts(module: nn.Module) -> tuple[dict[str, object], ...]:
    return tuple([dict(each) for each in (vars(module), module._parameters, module._buffers, module._modules)])


def _put(module: nn.Module, parts: tuple[dict[str, object], ...]) -> None:
    for current, wanted in zip(
        (vars(module), module._parameters, module._buffers, module._modules), parts, strict=True
    ):
        if current.keys() != wanted.keys() or any(current[name] is not each for name, each in wanted.items()):
            current.clear()
            current.update(wanted)


def _read(module: nn.Module, buffers: Mapping[str, object]) -> Collection[object]:
    return () if keeps_statistics(module) else buffers.values()


def checkpointed(
    path: str,
    module: nn.Module,
    forward: Forward,
    remaking: Remaking,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Run the forward pass of a submodule, which the backward pass will make again.

    Parameters
    ----------
    path, module
        The submodule.
    forward
        Its forward pass.
    remaking
        See :data:`Remaking`.
    args, kwargs
        What it is called with.
    """
    runs, then = list[None](), list[Then]()
    numbers = [*map(id, args)]
    same = [numbers.index(each) for each in numbers]

    def run(*args: object, **kwargs: object) -> object:
        runs.append(None)
        if len(runs) == 1:
            return forward(*args, **kwargs)
        args = tuple([args[i] for i in same])  # attention asks whether its query is its key
        with ExitStack() as stack:
            for each in then:  # none if the forward pass itself asks for gradients
                stack.enter_context(each.again())
            stack.enter_context(statistics_kept(module))
            stack.enter_context(not_asked(module))
            stack.enter_context(seen(remaking(storages_of(module)[0])))
            return forward(*args, **kwargs)

    result: object = checkpoint(run, *args, use_reentrant=False, **kwargs)
    then.append(Then(path, module))
    return result


@contextmanager
def seen(look: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Look at what the checkpoint's hooks, which are the innermost ones, are given."""
    pack, unpack = innermost_hooks()

    def both(tensor: torch.Tensor) -> object:
        look(tensor)  # first: the last tensor ends the run by an error
        return pack(tensor)

    with saved_tensors_hooks(both, unpack):
        yield


@contextmanager
def statistics_kept(module: nn.Module) -> Iterator[None]:
    """Have batch normalisation write copies of its statistics: the first pass has counted this batch already."""
    norms = [each for each in submodules(module) if keeps_statistics(each)]
    buffers = [dict(norm._buffers) for norm in norms]
    try:
        for norm in norms:
            norm._buffers.update({name: None if each is None else each.clone() for name, each in norm._buffers.items()})
        yield
    finally:
        for norm, before in zip(norms, buffers, strict=True):
            norm._buffers.update(before)

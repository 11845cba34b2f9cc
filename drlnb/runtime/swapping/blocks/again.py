"""Make the forward pass of a submodule again in the backward pass, instead of keeping what it saved."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from drlnb.runtime.swapping.blocks.asking import Forward, not_asked
from drlnb.runtime.swapping.blocks.given import Former, whole
from drlnb.runtime.swapping.blocks.state import draws, keeps_statistics, surroundings
from drlnb.runtime.swapping.looks import look
from drlnb.runtime.swapping.memory import storages_of
from drlnb.runtime.swapping.saved import given_back, kept
from drlnb.runtime.swapping.squeeze import tensors_in
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.torch_private import innermost_hooks, storage_number, submodules

__all__ = ["Then", "before_backward", "checkpointed", "seen", "statistics_kept"]


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
        self._looks = [look(each.untyped_storage()) for each in self._whole()]  # of writes that nothing counts

    def _whole(self) -> list[torch.Tensor]:
        return whole([tensor.detach() for tensor, *_ in self._tensors])

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
        for each, before in zip(self._whole(), self._looks, strict=True):
            if not torch.equal(look(each.untyped_storage()), before):
                raise _other(self._path, f"a parameter or buffer of shape {tuple(each.shape)} was written")
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
    tape: Tape,
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
    tape
        Sees what the block saves when it is made again.
    args, kwargs
        What it is called with.

    Raises
    ------
    RuntimeError
        In the backward pass, if what the block reads, or saves, was written since.
    """
    runs, then = list[None](), list[Then]()
    own = storages_of(module)[0]
    formerly = [Former(each, tape) for each in whole((args, kwargs))]
    numbers = [*map(id, args)]
    same = [numbers.index(each) for each in numbers]

    def saved(tensor: torch.Tensor) -> None:
        tape.part()
        formerly.extend(
            Former(each, tape) for each in whole(tensor) if storage_number(each.untyped_storage()) not in own
        )

    def run(*args: object, **kwargs: object) -> object:
        runs.append(None)
        if len(runs) == 1:
            with seen(saved):
                return forward(*args, **kwargs)
        args = tuple([args[i] for i in same])  # attention asks whether its query is its key
        with ExitStack() as stack:
            for each in then:  # none if the forward pass itself asks for gradients
                stack.enter_context(each.again())
            stack.enter_context(statistics_kept(module))
            stack.enter_context(not_asked(module))
            stack.enter_context(seen(tape.remaking(storages_of(module)[0])))
            return forward(*args, **kwargs)

    result: object = checkpoint(run, *args, use_reentrant=False, **kwargs)
    then.append(Then(path, module))
    before_backward(result, partial(_check, path, formerly))
    return result


def _check(path: str, formerly: Collection[Former], _: object) -> None:
    if not all(each.is_unwritten for each in formerly):
        raise _other(path, "what it reads or saves was modified by an inplace operation, or given other data,")


def _other(path: str, what: str) -> RuntimeError:
    way = "choose a planner without blocks, such as 'hybrid:actions=swap'"
    return RuntimeError(f"block {path!r} cannot be made again: {what} since its forward pass; {way}")


def before_backward(output: object, look: Callable[[object], None]) -> None:
    """Have a function called before the backward pass of what a block has returned begins."""
    for node in {tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None}:
        node.register_prehook(look)


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

"""Find before a run begins what changes as it trains, and is neither saved nor shared: plain attributes and variables.

A run saves parameters, buffers, what an optimiser keeps in its state and groups, and the random numbers of torch, numpy
and Python.  Here two steps are made of the same samples, from the same random numbers and parameters, with copies on
the CPU: what is different after the second one remembers that there was a first.
"""

import contextlib
import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from drlnb.rl.pickled import parts_of

if TYPE_CHECKING:
    import torch

__all__ = ["kept_outside"]

#: Most bytes of parameters that are tried: copies, gradients and an optimiser's state take four times as many here.
_MOST_BYTES = 2**28
#: Samples of a step: normalising needs two.
_N_SAMPLES = 2
#: What a module holds that is saved, or a module whose attributes are looked at, too.
_LOOKED_AT = frozenset({"_parameters", "_buffers", "_modules"})
#: What an optimiser keeps that is saved.
_SAVED = frozenset({"state", "param_groups", "defaults"})
_LOST = "is not saved: it begins anew in each process that takes the task over, and each learner has its own"


def kept_outside(
    copies: Callable[[], Sequence[Any]], read: Callable[[int], Sequence[object]], seed: Callable[[], object]
) -> str:
    """Return in words what changes as work trains and is not saved; empty if that is nothing, or cannot be tried here.

    Parameters
    ----------
    copies
        Returns new copies of a module, its loss, and of what makes its optimiser with its arguments.
    read
        Returns so many of the first samples.
    seed
        Seeds all random numbers that are saved.
    """
    from drlnb.rl.networks.same_bits import one_thread

    found: list[str] = []
    # It is the user's own code: where it trains it may be good, and says itself if it is not.
    with warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception, SystemExit), one_thread():
        found.extend(_found(copies, read, seed))
    return "; ".join(found)


def _found(
    copies: Callable[[], Sequence[Any]], read: Callable[[int], Sequence[object]], seed: Callable[[], object]
) -> Iterator[str]:
    """Yield what to say."""
    import torch
    from torch.utils.data import default_collate

    reads = []
    for _ in range(2):
        seed()
        reads.append(samples := read(_N_SAMPLES))
    if _digest(reads[0], {}) != _digest(reads[1], {}):
        yield (
            "dataset gives other samples when it is read again from the same random numbers, so what it draws from, or "
            f"counts, {_LOST}: draw from the global random numbers of torch, numpy or Python"
        )
    module, loss, optimizer, kwargs = copies()
    if sum(each.nbytes for each in module.parameters()) > _MOST_BYTES:
        return
    for part in (module, loss):
        if isinstance(part, torch.nn.Module):
            part.cpu()
    made = optimizer(module.parameters(), **kwargs)
    saved = _saved(module, loss, made)
    inputs, targets = default_collate(list(samples))
    numbers = copy.deepcopy(module.state_dict())

    def computed() -> dict[str, object]:
        seed()
        module.load_state_dict(numbers)  # buffers may follow from step to step, and caches follow them
        module.zero_grad()
        said = loss(module(inputs), targets)
        (said[0] if isinstance(said, tuple) else said).backward()
        return _kept("module", module, saved) | _kept("loss", loss, saved)

    before, first, second = _kept("module", module, saved) | _kept("loss", loss, saved), computed(), computed()
    if names := [name for name, value in second.items() if _remembers(before.get(name), first.get(name), value)]:
        yield f"{', '.join(names)} changes with each step and {_LOST}: make it a buffer (register_buffer)"
    made.step()
    once = _kept("optimizer", made, saved)
    made.step()
    if names := [name for name, value in _kept("optimizer", made, saved).items() if once.get(name) != value]:
        yield f"{', '.join(names)} changes with each step and {_LOST}: keep it in its groups (docs/batching.md)"


def _remembers(before: object, first: object, second: object) -> bool:
    """Return whether a value tells of earlier steps; what one sets and the next repeats is a cache, or else a flag."""
    return first != second or (isinstance(before, bool) and before != first)


def _saved(module: "torch.nn.Module", loss: object, optimizer: "torch.optim.Optimizer") -> dict[int, str]:
    """Return by identity what is saved, or looked at by itself."""
    import torch

    found: list[object] = [optimizer]
    for part in (module, loss):
        if isinstance(part, torch.nn.Module):
            found += [*part.modules(), *part.parameters(), *part.buffers()]
    return {id(each): "saved" for each in found}


def _kept(name: str, value: object, saved: Mapping[int, str]) -> dict[str, object]:
    """Return what an object keeps for itself, by name: flags as they are, else a digest."""
    import torch

    kept: dict[str, object] = {}
    if isinstance(value, torch.nn.Module):
        for path, part in value.named_modules(prefix=name):
            kept |= {f"{path}.{key}": each for key, each in vars(part).items() if key not in _LOOKED_AT}
    elif isinstance(value, torch.optim.Optimizer):
        kept = {f"{name}.{key}": each for key, each in vars(value).items() if key not in _SAVED}
    else:
        kept = {f"{part} of {name}": each for part, each in parts_of(value)}
    return {key: each if isinstance(each, bool) else _digest(each, saved) for key, each in kept.items()}


class _Sink:
    """A file whose content nobody needs."""

    def __init__(self) -> None:
        self.content = hashlib.blake2b()

    def write(self, content: bytes) -> None:
        self.content.update(content)


def _digest(value: object, saved: Mapping[int, str]) -> str:
    """Return a digest of a value, in which what is saved is only named; empty if it cannot be pickled."""
    import torch

    from drlnb.runtime.ipc.pickling import Pickler
    from drlnb.runtime.ipc.tensors import bytes_of

    class Hashed(Pickler):
        def persistent_id(self, value: object) -> str | None:
            if id(value) in saved or not isinstance(value, torch.Tensor):
                return saved.get(id(value))
            # Torch's own pickles of a tensor are never the same.
            return f"{value.dtype} {value.shape} {hashlib.blake2b(bytes_of(value).cpu().numpy()).hexdigest()}"

    try:
        Hashed(sink := _Sink(), protocol=5).dump(value)
    except Exception:  # noqa: BLE001 - pickling runs foreign code
        return ""
    return sink.content.hexdigest()

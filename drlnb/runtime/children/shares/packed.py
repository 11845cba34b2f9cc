"""Pack gradients and parameters of a module as bytes, for another process that has the same module."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from drlnb.runtime.ipc.tensors import bytes_of, tensor_of

__all__ = [
    "gradient_of",
    "load_parameters",
    "pack_gradient",
    "pack_parameters",
    "statistics_of",
    "sums_of",
    "switch",
    "switches_of",
]

#: Marks of a parameter in what is packed: its value, or its gradient, is there; it is trained.
_GIVEN, _TRAINED = 1, 2


def statistics_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return what normalisations keep of their batches, by name: means over samples, and counts of batches."""
    norms = [(f"{name}." if name else "", part) for name, part in module.named_modules() if isinstance(part, _NormBase)]
    return {prefix + name: buffer for prefix, norm in norms for name, buffer in norm.named_buffers(recurse=False)}


def sums_of(module: torch.nn.Module) -> dict[str, str]:
    """Return what each parameter adds up to, by name: all but surely something else once it has changed."""
    return {name: repr(_sum(each.detach()).item()) for name, each in module.named_parameters()}


def _sum(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() and tensor.itemsize == 1:  # torch neither sums nor promotes these
        return tensor.float().sum()
    return tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32))


def switches_of(module: torch.nn.Module) -> dict[str, bool]:
    """Return which parts are in training mode, by name, and which parameters are trained, by name and a slash."""
    modes = {name: part.training for name, part in module.named_modules()}
    return modes | {f"{name}/": each.requires_grad for name, each in module.named_parameters()}


def switch(module: torch.nn.Module, switches: Mapping[str, bool]) -> None:
    """Bring parts and parameters to where :func:`switches_of` found them; what it did not know stays."""
    for name, part in module.named_modules():
        part.training = switches.get(name, part.training)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(switches.get(f"{name}/", parameter.requires_grad))


def pack_gradient(
    module: torch.nn.Module, loss: float, gradients: Sequence[Tensor | None], statistics: Sequence[Tensor]
) -> np.ndarray:
    """Return a gradient as bytes: its loss, a mark of each parameter, gradients that are there, statistics.

    Parameters
    ----------
    module
        Whose gradient it is.
    loss
        Of which one.
    gradients
        One per parameter; None: it has none.
    statistics
        As of :func:`statistics_of`, after the batch.
    """
    pairs = list(zip(module.parameters(), gradients, strict=True))
    marks = [_GIVEN if gradient is not None else 0 for _, gradient in pairs]
    given = [gradient.to(parameter.dtype) for parameter, gradient in pairs if gradient is not None]
    head = [np.array([loss]).view(np.uint8), np.array(marks, np.uint8)]
    return np.concatenate([*head, *map(_out, [*given, *statistics])])


def gradient_of(buffer: np.ndarray, module: torch.nn.Module) -> tuple[float, list[Tensor | None], list[Tensor]]:
    """Return loss, gradients and statistics as :func:`pack_gradient` has packed them, on the module's device.

    Raises
    ------
    RuntimeError
        If they were those of another module.
    """
    parameters = list(module.parameters())
    marks, rest = buffer[8 : 8 + len(parameters)], buffer[8 + len(parameters) :]
    wanted = [parameter for parameter, mark in zip(parameters, marks, strict=True) if mark]
    tensors = _in(rest, [*wanted, *statistics_of(module).values()])
    there = iter(tensors)
    gradients = [next(there) if mark else None for mark in marks]
    return float(buffer[:8].copy().view(np.float64)[0]), gradients, list(there)


def pack_parameters(module: torch.nn.Module, as_made: Mapping[str, str]) -> np.ndarray:
    """Return what another process needs to compute gradients with the present parameters.

    These are the parameters that are trained, others that are not as the program made them, buffers, and which parts
    are in training mode.

    Parameters
    ----------
    module
        The module.
    as_made
        What its parameters added up to when the program had made them.
    """
    sums, named = sums_of(module), dict(module.named_parameters())
    given = {name: each for name, each in named.items() if each.requires_grad or sums[name] != as_made[name]}
    marks = [_GIVEN * (name in given) + _TRAINED * each.requires_grad for name, each in named.items()]
    marks += [part.training for part in module.modules()]
    return np.concatenate([np.array(marks, np.uint8), *map(_out, [*given.values(), *module.buffers()])])


def load_parameters(module: torch.nn.Module, buffer: np.ndarray) -> None:
    """Take over what :func:`pack_parameters` has packed.

    Raises
    ------
    RuntimeError
        If it was that of another module.
    """
    parameters, parts = list(module.parameters()), list(module.modules())
    marks, modes, rest = np.split(buffer, [len(parameters), len(parameters) + len(parts)])
    given = [parameter for parameter, mark in zip(parameters, marks, strict=True) if mark & _GIVEN]
    tensors = [*given, *module.buffers()]
    with torch.no_grad():
        for tensor, value in zip(tensors, _in(rest, tensors), strict=True):
            tensor.copy_(value)
    for parameter, mark in zip(parameters, marks, strict=True):
        parameter.requires_grad_(bool(mark & _TRAINED))
    for part, mode in zip(parts, modes, strict=True):
        part.training = bool(mode)


def _out(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = bytes_of(tensor).cpu().numpy()
    return array


def _in(buffer: np.ndarray, like: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of the bytes of such ones, one after the other, each a copy on its device."""
    sizes = [tensor.nbytes for tensor in like]
    if len(buffer) != sum(sizes):
        raise RuntimeError(f"what another learner sent has {len(buffer):,} bytes, and its module {sum(sizes):,}")
    parts = [buffer[start:stop].copy() for start, stop in pairwise(accumulate(sizes, initial=0))]
    return [
        tensor_of(torch.from_numpy(part), tensor.dtype, tensor.shape).to(tensor.device)
        for part, tensor in zip(parts, like, strict=True)
    ]

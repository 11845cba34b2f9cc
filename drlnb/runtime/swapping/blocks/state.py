"""Hash all that a forward pass may read and change, so that two moments of it can be compared.

Tensors count by their bits, everything else as pickle sees it: attributes of modules, whatever they refer to, and what
the code of their forward passes reaches by closures and global names.  What cannot be told is :class:`Unknowable`.
"""

import ctypes
import functools
import hashlib
import inspect
import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

import numpy as np
import torch
from torch import nn

from drlnb.runtime.swapping.saved import storage_of
from drlnb.runtime.swapping.torch_private import NormBase, storage_number, submodules

__all__ = ["Unknowable", "bits", "draws", "everything", "fingerprints", "keeps_statistics", "manner", "surroundings"]

#: Objects beside tensors that are looked at: a forward pass that refers to more is not followed.
_MOST_OBJECTS = 100_000
#: Bytes that have one pair of sums; and rows that are summed at a time, which takes 24 times their bytes.
_ROW_BYTES, _ROWS = 4096, 256
#: Values of attributes that tell by themselves in which manner a module works.
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
#: Packages whose functions keep no state of their own but for the draws that are compared apart.
_TRUSTED = {*sys.stdlib_module_names, "torch", "numpy"}


class Unknowable(Exception):
    """Raised where nobody can say whether something has changed."""


def bits(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return type, geometry and a hash of the bits of a tensor.

    Raises
    ------
    Unknowable
        If its bytes are not all that there is of it.
    """
    plain = tensor.detach()
    if storage_of(plain) is None:
        raise Unknowable(f"a tensor of type {type(tensor).__name__} and layout {tensor.layout}")
    flat = plain.contiguous()
    if flat.device.type != "cpu" and flat.numel():
        flat = fingerprints(flat.flatten().view(torch.uint8)).cpu()
    # Not its numpy(): the storage of a tensor that was shared with numpy counts as others' for good.
    data = (ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()) if flat.nbytes else b""
    kind = str(tensor.dtype), str(tensor.device), tuple(tensor.shape), tensor.stride(), tensor.requires_grad
    return *kind, hashlib.sha1(data, usedforsecurity=False).digest()


def fingerprints(data: torch.Tensor) -> torch.Tensor:
    """Return two sums of each row of bytes, computed where these are: a copy to the host takes a hundred times as long.

    Every byte has a random odd factor of its own, and a sum is taken modulo 2**64 (multilinear hashing: Carter and
    Wegman, *Universal classes of hash functions*, 1979).  Two rows that differ have the same two sums by a chance of at
    most 2**-112.

    Parameters
    ----------
    data
        Shape ``(n_bytes,)``, uint8.

    Returns
    -------
    torch.Tensor
        Shape ``(ceil(n_bytes / 4096), 2)``, int64.
    """
    factors, n_whole = _factors(data.device), len(data) // _ROW_BYTES * _ROW_BYTES
    rest = nn.functional.pad(data[n_whole:], (0, -len(data) % _ROW_BYTES))
    rows = [*data[:n_whole].view(-1, _ROW_BYTES).split(_ROWS), rest.view(-1, _ROW_BYTES)]
    return torch.cat([(part.long().unsqueeze(1) * factors).sum(2) for part in rows])


@functools.cache
def _factors(device: torch.device) -> torch.Tensor:
    """Return two random odd numbers for each byte of a row; shape ``(2, _ROW_BYTES)``, int64."""
    drawn = np.random.default_rng(0).integers(-(2**62), 2**62, (2, _ROW_BYTES))
    return torch.from_numpy(2 * drawn + 1).to(device)


def draws() -> tuple[object, ...]:
    """Return the states of random numbers that a checkpoint does not put back: those of Python and numpy."""
    name, numbers, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global ones are what is asked for
    return random.getstate(), name, np.asarray(numbers).tobytes(), *rest


def manner(module: nn.Module) -> tuple[object, ...]:
    """Return in which manner a module and those within it work: flags and numbers that are their attributes."""
    found: list[object] = []
    for each in submodules(module):
        found += [(name, value) for name, value in vars(each).items() if type(value) in _SIMPLE]
    return tuple(found)


def keeps_statistics(module: nn.Module) -> bool:
    """Return whether the buffers of a module are batch statistics that it writes now, and does not read."""
    return isinstance(module, NormBase) and module.training


def surroundings() -> tuple[object, ...]:
    """Return settings of torch on which bits depend, and which contexts such as ``sdpa_kernel`` change for a while."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    attention = cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()
    convolution = cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.mkldnn.enabled
    sums = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()
    return *attention, cuda.cudnn_sdp_enabled(), *convolution, *sums


def everything(*objects: object) -> bytes:
    """Return a hash of all that objects hold, refer to, and reach by the code of modules' forward passes.

    Batch statistics are left out: a forward pass that is made again writes copies of them.

    Raises
    ------
    Unknowable
        If something in it cannot be compared.
    """
    sink = _Sink()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of things that pickle only for now
            _Reader(sink).read(objects)
    except Unknowable:
        raise
    except Exception as problem:  # noqa: BLE001 - whatever classes of the user's raise: they cannot be compared
        raise Unknowable(f"{type(problem).__name__}: {problem}") from None
    return sink.hash.digest()


#: What a pickler asks for: what makes an object, from what, and its state.
Reduced = tuple[Callable[[int], object], tuple[int], dict[str, object]]


class _Sink:
    """A file that only hashes what is written to it."""

    def __init__(self) -> None:
        self.hash = hashlib.sha1(usedforsecurity=False)

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        return len(data)


class _Reader(pickle.Pickler):
    """Reads objects as pickle does, but for tensors, modules and functions."""

    def __init__(self, sink: _Sink) -> None:
        super().__init__(sink, protocol=5)
        self._n_objects, self._reached, self._waiting = 0, set[int](), list[object]()

    def read(self, objects: tuple[object, ...]) -> None:
        """Read objects, and then whatever functions among them reach."""
        self.dump(objects)
        while self._waiting:
            self.dump(self._waiting.pop())

    def persistent_id(self, thing: object) -> object:
        self._n_objects += 1
        if self._n_objects > _MOST_OBJECTS:
            raise Unknowable(f"it refers to more than {_MOST_OBJECTS} objects")
        if isinstance(thing, torch.Tensor):
            return ("tensor", storage_number(thing.untyped_storage()), *bits(thing), thing._version)
        if isinstance(thing, torch.Generator):
            return ("generator", thing.get_state().numpy().tobytes())
        if isinstance(thing, FunctionType):
            self._reach(thing)
            return ("function", id(thing))
        if isinstance(thing, (type, ModuleType, CodeType)) or type(thing) in {torch.dtype, torch.device}:
            return ("constant", str(thing), id(thing))
        return None

    def reducer_override(self, thing: object) -> Reduced:
        if not isinstance(thing, nn.Module):
            return NotImplemented  # type: ignore[no-any-return]  # how a pickler is told to do as it does
        attributes = dict(vars(thing))  # whatever a state of the user's own leaves out
        if keeps_statistics(thing):
            attributes["_buffers"] = None
        for name in ("forward", "__call__"):
            self._reach(inspect.getattr_static(type(thing), name, None), type(thing))
        return int, (id(thing),), attributes

    def _reach(self, function: object, of: type | None = None) -> None:
        """Have whatever a function's code reaches read, too."""
        if isinstance(function, (staticmethod, classmethod, MethodType)):
            function = function.__func__
        if not isinstance(function, FunctionType) or id(function) in self._reached or _trusted(function):
            return
        self._reached.add(id(function))
        self._reach(getattr(function, "__wrapped__", None), of)
        self._waiting.append([*_closed_over(function), function.__defaults__, function.__kwdefaults__])
        for found, owner in _named(function, of):
            if isinstance(found, FunctionType):
                self._reach(found, owner)
            elif not isinstance(found, (type, ModuleType, BuiltinFunctionType)):
                self._waiting.append(found)


def _trusted(thing: FunctionType | ModuleType | type) -> bool:
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__ or ""
    return name.split(".")[0] in _TRUSTED or name.startswith("drlnb.runtime.swapping.")


def _closed_over(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            yield None


def _named(function: FunctionType, of: type | None) -> Iterator[tuple[object, type | None]]:
    """Yield what the names in a function's code may mean: global ones, those in modules, methods of its class."""
    names = list(_names(function.__code__))
    known = [function.__globals__[name] for name in names if name in function.__globals__]
    yield from ((each, None) for each in known)
    for module in known:
        if isinstance(module, ModuleType) and not _trusted(module):
            yield from ((vars(module)[name], None) for name in names if name in vars(module))
    for kind in of.__mro__ if of is not None else ():
        for name in names if not _trusted(kind) else ():
            found = vars(kind).get(name)
            for each in (found.fget, found.fset) if isinstance(found, property) else (found,):
                yield each.__func__ if isinstance(each, (staticmethod, classmethod)) else each, of


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)

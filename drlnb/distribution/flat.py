"""Pack tensors into one flat buffer that describes itself, and look at them there: no pickle, and no copy on reading.

A payload is 64 bytes (magic, length of the layout, its SHA-256), the layout as canonical JSON, then the tensors, each
from a multiple of 64 bytes, tied ones once.  Gaps are zeros, so equal tensors give equal bytes.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, zip_longest
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from drlnb.records.errors import LayoutMismatch

if TYPE_CHECKING:
    import torch

__all__ = ["FlatEntry", "FlatLayout", "arrays", "bind", "layout_of", "pack"]

_MAGIC, _ALIGN = b"drlnbFL1", 64
#: Dtypes that numpy has not, and what their bits are shown as.
_BITS = {"bfloat16": "uint16", "complex32": "uint32"}
#: What a payload may lie in.
_Buffer = bytes | bytearray | memoryview | np.ndarray
#: (name, dtype, shape, name of the tensor that it is tied to) of each tensor.
_Rows = tuple[tuple[str, str, tuple[int, ...], str | None], ...]


@dataclass(frozen=True, slots=True)
class FlatEntry:
    """One tensor of a payload."""

    name: str
    #: As torch says it, for example ``bfloat16``.
    dtype: str
    shape: tuple[int, ...]
    #: As torch says it, in elements.
    stride: tuple[int, ...]
    #: First byte, counted from the first tensor's.
    offset: int
    nbytes: int
    #: Name of the earlier entry that is the same tensor; None: it is no other's.
    alias: str | None

    def __str__(self) -> str:
        tied = f" tied to {self.alias!r}" if self.alias else ""
        return f"{self.name!r} {self.dtype} {self.shape}{tied}"


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """Where the tensors of a payload lie."""

    entries: tuple[FlatEntry, ...]
    #: What every payload of this layout begins with; the tensors follow.
    head: bytes
    #: Size of a payload.
    n_bytes: int


def _up(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that shows a torch dtype's bits."""
    dtype = np.dtype("uint8" if name.startswith("float8_") else _BITS.get(name, name))
    if dtype.kind not in "biufc":
        raise TypeError(name)
    return dtype


@lru_cache(maxsize=64)
def _lay_out(rows: _Rows) -> FlatLayout:
    places: dict[str, tuple[int, int]] = {}
    entries, end = [], 0
    for name, dtype, shape, alias in rows:
        try:
            nbytes = prod(shape) * _numpy_dtype(dtype).itemsize
        except TypeError:
            raise ValueError(f"tensor {name!r} has dtype {dtype}, which cannot be packed") from None
        places[name] = places[alias] if alias is not None else (end, nbytes)
        stride = tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()
        entries.append(FlatEntry(name, dtype, shape, stride, *places[name], alias))
        end = max(end, _up(sum(places[name])))
    text = json.dumps(rows, separators=(",", ":")).encode()
    head = _MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest()
    head = (head.ljust(_ALIGN, b"\0") + text).ljust(_up(_ALIGN + len(text)), b"\0")
    return FlatLayout(tuple(entries), head, len(head) + end)


@lru_cache(maxsize=64)
def _read(head: bytes) -> FlatLayout:
    rows = json.loads(head[_ALIGN:].rstrip(b"\0"))
    layout = _lay_out(tuple((name, dtype, tuple(shape), alias) for name, dtype, shape, alias in rows))
    if layout.head != head:
        raise ValueError
    return layout


def layout_of(buffer: _Buffer) -> FlatLayout:
    """Return the layout of a payload.

    Raises
    ------
    ValueError
        If it is no payload, or not a whole one.
    """
    flat = np.frombuffer(buffer, np.uint8)
    try:
        size = _up(_ALIGN + int.from_bytes(flat[8:16].tobytes(), "little"))
        layout = _read(flat[: size if flat[:8].tobytes() == _MAGIC else 0].tobytes())
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{len(flat)} bytes are no flat payload") from None
    if len(flat) != layout.n_bytes:
        raise ValueError(f"a payload of this layout has {layout.n_bytes} bytes, got {len(flat)}")
    return layout


def arrays(buffer: _Buffer) -> dict[str, np.ndarray]:
    """Return views of a payload's tensors by name, in their order; needs no torch.

    Dtypes that numpy has not are shown as unsigned integers with the same bits.
    """
    layout = layout_of(buffer)
    return _shown(np.frombuffer(buffer, np.uint8)[len(layout.head) :], layout)


def _shown(data: np.ndarray, layout: FlatLayout) -> dict[str, np.ndarray]:
    return {
        entry.name: data[entry.offset :][: entry.nbytes].view(_numpy_dtype(entry.dtype)).reshape(entry.shape)
        for entry in layout.entries
    }


def _named(source: Any, **options: bool) -> dict[str, Any]:
    """Return the tensors of a module, or of a mapping, by name; each can be packed.  `options` are of `state_dict`."""
    state_dict = getattr(source, "state_dict", None)
    if state_dict is None and not isinstance(source, Mapping):
        raise ValueError(f"a module or a mapping of tensors by name can be packed, got {type(source).__name__}")
    named = dict(state_dict(**options) if state_dict is not None else source)
    if odd := [name for name in named if not isinstance(name, str)]:
        raise ValueError(f"tensors must have texts for names, got {odd[0]!r}")
    if not named:
        raise ValueError(f"{type(source).__name__} has no tensors")
    kind = np.ndarray if all(isinstance(value, np.ndarray) for value in named.values()) else _tensor_class()
    for name, tensor in named.items():
        if not isinstance(tensor, kind):
            extra = ", as get_extra_state returns it: publish a mapping of tensors" * _is_extra(name)
            raise ValueError(f"{name!r} must be a tensor as all others, got {type(tensor).__name__}{extra}")
        if wrong := _unfit_array(tensor) if isinstance(tensor, np.ndarray) else _unfit(tensor):
            raise ValueError(f"tensor {name!r} is {wrong}, which cannot be packed")
    return named


def _is_extra(name: str) -> bool:
    """Return whether torch gives this name to what a module's `get_extra_state` returns."""
    return name.rpartition(".")[2] == "_extra_state"


def _tensor_class() -> type:
    import torch

    cls: type = torch.Tensor
    return cls


def _unfit(tensor: "torch.Tensor") -> str:
    """Return why a tensor cannot be packed; empty if it can."""
    import torch

    if torch.nn.parameter.is_lazy(tensor):
        return "not initialised"
    if tensor.is_nested or tensor.layout != torch.strided:
        return f"nested or sparse ({tensor.layout})"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(tensor).__name__}, whose values are not its memory's"
    if tensor.is_quantized or tensor.is_meta:
        return "quantised" if tensor.is_quantized else "on the meta device"
    return "without memory" if tensor.numel() and not tensor.data_ptr() else ""


def _unfit_array(array: np.ndarray) -> str:
    """Return why an array cannot be packed; empty if it can."""
    if isinstance(array, np.ma.MaskedArray):
        return "masked"
    # Dtypes of other packages may have names of torch's, and bits that numpy converts to numbers.
    return "" if array.dtype.kind in "biufc" else f"of dtype {array.dtype.name}"


def _rows(named: Mapping[str, Any]) -> _Rows:
    """Return what is packed; tensors are one that read the same memory in the same way."""
    first: dict[object, str] = {}
    place: object
    rows = []
    for name, tensor in named.items():
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        if isinstance(tensor, np.ndarray):
            dtype = tensor.dtype.name
            place = tensor.__array_interface__["data"][0], tensor.strides, tensor.dtype.byteorder
        else:
            place = tensor.data_ptr(), tensor.stride(), tensor.device, tensor.is_conj(), tensor.is_neg()
        alias = first.setdefault((place, dtype, shape), name) if prod(shape) else name
        rows.append((name, dtype, shape, alias if alias != name else None))
    return tuple(rows)


def pack(source: "torch.nn.Module | Mapping[str, torch.Tensor | np.ndarray]", out: _Buffer | None = None) -> np.ndarray:
    """Pack a module's parameters and buffers, or a mapping of tensors, in their order.

    Parameters
    ----------
    source
        A module, whose `state_dict` is packed, or tensors or arrays by name: dense, contiguous or not, of any size and
        value.  Those on another device are packed there and come over in one copy.
    out
        Where the payload goes, of its size; None: new memory.

    Returns
    -------
    ndarray
        The payload, uint8, shape ``(n_bytes,)``.

    Raises
    ------
    ValueError
        If there is no tensor, one cannot be packed, which is named, or `out` has another size or is read-only.
    """
    named = _named(source)
    layout = _lay_out(_rows(named))
    fresh = [(named[entry.name], entry) for entry in layout.entries if entry.alias is None]
    device = {str(getattr(tensor, "device", "cpu")) for tensor, _ in fresh}
    away = next(iter(device)) if len(device) == 1 and device != {"cpu"} else ""
    if out is not None:
        buffer = np.frombuffer(out, np.uint8)
        if len(buffer) != layout.n_bytes or not buffer.flags.writeable:
            raise ValueError(f"out must be {layout.n_bytes} bytes that may be written, got {len(buffer)}")
    elif away.startswith("cuda"):
        import torch

        buffer = torch.empty(layout.n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    else:
        buffer = np.empty(layout.n_bytes, np.uint8)
    data = buffer[len(layout.head) :]
    if isinstance(fresh[0][0], np.ndarray):
        shown = _shown(data, layout)
        for array, entry in fresh:
            shown[entry.name][...] = array
    else:
        _copy(data, fresh, away)
    buffer[: len(layout.head)] = np.frombuffer(layout.head, np.uint8)
    for _, entry in fresh:
        data[entry.offset + entry.nbytes : _up(entry.offset + entry.nbytes)] = 0
    return buffer


def _copy(data: np.ndarray, fresh: list[tuple[Any, FlatEntry]], away: str) -> None:
    """Copy tensors to their places, by way of one buffer on their device if they are all `away`."""
    import torch

    host = torch.from_numpy(data)
    flat = torch.empty(len(data), dtype=torch.uint8, device=away) if away else host
    tensors = [tensor for tensor, _ in fresh]
    places = _tensors(flat, [entry for _, entry in fresh])
    with torch.no_grad():
        try:
            torch._foreach_copy_(places, tensors)
        except (AttributeError, RuntimeError, TypeError):  # no public name, so it may be gone, or take other things
            for place, tensor in zip(places, tensors, strict=True):
                place.copy_(tensor)
        if away:
            host.copy_(flat)


def _tensors(flat: "torch.Tensor", entries: Sequence[FlatEntry]) -> "list[torch.Tensor]":
    """Return entries as views of a uint8 tensor, by one operation each: many tensors are small."""
    import torch

    begin = flat.storage_offset()
    kinds = {dtype: flat.view(getattr(torch, dtype)) for dtype in {entry.dtype for entry in entries}}
    each = ((entry, kinds[entry.dtype]) for entry in entries)
    return [of.as_strided(entry.shape, entry.stride, (begin + entry.offset) // of.itemsize) for entry, of in each]


def bind(buffer: _Buffer, module: "torch.nn.Module") -> None:
    """Make a module's parameters views of a payload, and set it to evaluation without gradients.

    Buffers are copied, since modules write into them.  The payload must stay as it is while the module is used.

    Parameters
    ----------
    buffer
        A payload that was packed from such a module; read-only memory is kept so: writing into a parameter then ends
        the process.
    module
        On the CPU; its optimiser, if any, is of no use any more.

    Raises
    ------
    LayoutMismatch
        If the module has other tensors, or one where the payload has two; the first one that differs is named.
    ValueError
        If it is no payload, the module is on another device, or its `state_dict` has something that is neither a
        parameter nor a buffer nor a tensor of extra state.
    """
    import torch

    layout, named = layout_of(buffer), _named(module, keep_vars=True)
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    if strange := next((name for name, t in named.items() if id(t) not in own and not _is_extra(name)), ""):
        raise ValueError(f"{strange!r} is no parameter or buffer of {type(module).__name__}: read it by arrays()")
    _fit(layout.entries, named, module)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        flat = torch.frombuffer(buffer, dtype=torch.uint8)[len(layout.head) :]
    for entry, view in zip(layout.entries, _tensors(flat, layout.entries), strict=True):
        tensor = named[entry.name]
        if id(tensor) not in own:
            module.get_submodule(entry.name.rpartition(".")[0]).set_extra_state(view.clone())
        else:
            tensor.data = view if isinstance(tensor, torch.nn.Parameter) else view.clone()
    for parameter in module.parameters():  # a module that was scripted has no requires_grad_
        parameter.requires_grad_(False)
    module.eval()


def _fit(entries: Sequence[FlatEntry], named: "Mapping[str, torch.Tensor]", module: "torch.nn.Module") -> None:
    """Check that a payload's tensors can be those of a module."""
    first: dict[int, FlatEntry] = {}
    for given, own in zip_longest(entries, _lay_out(_rows(named)).entries):
        kinds = [(each.name, each.dtype, each.shape) for each in (given, own) if each]
        if (
            kinds[0] != kinds[-1]
            or len(kinds) < 2
            or first.setdefault(id(named[own.name]), given).offset != given.offset
        ):
            has = f"the parameters have {given or 'no more'}"
            raise LayoutMismatch(f"{has}, {type(module).__name__} has {own or 'no more'}")
    if device := next((tensor.device for tensor in named.values() if tensor.device.type != "cpu"), None):
        raise ValueError(f"a module on the CPU can be bound, this one is on {device}")

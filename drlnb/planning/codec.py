"""Turn the state of a machine into plain data and back, from the annotations of its dataclass.

Plain data is what JSON holds.  A mapping whose keys are no text becomes a list of pairs, so that numbers stay numbers;
sets are sorted, so that equal states have equal snapshots.  A sequence is read back from a list or a tuple: a journal's
header turns lists into tuples.  Fields with ``metadata=TRANSIENT`` (planners, say) are left out; whoever restores gives
them.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from drlnb.records import base
from drlnb.records.base import Facts, Record
from drlnb.records.ids import Fence

__all__ = ["TRANSIENT", "from_plain", "to_plain"]

#: Metadata of a field that no snapshot holds.
TRANSIENT: Mapping[str, bool] = {"transient": True}

_T = TypeVar("_T")
_Decoder = Callable[[Any], Any]
#: What JSON holds as it is, and what becomes a list; tuples of classes, since each state has thousands of values.
_AS_IS = (bool, int, float, str, NoneType)
_LISTED = (list, tuple, deque)
_SEQUENCES: Mapping[object, Callable[..., Collection[object]]] = {
    **{kind: kind for kind in (list, tuple, set, frozenset, deque)},
    Sequence: list,
}


def to_plain(value: object) -> Any:
    """Return a state as plain data.

    Parameters
    ----------
    value
        A dataclass, or what its fields hold: numbers, text, booleans, ``None``, fences, records, and mappings,
        sequences and sets of these.

    Raises
    ------
    TypeError
        If something else is met; the message names it.

    Examples
    --------
    >>> to_plain({2: (True, None)})
    [[2, [True, None]]]
    """
    if isinstance(value, _AS_IS):
        return value
    if isinstance(value, Fence):
        return base.to_plain(value)
    if isinstance(value, Record):
        return value.to_row()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in _kept(type(value))}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: to_plain(item) for key, item in value.items()}
        return [[to_plain(key), to_plain(item)] for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return [to_plain(item) for item in sorted(value)]
    if isinstance(value, _LISTED):
        return [to_plain(item) for item in value]
    raise TypeError(f"no plain form of {type(value).__name__} {value!r}")


def from_plain(kind: type[_T], plain: Facts, **given: object) -> _T:
    """Return the state that :func:`to_plain` has written.

    Parameters
    ----------
    kind
        Its dataclass.
    plain
        What was written.
    given
        Values of transient fields; those that are not given get their defaults.

    Raises
    ------
    TypeError
        If an annotation is one that no decoder fits.
    ValueError
        If a field is missing, or there is one that `kind` does not have.
    """
    hashable: type = kind
    kept = {field.name: field for field in _kept(hashable)}
    odd = sorted(kept.keys() ^ plain.keys())
    if odd:
        raise ValueError(f"snapshot of {kind.__name__}: {'no' if odd[0] in kept else 'unknown'} field {odd[0]!r}")
    decoders = _decoders(hashable)
    return kind(**{name: _read(field, decoders[name], plain[name]) for name, field in kept.items()}, **given)


@cache
def _kept(kind: type) -> tuple[Field[object], ...]:
    return tuple([field for field in fields(kind) if not field.metadata.get("transient")])


@cache
def _decoders(kind: type) -> Mapping[str, _Decoder]:
    hints = get_type_hints(kind)
    return {field.name: _decoder(hints[field.name]) for field in _kept(kind)}


def _read(field: Field[object], decoder: _Decoder, value: object) -> object:
    read = decoder(value)
    if isinstance(read, deque) and field.default_factory is not MISSING:  # its length is its default's
        return deque(read, maxlen=getattr(field.default_factory(), "maxlen", None))
    return read


def _decoder(hint: object) -> _Decoder:
    """Return what reads a value of an annotation back."""
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in {Union, UnionType}:
        inner = [argument for argument in arguments if argument is not NoneType] or [None]
        decode = _decoder(inner[0]) if len(inner) == 1 else _one_of(inner)
        return lambda value: None if value is None else decode(value)
    if origin is tuple and arguments[-1] is not Ellipsis:
        decoders = [_decoder(argument) for argument in arguments]
        return lambda value: tuple([decode(item) for decode, item in zip(decoders, value, strict=True)])
    if origin in _SEQUENCES:
        make, decode = _SEQUENCES[origin], _decoder(arguments[0])
        return lambda value: make([decode(item) for item in value])
    if origin in {dict, Mapping}:
        key, item = map(_decoder, arguments)
        return lambda value: {key(k): item(v) for k, v in (value.items() if isinstance(value, Mapping) else value)}
    return _plain_decoder(origin)


def _one_of(kinds: Collection[object]) -> _Decoder:
    """Return what reads back a value that is of one of some classes of JSON's."""
    if not {*kinds} <= {*_AS_IS}:
        raise TypeError(f"no decoder for one of {kinds!r}")
    return base.from_plain


def _plain_decoder(kind: object) -> _Decoder:
    """Return what reads a value of a class without arguments back."""
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_row
    if isinstance(kind, type) and is_dataclass(kind) and kind is not Fence:
        return partial(from_plain, kind)
    if kind is float:
        return float
    if kind in {int, str, bool, object, Fence, Literal}:
        return base.from_plain
    raise TypeError(f"no decoder for {kind!r}")

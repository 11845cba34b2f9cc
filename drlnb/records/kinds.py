"""Compare plain data that was read with the annotations of the dataclass that it shall become."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin, get_type_hints

from drlnb.records.base import Facts

if TYPE_CHECKING:  # a process that reads no journal has a spec, and needs none of its classes
    from drlnb.records.journal import Journal

__all__ = ["first_wrong", "kind_problems"]

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}


def kind_problems(kind: type, plain: Facts) -> list[str]:
    """Return in words which fields do not hold what their annotations say; fields that are missing are not looked at.

    Parameters
    ----------
    kind
        The dataclass.
    plain
        What JSON gave, by field.

    Examples
    --------
    >>> from drlnb.records.spec import RlWork
    >>> kind_problems(RlWork, {"env": 3, "seed": 1, "group": None, "env_wrappers": [{}]})
    ['env must be text, got 3']
    """
    hashable: type = kind
    hints = _hints(hashable)
    wrong = [name for name in plain if name in hints and not _fits(hints[name], plain[name])]
    return [f"{name} must be {_said(hints[name])}, got {plain[name]!r:.80}" for name in wrong]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def first_wrong(journal: "Journal") -> str:
    """Return in words the first value of a journal that is not of its field's kind; empty if there is none."""
    for stream in journal.streams.values():
        for record in (stream.header, *stream.records):
            values = {each.name: getattr(record, each.name) for each in fields(record)}
            if problems := kind_problems(type(record), values):
                return f"{stream.source} is not what drlnb wrote: {type(record).__name__}: {problems[0]}"
    return ""


def _fits(hint: Any, value: object) -> bool:
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in {Union, UnionType}:
        return any(_fits(argument, value) for argument in arguments)
    if origin in {Any, object}:
        return True
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in {Mapping, dict}:
        inner = arguments[1] if arguments else object
        return isinstance(value, Mapping) and all(isinstance(k, str) and _fits(inner, v) for k, v in value.items())
    if origin in {Sequence, list, tuple}:
        each = list(arguments) if origin is tuple and arguments[-1] is not Ellipsis else [arguments[0]] * _length(value)
        return len(each) == _length(value) and all(map(_fits, each, cast("Sequence[object]", value)))
    return isinstance(value, origin)


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | tuple) else -1


def _said(hint: Any) -> str:
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if origin in {Union, UnionType}:
        return " or ".join(_said(argument) for argument in arguments)
    if origin in {Mapping, dict}:
        inner = _said(arguments[1]) if arguments and arguments[1] in _WORDS else "values"
        return f"names with {inner}"
    if origin in {Sequence, list, tuple}:
        return "a list"
    return _WORDS.get(origin, getattr(origin, "__name__", str(origin)))

"""Define records, and turn them into lines of JSON and back.

An :class:`Event` is what the world said, a :class:`Decision` what a machine settled, a :class:`Command` what a
driver must do.  All are frozen, slotted, keyword-only dataclasses of plain data: numbers, text, booleans, ``None``,
tuples, mappings with text keys, and :class:`~drlnb.records.ids.Fence`.  A tensor never enters a record; a key does.

A module of records has no ``__all__``: its classes are the vocabulary, and :func:`record_types` lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from drlnb.records.ids import Fence

__all__ = ["Command", "Decision", "Event", "Match", "Record", "record_types"]

_TYPES: dict[str, type["Record"]] = {}


def record_types() -> Mapping[str, type["Record"]]:
    """Return every record class that has been imported, by class name."""
    return _TYPES


def to_plain(value: Any) -> Any:
    """Turn a field's value into what JSON holds: fences become ``{"fence": [epoch, token]}``, tuples lists."""
    if isinstance(value, Fence):
        return {"fence": [value.epoch, value.token]}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(value: Any) -> Any:
    """Turn what JSON held back into a field's value (lists become tuples)."""
    if isinstance(value, list):
        return tuple([from_plain(item) for item in value])
    if isinstance(value, dict):
        if len(value) == 1 and "fence" in value:
            epoch, token = value["fence"]
            return Fence(epoch=epoch, token=token)
        return {key: from_plain(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Match:
    """Equal to any record of one class whose named fields are equal; for tests."""

    of: type["Record"]
    wanted: tuple[tuple[str, Any], ...]

    def __eq__(self, other: object) -> bool:
        return type(other) is self.of and all(getattr(other, name) == value for name, value in self.wanted)

    def __hash__(self) -> int:
        return hash(self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Root of the vocabulary; subclasses register themselves by class name."""

    #: One letter in the journal: ``e``, ``d`` or ``c``.
    letter: ClassVar[str] = "r"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        # dataclass(slots=True) makes the class twice; the second, slotted one replaces the first here.
        # No zero-argument super(): its cell would still point to the first class.
        known = _TYPES.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(f"record name {cls.__name__} is taken by {known.__module__}")
        _TYPES[cls.__name__] = cls

    @classmethod
    def match(cls, **wanted: Any) -> Match:
        """Return something equal to each record of this class that has these field values."""
        unknown = wanted.keys() - {field.name for field in fields(cls)}
        if unknown:
            raise TypeError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
        return Match(cls, tuple(wanted.items()))

    def to_row(self) -> dict[str, Any]:
        """Return this record as a flat mapping of plain data: ``k`` (letter), ``r`` (class name), then the fields."""
        row: dict[str, Any] = {"k": self.letter, "r": type(self).__name__}
        for field in fields(self):
            row[field.name] = to_plain(getattr(self, field.name))
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Rebuild a record from :meth:`to_row`'s mapping.

        Raises
        ------
        ValueError
            If the class is unknown, or its fields are not those of the row.
        """
        kind = _TYPES.get(str(row.get("r")))
        if kind is None or not issubclass(kind, cls):
            raise ValueError(f"unknown {cls.__name__.lower()} {row.get('r')!r}")
        try:
            return kind(**{key: from_plain(value) for key, value in row.items() if key not in {"k", "r"}})
        except TypeError as error:
            raise ValueError(f"{kind.__name__}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    """The world said."""

    letter: ClassVar[str] = "e"

    #: Seconds since the start of the stream, on the clock of the process that owns the machine.
    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Record):
    """A machine settled."""

    letter: ClassVar[str] = "d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Record):
    """A driver must do."""

    letter: ClassVar[str] = "c"

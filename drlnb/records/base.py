"""Define records, and turn them into lines of JSON and back.

An :class:`Event` is what the world said, a :class:`Decision` what a machine settled, a :class:`Command` what a
driver must do.  All are frozen, slotted, keyword-only dataclasses of plain data: numbers, text, booleans, ``None``,
tuples, mappings with text keys, and values of a few fields (:func:`tagged`) such as
:class:`~drlnb.records.ids.Fence`.  A tensor never enters a record; a key does.

A module of records has no ``__all__``: its classes are the vocabulary, and :func:`record_types` lists them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from drlnb.records.ids import Fence

__all__ = [
    "NESTED",
    "Command",
    "Decision",
    "Event",
    "Facts",
    "Record",
    "Row",
    "is_tagged",
    "record_types",
    "shared",
    "tagged",
]

T = TypeVar("T")

#: Plain data with text keys, to be read.  Any, because numbers, texts, lists and mappings stand side by side.
Facts = Mapping[str, Any]
#: A record, or the state of a machine, as plain data.
Row = dict[str, Any]

#: What JSON's lists and objects are read as; a wire may make tuples of lists.
NESTED = frozenset({list, tuple, dict})

_TYPES: dict[str, type["Record"]] = {}
#: Tag -> class of the values that a record's field may hold beside plain data: dataclasses of numbers and text.
_VALUES: dict[str, type[Any]] = {"fence": Fence}
_TAGS: dict[type, str] = {Fence: "fence"}


def tagged(tag: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of a class whose values records may hold; JSON has them as ``{tag: [its fields]}``."""

    def register(kind: type[T]) -> type[T]:
        _VALUES[tag], _TAGS[kind] = kind, tag
        return kind

    return register


def is_tagged(plain: Facts) -> bool:
    """Return whether a mapping that JSON held is a value of a :func:`tagged` class."""
    return len(plain) == 1 and next(iter(plain)) in _VALUES


def record_types() -> Mapping[str, type["Record"]]:
    """Return every record class that has been imported, by class name."""
    return _TYPES


def to_plain(value: object) -> object:
    """Turn a field's value into what JSON holds: fences become ``{"fence": [epoch, token]}``, tuples lists."""
    if tag := _TAGS.get(type(value)):
        return {tag: [to_plain(getattr(value, each.name)) for each in fields(cast("Any", value))]}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(value: object) -> Any:
    """Turn what JSON held, or a wire brought, back into a field's value (lists become tuples)."""
    if isinstance(value, list | tuple):
        return tuple([from_plain(item) if type(item) in NESTED else item for item in value])
    if isinstance(value, dict):
        if len(value) == 1:
            ((tag, parts),) = value.items()
            if tag in _VALUES:
                return _VALUES[tag](*(map(from_plain, parts) if NESTED & {*map(type, parts)} else parts))
        return {key: from_plain(item) for key, item in value.items()}
    return value


def shared(source: object, kind: type) -> Row:
    """Return what an object has of the fields of a dataclass, by name."""
    return {each.name: getattr(source, each.name) for each in fields(kind) if hasattr(source, each.name)}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class _Vocabulary(type):
    """Makes each class of records a frozen, slotted, keyword-only dataclass, and registers it by its name."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
        cls = super().__new__(mcls, name, bases, namespace)
        if "__slots__" in namespace:  # dataclass makes the class a second time, to be the slotted one
            return cls
        slotted = cast("type[Record]", dataclass(frozen=True, slots=True, kw_only=True)(cls))
        if name.startswith("_"):  # what some records have in common
            return slotted
        known = _TYPES.get(name)
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(f"record name {name} is taken by {known.__module__}")
        _TYPES[name] = slotted
        return slotted


class Record(metaclass=_Vocabulary):
    """Root of the vocabulary; a subclass is a dataclass without being decorated.

    No zero-argument ``super()`` in a record: its cell would point to the class before it was slotted.
    """

    #: One letter in the journal: ``e``, ``d`` or ``c``.
    letter: ClassVar[str] = "r"

    def to_row(self) -> Row:
        """Return this record as a flat mapping of plain data: ``k`` (letter), ``r`` (class name), then the fields."""
        row: Row = {"k": self.letter, "r": type(self).__name__}
        for field in fields(self):
            row[field.name] = to_plain(getattr(self, field.name))
        return row

    @classmethod
    def from_row(cls, row: Facts) -> Self:
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
            values: Row = {key: from_plain(value) for key, value in row.items() if key not in {"k", "r"}}
            return kind(**values)
        except TypeError as error:
            raise ValueError(f"{kind.__name__}: {error}") from None


class Event(Record):
    """The world said."""

    letter: ClassVar[str] = "e"

    #: Seconds since the start of the stream, on the clock of the process that owns the machine.
    t: float


class Decision(Record):
    """A machine settled."""

    letter: ClassVar[str] = "d"


class Command(Record):
    """A driver must do."""

    letter: ClassVar[str] = "c"

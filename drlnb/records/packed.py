"""Write the records of a stream as short lines, and read them back: what has been said is not said again.

The first record of a kind is a JSON object that has a number, ``#``.  Each further one is a list: that number, then
which fields differ from what a record of any kind has said last under their names (one bit for each, the first one
lowest), then the values of these.  The entries of a mapping count as fields; a kind is a class with its fields so cut.
Number 0 begins anew: whoever reads on from there needs nothing of what stands before.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from drlnb.records.base import NESTED, Facts, Record, from_plain, is_tagged

__all__ = ["BEGIN", "Packer", "Unpacker"]

#: What a line begins with that can be read without those before it.
BEGIN = '{"#":0,'
#: Lines and kinds after which a stream begins anew: so much of it at most must be read for its last record.
_MOST_LINES, _MOST_KINDS = 20_000, 500

#: Reads one value of JSON; ``json.loads`` takes twice as long for so short texts.
_DECODE = json.JSONDecoder().raw_decode
#: A field, or a field and one of its keys.
_Path = tuple[str, ...]


def _parts(row: Facts) -> Iterator[tuple[_Path, object]]:
    """Yield the fields of a row with their values, entry by entry where that is a mapping."""
    for name, value in row.items():
        if isinstance(value, dict) and value and not is_tagged(value):
            yield from (((name, key), item) for key, item in value.items())
        elif name not in {"k", "r"}:
            yield (name,), value


class Packer:
    """Writes the lines of one stream."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        #: Name -> its latest value, as text: 1 and True are equal, and not the same.
        self._said: dict[_Path, str] = {}
        self._n_lines = 0

    def line(self, record: Record) -> str:
        """Return the next record's line with its newline."""
        if self._n_lines == _MOST_LINES or len(self._numbers) == _MOST_KINDS:
            self._numbers.clear()
            self._said.clear()
            self._n_lines = 0
        self._n_lines += 1
        row = record.to_row()
        parts = list(_parts(row))
        news, values = 0, []
        for i, (path, value) in enumerate(parts):
            text = repr(value)
            if self._said.get(path) != text:
                self._said[path] = text
                news |= 1 << i
                values.append(value)
        kind = (row["r"], *(path for path, _ in parts))
        line: object = [self._numbers.get(kind), news, *values]
        if kind not in self._numbers:
            line = {"#": self._numbers.setdefault(kind, len(self._numbers)), **row}
        return json.dumps(line, separators=(",", ":"), allow_nan=True) + "\n"


class _Kind:
    """Makes the further records of one kind, straight into their slots: ``__init__`` takes three times as long.

    Parameters
    ----------
    record
        Its first one.
    row
        What that was made of.
    place
        Returns where the latest value of a part is.
    """

    def __init__(self, record: Record, row: Facts, place: Callable[[_Path], int]) -> None:
        self._class = type(record)
        #: Where the latest values of its parts are, in their order.
        self._parts = [place(path) for path, _ in _parts(row)]
        #: Bits of what is new -> where that belongs.
        self._places: dict[int, list[int]] = {}
        places: dict[str, Any] = {}
        for (path, _), at in zip(_parts(row), self._parts, strict=True):
            if len(path) == 1:
                places[path[0]] = at
            else:
                places.setdefault(path[0], {})[path[1]] = at
        slots = {field.name: getattr(self._class, field.name).__set__ for field in fields(record)}
        self._single = [(slots[name], at) for name, at in places.items() if isinstance(at, int)]
        self._mapped = [(slots[name], at) for name, at in places.items() if isinstance(at, dict)]
        #: Fields that its rows do not have.
        self._default = [(slots[name], getattr(record, name)) for name in slots.keys() - places.keys()]

    def places(self, news: int) -> list[int]:
        """Return where the values of a line with these bits belong."""
        if news not in self._places:
            if news < 0 or news >> len(self._parts):
                raise ValueError
            self._places[news] = [at for i, at in enumerate(self._parts) if news >> i & 1]
        return self._places[news]

    def record(self, said: list[Any]) -> Record:
        """Return the record that the latest values make."""
        record = object.__new__(self._class)
        for put, at in self._single:
            put(record, said[at])
        for put, entries in self._mapped:
            put(record, {key: said[at] for key, at in entries.items()})
        for put, value in self._default:
            put(record, value)
        return record


class Unpacker:
    """Reads the lines of one stream, from its beginning or from one that begins anew."""

    def __init__(self) -> None:
        self._kinds: dict[int, _Kind] = {}
        #: Part -> where its latest value is.
        self._places: dict[_Path, int] = {}
        self._said: list[Any] = []

    def record(self, line: str) -> Record:
        """Return the record of the next line.

        Raises
        ------
        ValueError
            If it is none, or does not fit to the lines before it.
        """
        try:
            row, end = _DECODE(line)
            if line[end:].strip():
                raise ValueError(f"Extra data: char {end}")
        except ValueError as error:
            raise ValueError(f"not a line of JSON ({error})") from None
        if isinstance(row, list):
            return self._again(row)
        if not isinstance(row, dict):
            raise ValueError(f"a journal line must be a JSON object or list, got {type(row).__name__}")
        number = row.pop("#", None)
        record = Record.from_row(row)
        if isinstance(number, int):
            self._kinds[number] = _Kind(record, row, self._place)
            for path, value in _parts(row):
                self._said[self._place(path)] = from_plain(value)
        return record

    def _place(self, path: _Path) -> int:
        at = self._places.setdefault(path, len(self._said))
        if at == len(self._said):
            self._said.append(None)
        return at

    def _again(self, line: list[Any]) -> Record:
        """Return a further record of a kind."""
        said = self._said
        try:
            number, news, *values = line
            kind = self._kinds[number]
            for at, value in zip(kind.places(news), values, strict=True):
                said[at] = from_plain(value) if type(value) in NESTED else value
            return kind.record(said)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError("it does not follow from the lines before it") from None

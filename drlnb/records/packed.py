"""Write the records of a stream as short lines, and read them back: what has been said is not said again.

The first record of a kind is a JSON object that has a number, ``#``.  Each further one is a list: that number, then
which fields differ from what a record of any kind has said last under their names (one bit for each, the first one
lowest), then the values of these.  The entries of a mapping count as fields; a kind is a class with its fields so cut.
Number 0 begins anew: whoever reads on from there needs nothing of what stands before.
"""

import json
from collections.abc import Iterator
from typing import Any

from drlnb.records.base import Facts, Record, from_plain

__all__ = ["BEGIN", "Packer", "Unpacker"]

#: What a line begins with that can be read without those before it.
BEGIN = '{"#":0,'
#: Lines and kinds after which a stream begins anew: so much of it at most must be read for its last record.
_MOST_LINES, _MOST_KINDS = 20_000, 500

#: A field, or a field and one of its keys.
_Path = tuple[str, ...]


def _parts(row: Facts) -> Iterator[tuple[_Path, object]]:
    """Yield the fields of a row with their values, entry by entry where that is a mapping."""
    for name, value in row.items():
        if isinstance(value, dict) and value and "fence" not in value:
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


class Unpacker:
    """Reads the lines of one stream, from its beginning or from one that begins anew."""

    def __init__(self) -> None:
        #: Number -> class, its parts, and by field the part, or by key the parts, that it is made of.
        self._kinds: dict[int, tuple[type[Record], list[_Path], dict[str, Any]]] = {}
        self._said: dict[_Path, Any] = {}

    def record(self, line: str) -> Record:
        """Return the record of the next line.

        Raises
        ------
        ValueError
            If it is none, or does not fit to the lines before it.
        """
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"not a line of JSON ({error})") from None
        if isinstance(row, list):
            return self._again(row)
        if not isinstance(row, dict):
            raise ValueError(f"a journal line must be a JSON object or list, got {type(row).__name__}")
        number = row.pop("#", None)
        record = Record.from_row(row)
        if isinstance(number, int):
            paths, fields = [], dict[str, Any]()
            for path, value in _parts(row):
                paths.append(path)
                self._said[path] = from_plain(value)
                if len(path) == 1:
                    fields[path[0]] = path
                else:
                    fields.setdefault(path[0], {})[path[1]] = path
            self._kinds[number] = type(record), paths, fields
        return record

    def _again(self, line: list[Any]) -> Record:
        """Return a further record of a kind."""
        said = self._said
        try:
            number, news, *values = line
            kind, paths, fields = self._kinds[number]
            if news.bit_count() != len(values) or news >> len(paths):
                raise ValueError
            for value in values:
                said[paths[(news & -news).bit_length() - 1]] = from_plain(value)
                news &= news - 1
            return kind(**{
                name: said[of] if type(of) is tuple else {key: said[path] for key, path in of.items()}
                for name, of in fields.items()
            })
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ValueError("it does not follow from the lines before it") from None

"""Pack a run's journal into its report, as an archive within the page, without names of machines."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drlnb.records.journal import Journal
from drlnb.views.folds.entries import entries_of, split_stream

__all__ = ["Download", "Names", "archive", "scrub"]

#: A path of at least two parts, of Unix or Windows: its last part is kept.
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\s\\/:'\"]+)+[\\/]([^\s\\/:'\"]+)")
_ADDRESS = re.compile(r"\b(?:tcp|tls|inproc|ws|wss)://[^\s'\"/]+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
#: A name shorter than this is replaced only where it stands alone: it may be part of any word.
_SHORT = 4
_ALIAS = "node"
#: No row was seen to take fewer bytes once compressed.
_LEAST_BYTES = 7
#: Rows of a journal in which all machines are looked for; of a larger one, the pool's streams name them.
_MOST_ROWS = 100_000
#: Texts that are remembered, at most.
_MOST_KNOWN = 20_000
#: Fields whose text is the name of a machine, or begins with it.
_MACHINES = frozenset({"node", "host"})
#: Fields of one or several slots.
_SLOTS = frozenset({"slot", "slots"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A run's journal as one compressed file."""

    #: Nothing if it would be too large.
    data: bytes
    #: How many rows there are.
    n_rows: int


def scrub(text: str) -> str:
    """Return a text without directories and network addresses: a report tells nothing about its author's machines.

    Examples
    --------
    >>> scrub("File /home/ann/lab/env.py failed at tcp://10.0.0.3:4000")
    'File env.py failed at (address)'
    """
    return _PATH.sub(r"\1", _ADDRESS.sub("(address)", text))


class Names:
    """Machines of a run's journal, and what they are called in a report: by number, in order of appearance.

    Parameters
    ----------
    journal
        The run's journal.
    n_rows
        How many rows it has.
    """

    def __init__(self, journal: Journal, n_rows: int) -> None:
        streams = journal.streams.items()
        few = {name: of for name, of in streams if n_rows <= _MOST_ROWS or split_stream(name) is None}
        rows = entries_of(Journal(streams=few))
        names = dict.fromkeys(name for _, record in rows for name in _machines(record.to_row()))
        known = (name for name in names if name and not name.isdigit())
        self.alias = {name: f"{_ALIAS}{i}" for i, name in enumerate(known)}
        long = sorted((name for name in self.alias if len(name) >= _SHORT), key=len, reverse=True)
        self._long = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, long))})(?![\w-])") if long else None
        #: A journal says the same words over and over.
        self._text = lru_cache(_MOST_KNOWN)(self._anew)

    def said(self, value: object) -> Any:
        """Return plain data without names of machines, directories and addresses, keys included."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(str(key)): self.said(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.said(item) for item in value]
        return value

    def _anew(self, text: str) -> str:
        head, slash, rest = text.rpartition("/")
        if text in self.alias:
            return self.alias[text]
        if head in self.alias:
            return self.alias[head] + slash + rest
        if self._long is not None:
            text = self._long.sub(lambda match: self.alias[match[0]], text)
        return scrub(text)


def _machines(value: object, key: str = "") -> Iterator[str]:
    """Yield the names of machines in a row: its nodes and hosts, and what stands before a slot's device."""
    if isinstance(value, str):
        yield value if key in _MACHINES else value.rpartition("/")[0] if key in _SLOTS else ""
    elif isinstance(value, dict):
        yield from map(str, value) if key == "nodes" else ()
        for name, item in value.items():
            yield from _machines(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _machines(item, key if key == "slots" else "")


def archive(journal: Journal, names: Names, limit: int, n_rows: int) -> Download:
    """Return the journal as ``journal.tar.gz``: unpacked, it is a folder that every reader of journals takes.

    Equal journals give equal bytes: there is no time and no owner in it.

    Parameters
    ----------
    journal
        The run's journal.
    names
        What its machines are called.
    limit
        Bytes of a page that it may take; what would take more is not finished, and has no data.
    n_rows
        How many rows the journal has.
    """
    most = limit * 3 / 4
    return Download(data=_packed(journal, names, most) if n_rows * _LEAST_BYTES <= most else b"", n_rows=n_rows)


def _packed(journal: Journal, names: Names, most: float) -> bytes:
    """Return the archive; nothing if it has more bytes than there may be."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as out, tarfile.open(fileobj=out, mode="w|") as tar:
        for i, (name, stream) in enumerate(journal.streams.items()):
            if packed.tell() > most:
                return b""
            rows = (stream.header.to_row(), *(record.to_row() for record in stream.records))
            text = "".join(json.dumps(names.said(row), separators=(",", ":")) + "\n" for row in rows).encode()
            safe = re.sub(r"[^\w.@=+-]", "_", names.said(name)) or f"stream{i}"
            entry = tarfile.TarInfo(f"journal/{safe}.jsonl")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    data = packed.getvalue()
    return data if len(data) <= most else b""

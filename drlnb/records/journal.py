"""Keep the records of one machine as a stream of lines, and read them back.

A *stream* is an append-only file of JSON lines: :class:`StreamOpened` first, then each event followed by the decisions
and commands that the machine answered with.  Views, reports, benchmarks and replay read nothing else.  A torn last
line (the process was killed while it wrote) is tolerated; a broken line anywhere else is an error that names its place.

A file may be larger than memory: its records are read from it again each time they are asked for, and never kept.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar, TypeVar

from drlnb.records import common, replay
from drlnb.records import round as rounds
from drlnb.records.base import Event, Facts, Record
from drlnb.records.columns import batching, distribution, leasing, placement, swapping, warmup
from drlnb.records.errors import JournalError, JournalFormatError
from drlnb.records.packed import BEGIN, Unpacker

__all__ = [
    "COLUMNS",
    "JOURNAL_FORMAT",
    "Anew",
    "Journal",
    "Stream",
    "StreamOpened",
    "closed_parts",
    "joined",
    "line_of",
    "read_stream",
    "stream_files",
]

Kind = TypeVar("Kind", bound=Record)

#: Version of the records and of what they mean; a reader refuses every other one.
JOURNAL_FORMAT = 7
#: The columns whose records a journal may hold: what is imported here can be read back.
COLUMNS = (batching, common, distribution, leasing, placement, replay, rounds, swapping, warmup)
#: Bytes at the end of a stream that are read for its last records.
_TAIL_BYTES = 8_000_000
#: Bytes of a file that are read at once.
_BLOCK_BYTES = 1 << 13


class StreamOpened(Record):
    """First line of a stream: which machine speaks, and what a fresh one needs to speak alike."""

    letter: ClassVar[str] = "h"

    stream: str
    #: ``round``, ``pool``, ``distribution``, ``placement`` or ``swapping``.
    machine: str
    #: Constructor arguments of the machine, plain data.
    config: Facts
    #: State of the machine when the stream began, ``None`` for a fresh one.
    snapshot: Facts | None = None
    #: ``measured``, ``simulated`` or ``emulated``; every figure says which.
    origin: str
    #: Version of drlnb that wrote the stream.
    version: str
    format: int = JOURNAL_FORMAT


def line_of(record: Record) -> str:
    """Return a record as one line of JSON with its newline, which says all that it holds."""
    return json.dumps(record.to_row(), separators=(",", ":"), allow_nan=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream that has been read."""

    header: StreamOpened
    #: In memory, or in a file: there a line that cannot be read is found, and JournalError raised, when its turn comes.
    records: Iterable[Record]
    #: Whether the last line was torn (and left out).
    torn: bool
    source: str

    def answers(self) -> Iterator[tuple[Event, tuple[Record, ...]]]:
        """Yield each event with what the machine answered."""
        event: Event | None = None
        answer: list[Record] = []
        for record in self.records:
            if isinstance(record, Event):
                if event is not None:
                    yield event, tuple(answer)
                event, answer = record, []
            else:
                answer.append(record)
        if event is not None:
            yield event, tuple(answer)

    def timed(self, kind: type[Kind]) -> Iterator[tuple[float, Kind]]:
        """Yield the records of a class, in order, each with the time of the event that it is, or follows."""
        t = 0.0
        for record in self.records:
            t = record.t if isinstance(record, Event) else t
            if isinstance(record, kind):
                yield t, record

    def of(self, *kinds: type[Kind]) -> tuple[Kind, ...]:
        """Return the records of some classes, in order."""
        return tuple(self.each(*kinds))

    def each(self, *kinds: type[Kind]) -> Iterator[Kind]:
        """Yield the records of some classes, in order."""
        return (record for record in self.records if isinstance(record, kinds))


def _header(line: str, source: str) -> StreamOpened:
    """Return the first line's record; its format is compared before its fields, which may be others."""
    row = {}
    with contextlib.suppress(ValueError):
        row = json.loads(line)
    if not isinstance(row, dict) or row.get("r") != StreamOpened.__name__:
        raise JournalError(f"{source}:1: a stream must begin with StreamOpened")
    if row.get("format") != JOURNAL_FORMAT:
        raise JournalFormatError(
            f"{source}:1: journal format {row.get('format')}, this drlnb reads {JOURNAL_FORMAT}: "
            f"read it with the version that wrote it ({row.get('version')})"
        )
    header = next(_records([line], source))
    assert isinstance(header, StreamOpened)
    return header


def _records(lines: Iterable[str], source: str) -> Iterator[Record]:
    """Yield the records of whole lines, the first of which needs none before it; empty ones are left out."""
    unpacker = Unpacker()
    for i, line in enumerate(lines, 1):
        if line and not line.isspace():
            try:
                record = unpacker.record(line)
            except ValueError as error:
                raise JournalError(f"{source}:{i}: {error}") from None
            yield record


@dataclass(frozen=True, slots=True)
class _Part:
    """The records in a part of a stream's file, but for its header."""

    path: Path
    #: Its first byte, and the one after its last.
    start: int
    stop: int

    def _lines(self) -> Iterator[str]:
        """Yield the whole lines, without their newlines."""
        left, rest = self.stop - self.start, b""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                while left > 0 and (block := file.read(min(left, _BLOCK_BYTES))):
                    left -= len(block)
                    whole, newline, rest = (rest + block).rpartition(b"\n")
                    yield from whole.decode(errors="replace").split("\n") if newline else ()
        except OSError as error:
            raise JournalError(f"{self.path}: {error.strerror}") from None

    def __iter__(self) -> Iterator[Record]:
        for record in _records(self._lines(), str(self.path)):
            if type(record) is not StreamOpened:
                yield record


def read_stream(path: Path, *, tail: bool = False) -> Stream:
    """Read one stream's file, as far as it goes now.

    Parameters
    ----------
    path
        The file.
    tail
        Whether its last records are enough: of a long file only the end is read.

    Raises
    ------
    JournalError
        If the file cannot be read, or does not begin with :class:`StreamOpened`.
    """
    start = 0
    try:
        with path.open("rb") as file:
            first = file.readline()
            stop = file.seek(0, 2)
            if tail and stop > _TAIL_BYTES:
                before = file.seek(stop - _TAIL_BYTES)
                at = file.read(_TAIL_BYTES).find(b"\n" + BEGIN.encode())
                start = before + at + 1 if at >= 0 else 0
            file.seek(max(0, stop - 1))
            torn = file.read(1) != b"\n"
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    header = _header(first.decode(errors="replace") if first.endswith(b"\n") else "", str(path))
    return Stream(header=header, records=_Part(path, start, stop), torn=torn, source=str(path))


@dataclass(frozen=True, slots=True)
class Anew:
    """Records that are read anew each time they are asked for."""

    read: Callable[[], Iterator[Record]]

    def __iter__(self) -> Iterator[Record]:
        return self.read()


def joined(files: Sequence[Stream]) -> Stream:
    """Return a stream that went on in other files as one; `files` are in their order, at least one."""
    records = Anew(lambda: chain.from_iterable(stream.records for stream in files))
    return replace(files[0], records=records, torn=files[-1].torn)


def closed_parts(path: Path) -> list[tuple[int, Path]]:
    """Return the files that a stream had filled before `path`, with their numbers, in their order."""
    names = ((file.stem.removeprefix(f"{path.stem}~"), file) for file in path.parent.glob("*~*.jsonl"))
    return sorted((int(number), file) for number, file in names if number.isdigit())


def stream_files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each stream in a folder, in their order.

    Raises
    ------
    JournalError
        If there are none, or one among others is missing.
    """
    files = {}
    for name in sorted({path.stem.partition("~")[0] for path in folder.glob("*.jsonl")}):
        newest = folder / f"{name}.jsonl"
        closed = closed_parts(newest)
        if closed and closed[-1][0] - closed[0][0] >= len(closed):
            raise JournalError(f"{newest}: a part is missing between {closed[0][1].name} and {closed[-1][1].name}")
        files[name] = [*(path for _, path in closed), *([newest] if newest.exists() else [])]
    if not files:
        raise JournalError(f"{folder}: no journal here (looked for {folder}/*.jsonl)")
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """All streams of a run, by stream name."""

    streams: Mapping[str, Stream]

    @classmethod
    def read(cls, directory: Path) -> "Journal":
        """Read every stream of a run directory (or of its ``journal/`` folder).

        Raises
        ------
        JournalError
            If there is no journal, or a stream cannot be read.
        """
        folder = directory / "journal" if (directory / "journal").is_dir() else directory
        streams = {}
        for name, paths in stream_files(folder).items():
            if files := [read_stream(path) for path in paths if path.stat().st_size]:
                streams[name] = joined(files)
        return cls(streams=streams)

    def of(self, *kinds: type[Kind]) -> tuple[Kind, ...]:
        """Return the records of some classes over all streams, stream by stream."""
        return tuple(record for stream in self.streams.values() for record in stream.of(*kinds))

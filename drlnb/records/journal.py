"""Keep the records of one machine as a stream of lines, and read them back.

A *stream* is an append-only file of JSON lines: :class:`StreamOpened` first, then each event followed by the decisions
and commands that the machine answered with.  Views, reports, benchmarks and replay read nothing else.  A torn last
line (the process was killed while it wrote) is tolerated; a broken line anywhere else is an error that names its place.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from drlnb.records import common, replay, seats
from drlnb.records import round as rounds
from drlnb.records.base import Event, Facts, Record
from drlnb.records.columns import batching, distribution, leasing, placement, swapping, warmup
from drlnb.records.errors import JournalError

__all__ = ["COLUMNS", "JOURNAL_FORMAT", "Journal", "Stream", "StreamOpened", "line_of", "read_stream", "stream_of"]

Kind = TypeVar("Kind", bound=Record)

#: Version of the records and of what they mean; a reader refuses every other one.
JOURNAL_FORMAT = 2
#: The columns whose records a journal may hold: what is imported here can be read back.
COLUMNS = (batching, common, distribution, leasing, placement, replay, rounds, seats, swapping, warmup)


class StreamOpened(Record):
    """First line of a stream: which machine speaks, and what a fresh one needs to speak alike."""

    letter: ClassVar[str] = "h"

    stream: str
    #: ``round``, ``pool`` or ``seats``.
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
    """Return a record as one line of JSON with its newline."""
    return json.dumps(record.to_row(), separators=(",", ":"), allow_nan=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream that has been read."""

    header: StreamOpened
    records: tuple[Record, ...]
    #: Whether the last line was torn (and left out).
    torn: bool
    source: str

    def answers(self) -> Iterator[tuple[Event, tuple[Record, ...]]]:
        """Yield each event with what the machine answered."""
        events = [(i, record) for i, record in enumerate(self.records) if isinstance(record, Event)]
        ends = [*(i for i, _ in events), len(self.records)][1:]
        for (i, event), end in zip(events, ends, strict=True):
            yield event, self.records[i + 1 : end]

    def timed(self, kind: type[Kind]) -> Iterator[tuple[float, Kind]]:
        """Yield the records of a class, in order, each with the time of the event that it is, or follows."""
        t = 0.0
        for record in self.records:
            t = record.t if isinstance(record, Event) else t
            if isinstance(record, kind):
                yield t, record

    def of(self, *kinds: type[Kind]) -> tuple[Kind, ...]:
        """Return the records of some classes, in order."""
        return tuple(record for record in self.records if isinstance(record, kinds))


def _row(line: str, place: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{place}: not a line of JSON ({error})") from None
    if not isinstance(row, dict):
        raise JournalError(f"{place}: a journal line must be a JSON object, got {type(row).__name__}")
    return row


def _parse(row: Facts, place: str) -> Record:
    try:
        return Record.from_row(row)
    except ValueError as error:
        raise JournalError(f"{place}: {error}") from None


def _header(texts: Sequence[str], source: str) -> StreamOpened:
    """Return the first line's record; its format is compared before its fields, which may be others."""
    place = f"{source}:1"
    row = _row(texts[0], place) if texts else {}
    if row.get("r") != StreamOpened.__name__:
        raise JournalError(f"{place}: a stream must begin with StreamOpened")
    if row.get("format") != JOURNAL_FORMAT:
        raise JournalError(
            f"{place}: journal format {row.get('format')}, this drlnb reads {JOURNAL_FORMAT}: "
            f"read it with the version that wrote it ({row.get('version')})"
        )
    header = _parse(row, place)
    assert isinstance(header, StreamOpened)
    return header


def stream_of(lines: Iterable[str], *, source: str) -> Stream:
    """Read a stream from its lines.

    Raises
    ------
    JournalError
        If a line other than a torn last one cannot be read, or the first is not :class:`StreamOpened`.
    """
    texts = [line for line in lines if line.strip()]
    torn = bool(texts) and not texts[-1].endswith("\n")
    if torn:
        texts.pop()
    header = _header(texts, source)
    records = [_parse(_row(text, f"{source}:{i}"), f"{source}:{i}") for i, text in enumerate(texts[1:], 2)]
    return Stream(header=header, records=tuple(records), torn=torn, source=source)


def read_stream(path: Path) -> Stream:
    """Read one stream's file.

    Raises
    ------
    JournalError
        As :func:`stream_of`; also when the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from None
    return stream_of(text.splitlines(keepends=True), source=str(path))


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
        paths = sorted(folder.glob("*.jsonl"))
        if not paths:
            raise JournalError(f"{directory}: no journal here (looked for {folder}/*.jsonl)")
        streams = {path.stem: read_stream(path) for path in paths if path.stat().st_size}
        return cls(streams=streams)

    def of(self, *kinds: type[Kind]) -> tuple[Kind, ...]:
        """Return the records of some classes over all streams, stream by stream."""
        return tuple(record for stream in self.streams.values() for record in stream.of(*kinds))

"""Which rows does a run's journal hold, as tables?  Pure; pandas is only asked for when a person wants a frame."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

from drlnb.fleet.rows.pool_table import pool_rows
from drlnb.fleet.rows.task_status import split_stream
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError, JournalError, MissingExtra
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened

__all__ = ["TABLES", "frame_of", "from_second", "journal_of", "table_rows"]

Rows = Iterator[dict[str, Any]]


def table_rows(journal: Journal, table: str) -> list[dict[str, Any]]:
    """Return the rows of one table as plain data.

    Parameters
    ----------
    journal
        Of one run.
    table
        ``metrics`` (one row per finished round, SB3's names), ``rounds`` (seconds of a round's parts), ``leases`` (one
        row per ended lease), ``pool`` (one row per change of the pool, see
        :func:`~drlnb.fleet.rows.pool_table.pool_rows`) or ``episodes`` (raw return and length).

    Raises
    ------
    ConfigError
        If there is no such table.
    """
    make = TABLES.get(table)
    if make is None:
        raise ConfigError(f"table must be one of {', '.join(TABLES)}, got {table!r}")
    return list(make(journal))


def frame_of(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a ``pandas.DataFrame``.

    Raises
    ------
    MissingExtra
        If pandas is not installed.
    """
    try:
        pandas = import_module("pandas")  # optional, and slow to import
    except ImportError:
        raise MissingExtra("frame() needs pandas; install it with: pip install pandas") from None
    return pandas.DataFrame(rows)


def _tasks(journal: Journal) -> Iterator[tuple[str, int, Stream]]:
    for name, stream in journal.streams.items():
        named = split_stream(name)
        if named is not None:
            yield *named, stream


def _metrics(journal: Journal) -> Rows:
    for task, attempt, stream in _tasks(journal):
        for row in stream.of(words.MetricsRecorded):
            first = {"task": task, "attempt": attempt, "round": row.round, "n_timesteps": row.n_timesteps}
            yield first | dict(row.metrics)


def _rounds(journal: Journal) -> Rows:
    for row in _metrics(journal):
        parts = {key.removeprefix("round/"): value for key, value in row.items() if key.startswith("round/")}
        yield {key: row[key] for key in ("task", "attempt", "round", "n_timesteps")} | parts


def _leases(journal: Journal) -> Rows:
    moved = _moved_bytes(journal)
    for stream in journal.streams.values():
        if stream.header.machine == "pool":
            for fence, row in _pool_leases(stream):
                yield row | {"moved_bytes": moved.get(fence)}


def _moved_bytes(journal: Journal) -> dict[Fence, int]:
    """Return what had to be brought to a slot under each lease of a task whose stream is here."""
    moved: dict[Fence, int] = {}
    for _, _, stream in _tasks(journal):
        for event in stream.of(words.LeaseReceived, words.GradientComputed, leasing.GradientsRestored):
            moved[event.fence] = moved.get(event.fence, 0) + getattr(event, "moved_bytes", 0)
    return moved


def _pool(journal: Journal) -> Rows:
    for stream in journal.streams.values():
        if stream.header.machine == "pool":
            yield from pool_rows(stream)


def _pool_leases(stream: Stream) -> Iterator[tuple[Fence, dict[str, Any]]]:
    granted: dict[Any, dict[str, Any]] = {}
    for event, answer in stream.answers():
        for record in answer:
            if isinstance(record, leasing.LeaseGranted):
                granted[record.fence] = _granted(record, event.t)
            elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired) and record.fence in granted:
                yield record.fence, granted.pop(record.fence) | _ended(record, event.t)


def _granted(record: leasing.LeaseGranted, t: float) -> dict[str, Any]:
    task = record.task.rpartition("/")[2]
    return {
        "task": task,
        "attempt": record.attempt,
        "round": record.round,
        "slots": " ".join(record.slots),
        "fence": f"{record.fence.epoch}/{record.fence.token}",
        "granted_s": t,
        "waited_s": record.waited_s,
        "resident": record.resident,
    }


def _ended(record: leasing.LeaseReleased | leasing.LeaseExpired, t: float) -> dict[str, Any]:
    clean = isinstance(record, leasing.LeaseReleased)
    return {
        "ended_s": t,
        "held_s": record.held_s,
        "computed_s": record.computed_s if isinstance(record, leasing.LeaseReleased) else None,
        "reason": record.reason if isinstance(record, leasing.LeaseReleased) else "expired",
        "expired": not clean,
    }


def _episodes(journal: Journal) -> Rows:
    for task, attempt, stream in _tasks(journal):
        for event in stream.of(words.ExperienceArrived):
            for reward, length in event.episodes:
                yield {
                    "task": task,
                    "attempt": attempt,
                    "round": event.round,
                    "collector": event.collector,
                    "return": reward,
                    "length": length,
                }


#: Name of a table -> what makes its rows.
TABLES: Mapping[str, Callable[[Journal], Rows]] = {
    "metrics": _metrics,
    "rounds": _rounds,
    "leases": _leases,
    "pool": _pool,
    "episodes": _episodes,
}


def journal_of(rows: Sequence[Mapping[str, Any]]) -> Journal:
    """Build a journal from the rows of a watcher."""
    records: dict[str, list[Record]] = {}
    for row in rows:
        if row.get("k") in {"h", "e", "d", "c"}:
            plain = {key: value for key, value in row.items() if key != "s"}
            records.setdefault(str(row["s"]), []).append(Record.from_row(plain))
    streams = {}
    for name, said in records.items():
        if isinstance(said[0], StreamOpened):
            streams[name] = Stream(header=said[0], records=tuple(said[1:]), torn=False, source=name)
    if not streams:
        raise JournalError("no journal of this run can be seen from here yet")
    return Journal(streams=streams)


def from_second(journal: Journal, since_s: float) -> Journal:
    """Return the part of a journal from a second on, counted by each stream's own clock."""
    if since_s <= 0:
        return journal
    return Journal(streams={name: _after(stream, since_s) for name, stream in journal.streams.items()})


def _after(stream: Stream, since_s: float) -> Stream:
    kept: list[Record] = []
    keep = False
    for record in stream.records:
        keep = record.t >= since_s if isinstance(record, Event) else keep
        if keep:
            kept.append(record)
    return replace(stream, records=tuple(kept))

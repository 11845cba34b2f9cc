"""Make tables of a run's journal; pure, and pandas is only imported for a frame."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from types import ModuleType

from drlnb.fleet.rows.pool_table import pool_rows
from drlnb.records import round as rounds
from drlnb.records.base import Event
from drlnb.records.columns import leasing
from drlnb.records.errors import ConfigError, MissingExtra
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream
from drlnb.views.folds.entries import split_stream

__all__ = ["TABLES", "frame_of", "from_second", "table_rows"]

Row = dict[str, object]


def table_rows(journal: Journal, table: str) -> list[Row]:
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


def frame_of(rows: list[Row]) -> object:
    """Return rows as a ``pandas.DataFrame``.

    Raises
    ------
    MissingExtra
        If pandas is not installed.
    """
    try:
        pandas: ModuleType = import_module("pandas")  # optional, and slow to import
    except ImportError:
        raise MissingExtra("frame() needs pandas; install it with: pip install pandas") from None
    return pandas.DataFrame(rows)


def _tasks(journal: Journal) -> Iterator[tuple[Row, Stream]]:
    """Yield the first columns of each task's rows, and its stream."""
    for name, stream in journal.streams.items():
        named = split_stream(name)
        if named is not None:
            yield {"task": named[0], "attempt": named[1]}, stream


def _pools(journal: Journal) -> Iterable[Stream]:
    return (stream for stream in journal.streams.values() if stream.header.machine == "pool")


def _metrics(journal: Journal) -> Iterator[Row]:
    for first, stream in _tasks(journal):
        for row in stream.of(rounds.MetricsRecorded):
            yield {**first, "round": row.round, "n_timesteps": row.n_timesteps, **row.metrics}


def _rounds(journal: Journal) -> Iterator[Row]:
    for row in _metrics(journal):
        parts = {key.removeprefix("round/"): value for key, value in row.items() if key.startswith("round/")}
        yield {key: row[key] for key in ("task", "attempt", "round", "n_timesteps")} | parts


def _leases(journal: Journal) -> Iterator[Row]:
    moved: Counter[Fence] = Counter()  # what had to be brought to a slot, if the task's stream is here
    for _, stream in _tasks(journal):
        for event in stream.of(rounds.LeaseReceived, rounds.GradientComputed, leasing.GradientsRestored):
            moved[event.fence] += getattr(event, "moved_bytes", 0)
    for stream in _pools(journal):
        granted: dict[Fence, Row] = {}
        for event, answer in stream.answers():
            for record in answer:
                if isinstance(record, leasing.LeaseGranted):
                    granted[record.fence] = _granted(record, event.t)
                elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired) and record.fence in granted:
                    row = granted.pop(record.fence) | _ended(record, event.t)
                    yield row | {"moved_bytes": moved.get(record.fence)}


def _granted(record: leasing.LeaseGranted, t: float) -> Row:
    return {
        "task": record.task.rpartition("/")[2],
        "attempt": record.attempt,
        "round": record.round,
        "slots": " ".join(record.slots),
        "fence": f"{record.fence.epoch}/{record.fence.token}",
        "granted_s": t,
        "waited_s": record.waited_s,
        "resident": record.resident,
    }


def _ended(record: leasing.LeaseReleased | leasing.LeaseExpired, t: float) -> Row:
    returned = record if isinstance(record, leasing.LeaseReleased) else None
    return {
        "ended_s": t,
        "held_s": record.held_s,
        "computed_s": returned.computed_s if returned else None,
        "reason": returned.reason if returned else "expired",
        "expired": returned is None,
    }


def _pool(journal: Journal) -> Iterator[Row]:
    for stream in _pools(journal):
        yield from pool_rows(stream)


def _episodes(journal: Journal) -> Iterator[Row]:
    for first, stream in _tasks(journal):
        for event in stream.of(rounds.ExperienceArrived):
            for reward, length in event.episodes:
                yield {
                    **first, "round": event.round, "collector": event.collector, "return": reward, "length": length
                }  # fmt: skip


#: Name of a table -> what makes its rows.
TABLES: Mapping[str, Callable[[Journal], Iterator[Row]]] = {
    "metrics": _metrics,
    "rounds": _rounds,
    "leases": _leases,
    "pool": _pool,
    "episodes": _episodes,
}


def from_second(journal: Journal, since_s: float) -> Journal:
    """Return the part of a journal from a second on, counted by each stream's own clock."""
    if since_s <= 0:
        return journal
    return Journal(streams={name: _after(stream, since_s) for name, stream in journal.streams.items()})


def _after(stream: Stream, since_s: float) -> Stream:
    first = next(
        (i for i, record in enumerate(stream.records) if isinstance(record, Event) and record.t >= since_s),
        len(stream.records),
    )
    return replace(stream, records=stream.records[first:])

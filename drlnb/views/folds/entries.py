"""Read a journal, or the rows that a cluster streams, as entries: the name of a stream and one record of it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from inspect import isfunction, signature
from typing import TypeVar, get_args

from drlnb.records.base import Record, from_plain, record_types
from drlnb.records.errors import JournalError
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.round import TaskOpened

__all__ = [
    "Entry",
    "Handlers",
    "Rules",
    "decoded",
    "entries_of",
    "folds",
    "handlers_of",
    "journal_of",
    "newest",
    "split_stream",
]

#: Name of a stream, and a record of it.
Entry = tuple[str, Record]
#: Class of a record -> what takes such a record in.
Handlers = Mapping[type[Record], Callable[..., object]]


#: Pairs of such a class and what takes it in; of several, all do.
Rules = Iterable[tuple[type[Record], Callable[..., object]]]
_Fold = TypeVar("_Fold")
#: Class -> name of each method that takes records in, with each class of those.
_HANDLED: dict[type, tuple[tuple[str, type[Record]], ...]] = {}


def entries_of(journal: Journal) -> Iterator[Entry]:
    """Yield the entries of a journal, stream by stream, those of each task in the order of its attempts."""
    for name, stream in sorted(journal.streams.items(), key=lambda item: (split_stream(item[0]) or ("", 0))[1]):
        yield name, stream.header
        for record in stream.records:
            yield name, record


def decoded(rows: Iterable[Mapping[str, object]]) -> list[Entry]:
    """Return rows that were streamed (``{"s": stream, "k", "r", ...fields}``) as entries; unknown kinds are left out.

    Raises
    ------
    TypeError
        If a record's fields are not those of its class.
    """
    entries = []
    for row in rows:
        kind = record_types().get(str(row.get("r")))
        if kind is not None:
            fields = {key: from_plain(value) for key, value in row.items() if key not in {"s", "k", "r"}}
            entries.append((str(row.get("s", "")), kind(**fields)))
    return entries


def journal_of(entries: Iterable[Entry]) -> Journal:
    """Return entries as a journal; streams whose beginning is not among them are left out.

    Raises
    ------
    JournalError
        If nothing is left.
    """
    records: dict[str, list[Record]] = {}
    for name, record in entries:
        if record.letter != "n":
            records.setdefault(name, []).append(record)
    streams = {
        name: Stream(header=first, records=tuple(rest), torn=False, source=name)
        for name, (first, *rest) in records.items()
        if isinstance(first, StreamOpened)
    }
    if not streams:
        raise JournalError("no journal of this run can be seen from here yet")
    return Journal(streams=streams)


def split_stream(stream: str) -> tuple[str, int] | None:
    """Return (task, attempt) of a task's stream name, None for another stream.

    Examples
    --------
    >>> split_stream("task-CartPole-v1-a2"), split_stream("broker-e5")
    (('CartPole-v1', 2), None)
    """
    name, mark, attempt = stream.removeprefix("task-").rpartition("-a")
    return (name, int(attempt)) if mark and attempt.isdigit() and stream.startswith("task-") else None


def newest(entries: Iterable[Entry], attempts: dict[str, int]) -> Iterator[tuple[str, Record]]:
    """Yield (task, record) of what the newest attempt at each task says.

    Parameters
    ----------
    entries
        Of one run.
    attempts
        Task -> number of its newest attempt so far; kept up to date.
    """
    for stream, record in entries:
        named = split_stream(stream)
        if named is not None and named[1] >= attempts.get(named[0], 0):
            if isinstance(record, TaskOpened):
                attempts[named[0]] = named[1]
            yield named[0], record


def folds(*first: str) -> Callable[[type[_Fold]], type[_Fold]]:
    """Return what makes a class a fold: its methods that end in a record and ``t`` take records in, by the annotation.

    Parameters
    ----------
    *first
        Names of what each of them takes before the record.

    Raises
    ------
    TypeError
        As the class is made, if a method looks like one that takes records in, and its arguments or annotations are
        not those of one.
    """

    def decorate(fold: type[_Fold]) -> type[_Fold]:
        _HANDLED[fold] = tuple(_handled(fold, first))
        return fold

    return decorate


def handlers_of(fold: object, *first: object) -> Rules:
    """Return what takes records in, of an object whose class :func:`folds` has made one; `first`: before the record."""
    return [(kind, partial(getattr(fold, name), *first)) for name, kind in _HANDLED[type(fold)]]


def _handled(fold: type, first: tuple[str, ...]) -> Iterator[tuple[str, type[Record]]]:
    """Yield the name of each handler of a class, with each class of records that it takes in."""
    for name, method in vars(fold).items():
        if not isfunction(method) or name.startswith("__"):
            continue
        given = list(signature(method).parameters.values())[1:]
        kinds = [get_args(each.annotation) or (each.annotation,) for each in given]
        records = [all(isinstance(kind, type) and issubclass(kind, Record) for kind in each) for each in kinds]
        names = tuple(each.name for each in given)
        shaped = len(names) == len(first) + 2 and names == (*first, names[-2], "t")
        if shaped and records[-2]:
            yield from ((name, kind) for kind in kinds[-2])
        elif shaped or any(records):
            raise TypeError(f"{fold.__name__}.{name} is no handler: it must end in a record, by its class, and t")

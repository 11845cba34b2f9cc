"""Make tables of a run's journal; pure, and pandas is only imported for a frame."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import chain, dropwhile, groupby, islice, starmap
from operator import attrgetter
from types import ModuleType

from drlnb.fleet.plain import Row
from drlnb.planning.swapping.state import NONE
from drlnb.records import round as rounds
from drlnb.records.base import Event, Record
from drlnb.records.columns import batching, leasing, placement, swapping
from drlnb.records.common import ClockRelated
from drlnb.records.errors import ConfigError, MissingExtra
from drlnb.records.ids import Fence
from drlnb.records.journal import Anew, Journal, Stream
from drlnb.sim.leases import leases
from drlnb.views.folds.batching import BatchFold, Share, Split
from drlnb.views.folds.entries import handlers_of, split_stream
from drlnb.views.folds.fold import Fold

__all__ = ["TABLES", "frame_of", "from_second", "pool_rows", "table_rows"]

#: What a row of the table of swapping has of its event.
_STEP = ("plan_key", "step_s", "stall_s", "peak_bytes", "swapped_bytes", "n_saved")
#: Commands whose gradient steps are made under a budget, if there is one.
_SWAPPED = (rounds.ComputeGradient, rounds.FinishRound, batching.ComputeShare, batching.JoinRound)
#: Before a task's first lease: nothing is known of what was brought for it.
_NO_LEASE: tuple[Fence, int | None] = (Fence(epoch=0, token=0), None)


def table_rows(journal: Journal, table: str, every: int = 1) -> list[Row]:
    """Return the rows of one table as plain data.

    Parameters
    ----------
    journal
        Of one run.
    table
        ``metrics`` (one row per finished round, SB3's names), ``rounds`` (seconds of a round's parts), ``leases`` (one
        row per ended lease), ``pool`` (one row per change of the pool, see
        :func:`pool_rows`), ``episodes`` (raw return and length), ``placement`` (one row per answer of a
        planner of placement), ``swapping`` (gradient steps under a byte budget), ``batching`` (one row per split among
        learners or collectors) or ``shares`` (one row per share of those).
        Times are those of the pictures: seconds since the run's first event.
    every
        Leave all rows out but every so manieth: those of a long run may be larger than memory, the journal never is.

    Raises
    ------
    ConfigError
        If there is no such table, or `every` is no whole number above 0.
    """
    make = TABLES.get(table)
    if make is None:
        raise ConfigError(f"table must be one of {', '.join(TABLES)}, got {table!r}")
    if not isinstance(every, int) or every < 1:
        raise ConfigError(f"every must be a whole number >= 1, got {every!r}")
    return list(islice(make(journal), 0, None, every))


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


def _pools(journal: Journal) -> Iterable[tuple[Stream, float]]:
    """Yield the pools' streams, and what their seconds are behind those of the pictures."""
    offset_s = _clocks(journal)
    for name, stream in journal.streams.items():
        if stream.header.machine == "pool":
            yield stream, offset_s(name)


def _clocks(journal: Journal) -> Callable[[str], float]:
    """Return what gives a stream's offset: what must be added to its seconds to have those since the first event.

    Headers, first events and relations are enough.
    """
    fold = Fold(details=False)
    fold.feed((name, record) for name, stream in journal.streams.items() for record in _clock_records(stream))
    return fold.offset_s


def _clock_records(stream: Stream) -> Iterator[Record]:
    yield stream.header
    yield from islice(stream.each(Event), 1)
    if split_stream(stream.header.stream) is not None:
        yield from stream.each(ClockRelated)


def _metrics(journal: Journal) -> Iterator[Row]:
    for first, stream in _tasks(journal):
        for row in stream.each(rounds.MetricsRecorded):
            yield {**first, "round": row.round, "n_timesteps": row.n_timesteps, **row.metrics}


def _rounds(journal: Journal) -> Iterator[Row]:
    for row in _metrics(journal):
        parts = {key.removeprefix("round/"): value for key, value in row.items() if key.startswith("round/")}
        yield {key: row[key] for key in ("task", "attempt", "round", "n_timesteps")} | parts


def _moved(stream: Stream) -> Iterator[tuple[Fence, int | None]]:
    """Yield the leases of a task's stream, each with the bytes that had to be brought to its slot."""
    events = stream.each(rounds.LeaseReceived, rounds.GradientComputed, leasing.GradientsRestored)
    for fence, mine in groupby(events, attrgetter("fence")):
        yield fence, sum(getattr(event, "moved_bytes", 0) for event in mine)


def _leases(journal: Journal) -> Iterator[Row]:
    moved = {tuple(first.values()): _moved(stream) for first, stream in _tasks(journal)}
    latest = dict.fromkeys(moved, _NO_LEASE)  # both streams are in the order of fences, so one at a time is enough
    for stream, offset_s in _pools(journal):
        for granted_s, grant, ended_s, end in leases(stream):
            task, attempt = key = grant.task.rpartition("/")[2], grant.attempt
            while key in moved and latest[key][0] < grant.fence:
                latest[key] = next(moved[key], (grant.fence, None))
            yield {
                "task": task,
                "attempt": attempt,
                "round": grant.round,
                "slots": " ".join(grant.slots),
                "fence": f"{grant.fence.epoch}/{grant.fence.token}",
                "granted_s": granted_s + offset_s,
                "waited_s": grant.waited_s,
                "resident": grant.resident,
                "ended_s": ended_s + offset_s,
                "held_s": end.held_s,
                "computed_s": sum(end.computed_s) if isinstance(end, leasing.LeaseReleased) else None,
                "reason": getattr(end, "reason", "expired"),
                "expired": isinstance(end, leasing.LeaseExpired),
                "moved_bytes": dict([latest.get(key, _NO_LEASE)]).get(grant.fence),
            }


def _placements(journal: Journal) -> Iterator[Row]:
    for stream, offset_s in _pools(journal):
        for event, answer in stream.answers():
            for record in answer:
                if isinstance(record, placement.PlacementPlanned | placement.PlacementPostponed):
                    yield {
                        "task": record.task.rpartition("/")[2],
                        "attempt": getattr(record, "attempt", None),
                        "t_s": event.t + offset_s,
                        "event": type(event).__name__,
                        **dict.fromkeys(_OF_PLAN),
                        **_placement(record),
                    }


#: What is said of a plan alone.
_OF_PLAN = ("gang_version", "planner", "slots", "allowed", "nodes", "expected_s", "candidates", "weighed")


def _placement(record: placement.PlacementPlanned | placement.PlacementPostponed) -> Row:
    if isinstance(record, placement.PlacementPostponed):
        return {"reason": record.reason}
    return {
        "gang_version": record.gang_version,
        "planner": record.planner,
        "slots": " ".join(record.slots),
        "allowed": " ".join(record.allowed),
        "nodes": " ".join(record.collector_nodes),
        "expected_s": record.expected_s,
        "candidates": "; ".join(
            f"{each.rule} {each.expected_s:.4g} s: {' '.join(each.slots)}" for each in record.candidates
        ),
        "weighed": "; ".join(
            f"{each.slot} {each.rate_hz:.4g} Hz" + ("" if each.chance is None else f", probability {each.chance:.4g}")
            for each in record.weighed
        ),
        "reason": "",
    }


def pool_rows(stream: Stream, offset_s: float = 0.0) -> Iterator[Row]:
    """Yield a row for each event after which the pool is another one.

    ``t_s`` (the stream's clock, and `offset_s`), ``queue_len`` (requests that wait), ``lent`` and ``slots`` (slots that
    are lent, and that there are), ``utilisation`` (seconds computed in the leases that have ended / slot-seconds since
    the first grant; None before it), ``expired`` (leases so far whose holder was silent).  All of the pool is counted,
    whosever it is.

    Parameters
    ----------
    stream
        Of a pool.
    offset_s
        Added to its seconds.
    """
    fold, name = Fold(details=False), stream.header.stream
    fold.feed([(name, stream.header)])
    pool, counts = fold.pool, fold.pool.demand.counts[0]
    t_s, slot_s = float((stream.header.snapshot or {}).get("leases", {}).get("t", 0.0)), 0.0
    former: tuple[float, ...] = ()
    for event, answer in stream.answers():
        slot_s += counts["up"] * (event.t - t_s) if pool.n_leases else 0.0
        t_s = event.t
        fold.feed((name, record) for record in (event, *answer))
        computed_s = sum(part.computed for part in pool.parts.values())
        now = (counts["waiting"], counts["lent"], counts["up"], computed_s, pool.n_expired)
        if now != former:
            former = now
            yield {
                "t_s": t_s + offset_s,
                "queue_len": counts["waiting"],
                "lent": counts["lent"],
                "slots": counts["up"],
                "utilisation": computed_s / slot_s if slot_s > 0 else None,
                "expired": pool.n_expired,
            }


def _episodes(journal: Journal) -> Iterator[Row]:
    for first, stream in _tasks(journal):
        for event in stream.each(rounds.ExperienceArrived):
            for reward, length, *_ in event.episodes:
                yield {**first, "round": event.round, "collector": event.collector, "return": reward, "length": length}


def _swapping(journal: Journal) -> Iterator[Row]:
    offset_s = _clocks(journal)
    for first, stream in _tasks(journal):
        behind_s = offset_s(stream.header.stream)
        planned: dict[str, swapping.SwapPlanned] = {}
        budget: Row = {"memory_budget_bytes": None}
        for record in stream.records:
            if isinstance(record, _SWAPPED):
                budget = {"memory_budget_bytes": record.swap and record.swap.memory_budget_bytes}
            elif isinstance(record, swapping.SwapPlanned) and not record.round:
                planned[record.plan_key or NONE] = record
            elif isinstance(record, swapping.SwapStepMeasured):
                said = planned.get(record.plan_key)
                expected = {key: getattr(said, key, None) for key in ("predicted_s", "predicted_bytes")}
                step = {key: getattr(record, key) for key in _STEP}
                yield {**first, "t_s": record.t + behind_s, **step, **budget, **expected}


def _splits(journal: Journal) -> Iterator[tuple[dict[str, object], Split]]:
    """Yield the first columns of each split's rows, and the split."""
    offset_s = _clocks(journal)
    newest = {first["task"]: first["attempt"] for first, _ in sorted(_tasks(journal), key=lambda of: of[0]["attempt"])}
    for first, stream in _tasks(journal):
        fold, latest_t = BatchFold(most=None), 0.0
        handlers = dict(handlers_of(fold))
        for record in (stream.header, *stream.records):
            latest_t = max(latest_t, record.t) if isinstance(record, Event) else latest_t
            if handler := handlers.get(type(record)):
                handler(record, latest_t)
        if first["attempt"] != newest[first["task"]]:
            fold.void()
        for role, splits in fold.roles.items():
            for number, split in splits.numbered():
                began_s = split.began_t + offset_s(stream.header.stream)
                whose = {"role": role, "round": split.round, "split": split.number or number, "planner": split.planner}
                yield {**first, "t_s": began_s, **whose}, split


def _known(of: Split | Share, *names: str) -> dict[str, object]:
    """Return some figures; None: it is not known."""
    values = {name: getattr(of, name) for name in names}
    return {name: None if value != value else value for name, value in values.items()}  # NaN alone differs from itself


def _batching(journal: Journal) -> Iterator[dict[str, object]]:
    for first, split in _splits(journal):
        seconds = _known(split, "predicted_s", "duration_s", "wait_s", "quorum_s", "grace_s")
        lost = {f"n_lost {reason}": n for reason, n in split.lost.items()}
        counts = {"n_planned": split.n_planned, "n_used": split.n_used, "n_lost": split.n_lost}
        if split.n_moved:  # planned once more, by the next split of the step
            counts["n_moved"] = split.n_moved
        yield {**first, **seconds, **counts, "cause": split.cause, **lost}


def _shares(journal: Journal) -> Iterator[dict[str, object]]:
    names = ("member", "n_planned", "n_done", "planned_s", "finish_s", "compute_s", "elapsed_s", "slowed", "fate")
    for first, split in _splits(journal):
        for share in split.shares.values():
            yield {**first, **_known(share, *names)}


#: Name of a table -> what makes its rows.
TABLES: Mapping[str, Callable[[Journal], Iterator[Row]]] = {
    "metrics": _metrics,
    "rounds": _rounds,
    "leases": _leases,
    "pool": lambda journal: chain.from_iterable(starmap(pool_rows, _pools(journal))),
    "episodes": _episodes,
    "placement": _placements,
    "swapping": _swapping,
    "batching": _batching,
    "shares": _shares,
}


def from_second(journal: Journal, since_s: float) -> Journal:
    """Return the part of a journal from a second on, counted by each stream's own clock."""
    if since_s <= 0:
        return journal

    def after(stream: Stream) -> Stream:
        rest = Anew(lambda: dropwhile(lambda r: not isinstance(r, Event) or r.t < since_s, stream.records))
        return replace(stream, records=rest)

    return Journal(streams={name: after(stream) for name, stream in journal.streams.items()})

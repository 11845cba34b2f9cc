"""Draw who holds which slot, who waits, and how well the slots are used: the lease Gantt (seed 000)."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views.drawing import decimate, marks, theme, words
from drlnb.views.drawing.axes import RUN_TIME
from drlnb.views.drawing.payload import Array, Content, Table
from drlnb.views.drawing.view import Numbers, View, meanings, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing.lines import LeaseLine, Leases
from drlnb.views.leasing.shares import shares
from drlnb.views.leasing.sharing import expected, sharing
from drlnb.views.leasing.tables import lending, queue, reasons

__all__ = ["Numbers", "beside_theory", "gantt", "lending", "queue", "reasons", "shares"]

Floats = NDArray[np.float64]
#: Most bars in one picture: above, a canvas still draws them in a few milliseconds, but a snapshot grows beyond 40 KB.
MAX_BARS = 3000
#: Absence of a slot is drawn and said from this share of the time shown on: less is narrower than a pixel or two.
_SEEN = 0.002
#: Pixel columns that merged bars are made for: a wide screen.
N_COLUMNS = 1200

TABLE = table(
    "bars",
    """
    token:fence | fence | token of the lease, one higher at each grant
    series:series | task | task that held the slot
    lane:lane | slot | slot that was lent
    start | granted (s) | when it was lent, since the run's first event
    waited*1000 | waited (ms) | from request to grant
    held*1000 | held (ms) | from grant to return
    computed*1000 | computed (ms) | seconds that the executor computed under it
    count | leases | leases in this bar: 1, unless narrower than a pixel
    reason:name | end | how it ended
    """,
)

_THERE = "seconds that slots were there (from when each came up until it was lost), in the time shown"
NUMBERS = meanings(
    f"""
    slots | slots | slots that can be lent now
    busy | busy | slots that are lent now
    waiting | waiting | tasks that wait for a slot now
    held | held (%) | seconds lent / {_THERE}
    computing | computing (%) | seconds computed / {_THERE}
    longest_wait_s | longest wait (s) | longest wait for a slot, answered or not, in the time shown
    utilisation | utilisation (%) | seconds computed / seconds that slots were there, from the first grant to the last
        release of the run
    bound | bound (%) | most that utilisation can be: sum of duties / slots, mean over the time of the run
    expected | expected (%) | utilisation by queueing theory, mean over the time of the run
    inflation | rounds take (x) | time with waits for slots / without them, mean over tasks
    expected_inflation | expected (x) | the same by queueing theory, mean over the time of the run
    fairness | fairness (x) | largest share of held seconds / smallest, over tasks, in the time shown
    """
)


def gantt(
    journal: Journal | Fold,
    window_s: float | None = None,
    until_s: float | None = None,
    *,
    max_bars: int = MAX_BARS,
    theory: Numbers | None = None,
) -> View:
    """Return the lease Gantt: a lane per slot, a waiting lane per task.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    window_s
        Only the latest so many seconds; None: all.
    until_s
        As it was so many seconds after the run's first event; None: now.
    max_bars
        Most bars; above, bars narrower than a pixel are merged, and then the oldest left out.
    theory
        Result of :func:`beside_theory`, if it is at hand; it moves slowly, and costs as much as the rest.

    Returns
    -------
    View
        Drawn tables: ``bars`` (ended leases, in order of their end), ``open`` (leases held now), ``work`` (seconds
        computed in them), ``waits``, ``waiting`` (requests without an answer), ``drains`` and ``absent`` (slots that
        were not there yet, or no more).

    Raises
    ------
    ValueError
        If `window_s` is not above 0.
    """
    if window_s is not None and not window_s > 0:
        raise ValueError(f"window_s must be > 0 s, got {window_s}")
    fold = fold_of(journal, until_s)
    line = LeaseLine(fold)
    now = fold.now_s
    low = max(0.0, now - window_s) if window_s is not None else 0.0
    leases = line.leases(now)
    work = line.work(leases)
    numbers = _numbers(line, leases, work, (low, now), theory or _theory(line, leases, now))
    columns, notes = _drawn(line, leases, work, (low, now), max_bars)
    return View(
        name="leasing.gantt",
        module="timeline",
        origin=fold.origin,
        sentence=_sentence(
            numbers, len(fold.pool.lease_rows), ended=line.ended, whole=not len(columns["absent"]["start"])
        ),
        notes=(*notes, *_strangers(line, work), *fold.clock_note()),
        columns=columns,
        table=TABLE,
        names=leases.reasons,
        numbers=numbers,
        facts=_facts(line, (low, now), window_s, thin=len(work["start"]) > 0),
    )


def _strangers(line: LeaseLine, work: Table) -> tuple[str, ...]:
    """Return a note of whose work only the pool's word is known."""
    drawn = set(work["series"].tolist())
    names = [name for name in line.strangers if line.tasks.index(name) in drawn]
    if not names:
        return ()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    who = f"{', '.join(names[:3])}{more}: no {'task' if len(names) == 1 else 'tasks'} of this run"
    return (f"{who}; what was computed in a lease is drawn at its end, when the pool hears of it",)


def _overlap(start: Floats, stop: Floats, low: float, high: float) -> Floats:
    shared: Floats = np.maximum(0.0, np.minimum(stop, high) - np.maximum(start, low))
    return shared


def _numbers(line: LeaseLine, leases: Leases, work: Table, span: tuple[float, float], theory: Numbers) -> Numbers:
    low, high = span
    alive = line.alive_s(low, high)
    held = _overlap(leases.start, leases.stop, low, high)
    computing = float(np.sum(_overlap(work["start"], work["stop"], low, high)))
    going = line.waiting(high)
    waits = (leases.waited[leases.stop >= low], high - going["start"])
    first = numbered(
        NUMBERS,
        slots=float(line.n_alive()),
        busy=float(len(set(leases.lane[leases.is_open].tolist()))),
        waiting=float(len(set(going["series"].tolist()))),
        held=_share(float(np.sum(held)), alive),
        computing=_share(computing, alive),
        longest_wait_s=max((float(part.max()) for part in waits if len(part)), default=None),
        utilisation=_utilisation(line, leases),
    )
    return {**first, **theory, **numbered(NUMBERS, fairness=_fairness(held, leases.series, going["series"]))}


def beside_theory(fold: Fold) -> Numbers:
    """Return the numbers that compare a run with queueing theory, as of now."""
    line = LeaseLine(fold)
    return _theory(line, line.leases(fold.now_s), fold.now_s)


def _theory(line: LeaseLine, leases: Leases, now: float) -> Numbers:
    """Return bound and expectation of the utilisation, and the price in round time beside its own expectation."""
    whole = (float(np.min(leases.start, initial=now)), float(np.max(leases.stop, initial=0.0)))
    theory = expected(line, *whole)
    prices = [part.inflation for part in sharing(line, leases, now) if part.inflation is not None]
    price = sum(prices) / len(prices) if prices else None
    return numbered(
        NUMBERS,
        bound=theory.bound,
        expected=theory.utilisation,
        inflation=price,
        expected_inflation=theory.inflation,
    )


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None


def _utilisation(line: LeaseLine, leases: Leases) -> float | None:
    ended = ~leases.is_open
    if not ended.any() or not line.slots:
        return None
    there = line.alive_s(float(np.min(leases.start)), float(np.max(leases.stop[ended])))
    return _share(float(np.nansum(leases.computed[ended])), there)


def _fairness(held: Floats, series: Array, waiting: Array) -> float | None:
    if not len(series):
        return None
    shares = np.bincount(series, weights=held)
    tasks = {*np.flatnonzero(shares).tolist(), *waiting.tolist()}
    of_each = [float(shares[task]) if task < len(shares) else 0.0 for task in tasks]
    return max(of_each) / min(of_each) if of_each and min(of_each) > 0 else None


def _sentence(numbers: Numbers, n_leases: int, *, ended: bool, whole: bool) -> str:
    def value(key: str) -> float:
        return numbers[key][1] or 0.0

    waiting = int(value("waiting"))
    text = words.slots_busy(int(value("busy")), int(value("slots")))
    if waiting:
        text += f", {words.plural(waiting, 'task')} waiting"
    if not n_leases:
        return f"no leases yet: {text}"
    if ended and not value("busy") and not waiting:
        text = f"{words.plural(n_leases, 'lease')} of {words.plural(int(value('slots')), 'slot')}"
    held, computing = (words.percent(numbers[key][1]) for key in ("held", "computing"))
    over = "of the time shown" if whole else "of the time that slots were there"
    return f"{text}; held {held}, computing {computing} {over}"


def _drawn(
    line: LeaseLine, leases: Leases, work: Table, span: tuple[float, float], max_bars: int
) -> tuple[dict[str, Table], list[str]]:
    low, now = span
    done, n_slots = line.waits(), len(line.slots)
    ended = np.flatnonzero(~leases.is_open & (leases.stop >= low))
    ended = ended[np.argsort(leases.stop[ended], kind="stable")]
    notes: list[str] = []
    width = decimate.column_s(now - low, N_COLUMNS)
    if len(ended) > max_bars:
        bars = _merged(leases, ended, width)
        notes.append(
            f"{len(ended):,} leases are drawn as {len(bars['start']):,} bars: "
            f"those narrower than {words.duration(width)} are merged"
        )
        if len(bars["start"]) > max_bars:
            notes[-1] += f", and only the newest {max_bars:,} are shown"
            bars = {name: values[-max_bars:] for name, values in bars.items()}
    else:
        bars = _bars(leases, ended)
    shown = work["stop"] >= low
    pieces = _joined({name: values[shown] for name, values in work.items()}, width)
    waits = {name: values[done["stop"] >= low][-max_bars:] for name, values in done.items()}
    return {
        "bars": bars,
        "open": _bars(leases, np.flatnonzero(leases.is_open)),
        "work": {name: values[-2 * max_bars :] for name, values in pieces.items()},
        "waits": _with_lane(waits, n_slots),
        "waiting": _with_lane(line.waiting(now), n_slots),
        "drains": _drains(line, span),
        "absent": _spans([absence for absence in line.absent(*span) if absence[1] - absence[0] > _SEEN * (now - low)]),
    }, notes  # fmt: skip


def _bars(leases: Leases, rows: NDArray[np.int64]) -> dict[str, Array]:
    return {
        "start": leases.start[rows], "stop": leases.stop[rows], "waited": leases.waited[rows],
        "held": leases.held[rows], "computed": leases.computed[rows],
        "token": leases.token[rows].astype(np.uint32), "count": np.ones(len(rows), dtype=np.uint32),
        "lane": _index(leases.lane[rows]), "series": _index(leases.series[rows]),
        "reason": _index(leases.reason[rows]),
    }  # fmt: skip


def _index(values: Array) -> NDArray[np.uint16]:
    """Return small numbers of lanes, series and names in two bytes each; there are never 65,536 of them."""
    return values.astype(np.uint16)


def _merged(leases: Leases, rows: NDArray[np.int64], width: float) -> Table:
    parts = []
    for lane in np.unique(leases.lane[rows]):
        mine = rows[leases.lane[rows] == lane]
        merged_bars = decimate.merge_bars(leases.start[mine], leases.stop[mine], leases.series[mine], width)
        single = merged_bars.index >= 0
        row = mine[np.maximum(merged_bars.index, 0)]
        bars = _bars(leases, row)
        size = merged_bars.stop - merged_bars.start
        bars |= {
            "start": merged_bars.start, "stop": merged_bars.stop, "held": np.where(single, bars["held"], size),
            "waited": np.where(single, bars["waited"], np.nan), "computed": np.where(single, bars["computed"], np.nan),
            "token": np.where(single, bars["token"], 0).astype(np.uint32), "count": merged_bars.n.astype(np.uint32),
            "series": _index(merged_bars.series), "reason": _index(np.where(single, bars["reason"], 0)),
        }  # fmt: skip
        parts.append(bars)
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(merged["stop"], kind="stable")
    return {name: values[order] for name, values in merged.items()}


def _joined(work: Table, gap: float) -> Table:
    """Join pieces of work of one lane and task with less than a quarter pixel between them; ordered by their end."""
    start, stop, lane, series = (work[name] for name in ("start", "stop", "lane", "series"))
    if len(start):
        apart = (lane[1:] != lane[:-1]) | (series[1:] != series[:-1]) | (start[1:] - stop[:-1] > gap / 4)
        first = np.flatnonzero(np.concatenate([[True], apart]))
        stop = np.maximum.reduceat(stop, first)
        start, lane, series = start[first], lane[first], series[first]
    order = np.argsort(stop, kind="stable")
    return _laned(start[order], stop[order], lane[order], series[order])


def _with_lane(waits: Table, n_slots: int) -> Table:
    return _laned(waits["start"], waits["stop"], waits["series"] + n_slots, waits["series"])


def _laned(start: Floats, stop: Floats, lane: Array, series: Array) -> Table:
    return {"start": start, "stop": stop, "lane": _index(lane), "series": _index(series)}


def _drains(line: LeaseLine, span: tuple[float, float]) -> Table:
    drained: list[tuple[float, float, int]] = []
    for life in line.fold.pool.lives.values():
        shift = line.fold.offset_s(life.stream)
        for since, until in life.draining:
            stop = span[1] if math.isnan(until) else until + shift
            if stop >= span[0]:
                drained.append((since + shift, stop, line.slots.index(life.name)))
    return _spans(drained)


def _spans(spans: Sequence[tuple[float, float, int]]) -> Table:
    start, stop, lane = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return {"start": start, "stop": stop, "lane": _index(lane)}


def _facts(line: LeaseLine, span: tuple[float, float], window_s: float | None, *, thin: bool) -> Content:
    styles = theme.styles(line.tasks)
    lanes: list[Content] = [{"label": name, "kind": "slot"} for name in line.slots]
    lanes += [{"label": f"{s.letter} waits", "kind": "wait", "series": i} for i, s in enumerate(styles)]
    return {
        "x": RUN_TIME,
        "span": list(span),
        "now": span[1],
        "window_s": window_s,
        "thin": thin,
        "lanes": lanes,
        "series": theme.plain(styles),
        "marks": marks.in_time(line.fold, span[0]),
    }

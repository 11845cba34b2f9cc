"""Draw who holds which slot, who waits, and how well the slots are used: the lease Gantt (seed 000)."""

from collections.abc import Mapping, Sequence

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import decimate, theme, words
from drlnb.views.drawing.payload import Array, Floats, Table, picked
from drlnb.views.drawing.pictures import lanes_of, picture, timeline
from drlnb.views.drawing.view import Numbers, View, meanings, numbered, table
from drlnb.views.folds.aged import fewer, packed
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.leasing.lines import LeaseLine, expected, inflation, sharing
from drlnb.views.leasing.shares import shares
from drlnb.views.leasing.tables import lending, queue, reasons

__all__ = ["Theory", "beside_theory", "gantt", "lending", "queue", "reasons", "shares"]

#: Key of a number beside the picture -> its value.
Theory = Mapping[str, float | None]
#: Most bars in one picture, and rows of the columns that older time is drawn as: above, a canvas still draws them in a
#: few milliseconds, but a snapshot grows beyond 40 KB.
MAX_BARS = 3000
#: Absence of a slot is drawn and said from this share of the time shown on: less is narrower than a pixel or two.
_SEEN = 0.002
#: Pixel columns of a wide screen.
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
    theory: Theory | None = None,
) -> View:
    """Return the lease Gantt: a lane per slot, a waiting lane per task.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    window_s
        Only the latest so many seconds; None: all.
    max_bars
        Most bars; what is older, or was when the fold was fed, is drawn as each task's share of time.
    theory
        Result of :func:`beside_theory`, if it is at hand; it moves slowly, and costs as much as the rest.

    Returns
    -------
    View
        Drawn tables: ``bars`` (ended leases, in order of their end), ``open`` (leases held now), ``work`` (seconds
        computed in them), ``waits``, ``waiting`` (requests without an answer), ``shares`` (older time: the seconds
        that a task held and computed, or waited, from ``low`` to ``high``; those held lie side by side),
        ``drains`` and ``absent`` (slots that were not there yet, or no more).

    Raises
    ------
    ValueError
        If `window_s` is not above 0.
    """
    if window_s is not None and not window_s > 0:
        raise ValueError(f"window_s must be > 0 s, got {window_s}")
    fold = fold_of(journal, until_s)
    line = LeaseLine(fold)
    span = (max(0.0, line.now - window_s) if window_s is not None else 0.0, line.now)
    numbers = _numbers(line, span, theory or _theory(line))
    columns, notes = _drawn(line, span, max_bars)
    styles = theme.task_styles(line.fold)
    waits = [{"label": f"{style.letter} waits", "kind": "wait", "series": i} for i, style in enumerate(styles)]
    whole = not len(columns["absent"]["start"])
    body = timeline(columns, [*lanes_of("slot", line.slots), *waits], styles, span, names=tuple(fold.pool.reasons))
    return picture(
        "leasing.gantt", fold, _sentence(numbers, fold.pool.n_leases.total(), ended=line.ended, whole=whole), TABLE,
        body, numbers=numbers, notes=(*notes, *_strangers(line), *fold.clock_note()),
        facts={"now": line.now, "window_s": window_s, "thin": len(line.work["start"]) > 0},
    )  # fmt: skip


def _strangers(line: LeaseLine) -> tuple[str, ...]:
    """Return a note of whose work only the pool's word is known."""
    drawn = set(line.work["series"].tolist())
    names = [name for name in line.strangers if line.tasks.index(name) in drawn]
    if not names:
        return ()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    who = f"{', '.join(names[:3])}{more}: no {'task' if len(names) == 1 else 'tasks'} of this run"
    return (f"{who}; what was computed in a lease is drawn at its end, when the pool hears of it",)


def _overlap(bars: Table, low: float, high: float) -> Floats:
    shared: Floats = np.maximum(0.0, np.minimum(bars["stop"], high) - np.maximum(bars["start"], low))
    return shared


def _numbers(line: LeaseLine, span: tuple[float, float], theory: Theory) -> Numbers:
    low, high = span
    leases, going = line.leases, line.waiting
    alive = line.alive_s(low, high)
    held = _overlap(leases, low, high)
    waits = np.concatenate([leases["waited"][leases["stop"] >= low], high - going["start"]])
    return numbered(
        NUMBERS,
        slots=float(line.n_alive()),
        busy=float(len(set(leases["lane"][leases["is_open"]].tolist()))),
        waiting=float(len(set(going["series"].tolist()))),
        held=_share(float(np.sum(held)), alive),
        computing=_share(float(np.sum(_overlap(line.work, low, high))), alive),
        longest_wait_s=float(waits.max()) if len(waits) else None,
        utilisation=_utilisation(line),
        fairness=_fairness(held, leases["series"], going["series"]),
        **theory,
    )


def beside_theory(fold: Fold) -> Theory:
    """Return the numbers that compare a run with queueing theory, as of now."""
    return _theory(LeaseLine(fold))


def _theory(line: LeaseLine) -> Theory:
    """Return bound and expectation of the utilisation, and the price in round time beside its own expectation."""
    whole = (float(np.min(line.leases["start"], initial=line.now)), float(np.max(line.leases["stop"], initial=0.0)))
    return {"inflation": inflation(sharing(line)), **expected(line, *whole)}


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None


def _utilisation(line: LeaseLine) -> float | None:
    leases = line.leases
    ended = ~leases["is_open"]
    if not ended.any():
        return None
    there = line.alive_s(float(np.min(leases["start"])), float(np.max(leases["stop"][ended])))
    return _share(float(np.nansum(leases["computed"][ended])), there)


def _fairness(held: Floats, series: Array, waiting: Array) -> float | None:
    """Return the largest share / the smallest, over the tasks that held a slot or wait for one."""
    if not len(series):
        return None
    shares = np.bincount(series, weights=held, minlength=int(np.max(waiting, initial=-1)) + 1)
    of_each = [float(shares[task]) for task in {*np.flatnonzero(shares).tolist(), *waiting.tolist()}]
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


def _drawn(line: LeaseLine, span: tuple[float, float], max_bars: int) -> tuple[dict[str, Table], list[str]]:
    low, now = span
    leases = line.leases
    known = [picked(leases, ~leases["is_open"]), _with_lane(line, line.waits)]
    single = picked(line.work, ~line.work["is_old"] & (line.work["stop"] >= low))
    work = _joined(single, decimate.column_s(now - low, N_COLUMNS))
    most = zip((*known, work), (max_bars, max_bars, 2 * max_bars), strict=True)
    # What ended by then is drawn as shares, as is all that the fold does not know one by one any more.
    cut = max((float(np.sort(of["stop"])[-n - 1]) for of, n in most if len(of["stop"]) > n), default=-np.inf)
    old = [of["is_old"] | (of["stop"] <= cut) for of in known]
    shares, notes = _shares(line, [picked(of, rows) for of, rows in zip(known, old, strict=True)], span, max_bars)
    bars, waits = (picked(of, ~rows & (of["stop"] >= low)) for of, rows in zip(known, old, strict=True))
    absences = [absence for absence in line.absent(*span) if absence[1] - absence[0] > _SEEN * (now - low)]
    return {
        "bars": _bars(picked(bars, np.argsort(bars["stop"], kind="stable"))),
        "open": _bars(picked(leases, leases["is_open"])),
        "work": {name: work[name][work["stop"] > cut] for name in ("start", "stop", "lane", "series")},
        "waits": {name: waits[name] for name in ("start", "stop", "lane", "series")},
        "waiting": _with_lane(line, line.waiting),
        "shares": shares,
        "drains": _spans(_drains(line, span)),
        "absent": _spans(absences),
    }, notes  # fmt: skip


def _shares(line: LeaseLine, old: Sequence[Table], span: tuple[float, float], n_rows: int) -> tuple[Table, list[str]]:
    """Return leases and waits as columns, each task's seconds beside each other, and what to say of it."""
    spread = {name: np.concatenate([of[name] for of in old]) for name in ("low", "high", "lane", "series")}
    spread["held"] = np.concatenate([of["stop"] - of["start"] for of in old])
    spread["computed"] = np.append(np.nan_to_num(old[0]["computed"]), np.zeros(len(old[1]["stop"])))
    newest = float(np.max(spread["high"], initial=0.0))
    end = newest + 2.0 ** np.floor(np.log2(max(span[1] - newest, 1e-3)))  # the same for a while, and so is all of it
    of = (n_rows, len(spread["low"]), float(spread["low"].sum()), float(spread["held"].sum()), end)
    columns = line.fold.keep("leasing.shares", of, lambda: fewer(spread, end, n_rows)[0])
    start, stop = packed(columns)
    drawn = {name: columns[name] for name in ("low", "high", "lane", "series", "computed")}
    columns = picked({**drawn, "start": start, "stop": stop}, columns["high"] > span[0])
    if not len(columns["low"]):
        return columns, []
    width = columns["high"] - columns["low"]
    last, least, most = (words.duration(float(s)) for s in (columns["high"].max(), width.min(), width.max()))
    return columns, [f"up to {last}, columns of {least} to {most} show each task's share of the time"]


def _bars(leases: Table) -> Table:
    drawn = ("start", "stop", "waited", "held", "computed", "token", "lane", "series", "reason")
    return {name: leases[name] for name in drawn}


def _joined(work: Table, gap: float) -> Table:
    """Join pieces of work of one lane and task with less than a quarter pixel between them; ordered by their end."""
    if not len(work["start"]):
        return work
    start, stop, lane, series = (work[name] for name in ("start", "stop", "lane", "series"))
    apart = (lane[1:] != lane[:-1]) | (series[1:] != series[:-1]) | (start[1:] - stop[:-1] > gap / 4)
    first = np.flatnonzero(np.concatenate([[True], apart]))
    joined = {**picked(work, first), "stop": np.maximum.reduceat(stop, first)}
    return picked(joined, np.argsort(joined["stop"], kind="stable"))


def _with_lane(line: LeaseLine, waits: Table) -> Table:
    return {**waits, "lane": waits["series"] + len(line.slots)}


def _drains(line: LeaseLine, span: tuple[float, float]) -> list[tuple[float, float, int]]:
    lives = line.fold.pool.lives.values()
    drains = [
        (*drain, line.slots.index(of.name)) for of in lives for drain in line.spans(of.stream, of.draining, span[1])
    ]
    return [drain for drain in drains if drain[1] >= span[0]]


def _spans(spans: Sequence[tuple[float, float, int]]) -> Table:
    start, stop, lane = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return {"start": start, "stop": stop, "lane": lane}

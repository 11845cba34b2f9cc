"""Draw how long the queue is, and what each task took."""

from collections.abc import Sequence

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import decimate, theme, words
from drlnb.views.drawing.payload import Floats, Plain
from drlnb.views.drawing.pictures import RUN_TIME, Lines, axis, listing, picture, shown
from drlnb.views.drawing.view import Column, View, numbered, table
from drlnb.views.fleet import wait_quantiles
from drlnb.views.folds.aged import TICK_S, fewer, ticks
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.pool import Lent
from drlnb.views.leasing.lines import LeaseLine, sharing

__all__ = ["lending", "queue"]

#: Most points of a line: the newest half are its steps, the others its means over columns of older time.
_POINTS = 300
#: What a row counts for is kept as a multiple of a part of one, so that sums of many return to whole numbers.
_PARTS = 2.0**32

QUEUE = table(
    "points",
    Column("line", "line", "what is counted", kind="name"),
    Column("x", "time", "since the run's first event", unit="s"),
    Column(
        "y",
        "count",
        "requests that wait, slots that are lent, slots that are there, from then on; of older time their mean",
    ),
    Column("lo", "least", "least in the time up to the next point, where there is a mean"),
    Column("hi", "most", "most in it"),
)
MEANS = {
    "mean": ("waiting", "", "requests that wait, mean over the time shown"),
    "most": ("at most", "", "most that waited at once; long ago, in the mean of a column"),
    "lent": ("lent", "", "slots that are lent, mean over the time shown"),
}
LENDING = table(
    "rows",
    Column("task", "task", "name, with the letter that it has in every picture", kind="series"),
    Column("rounds", "rounds", "rounds for which it was lent a slot"),
    Column("leases", "leases", "leases"),
    Column("per_round", "per round", "leases / rounds: more than 1 where it gave way in a round"),
    Column("p50", "wait p50", "median of its latest 100 waits for a slot", unit="s"),
    Column("p95", "wait p95", "95 % of its latest 100 waits were shorter", unit="s"),
    Column("held", "held", "slot-seconds that it was lent", unit="s"),
    Column("computed", "computed", "of these, seconds that its executor computed", unit="s"),
    Column("share", "share", "of all slot-seconds that were lent", unit="%", factor=100),
    Column("resident", "resident", "leases whose slots held the round's parameters already", unit="%", factor=100),
    Column("moved", "moved", "parameters and kept gradients that were brought to slots; nothing: not told", unit="MB"),
    Column("duty", "duty", "d: seconds computed / (time - pauses - waits for slots)"),
    Column("inflation", "rounds take", "time with the waits for slots / time without them", unit="x"),
    Column("home", "home", "slot that it gets first where it is free, as placement said last", kind="name"),
)
_LENDING_COLUMNS = shown(
    LENDING,
    "task rounds/2 leases/3 per_round p50 p95 held computed/1 resident/2 moved/3 duty/1 inflation home",
    p95="p95",
    moved="moved MB",
    duty="duty d",
    inflation="rounds take x",
)


def queue(journal: Journal | Fold, until_s: float | None = None) -> View:
    """Return how many requests waited, and how many slots were lent and there, over time.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    """
    line = LeaseLine(fold_of(journal, until_s))
    now, asked = line.now, np.concatenate([line.waits["low"], line.waiting["start"]])
    by = np.concatenate([decimate.heights(line.waits)[1], np.ones(len(line.waiting["start"]))])
    waiting = _steps(asked, np.append(line.waits["high"], np.full(len(line.waiting["start"]), np.inf)), by, now)
    returned = np.where(line.leases["is_open"], np.inf, line.leases["high"])
    height = np.where(line.leases["is_open"], 1.0, decimate.heights(line.leases)[1])
    lent = _steps(line.leases["low"], returned, height, now)
    lost, back, _ = np.array(line.absent(0.0, now), dtype=np.float64).reshape(-1, 3).T
    gone = _steps(lost, np.where(back >= now, np.inf, back), np.ones(len(lost)), now)
    made = Lines()
    if line.slots:
        _add(made, "slots there", "#999999", gone[0], len(line.slots) - gone[1], "T")
        _add(made, "slots lent", "#009E73", *lent, "L")
        _add(made, "requests waiting", "#D55E00", *waiting, "W")
    mean, most = _mean(*waiting), float(np.max(waiting[1], initial=0.0))
    sentence = f"{words.number(mean)} requests wait in the mean, {words.number(most)} at most"
    facts = {"means": {"mean": 2, "lent": 1, "most": None} if line.slots else {}}
    said, body = sentence if len(asked) else "nobody has asked for a slot yet", made.body(RUN_TIME, axis("count"))
    numbers = numbered(MEANS, mean=mean, most=most, lent=_mean(*lent))
    return picture("leasing.queue", line.fold, said, QUEUE, body, facts=facts, numbers=numbers)


def _steps(up: Floats, down: Floats, by: Floats, now: float) -> tuple[Floats, Floats]:
    """Return times and values of a number that rises and falls by what each row counts for; by now not all has fallen.

    Values are sums of whole parts: what has risen and fallen leaves nothing behind.
    """
    parts, fallen = np.rint(by * _PARTS).astype(np.int64), down <= now
    t = np.concatenate([[0.0], up, down[fallen], [now]])
    change = np.concatenate([[0], parts, -parts[fallen], [0]])
    order = np.argsort(t, kind="stable")
    t, count = t[order], np.cumsum(change[order]) / _PARTS
    last = np.append(t[1:] > t[:-1], True)  # of events at one time, what they come to together
    return t[last], count[last]


def _mean(t: Floats, count: Floats) -> float:
    span = float(t[-1] - t[0])
    return float(np.sum(count[:-1] * np.diff(t)) / span) if span > 0 else float(count[-1])


def _add(made: Lines, label: str, colour: str, t: Floats, count: Floats, letter: str) -> None:
    """Add a line of steps; where there are too many of them, older ones become means with their least and most."""
    n, least, most = len(t) - _POINTS // 2, np.full(len(t), np.nan), np.full(len(t), np.nan)
    if len(t) > _POINTS:
        edge = ticks(t)
        low, high = edge[:n], edge[1 : n + 1]
        held = np.rint(count[:n] * (high - low)).astype(np.int64)
        one = np.zeros(n, dtype=np.int64)
        spread = {"low": low, "high": high, "held": held, "lane": one, "series": one}
        columns = fewer(spread, int(edge[-1]), _POINTS // 2)[0]
        first = np.searchsorted(low, columns["low"], side="right") - 1
        last = np.maximum(np.searchsorted(low, columns["high"], side="left"), first + 1)
        around = np.stack([first, last], axis=1).ravel()
        extremes = [of.reduceat(np.append(count[:n], count[n - 1]), around)[::2] for of in (np.minimum, np.maximum)]
        mean = columns["held"] / np.maximum(1, columns["high"] - columns["low"])
        t, count = np.append(columns["low"] * TICK_S, t[n:]), np.append(mean, count[n:])
        least, most = (np.append(of, unknown[n:]) for of, unknown in zip(extremes, (least, most), strict=True))
    made.add(label, colour, t, count, style=(letter, ""), band=(least, most), step=True)


def lending(journal: Journal | Fold, until_s: float | None = None) -> View:
    """Return the table of what each task was lent: leases per round, waits, slot-seconds, duty, price in round time.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    """
    line = LeaseLine(fold_of(journal, until_s))
    fold, parts = line.fold, sharing(line)
    lent = {fold.pool.short(task): of for task, of in fold.pool.lent.items()}
    homes = {fold.pool.short(task): home for task, home in fold.pool.homes.items()}
    total = sum(part.held for part in parts)
    rows = []
    for part in parts:
        name = line.tasks[part.series]
        of = lent.get(name, Lent())
        mine = (line.waits["series"] == part.series) & ~line.waits["is_old"]
        p50, p95 = wait_quantiles((line.waits["stop"] - line.waits["start"])[mine].tolist())
        rows.append({
            "task": part.series,
            "rounds": of.n_rounds,
            "leases": of.n_leases,
            "per_round": of.n_leases / of.n_rounds if of.n_rounds else None,
            "p50": p50,
            "p95": p95,
            "held": part.held,
            "computed": part.computed,
            "share": part.held / total if total > 0 else None,
            "resident": of.n_resident / of.n_leases if of.n_leases else None,
            "moved": fold.tasks[name].moved_bytes / 1e6 if name in fold.tasks else None,
            "duty": part.computed / part.alone if part.alone > 0 else None,
            "inflation": part.inflation,
            "home": homes.get(name, ""),
        })
    body = listing(rows, LENDING, _LENDING_COLUMNS, theme.task_styles(fold), row_key="task")
    return picture("leasing.lending", fold, _lending_said(line, rows), LENDING, body, notes=fold.clock_note())


def _lending_said(line: LeaseLine, rows: Sequence[Plain]) -> str:
    held = [(row["held"], row["task"]) for row in rows if row["held"] > 0]
    if not held:
        return "no slot has been lent yet"
    most, least = max(held), min(held)
    if len(held) == 1:
        return f"{line.tasks[most[1]]} was lent {words.duration(most[0])} of slots"
    return (
        f"most slot-seconds: {line.tasks[most[1]]} {words.duration(most[0])}, least: {line.tasks[least[1]]} "
        f"{words.duration(least[0])} ({words.number(most[0] / least[0])}x)"
    )

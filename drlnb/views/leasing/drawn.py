"""Draw the leases of a pool: what is new bar by bar, older time as each task's share of it."""

from collections.abc import Sequence

import numpy as np

from drlnb.views.drawing import decimate, words
from drlnb.views.drawing.payload import Table, picked
from drlnb.views.folds.aged import fewer, packed, seconds, ticks
from drlnb.views.leasing.lines import LeaseLine

__all__ = ["drawn"]

#: Pixel columns of a wide screen.
_COLUMNS = 1200
#: Columns of a wait.
_WAIT = ("start", "stop", "series")


def drawn(line: LeaseLine, span: tuple[float, float], max_bars: int) -> tuple[dict[str, Table], list[str]]:
    """Return the tables of a picture of leases, and what to say of them.

    Parameters
    ----------
    span
        What is shown, in seconds since the run's first event.
    max_bars
        Most bars, most waits, and half the most pieces of work; what is older is a share of its column.
    """
    low, now = span
    leases, waiting = line.leases, line.waiting
    known = [picked(leases, ~leases["goes_on"]), _waits(line)]
    single = picked(line.work, ~line.work["is_old"] & (line.work["stop"] >= low))
    work = _joined(single, decimate.column_s(now - low, _COLUMNS))
    until = leases["stop"][work["lease"]]
    most = zip((known[0]["stop"], known[1]["stop"], until), (max_bars, max_bars, 2 * max_bars), strict=True)
    # What ended by then is drawn as shares, as is all that the fold does not know one by one any more.
    cut = max((float(np.sort(of)[-n - 1]) for of, n in most if len(of) > n), default=-np.inf)
    old = [of["is_old"] | (of["stop"] <= cut) for of in known]
    shares, notes = _shares(line, [picked(of, rows) for of, rows in zip(known, old, strict=True)], span, max_bars)
    bars, waits = (picked(of, ~rows & (of["stop"] >= low)) for of, rows in zip(known, old, strict=True))
    return {
        "bars": _bars(picked(bars, np.argsort(bars["stop"], kind="stable"))),
        "open": _bars(picked(leases, leases["goes_on"])),
        "work": {name: work[name][until > cut] for name in ("start", "stop", "lane", "series", "computed")},
        "waits": {name: waits[name] for name in ("start", "stop", "lane", "series")},
        "waiting": _with_lane(line, picked({name: waiting[name] for name in _WAIT}, waiting["goes_on"])),
        "shares": shares,
        "drains": _spans(_drains(line, span)),
        "absent": _spans(line.absent(*span)),
        "refused": _refused(line, low, max_bars // 4),
    }, notes


def _shares(line: LeaseLine, old: Sequence[Table], span: tuple[float, float], n_rows: int) -> tuple[Table, list[str]]:
    """Return leases and waits as columns, each task's seconds beside each other, and what to say of it."""
    spread = {name: np.concatenate([of[name] for of in old]) for name in ("low", "high", "lane", "series")}
    spread["held"] = np.concatenate([of["stop"] - of["start"] for of in old])
    spread["computed"] = np.append(np.nan_to_num(old[0]["computed"]), np.zeros(len(old[1]["stop"])))
    newest = float(np.max(spread["high"], initial=0.0))
    end = newest + 2.0 ** np.floor(np.log2(max(span[1] - newest, 1e-3)))  # the same for a while, and so is all of it
    of = (n_rows, len(spread["low"]), float(spread["low"].sum()), float(spread["held"].sum()), end)
    whole = {name: values if name in {"lane", "series"} else ticks(values) for name, values in spread.items()}
    columns = line.fold.keep("leasing.shares", of, lambda: seconds(fewer(whole, int(ticks(end)), n_rows)[0]))
    start, stop = packed(columns)
    drawn = {name: columns[name] for name in ("low", "high", "lane", "series", "computed")}
    columns = picked({**drawn, "start": start, "stop": stop}, columns["high"] > span[0])
    if not len(columns["low"]):
        return columns, []
    width = columns["high"] - columns["low"]
    last, least, most = (words.duration(float(s)) for s in (columns["high"].max(), width.min(), width.max()))
    return columns, [f"up to {last}, columns of {least} to {most} show each task's share of the time"]


def _refused(line: LeaseLine, low: float, n_rows: int) -> Table:
    """Return how long slots were free though requests waited: from `start` to `stop`, of what is `low` to `high`."""
    rows = picked(line.refused, line.refused["high"] >= low)
    if len(rows["low"]) <= n_rows:
        return rows
    rows = picked(rows, np.argsort(rows["high"], kind="stable"))
    old, new = (picked(rows, part) for part in (slice(None, -n_rows // 2), slice(-n_rows // 2, None)))
    lane = np.zeros(len(old["low"]), dtype=np.int64)
    spread = {name: ticks(old[name]) for name in ("low", "high")}
    spread |= {"held": ticks(old["stop"] - old["start"]), "lane": lane, "series": lane}
    columns = seconds(fewer(spread, int(ticks(line.now)), n_rows // 2)[0])
    start, stop = packed(columns)
    columns |= {"start": start, "stop": stop}
    return {name: np.concatenate([columns[name], values]) for name, values in new.items()}


def _bars(leases: Table) -> Table:
    drawn = ("start", "stop", "waited", "held", "computed", "token", "lane", "series", "reason")
    return {name: leases[name] for name in drawn}


def _joined(work: Table, gap: float) -> Table:
    """Join pieces of one lease with less than a quarter pixel between them, ordered by their end; seconds add up."""
    if not len(work["start"]):
        return work
    apart = (work["lease"][1:] != work["lease"][:-1]) | (work["start"][1:] - work["stop"][:-1] > gap / 4)
    first = np.flatnonzero(np.concatenate([[True], apart]))
    ends = {"stop": np.maximum.reduceat(work["stop"], first), "computed": np.add.reduceat(work["computed"], first)}
    joined = {**picked(work, first), **ends}
    return picked(joined, np.argsort(joined["stop"], kind="stable"))


def _with_lane(line: LeaseLine, waits: Table) -> Table:
    return {**waits, "lane": waits["series"] + len(line.slots)}


def _waits(line: LeaseLine) -> Table:
    """Return the waits that are over, those that no pool has answered among them."""
    waits, cut = line.waits, picked(line.waiting, ~line.waiting["goes_on"])
    cut |= {"low": cut["start"], "high": cut["stop"], "is_old": np.zeros(len(cut["start"]), dtype=bool)}
    names = (*_WAIT, "low", "high", "is_old")
    return _with_lane(line, {name: np.concatenate([waits[name], cut[name]]) for name in names})


def _drains(line: LeaseLine, span: tuple[float, float]) -> list[tuple[float, float, int]]:
    lives = line.fold.pool.lives.items()
    drains = [
        (*drain, line.slots.index(life.name))
        for (_, of), life in lives
        for drain in line.spans(life.stream, life.draining, min(span[1], float(line.until[of])))
    ]
    return [drain for drain in drains if drain[1] >= span[0]]


def _spans(spans: Sequence[tuple[float, float, int]]) -> Table:
    start, stop, lane = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return {"start": start, "stop": stop, "lane": lane}

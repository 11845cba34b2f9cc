"""What did sharing save, and what did it cost?  Leases above the ghosts of one slot per task in sequence (seed 000)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views import decimate, theme, words
from drlnb.views.fold import Fold, fold_of
from drlnb.views.lease_line import LeaseLine, Leases
from drlnb.views.view import Column, View

__all__ = ["Expected", "Sharing", "expected", "shares", "sharing"]

Floats = NDArray[np.float64]

#: Most bars of the leases: those narrower than one of so many columns are merged.
_COLUMNS = 150

TABLE = (
    Column(
        label="row", unit="", definition="slot as it was shared, or slot of the ghosts", source="bars.lane", kind="lane"
    ),
    Column(
        label="task",
        unit="",
        definition="task; alone: without the waits for slots",
        source="bars.series",
        kind="series",
    ),
    Column(label="from", unit="s", definition="since the run's first event", source="bars.start"),
    Column(label="for", unit="s", definition="seconds of the slot", source="bars.held"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the pool's own estimates say, as means over time; None before the first."""

    d: float | None = None
    bound: float | None = None
    utilisation: float | None = None
    inflation: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """One task's part; seconds."""

    series: int
    #: Slots at the same time.
    n_slots: int
    #: From its first lease to its last return, pauses left out.
    active: float
    #: Of these, waited for slots.
    waited: float
    #: Slot-seconds lent, and computed.
    held: float
    computed: float

    @property
    def alone(self) -> float:
        """What the same rounds take without waiting for slots."""
        return self.active - self.waited

    @property
    def inflation(self) -> float | None:
        """Time with the waits / time without."""
        return self.active / self.alone if self.alone > 0 else None


def expected(line: LeaseLine, low: float, high: float) -> Expected:
    """Return the means over time of what theory expects, each estimate holding until the next one.

    Parameters
    ----------
    line
        A fold's pool.
    low, high
        Seconds since the run's first event.
    """
    grow = line.fold.pool.loads
    if not len(grow):
        return Expected()
    t = grow["t"] + line.offsets[grow["stream"].astype(np.int64)]
    order = np.argsort(t, kind="stable")
    start = np.maximum(t[order], low)
    stop = np.minimum(np.append(t[order][1:], max(high, low)), high)
    weight = np.maximum(0.0, stop - start)
    if weight.sum() <= 0:
        weight = np.zeros(len(t))
        weight[-1] = 1.0
    mean = {
        name: float(np.average(grow[name][order], weights=weight))
        for name in ("d", "bound", "utilisation", "inflation")
    }
    return Expected(**mean)


def sharing(line: LeaseLine, leases: Leases, now: float) -> tuple[Sharing, ...]:
    """Return every task's part from its first lease on, in the order of tasks; who has had none is left out.

    The wait for the first slot of all is the pool's start, or the run's queue, and would count in no round.
    """
    done, going = line.waits(), line.waiting(now)
    found = []
    for series in range(len(line.tasks)):
        mine = leases.series == series
        if not mine.any():
            continue
        first = float(np.min(leases.start[mine]))
        asked, until = (
            np.concatenate([
                waits[edge][(waits["series"] == series) & (waits["start"] >= first)] for waits in (done, going)
            ])
            for edge in ("start", "stop")
        )
        last = float(np.max(np.concatenate([until, leases.stop[mine]])))
        tokens = leases.token[mine]
        found.append(
            Sharing(
                series=series,
                n_slots=int(np.max(np.unique(tokens, return_counts=True)[1], initial=1)),
                active=last - first - _paused(line, line.tasks[series], (first, last)),
                waited=float(np.sum(until - asked)),
                held=float(np.sum(leases.stop[mine] - leases.start[mine])),
                computed=float(np.nansum(leases.computed[mine])),
            )
        )
    return tuple(found)


def _paused(line: LeaseLine, task: str, span: tuple[float, float]) -> float:
    """Return for how long a task was paused within a span."""
    known = line.fold.tasks.get(task)
    total = 0.0
    for one in known.attempts.values() if known is not None else ():
        shift = line.offset(one.stream)
        for since, until in one.pauses:
            stop = span[1] if math.isnan(until) else min(span[1], until + shift)
            total += max(0.0, stop - max(span[0], since + shift))
    return total


def n_devices(line: LeaseLine) -> int:
    """Return how many devices the slots are on: seats of one device count once."""
    devices = {}
    for life in line.fold.pool.lives.values():
        shared = life.device not in ("", "cpu")
        devices[life.name] = (life.node, life.device) if shared else (life.name, "")
    return len(set(devices.values()))


def _ghosts(parts: tuple[Sharing, ...], n_slots: int, start: float) -> list[tuple[int, int, float, float]]:
    """Return (row, series, start, stop) of one task after the other, each on slots of its own to its end."""
    free = [start] * n_slots
    found = []
    for part in parts:
        rows = sorted(range(n_slots), key=lambda row: (free[row], row))[: max(1, min(part.n_slots, n_slots))]
        begin = max(free[row] for row in rows)
        for row in rows:
            found.append((row, part.series, begin, begin + part.alone))
            free[row] = begin + part.alone
    return found


def shares(journal: Journal | Fold, until_s: float | None = None) -> View:
    """Return the leases above their ghosts: the same rounds with a slot per task, one task after the other.

    A task alone takes its time without the waits for slots.  Saved slot-seconds stand beside the price in round time,
    utilisation beside its bound, and both beside what theory expects.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    """
    fold = fold_of(journal, until_s)
    line = LeaseLine(fold)
    leases = line.leases(fold.now_s)
    parts = tuple(part for part in sharing(line, leases, fold.now_s) if part.held > 0 and part.alone > 0)
    first = float(np.min(leases.start)) if len(leases.start) else 0.0
    last = float(np.max(leases.stop, initial=first))
    ghosts = _ghosts(parts, max(1, n_devices(line)), first) if parts else []
    alone_last = max((stop for *_, stop in ghosts), default=first)
    end = max(last, alone_last)
    numbers = _numbers(line, leases, parts, (first, last), alone_last)
    styles = theme.styles(line.tasks)
    alone = [{**style.to_plain(), "name": f"{style.name} alone", "hatch": style.hatch or "/"} for style in styles]
    rows = sorted({row for row, *_ in ghosts})
    return View(
        name="leasing.shares",
        module="timeline",
        origin=fold.origin,
        sentence=_sentence(numbers),
        notes=_notes(line, parts),
        columns={"bars": _bars(line, leases, ghosts, end - first)},
        table=TABLE,
        numbers=numbers,
        facts={
            "x": {"label": "time since the run began", "unit": "s", "kind": "clock"},
            "span": [first, max(end, first)],
            "thin": False,
            "lanes": [{"label": name, "kind": "slot"} for name in line.slots]
            + [{"label": f"exclusive {row + 1}", "kind": "ghost"} for row in rows],
            "series": [*(style.to_plain() for style in styles), *alone],
            "marks": [],
        },
    )  # fmt: skip


def _bars(
    line: LeaseLine, leases: Leases, ghosts: list[tuple[int, int, float, float]], span: float
) -> dict[str, NDArray[Any]]:
    n_slots, n_tasks = len(line.slots), len(line.tasks)
    order = np.argsort(leases.start, kind="stable")
    mine: dict[str, NDArray[Any]] = {
        "start": leases.start[order], "stop": leases.stop[order], "lane": leases.lane[order],
        "series": leases.series[order],
    }  # fmt: skip
    if len(order) > _COLUMNS:
        mine = dict(decimate.merge_table(mine, decimate.column_s(span, _COLUMNS)))
    more = np.array(ghosts, dtype=np.float64).reshape(-1, 4)
    start = np.concatenate([mine["start"], more[:, 2]])
    stop = np.concatenate([mine["stop"], more[:, 3]])
    return {
        "start": start,
        "stop": stop,
        "held": stop - start,
        "lane": np.concatenate([mine["lane"], more[:, 0] + n_slots]).astype(np.uint16),
        "series": np.concatenate([mine["series"], more[:, 1] + n_tasks]).astype(np.uint16),
    }


def _numbers(
    line: LeaseLine, leases: Leases, parts: tuple[Sharing, ...], span: tuple[float, float], alone_last: float
) -> dict[str, tuple[str, float | None, str, str]]:
    theory = expected(line, *span)
    shared = span[1] - span[0] if parts else None
    exclusive = alone_last - span[0] if parts else None
    spent = sum(part.alone * part.n_slots for part in parts)
    held = sum(part.held for part in parts)
    ratios = [part.inflation for part in parts if part.inflation is not None]
    there = line.alive_s(*span)
    computed = float(np.nansum(leases.computed))
    return {
        "shared_s": ("shared", shared, "s", "from the first grant to the last return"),
        "exclusive_s": (
            "exclusive",
            exclusive,
            "s",
            "the same rounds with one device per task, one task after the other, without waits for slots",
        ),
        "times": ("so much faster", exclusive / shared if shared and exclusive else None, "x", "exclusive / shared"),
        "saved": (
            "saved",
            1.0 - held / spent if spent > 0 else None,
            "%",
            "1 - slot-seconds lent / slot-seconds of exclusive allocation; to be read with the inflation",
        ),
        "inflation": (
            "rounds take",
            sum(ratios) / len(ratios) if ratios else None,
            "x",
            "time with the waits for slots / time without them, from each task's first slot on, mean over tasks; "
            "where a wait overlapped with collecting, the true price is less",
        ),
        "expected_inflation": ("expected", theory.inflation, "x", "the same by queueing theory, mean over time"),
        "utilisation": (
            "utilisation",
            computed / there if there > 0 and parts else None,
            "%",
            "seconds computed / seconds that slots were there, from the first grant to the last return",
        ),
        "bound": ("bound", theory.bound, "%", "most that utilisation can be: the duties' sum / slots, mean over time"),
        "expected": ("expected", theory.utilisation, "%", "utilisation by queueing theory, mean over time"),
    }


def _sentence(numbers: dict[str, tuple[str, float | None, str, str]]) -> str:
    value = {key: one[1] for key, one in numbers.items()}
    if value["shared_s"] is None:
        return "no task has had a slot yet: there is nothing to compare"
    theory = value["expected_inflation"]
    price = "" if value["inflation"] is None else f"rounds take {words.number(value['inflation'])}x as long"
    if price and theory is not None:
        price += f" ({words.number(theory)}x expected)"
    saved = "" if value["saved"] is None else f"saved {words.percent(value['saved'])} of slot-seconds; {price}"
    return (
        f"{words.duration(value['shared_s'])} shared, {words.duration(value['exclusive_s'])} with a device per task in "
        f"sequence ({words.number(value['times'])}x); {saved}"
    )


def _notes(line: LeaseLine, parts: tuple[Sharing, ...]) -> tuple[str, ...]:
    if not parts:
        return ()
    rates = []
    for device, of in sorted(line.fold.rates.items()):
        told = ", ".join(f"{n} at once {words.number(rate)}x" for n, rate in enumerate(of, 1))
        rates.append(f"a probe measured work per second on {device}: {told}")
    return (
        "ghosts (exclusive) are the measured rounds less their waits for slots; what tasks cost each other otherwise, "
        "such as cores, is still in them",
        "co-location (all tasks at once on a device, without leases) is not drawn: a journal of leases does not tell "
        "how it would have gone; drlnb bench leasing compares all three",
        *rates,
    )  # fmt: skip

"""Draw gangs on slots that fail: where each one is at a moment, and what became of each over time."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np

from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Content
from drlnb.views.drawing.pictures import RUN_TIME, axis, columns_of, lanes_of, picture, timeline
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, numbered, table
from drlnb.views.placement.choice import Choice

__all__ = ["Gang", "Placed", "board", "cell", "gantt"]

_DAY_S = 86_400.0
#: States of a slot that has no gang: glyph, colour, name.
_FREE, *_OUT = theme.lettered("· #DDE5EC free", "✕ #B3261E failed", "= #999999 drained")
#: Hatch of a slot that no lease is of now, and what stands behind its gang's name.
_HOME = ("/", ", without a lease")
#: How high the strip of a cell is whose slot fails four times as often as the mean one, or more; a share of the cell.
_STRIP, _HIGHEST = 0.32, 4.0
_RATE = Style("how often it fails: height of the strip", "r", "#7B2D8E")
#: Least slots of a gang, and how its bars look.
_SIZES = (
    (16, "E #0072B2 16 slots or more"),
    (8, "D #009E73 8 to 15"),
    (4, "C #56B4E9 4 to 7"),
    (2, "B #CC79A7 2 or 3"),
    (1, "A #BBBBBB one slot"),
)
_LOST = Style("lost: to be done again", "L", "#D55E00", "x")
_FAILED, _SAVED = theme.lettered("f #B3261E failure", "c #8F8F8F checkpoint")
#: How far a cell is from where the page says that it begins.
_NEAR = 0.01
#: Slots that have a lane with a name each; of more, the first one of a node has.  Pixels of a lane then.
_NAMED, _LANE = 24, 7.0
_LOWEST, _TALLEST = 150, 560

BOARD = table(
    "bars",
    Column("lane", "node", "where the slot is", kind="lane"),
    Column("slot", "slot", "its name", kind="name"),
    Column("series", "state", "free, failed, drained, or the gang that it belongs to", kind="series"),
    Column("whose", "gangs", "that it belongs to", kind="name"),
    Column("days", "slot-days", "between two failures of it, as planners are told", unit="days"),
)
GANTT = table(
    "bars",
    Column("slot", "slot", "its name", kind="name"),
    Column("owner", "gang", "job or task", kind="name"),
    Column("number", "start", "number of this start of the gang, from 1"),
    Column("series", "what", "computed and kept, by the size of the gang; or lost", kind="series"),
    Column("start", "from", "when it began", unit="s"),
    Column("stop", "until", "when it ended; of a gang that goes on, what is known of it", unit="s"),
    Column("fate", "came to", "done, a member failed, moved, stopped, or it goes on", kind="name"),
)
#: Likewise of jobs that take days.
_HOURS = tuple(replace(column, unit="h") if column.unit == "s" else column for column in GANTT)
NUMBERS = {
    "busy": ("busy", "%", "slots that have a gang, of all"),
    "out": ("out", "", "slots that failed or are drained"),
    "wide": ("spread", "", "gangs on more nodes than would hold them"),
    "makespan": ("makespan", "s", "until the last job was over"),
    "lost": ("lost", "%", "slot-seconds of work that is done again, of all that gangs held"),
    "failures": ("failures", "", "of members of a gang; each stops all of it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """One start of a job or task on its slots."""

    owner: str
    #: Number of this start, from 1.
    number: int
    #: Numbers of its slots, the lead first.
    slots: tuple[int, ...]
    start: float
    #: NaN: it goes on.
    stop: float
    #: Seconds before its end whose work is to be done again.
    lost_s: float = 0.0
    #: Moments of checkpoints.
    saved: tuple[float, ...] = ()
    #: ``done``, ``failed``, ``moved``, ``stopped``, or ``goes on``.
    fate: str = "goes on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Gangs on the slots of a cluster, simulated or measured."""

    #: Names of slots, and the node of each; shape ``(n_slots,)``.
    slots: tuple[str, ...]
    nodes: tuple[str, ...]
    gangs: Sequence[Gang]
    #: Slot, from when until when it is away (NaN: it still is), and whether it failed or is drained.
    away: Sequence[tuple[int, float, float, str]]
    #: Seconds until which anything is known.
    end_s: float
    origin: str = "simulated"
    #: Failures per second, as planners are told; empty: they are not told.
    rate_hz: tuple[float, ...] = ()
    #: Owner -> its look, where gangs are told apart by it and not by size.
    looks: Mapping[str, Style] | None = None
    #: Slot -> who holds a lease of it; None: gangs hold theirs all the time.
    lent: Mapping[int, str] | None = None
    #: Plans, where all of them are known: when each was made, and what returns what it chose among.
    choices: Sequence[tuple[float, Callable[[], Choice]]] = ()

    def at(self, t: float) -> tuple[dict[int, list[Gang]], dict[int, str]]:
        """Return what each slot has at a moment: gangs, or why it is out of use."""
        out = {slot: why for slot, start, stop, why in self.away if start <= t and not stop <= t}
        here = dict[int, list[Gang]]()
        for gang in self.gangs:
            for slot in gang.slots if gang.start <= t and not gang.stop <= t else ():
                here.setdefault(slot, []).append(gang)
        return here, out

    def n_nodes(self, gang: Gang) -> tuple[int, int]:
        """Return the nodes that a gang is on, and the fewest that could hold it."""
        sizes, n_least, n = sorted((self.nodes.count(node) for node in set(self.nodes)), reverse=True), 0, 0
        while n < len(gang.slots) and n_least < len(sizes):
            n, n_least = n + sizes[n_least], n_least + 1
        return len({self.nodes[slot] for slot in gang.slots}), n_least

    @property
    def failures(self) -> list[tuple[int, float]]:
        """Slot and moment of each failure that has stopped a gang."""
        failed = {(slot, start) for slot, start, _, why in self.away if why == "failed"}
        return [
            (slot, g.stop) for g in self.gangs if g.fate == "failed" for slot in g.slots if (slot, g.stop) in failed
        ]


def board(of: Placed, t: float | None = None) -> View:
    """Return the slots at a moment, a row of cells per node: whose gang each has, or why none.

    Parameters
    ----------
    of
        The gangs.
    t
        The moment; None: the last one of which anything is known.
    """
    t = of.end_s if t is None else t
    gangs, out = of.at(t)
    states = [_state(of, slot, gangs, out) for slot in range(len(of.slots))]
    # A letter for each gang that there ever was; without hatches, which letters could not be read on.
    known = of.looks or {look.name: look._replace(hatch="") for look in theme.styles(_owners(of.gangs))}
    looks = {
        **{(look.name, ""): look for look in (_FREE, *_OUT)},
        **{
            (kind, owner): known[owner]._replace(name=f"{owner}{_HOME[1]}", hatch=_HOME[0])
            if kind == "home"
            else known[owner]
            for kind, owner in dict.fromkeys(sorted(states))
            if owner
        },
    }
    nodes, counts, cells = list(dict.fromkeys(of.nodes)), dict.fromkeys(of.nodes, 0), []
    mean_hz = sum(of.rate_hz) / max(1, len(of.rate_hz))
    whose = [", ".join(gang.owner for gang in gangs.get(slot, ())) for slot in range(len(of.slots))]
    names = (*of.slots, *dict.fromkeys(whose))
    for slot, (node, rate) in enumerate(zip(of.nodes, of.rate_hz or [0.0] * len(of.nodes), strict=True)):
        at, counts[node] = counts[node], counts[node] + 1
        strip = _STRIP * min(1.0, rate / (_HIGHEST * mean_hz)) if rate else 0.0
        where = [
            nodes.index(node),
            at - 0.46,
            at + 0.46,
            list(looks).index(states[slot]),
            slot,
            names.index(whose[slot]),
        ]
        cells.append([*where, 1 / (rate * _DAY_S) if rate else math.nan, strip * 0.92])
    bars = columns_of("lane start stop series slot whose days computed", cells)
    columns = {"bars": bars}
    if of.rate_hz:
        columns["work"] = {**bars, "series": np.full(len(cells), float(len(looks)))}
    drawn = [*looks.values(), *([_RATE] if of.rate_hz else [])]
    most = max(counts.values(), default=1)
    x = {**axis("slot of the node"), "words": [str(i) for i in range(most)]}
    body = timeline(columns, lanes_of("node", nodes), drawn, (-0.5, most - 0.5), x, names)
    whole = {id(gang): gang for some in gangs.values() for gang in some}.values()
    n_busy = sum(kind == "held" for kind, _ in states)
    wide = sum(n > least for n, least in map(of.n_nodes, whole))
    said = f"{n_busy} of {len(of.slots)} slots busy, {len(out)} out; {words.plural(len(whole), 'gang')}"
    said += f", {wide} on more nodes than needed" if wide else ""
    said = said if of.slots else "no slots yet"
    numbers = numbered(NUMBERS, busy=n_busy / max(1, len(of.slots)), out=float(len(out)), wide=float(wide))
    when = "" if of.looks is not None else f"after {words.duration(t)}: "
    return picture("placement.board", of.origin, when + said, BOARD, body, numbers=numbers)


def cell(view: View, key: str) -> Mapping[str, str]:
    """Return what the table of a board says of the cell that the page has chosen; empty if that is none.

    Parameters
    ----------
    view
        A board.
    key
        Lane and start, as the page writes them: ``3@-0.460``.
    """
    lane, _, start = key.partition("@")
    bars = view.columns.get("bars")
    if not start or not bars:
        return {}
    at = np.flatnonzero((bars["lane"] == int(lane)) & (np.abs(bars["start"] - float(start)) < _NEAR))
    return (
        dict(zip((column.name for column in view.table), map(str, view.rows()[at[0]]), strict=True)) if len(at) else {}
    )


def _state(of: Placed, slot: int, gangs: Mapping[int, Sequence[Gang]], out: Mapping[int, str]) -> tuple[str, str]:
    """Return what a slot does, and for whom."""
    if slot in out:
        return out[slot], ""
    if of.lent is not None:
        if slot in of.lent:
            return "held", of.lent[slot]
        return ("home", gangs[slot][0].owner) if slot in gangs else (_FREE.name, "")
    return ("held", gangs[slot][0].owner) if slot in gangs else (_FREE.name, "")


def gantt(of: Placed) -> View:
    """Return gangs on lanes of slots: what was kept, what was lost (hatched), checkpoints, and failures."""
    order, bars, dots = sorted(range(len(of.slots)), key=lambda slot: of.nodes.index(of.nodes[slot])), [], []
    rows, n_rows = _rows(of.gangs)
    lanes = [slot for slot in order for _ in range(n_rows.get(slot, 1))]
    first = {slot: lanes.index(slot) for slot in order}
    owners, looks = _owners(of.gangs), [Style(*look) for look in _looks(of)]
    fates = list(dict.fromkeys(gang.fate for gang in of.gangs))
    for gang, at in zip(of.gangs, rows, strict=True):
        stop = of.end_s if math.isnan(gang.stop) else gang.stop
        kept_until, series = max(gang.start, stop - gang.lost_s), _series(of, gang, owners)
        for slot in gang.slots:
            said = (slot, len(of.slots) + owners.index(gang.owner), gang.number)
            fate = len(of.slots) + len(owners) + fates.index(gang.fate)
            for start, end, look in ((gang.start, kept_until, series), (kept_until, stop, len(looks) - 3)):
                if end > start:
                    bars.append([first[slot] + at[slot], look, start, end, *said, fate])
        dots += [[first[gang.slots[0]] + at[gang.slots[0]], len(looks) - 1, t, t, 0.55] for t in gang.saved]
    dots += [[first[slot], len(looks) - 2, t, t, 1.0] for slot, t in of.failures]
    away = [
        [first[slot] + i, start, of.end_s if math.isnan(stop) else min(stop, of.end_s)]
        for slot, start, stop, _ in of.away
        for i in range(n_rows.get(slot, 1))
    ]
    columns = {
        "bars": columns_of("lane series start stop slot owner number fate", bars),
        "absent": columns_of("lane start stop", [row for row in away if row[2] > row[1]]),
        "dots": columns_of("lane series start stop share", dots),
    }
    x, twin = (axis("time", "h"), _HOURS) if of.looks is None else (RUN_TIME, GANTT)
    for of_table in columns.values() if twin is _HOURS else ():
        of_table |= {key: of_table[key] / 3600 for key in ("start", "stop")}
    end = max(of.end_s, 1e-9) / (3600 if twin is _HOURS else 1)
    names = (*of.slots, *owners, *(_FATES.get(fate, fate) for fate in fates))
    body = timeline(columns, _lanes(of, lanes), looks, (0.0, end), x, names)
    many = len(lanes) > _NAMED
    facts = {"tall": min(_TALLEST, max(_LOWEST, round(70 + _LANE * len(lanes))))} if many else {}
    return picture("placement.gantt", of.origin, _said(of), twin, body, numbers=_sums(of), facts=facts)


_FATES = {"failed": "a member failed"}


def _said(of: Placed) -> str:
    """Return what became of the gangs, in words."""
    if not of.gangs:
        return "no gang is placed yet"
    n_done, n_failed = (sum(gang.fate == fate for gang in of.gangs) for fate in ("done", "failed"))
    lost, held = _held(of)
    ended = f"{words.plural(n_done, 'job')} over after {words.duration(of.end_s)}, " if of.looks is None else ""
    failed = f"{words.plural(n_failed, 'gang')} stopped by a failure"
    return f"{ended}{failed}, {100 * lost / held:.1f} % of the time of all gangs lost"


def _held(of: Placed) -> tuple[float, float]:
    """Return the slot-seconds that were lost, and all that gangs held."""
    spans = [((of.end_s if math.isnan(g.stop) else g.stop) - g.start, g) for g in of.gangs]
    return sum(len(g.slots) * g.lost_s for _, g in spans), sum(len(g.slots) * s for s, g in spans) or 1.0


def _sums(of: Placed) -> Mapping[str, tuple[str, float | None, str, str]]:
    lost, held = _held(of)
    known = {"lost": lost / held, "failures": float(sum(gang.fate == "failed" for gang in of.gangs))}
    over = {"makespan": of.end_s} if of.looks is None else {}
    return numbered(NUMBERS, **over, **known)


def _owners(gangs: Iterable[Gang]) -> list[str]:
    """Return jobs or tasks in the order of their first starts."""
    return list(dict.fromkeys(gang.owner for gang in sorted(gangs, key=lambda gang: gang.start)))


def _looks(of: Placed) -> Iterable[Style]:
    """Return the looks of a Gantt: those of its gangs, then what was lost, failures and checkpoints."""
    own = of.looks.values() if of.looks is not None else theme.lettered(*(look for _, look in _SIZES))
    return chain(own, (_LOST, _FAILED, _SAVED))


def _series(of: Placed, gang: Gang, owners: Sequence[str]) -> int:
    if of.looks is not None:
        return list(of.looks).index(gang.owner)
    return next(i for i, (least, _) in enumerate(_SIZES) if len(gang.slots) >= least)


def _rows(gangs: Sequence[Gang]) -> tuple[list[dict[int, int]], dict[int, int]]:
    """Return the row within each slot of each gang, so that none lies upon another one; and the rows of each slot."""
    until: dict[int, list[float]] = {}
    rows = [dict[int, int]() for _ in gangs]
    for gang, at in sorted(zip(gangs, rows, strict=True), key=lambda each: each[0].start):
        for slot in gang.slots:
            ends = until.setdefault(slot, [])
            at[slot] = next((i for i, end in enumerate(ends) if end <= gang.start), len(ends))
            ends[at[slot] : at[slot] + 1] = [math.inf if math.isnan(gang.stop) else gang.stop]
    return rows, {slot: len(ends) for slot, ends in until.items()}


def _lanes(of: Placed, order: Sequence[int]) -> Sequence[Content]:
    """Return the lanes of slots, of which the first has the name; where they are many, the first one of each node."""
    if len(of.slots) <= _NAMED:
        named = (of.slots[slot] if i == 0 or order[i - 1] != slot else "" for i, slot in enumerate(order))
        return lanes_of("slot", named)
    runs = [list(some) for _, some in groupby(order, key=of.nodes.__getitem__)]
    return lanes_of("slot", chain.from_iterable((of.slots[slots[0]], *[""] * (len(slots) - 1)) for slots in runs))

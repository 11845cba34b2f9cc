"""Draw what planners of gangs come to on the same jobs and faults, and where it matters which one it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from drlnb.views.drawing import theme, words
from drlnb.views.drawing.pictures import axis, columns_of, lanes_of, listing, picture, shown, timeline
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, table
from drlnb.views.placement.gangs import Placed, board

__all__ = [
    "NOTHING",
    "NULL",
    "Cell",
    "Health",
    "PlannerRatio",
    "Ratio",
    "Scored",
    "by_hand",
    "health",
    "ratios",
    "regimes",
    "seats",
    "worth",
]

#: What a regime is called in which failure awareness is worth nothing, how far from 1 nothing goes, and its interval.
NULL, NOTHING, _CERTAIN = "null regime", 0.005, 0.02
_DAY_S = 86_400.0
#: Slots that are drawn one by one, those that fail most.
_ILLEST = 16

_WINDOWS = (
    Column("from", "from", "95 % interval over disjoint windows of jobs", unit="x"),
    Column("to", "to", "likewise", unit="x"),
)
RATIOS = table(
    "bars",
    Column("lane", "planner", "who chooses the slots", kind="lane"),
    Column("ratio", "ratio", "of its makespan to the other's, on the same jobs and faults; geometric mean", unit="x"),
    *_WINDOWS,
    Column("makespan", "makespan", "until the last job of a window was over, on average", unit="h"),
    Column("lost", "lost", "slot-hours per window whose work was done again, restarts with them"),
    Column("series", "is", "whether it takes less time; hindsight: nobody can know it before", kind="series"),
)
HEALTH = table(
    "bars",
    Column("lane", "slot", "of those that fail most", kind="lane"),
    Column("mean", "rate", "expected failures per 100 days, from what was seen of it"),
    Column("from", "from", "90 % interval of what its rate may be"),
    Column("to", "to", "likewise"),
    Column("true", "as drawn", "failures per 100 days by which its faults are drawn"),
    Column("seen", "failures", "seen so far"),
    Column("series", "is", "lemon: its interval lies above twice the mean of all slots", kind="series"),
)
REGIMES = table(
    "bars",
    Column("lane", "checkpoints", "work between two of them", kind="lane"),
    Column("days", "slot-days", "between two failures of a slot, on average", unit="days"),
    Column("ratio", "random / healthiest", "makespans on the same jobs and faults; geometric mean", unit="x"),
    *_WINDOWS,
    Column("series", "awareness is worth", "how much longer who knows no rates takes", kind="series"),
)
BY_HAND = table(
    "rows",
    Column("row", "who", "chose the slots", kind="series"),
    Column("makespan", "makespan", "until the last of the four jobs was over", unit="s"),
    Column(
        "ratio", "of the best random", "beside the best of some random placements, which is known afterwards", unit="x"
    ),
    Column("restarts", "restarts", "after failures of members"),
)
_LESS, _MORE, _HINDSIGHT, _RANGE = (
    *theme.lettered("▼ #009E73 takes less time", "▲ #D55E00 takes more"),
    Style("hindsight: no planner", "H", "#999999", "x"),
    Style("95 % interval", "I", "#8F8F8F"),
)
_USUAL, _LEMON, _TRUE = theme.lettered("s #56B4E9 slot", "! #D55E00 lemon", "t #7B2D8E as drawn")
#: Least worth of a level, and its look; below the first, or not told apart from it: null, or open.
_LEVELS = ((0.1, "3 #D55E00 10 % or more"), (0.03, "2 #E69F00 3 to 10 %"), (0.0, "1 #F0E442 less than 3 %"))
_NULL, _OPEN = Style(NULL, "0", "#BBBBBB", "/"), Style("too few windows to tell", "?", "#DDDDDD")


class Ratio(NamedTuple):
    """How a way to place compares with another one, and between what it lies in 95 of 100 samples of windows."""

    mean: float
    #: NaN of one window, from which nothing can be said of others.
    low: float
    high: float
    #: Windows.
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f}" + (f" ({self.low:.3f}..{self.high:.3f})" if self.n > 1 else " in one window")

    @property
    def null(self) -> bool:
        """Whether it is 1, but for half a percent, and for certain but for two; NaN: nobody knows."""
        return abs(self.mean - 1.0) <= NOTHING and self.low >= 1.0 - _CERTAIN and self.high <= 1.0 + _CERTAIN

    @property
    def open(self) -> bool:
        """Whether it cannot be told from 1, and may be far from it."""
        return not self.null and not (self.low > 1.0 or self.high < 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerRatio:
    """What a planner came to."""

    planner: str
    ratio: Ratio
    makespan_s: float
    lost_slot_s: float
    hindsight: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What is known of how often a slot fails, in failures per second."""

    slot: str
    mean_hz: float
    low_hz: float
    high_hz: float
    #: By which its faults are drawn; NaN: nobody knows.
    true_hz: float
    n_seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What failure awareness is worth in one regime."""

    mtbf_days: float
    checkpoint: str
    ratio: Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a few jobs came to on the slots that somebody chose."""

    who: str
    makespan_s: float
    #: Beside the best of some random placements.
    ratio: float
    n_restarts: int


def worth(of: Ratio) -> str:
    """Return what failure awareness is worth, as a sentence, from random / healthiest.

    Examples
    --------
    >>> worth(Ratio(1.0704, 1.05, 1.09, 20))
    'at these settings failure awareness is worth 7.0 % (5.0..9.0)'
    """
    mean, low, high = ("0.0" if (said := f"{100 * (value - 1):.1f}") == "-0.0" else said for value in of[:3])
    interval = f"({low}..{high})" if of.n > 1 else "in one window"
    return f"{f'{NULL}: ' if of.null else ''}at these settings failure awareness is worth {mean} % {interval}"


def ratios(of: Sequence[PlannerRatio], against: str, awareness: Ratio, bound: float) -> View:
    """Return a bar per planner from 1, its time beside that of another one, with its interval.

    Parameters
    ----------
    of
        What they came to; the hindsight of several last.
    against
        Whose time is 1.
    awareness
        Of random to healthiest.
    bound
        Ratio below which nobody could have been, whatever fails: dashed.
    """
    looks = [_LESS, _MORE, _HINDSIGHT, _RANGE]
    bars, waits, dots = [], [], []
    for lane, each in enumerate(of):
        r, series = each.ratio, 2 if each.hindsight else int(each.ratio.mean > 1.0)
        hours = each.makespan_s / 3600, each.lost_slot_s / 3600
        bars.append([lane, min(1.0, r.mean), max(1.0, r.mean), series, r.mean, r.low, r.high, *hours])
        if r.high > r.low:
            waits.append([lane, r.low, r.high, 3])
            dots += [[lane, edge, edge, 3, 0.5] for edge in (r.low, r.high)]
    columns = {
        "waits": columns_of("lane start stop series", waits),
        "bars": columns_of("lane start stop series ratio from to makespan lost", bars),
        "dots": columns_of("lane start stop series share", dots),
    }
    edges = [1.0, bound, *(edge for each in of for edge in each.ratio[:3] if edge == edge)]
    pad = 0.04 * (max(edges) - min(edges)) or 0.01
    body = timeline(
        columns,
        lanes_of("slot", (each.planner for each in of)),
        looks,
        (min(edges) - pad, max(edges) + pad),
        axis(f"of {against}'s makespan", "x"),
    )
    marks = [
        {"t": at, "label": label, "said": said, "task": ""}
        for at, label, said in ((1.0, "1", f"as {against}"), (bound, "bound", "none can be below it, if nothing fails"))
    ]
    return picture("placement.ratios", "simulated", worth(awareness), RATIOS, body, facts={"marks": marks})


def health(of: Sequence[Health], days: float) -> View:
    """Return the slots that fail most: what may be their rates after what was seen of them; lemons by name."""
    per, mean_hz = 100 * _DAY_S, sum(each.mean_hz for each in of) / max(1, len(of))
    bars, dots = [], []
    drawn = sorted(of, key=lambda each: -each.mean_hz)[:_ILLEST]
    lemons = [each.slot for each in drawn if each.low_hz > 2 * mean_hz]
    for lane, each in enumerate(drawn):
        low, high = per * each.low_hz, per * each.high_hz
        known = [low, high, per * each.mean_hz, low, high, per * each.true_hz]
        bars.append([lane, float(each.slot in lemons), *known, each.n_seen])
        dots.append([lane, 2, per * each.true_hz, per * each.true_hz, 1.0])
    columns = {
        "bars": columns_of("lane series start stop mean from to true seen", bars),
        "dots": columns_of("lane series start stop share", [row for row in dots if row[2] == row[2]]),
    }
    body = timeline(
        columns,
        lanes_of("slot", (each.slot for each in drawn)),
        (_USUAL, _LEMON, _TRUE),
        (0.0, 1.05 * max(0.1, *columns["bars"]["stop"], *columns["dots"]["start"])),
        axis(f"failures per 100 days, 90 % interval after {days:g} days"),
    )
    who = f"{words.plural(len(lemons), 'lemon')}: {', '.join(lemons)}" if lemons else "no lemon can be told yet"
    said = f"{sum(each.n_seen for each in of)} failures of {len(of)} slots seen in {days:g} days; {who}"
    return picture("placement.health", "simulated", said, HEALTH, body)


def regimes(of: Sequence[Cell]) -> View:
    """Return where failure awareness matters: a cell per interval between checkpoints and between failures."""
    lanes = list(dict.fromkeys(each.checkpoint for each in of))
    days = sorted({each.mtbf_days for each in of})
    looks = [*theme.lettered(*(look for _, look in _LEVELS)), _NULL, _OPEN]
    rows = []
    for each in of:
        at, r = days.index(each.mtbf_days), each.ratio
        told = len(_LEVELS) + r.open if r.null or r.open else None
        level = (
            next(i for i, (least, _) in enumerate(_LEVELS) if r.mean - 1 >= least or not least)
            if told is None
            else told
        )
        rows.append([lanes.index(each.checkpoint), at - 0.48, at + 0.48, level, each.mtbf_days, r.mean, r.low, r.high])
    columns = {"bars": columns_of("lane start stop series days ratio from to", rows)}
    x = {**axis("mean days between failures of a slot"), "words": [f"{each:g}" for each in days]}
    body = timeline(columns, lanes_of("slot", lanes), looks, (-0.5, len(days) - 0.5), x)
    n_null = sum(each.ratio.null for each in of)
    said = f"failure awareness is worth nothing in {n_null} of {len(of)} regimes"
    if n_open := sum(each.ratio.open for each in of):
        said += f", too few windows tell of {n_open}"
    if sure := [each for each in of if not (each.ratio.null or each.ratio.open)]:
        best = max(sure, key=lambda each: each.ratio.mean)
        said += f"; {100 * (best.ratio.mean - 1):.1f} % at {best.mtbf_days:g} days, checkpoints: {best.checkpoint}"
    return picture("placement.regimes", "simulated", said, REGIMES, body)


def seats(of: Placed, missing: Sequence[int]) -> View:
    """Return the slots that a user has given to jobs, to be clicked; and how many each job still lacks."""
    lacking = [f"job {i} needs {n} more" for i, n in enumerate(missing, 1) if n]
    said = (
        f"{', '.join(lacking)}: click slots, the first job gets them first" if lacking else "all jobs have their slots"
    )
    return replace(board(of), name="placement.seats", sentence=said)


def by_hand(of: Sequence[Scored], jobs: Sequence[str]) -> View:
    """Return what jobs come to on slots that a user has chosen, beside a planner's and the best random ones."""
    rows = [{"makespan": each.makespan_s, "ratio": each.ratio, "restarts": each.n_restarts} for each in of]
    columns = shown(BY_HAND, "row makespan ratio restarts", ratio="x of the best random")
    body = listing(rows, BY_HAND, columns, theme.styles(each.who for each in of))
    said = ", ".join(f"{each.who} {each.ratio:.3f}" for each in of[:-1])
    notes = [f"jobs to place: {', '.join(f'{i}. {job}' for i, job in enumerate(jobs, 1))}"]
    return picture("placement.hand", "simulated", f"{said} x the {of[-1].who}, same faults", BY_HAND, body, notes=notes)

"""Draw the splits of a task: who took how much and was done when, how fast everybody was, and what was not used."""

import math
from collections.abc import Mapping

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Floats
from drlnb.views.drawing.pictures import Body, Lines, axis, columns_of, lanes_of, listing, picture, shown, timeline
from drlnb.views.drawing.theme import Style
from drlnb.views.drawing.view import Column, View, numbered, points, table
from drlnb.views.folds.batching import BatchFold, Share, Split, Splits
from drlnb.views.folds.fold import Fold, fold_of

__all__ = ["ROLES", "Shown", "ledger", "newest", "shares", "sizes", "speeds"]

#: An upright line in a picture, and its words.
_Mark = Mapping[str, object]
#: Who shares what -> in words.
ROLES = {"update": "learners", "collect": "collectors"}
#: Splits of the timeline; cells of the map of speeds, points of sizes, and newest marks that are drawn.
LATEST = 12
_CELLS, _POINTS, _MARKS = 512, 1024, 24
#: Above this share of units that were not used the number is red.
_RED_FRAC = 0.01
_PLANNED = Style("done as planned, messages apart", "P", "#555555")
_SPLITS = axis("split")

NUMBERS = {
    "split": ("split", "s", "the newest one that is over: from its shares' orders until nobody was waited for"),
    "predicted": ("planned", "s", "seconds that it was expected to take"),
    "wait": ("wait", "s", "that a member of it, once it was done, waited for the others, on average"),
    "lost": ("not used", "", "samples (or shares, or steps) of all splits that were planned and not used"),
    "lost_frac": ("of all planned", "%", "what was not used; red above 1 %"),
}
SHARES = table(
    "bars",
    Column("split", "split", "number of the split, from 1"),
    Column("lane", "member", "slot of a learner, or collector", kind="lane"),
    Column("planned", "planned", "units of its share"),
    Column("done", "done", "units that it had done"),
    Column("start", "computing from", "since the first split that is drawn began", unit="s"),
    Column("stop", "done at", "likewise; of one that was not heard of, the end of the split", unit="s"),
    Column("planned_s", "planned time", "units / the speed that was expected, messages apart", unit="s"),
    Column("compute", "computing", "by the member's own clock", unit="s"),
    Column("elapsed", "until its answer", "from its order", unit="s"),
    Column("slowed", "slowed", "as many times as long as it took, on purpose: emulated", unit="x"),
    Column("fate", "came to", "used; cut: a part is used; late, not used; open: of a lease that ended", kind="name"),
)
SIZES = points(("split", "", "number of the split, from 1"), ("share", "units", "samples, steps, or whole shares"))
SPEEDS = table(
    "bars",
    Column("lane", "member", "slot of a learner, or collector", kind="lane"),
    Column("split", "split", "number of the split, from 1"),
    Column("series", "speed", "beside the member's own median", kind="series"),
    Column("ratio", "of its median", "units per second / the median of those of its splits", unit="x"),
    Column("hz", "speed", "units per second of computing", unit="Hz"),
)
LEDGER = table(
    "rows",
    Column("row", "what became of them", "used, or why not", kind="series"),
    Column("units", "units", "samples, steps, or whole shares"),
    Column("percent", "of all", "of all units that were planned in splits that are over", unit="%"),
    Column("splits", "splits", "in how many splits"),
)
#: Levels of a speed beside its median: least ratio, and look.
_LEVELS = (
    (1.15, "F #0072B2 faster"),
    (0.85, "U #DDE5EC as usual"),
    (0.6, "S #F0E442 slower"),
    (0.35, "H #E69F00 half or so"),
    (0.0, "T #D55E00 a third or less"),
)
_COLOURS = {"used": "#009E73", "late": "#D55E00", "cut": "#E69F00"}


class Shown:
    """What is shown of a task: its splits of one kind, and how their members look.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    task
        Name of the task; None: the first one that has splits.
    role
        ``update`` (learners) or ``collect``; None: learners if there ever were several.
    """

    def __init__(self, journal: Journal | Fold, task: str | None = None, role: str | None = None) -> None:
        self.fold = fold_of(journal)
        self.task, self.of = newest(self.fold, task)
        self.role = role or next(iter(self.of.shared), "update" if self.of.roles["update"].kept else "collect")
        self.splits: Splits = self.of.roles[self.role]
        label = "{}" if self.role == "update" else "collector {}"
        self.looks = theme.styles(map(label.format, self.splits.members))
        #: A lane per member.
        self.lanes = lanes_of("slot" if self.role == "update" else "task", [look.name for look in self.looks])

    def latest(self, most: int) -> list[tuple[int, Split]]:
        """Return the newest splits with their numbers: no more than have so many shares."""
        return list(self.splits.numbered())[-max(1, most // max(1, len(self.looks))) :]

    @property
    def over(self) -> list[tuple[int, Split]]:
        """The splits of the newest attempt that were gathered, with their numbers."""
        return [
            (i, each)
            for i, each in self.splits.numbered()
            if each.cause and each.attempt == self.of.n_attempts and not math.isnan(each.duration_s)
        ]

    def unit(self, split: Split) -> str:
        """Return what is shared, in a word."""
        if self.role == "collect":
            return "steps"
        return "samples" if split.number or not self.of.has_whole_shares else "shares"

    @property
    def sentence(self) -> str:
        """The newest split in words."""
        whose = f"{self.task}: " if self.task in self.fold.tasks else ""
        if not self.over:
            return f"{whose}no split is over yet" if self.task else "nothing is split yet: no task has begun"
        number, split = self.over[-1]
        if len(self.splits.members) == 1:
            return f"{whose}nothing to split: one member takes all"
        letters = dict(zip(self.splits.members, (look.letter for look in self.looks), strict=True))
        sizes = ", ".join(f"{letters[each.member]} {each.n_planned}" for each in split.shares.values())
        planned = "" if math.isnan(split.predicted_s) else f" ({words.duration(split.predicted_s)} planned)"
        lost = sum(self.splits.lost.values())
        rest = f"{words.count(lost)} not used so far" if lost else "all used"
        slowed = [f"{letters[each.member]} x{each.slowed:g}" for each in split.shares.values() if each.slowed > 1]
        rest += f", emulated slow: {', '.join(slowed)}" if slowed else ""
        return (
            f"{whose}split {number} among {ROLES[self.role]} by {split.planner}: {sizes} "
            f"{self.unit(split)}, {words.duration(split.duration_s)}{planned}, {rest}"
        )

    def view(self, name: str, twin: tuple[Column, ...], body: Body, **facts: object) -> View:
        """Return a picture with the numbers that stand beside each: samples that were not used above all."""
        split, frac = (self.over[-1][1] if self.over else None), self.splits.lost_frac
        known = {key: getattr(split, f"{field}_s", math.nan) for key, field in _OF_SPLIT.items()}
        numbers = numbered(NUMBERS, **known, lost=float(sum(self.splits.lost.values())), lost_frac=frac)
        bad = ["lost", "lost_frac"] if frac > _RED_FRAC else []
        facts["bad"] = bad
        return picture(f"batching.{name}", self.fold, self.sentence, twin, body, numbers=numbers, facts=facts)

    @property
    def marks(self) -> list[_Mark]:
        """Changes of settings, between two splits."""
        marks = self.of.marks[self.role][-_MARKS:]
        return [{"t": at + 0.5, "label": said, "said": said, "task": ""} for at, said in marks]


#: Column of a share's bar -> what the share has of it.
_OF_SHARE = {
    "planned": "n_planned",
    "done": "n_done",
    "planned_s": "planned_s",
    "compute": "compute_s",
    "elapsed": "elapsed_s",
    "slowed": "slowed",
}
#: Number beside a picture -> what a split has of it.
_OF_SPLIT = {"split": "duration", "predicted": "predicted", "wait": "wait"}


def newest(fold: Fold, task: str | None = None) -> tuple[str, BatchFold]:
    """Return a task and its splits: the first one that has any, unless it is named; nothing if there is none."""
    names = [task] if task is not None else [*fold.task_names(), *fold.batchings]
    known = [name for name in names if name in fold.batchings]
    several = [name for name in known if fold.batchings[name].shared]
    name = next(iter([*several, *known]), task or "")
    return name, fold.batchings.get(name) or BatchFold()


def shares(journal: Journal | Fold, n: int = 1, task: str | None = None, role: str | None = None) -> View:
    """Return the shares of the newest splits as bars: computing, then waiting for the others; dots: as planned.

    Parameters
    ----------
    journal, task, role
        As of :class:`Shown`.
    n
        Splits that are drawn, one after the other; the quorum and the end of the others' time are marked.
    """
    of = Shown(journal, task, role)
    drawn = of.over[-n:]
    zero_s = drawn[0][1].began_t if drawn else 0.0
    cut = [look._replace(name=f"{look.name}, cut, late or not used", hatch="x") for look in of.looks]
    bars, waits, dots, marks = [], [], [], list[_Mark]()
    names = ("used", "cut", "late", "not used", "open")
    for number, split in drawn:
        began_s = split.began_t - zero_s
        marks += _moments(split, began_s)
        for share in split.shares.values():
            if not share.n_planned:
                continue
            lane = of.splits.members[share.member]
            series = lane if share.fate == "used" else lane + len(of.looks) + 1
            start, stop = _span(share, split)
            at = (number, lane, series, began_s + start, began_s + stop)
            bars.append([*at, *(getattr(share, name) for name in _OF_SHARE.values()), names.index(share.fate)])
            waits.append([lane, lane, began_s + stop, began_s + max(stop, split.duration_s)])
            if not math.isnan(share.planned_s):
                planned_s = began_s + share.planned_s
                dots.append([lane, len(of.looks), planned_s, planned_s, 1.0])
    keys = " ".join(("split lane series start stop", *_OF_SHARE, "fate"))
    columns = {
        "bars": columns_of(keys, bars),
        "waits": columns_of("lane series start stop", waits),
        "dots": columns_of("lane series start stop share", dots),
    }
    ends = [columns["bars"]["stop"], columns["waits"]["stop"], columns["dots"]["start"]]
    end = float(np.max(np.concatenate(ends), initial=1e-9))
    has_cut = bool(np.any(columns["bars"]["series"] > len(of.looks)))
    looks = (*of.looks, _PLANNED, *(cut if has_cut else ()))
    time = axis(f"time since the {'split' if n == 1 else 'first of these splits'} began", "s", "clock")
    body = timeline(columns, of.lanes, looks, (0.0, end), time, names)
    return of.view("shares" if n == 1 else "splits", SHARES, body, marks=marks)


def _span(share: Share, split: Split) -> tuple[float, float]:
    """Return from when to when a member computed: until its answer, or as far as anybody knows."""
    stop = split.duration_s if math.isnan(share.finish_s) else share.finish_s
    return max(0.0, stop - share.compute_s) if share.compute_s > 0 else 0.0, stop


def _moments(split: Split, began_s: float) -> list[_Mark]:
    if math.isnan(split.quorum_s):
        return []
    known = {
        "quorum": (split.quorum_s, "as many had answered as are needed"),
        "deadline": (split.quorum_s + split.grace_s, "the time of the others was over"),
    }
    return [{"t": began_s + t, "label": label, "said": said, "task": ""} for label, (t, said) in known.items()]


def sizes(journal: Journal | Fold, task: str | None = None, role: str | None = None) -> View:
    """Return the units of each member over the splits, as steps; parameters as of :func:`shares`."""
    of = Shown(journal, task, role)
    lines, kept = Lines(), of.latest(_POINTS)
    for look, member in zip(of.looks, of.splits.members, strict=True):
        mine = [(i, each.shares[member].n_planned if member in each.shares else math.nan) for i, each in kept]
        x, y = np.array(mine, dtype=np.float64).reshape(-1, 2).T
        lines.add(look.name, look.colour, x, y, step=True, style=(look.letter, look.hatch))
    unit = of.unit(kept[-1][1]) if kept else ""
    return of.view("sizes", SIZES, lines.body(_SPLITS, axis("share", unit)), marks=of.marks)


def speeds(journal: Journal | Fold, task: str | None = None, role: str | None = None) -> View:
    """Return a map of speeds, members by splits: each beside the member's own median; parameters as of `shares`."""
    of = Shown(journal, task, role)
    looks, kept, rows = theme.lettered(*(look for _, look in _LEVELS)), of.latest(_CELLS), []
    for member, lane in of.splits.members.items():
        known = [(i, each.shares[member].hz) for i, each in kept if member in each.shares]
        found: Floats = np.array([hz for _, hz in known if not math.isnan(hz)])
        usual = float(np.median(found)) if len(found) else math.nan
        for i, hz in known:
            if not math.isnan(hz):
                level = next(k for k, (least, _) in enumerate(_LEVELS) if hz >= least * usual)
                rows.append([lane, i, level, hz / usual, hz, i - 0.5, i + 0.5])
    bars = columns_of("lane split series ratio hz start stop", rows)
    span = (kept[0][0] - 0.5, kept[-1][0] + 0.5) if kept else (0.0, 1.0)
    return of.view("speeds", SPEEDS, timeline({"bars": bars}, of.lanes, looks, span, _SPLITS), marks=of.marks)


def ledger(journal: Journal | Fold, task: str | None = None, role: str | None = None) -> View:
    """Return what became of all units that were planned: used, or why not; parameters as of :func:`shares`."""
    of = Shown(journal, task, role)
    lost = of.splits.lost
    total = of.splits.n_used + sum(lost.values())
    known = {"used": of.splits.n_used, **lost}
    n_splits = {"used": of.splits.n_closed, **of.splits.n_losing}
    rows = [
        {"units": n, "percent": 100 * n / total if total else None, "splits": n_splits[reason]}
        for reason, n in known.items()
    ]
    looks = [
        Style(reason, look.letter, _COLOURS.get(reason, look.colour))
        for reason, look in zip(known, theme.styles(known), strict=True)
    ]
    return of.view(
        "ledger", LEDGER, listing(rows, LEDGER, shown(LEDGER, "row units percent splits", percent="% of all"), looks)
    )

"""Draw why each collector was started when it was, and whether it was ready in time (the leasing patent)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Array, Floats, Table, picked
from drlnb.views.drawing.pictures import lanes_of, picture, timeline
from drlnb.views.drawing.view import Column, Numbers, View, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.warmup import NEWEST
from drlnb.views.warmup.charts import rounds, starts
from drlnb.views.warmup.curve import curve
from drlnb.views.warmup.lines import WarmupLine, tasks_with_starts

__all__ = ["curve", "rounds", "starts", "waterfall"]

#: Newest rounds of each task that are drawn: more would be narrower than a user can read.
N_ROUNDS = 12

#: Two times that differ by less are one.
_SAME_S = 2e-6

_ACTS, _ENDED, _PARKED, _STARTS, _IDLE, _LATE, _PLANNED, _ARRIVAL = range(8)

WATERFALL = table(
    "bars",
    Column("lane", "collector", "task and collector", kind="lane"),
    Column("series", "phase", "what it did", kind="series"),
    Column("start", "from", "since the run's first event", unit="s"),
    Column("held", "for", "how long", unit="s"),
    Column("round", "round", "round whose experience it had sent, or was making"),
    Column(
        "after",
        "planned after",
        "planned delay from sending to its start; nothing: at the parameters' arrival",
        unit="s",
    ),
    Column("lead", "lead", "by how much the start was planned before the arrival that the planner expected", unit="s"),
    Column("cause", "started by", "what made it start", kind="name"),
    Column("planner", "planner", "which rule planned it", kind="name"),
    Column("reason", "reason", "the planner's reason, in its words", kind="name"),
)
NUMBERS = {
    "starts": ("starts", "", "starts between two rounds, with their parameters' arrival known"),
    "on_time": ("on time", "%", "starts ready when the parameters arrived"),
    "wait": ("rounds waited", "s", "mean time from the parameters' arrival until the round's last collector was ready"),
    "idle": ("idle", "s", "mean time per round that a collector was ready before the parameters"),
    "late_s": ("late ones by", "s", "mean over the starts that were late"),
    "early_s": ("early ones by", "s", "mean over the starts that were early"),
}


def waterfall(journal: Journal | Fold, *, n_rounds: int = N_ROUNDS) -> View:
    """Return what every collector did in the newest rounds: a lane per collector, with planned starts and arrivals.

    Amber: ready, and nothing to do yet.  Red: the parameters are there, and it is not ready.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    n_rounds
        Newest rounds of each task, at least 1.

    Returns
    -------
    View
        Drawn tables: ``bars`` (phases), ``dots`` (planned starts, arrivals of parameters).

    Raises
    ------
    ValueError
        If `n_rounds` < 1.
    """
    if n_rounds < 1:
        raise ValueError(f"n_rounds must be >= 1, got {n_rounds}")
    fold = fold_of(journal)
    names = tasks_with_starts(fold) or fold.task_names()  # those that start nothing say little beside those that do
    lines = [line for line in (WarmupLine(fold, name) for name in names) if len(line)]
    letters = {style.name: style.letter for style in theme.task_styles(fold)}
    lanes: dict[tuple[str, int], int] = {}
    texts = {"": 0}
    parts = [_bars(line, n_rounds, lanes, texts) for line in lines]
    bars, dots = (_joined(tables) for tables in zip(*parts, strict=True)) if parts else (_NOTHING, _NOTHING)
    low = float(np.min(bars["start"], initial=np.inf)) if len(bars["start"]) else 0.0
    numbers = _numbers(lines)
    body = timeline(
        {"bars": bars, "dots": dots},
        lanes_of("collector", [f"{letters[task]} {task} {i}" for task, i in lanes]),
        theme.WARMUP,
        (low, max(low, float(np.max(bars["stop"], initial=low)))),
        names=tuple(texts),
    )
    said, notes = _sentence(lines, numbers), _waterfall_notes(lines, n_rounds)
    facts = {"window_s": None}
    return picture("warmup.waterfall", fold, said, WATERFALL, body, notes=notes, numbers=numbers, facts=facts)


#: The drawn tables of a run in which no collector has sent.
_NOTHING = {name: np.zeros(0) for name in ("start", "stop", "share", *(column.name for column in WATERFALL))}


def _joined(parts: Sequence[Table]) -> Table:
    """Return tables as one, ordered by time."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return picked(joined, np.lexsort((joined["series"], joined["lane"], joined["start"])))


def _bars(
    line: WarmupLine, n_rounds: int, lanes: dict[tuple[str, int], int], texts: dict[str, int]
) -> tuple[Table, Table]:
    for number in np.unique(line["collector"]).tolist():
        lanes.setdefault((line.task, int(number)), len(lanes))
    rests = picked({**line.rests, "acted": _next_began(line)}, line["round"] > np.max(line["round"]) - n_rounds)
    lane = np.array([lanes[line.task, int(number)] for number in rests["collector"]], dtype=np.int64)
    words_of: dict[str, Iterable[str]] = {
        "cause": _causes(rests),
        "planner": rests["planner"],
        "reason": rests["reason"],
    }
    said = {name: np.array([texts.setdefault(text, len(texts)) for text in of]) for name, of in words_of.items()}
    parts: list[Table] = []
    for series, (start, stop) in _phases(rests, line.until).items():
        at = np.flatnonzero(np.isfinite(start) & (stop - start > 0))
        part: dict[str, Array] = {"start": start[at], "stop": stop[at], "held": stop[at] - start[at], "lane": lane[at]}
        part |= {"series": np.full(len(at), series), "round": rests["round"][at].astype(np.int64)}
        acts = series == _ACTS  # nothing of a plan is in it
        seconds = {name: np.where(acts, np.nan, rests[name][at]) for name in ("after", "lead")}
        parts.append({**part, **seconds, **{name: np.where(acts, 0, of[at]) for name, of in said.items()}})
    dots: list[Table] = []
    for series, t, share in ((_PLANNED, rests["sent"] + rests["after"], 0.5), (_ARRIVAL, rests["arrival"], 1.0)):
        at = np.flatnonzero(np.isfinite(t))
        of_each = {"series": np.full(len(at), series), "share": np.full(len(at), share)}
        dots.append({"start": t[at], "stop": t[at], "lane": lane[at], **of_each})
    return _joined(parts), _joined(dots)


def _causes(rests: Table) -> list[str]:
    """Return, in words, what started each collector; empty while nothing has, or where nothing had to."""
    causes = []
    times = (rests[name].tolist() for name in ("planned", "arrival", "after"))
    for planned, arrival, after in zip(*times, strict=True):
        if math.isnan(planned):
            causes.append("")
        elif planned >= arrival - _SAME_S:
            late = "sooner than the planned time" if after >= 0 else "no time was planned"
            causes.append(f"the parameters' arrival: {late}")
        else:
            causes.append("its planned time")
    return causes


def _phases(rests: Table, until: float) -> dict[int, tuple[Floats, Floats]]:
    """Return start and stop of each phase of every rest, NaN or nothing where it had none; it is known `until`."""
    sent, arrival, ready, planned = (rests[name] for name in ("sent", "arrival", "ready", "planned"))
    ended, nan = rests["ended"], np.full(len(sent), np.nan)
    # A rest is over when the collector acts next: also one whose master died, to which no parameters came any more.
    over_s = np.where(np.isnan(rests["acted"]), until, rests["acted"])
    came = np.where(np.isnan(arrival), over_s, arrival)
    begun = ready - rests["start_s"]  # as far as that is known
    begun = np.where(np.isnan(begun) & (planned <= until), planned, begun)
    # A start of which nothing was told had ended when its collector acted next.
    up = np.where(np.isnan(ready), over_s, ready)
    down = np.minimum(np.where(np.isnan(begun), came, begun), came)
    stays, over = rests["action"] == "keep", rests["action"] == "end"  # over: and nobody rests
    waits = (ended == 0) & ~stays & ~over
    return {
        _ACTS: (rests["began"], sent),
        _ENDED: (np.where(ended == 1, sent, nan), down),
        _PARKED: (np.where(waits, sent, nan), came),
        _STARTS: (np.where(ended > 0, begun, nan), np.minimum(up, came)),
        _IDLE: (np.where(stays, sent, np.where(ended > 0, ready, nan)), came),
        _LATE: (np.where(ended > 0, arrival, nan), up),
    }


def _next_began(line: WarmupLine) -> Floats:
    """Return when each collector began to act after each of its rests, NaN if it has not."""
    began = np.full(len(line), np.nan)
    for collector in np.unique(line["collector"]):
        at = np.flatnonzero(line["collector"] == collector)
        began[at[:-1]] = line["began"][at[1:]]
    return began


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _numbers(lines: Sequence[WarmupLine]) -> Numbers:
    none = np.zeros(0)
    ahead = np.concatenate([none, *(line["arrival"] - line["ready"] for line in lines)])  # seconds early, or late
    ahead = ahead[np.isfinite(ahead)]
    return numbered(
        NUMBERS,
        starts=float(len(ahead)),
        on_time=_mean((ahead >= 0).astype(np.float64)),
        wait=_mean(np.concatenate([none, *(line.measured("wait") for line in lines)])),
        idle=_mean(np.concatenate([none, *(line.measured("idle") for line in lines)])),
        late_s=_mean(-ahead[ahead < 0]),
        early_s=_mean(ahead[ahead > 0]),
    )


def _sentence(lines: Sequence[WarmupLine], numbers: Numbers) -> str:
    if not lines:
        return "no round has been sent yet"
    n = int(numbers["starts"][1] or 0)
    if not n:
        keep = any((line["action"] == "keep").any() for line in lines)
        how = "are kept" if keep else "stay where they are"
        return f"collectors {how} between rounds: nothing is started, nothing has to be planned"
    return (
        f"{'newest ' * _is_long(lines)}{words.plural(n, 'start')}: {words.percent(numbers['on_time'][1])} ready in "
        f"time; rounds waited {words.duration(numbers['wait'][1])} for the last collector, collectors were idle "
        f"{words.duration(numbers['idle'][1])} (means per round)"
    )


def _is_long(lines: Sequence[WarmupLine]) -> bool:
    """Whether older rests may have been forgotten."""
    return any(len(line) >= NEWEST for line in lines)


def _waterfall_notes(lines: Sequence[WarmupLine], n_rounds: int) -> tuple[str, ...]:
    notes = ["each bar tells who planned it and why: choose one, or walk with the arrow keys"] if lines else []
    if any(len(line) and np.ptp(line["round"]) >= n_rounds for line in lines):
        of = f"the newest {words.count(NEWEST)} rests at least" if _is_long(lines) else "all"
        notes.append(f"the newest {n_rounds} rounds of each task are drawn; the numbers are of {of}")
    return tuple(notes)

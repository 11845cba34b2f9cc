"""Draw why each collector was started when it was, and whether it was ready in time (seed 000)."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views.drawing import marks, theme, words
from drlnb.views.drawing.axes import RUN_TIME, listing
from drlnb.views.drawing.payload import Plain, Table
from drlnb.views.drawing.view import Numbers, View, meanings, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.warmup.charts import rounds, starts
from drlnb.views.warmup.curve import curve
from drlnb.views.warmup.lines import Texts, WarmupLine, tasks_with_starts

__all__ = ["choices", "curve", "rounds", "starts", "waterfall"]

Floats = NDArray[np.float64]

#: Newest rounds of each task that are drawn: more would be narrower than a user can read.
N_ROUNDS = 12
#: Newest rounds of each task in the table.
N_CHOICES = 8

_ACTS, _ENDED, _PARKED, _STARTS, _IDLE, _LATE, _PLANNED, _ARRIVAL = range(8)

WATERFALL = table(
    "bars",
    """
    lane:lane | collector | task and collector
    series:series | phase | what it did
    start | from (s) | since the run's first event
    held | for (s) | how long
    round | round | round whose experience it had sent, or was making
    after | planned after (s) | planned delay from sending to its start; nothing: at the parameters' arrival
    lead | lead (s) | by how much the start was planned before the arrival that the planner expected
    cause:name | started by | what made it start
    planner:name | planner | which rule planned it
    reason:name | reason | the planner's reason, in its words
    """,
)
CHOICES = table(
    "rows",
    """
    row:series | task, round | the round that had been sent
    planner:name | planner | which rule planned
    action:name | choice | start: at a planned time; cold: at the parameters' arrival; keep: not stopped
    after | after (s) | planned seconds from sending to the start, mean
    lead | lead (s) | seconds before the expected arrival, mean
    wait | waited (s) | from the parameters' arrival until the last collector was ready
    idle | idle (s) | mean seconds that a collector was ready too early
    reason:name | reason | the planner's reason, in its words
    """,
)
NUMBERS = meanings(
    """
    starts | starts | starts between two rounds, with their parameters' arrival known
    on_time | on time (%) | starts ready when the parameters arrived
    wait | rounds waited (s) | mean time from the parameters' arrival until the round's last collector was ready
    idle | idle (s) | mean time per round that a collector was ready before the parameters
    late_s | late ones by (s) | mean over the starts that were late
    early_s | early ones by (s) | mean over the starts that were early
    """
)

#: How the page shows the columns of ``rows``.
_COLUMNS: tuple[Mapping[str, str], ...] = (
    {"key": "row", "label": "task, round", "kind": "series"},
    {"key": "planner", "label": "planner", "kind": "text", "minor": "1"},
    {"key": "action", "label": "choice", "kind": "text"},
    {"key": "after", "label": "after", "kind": "duration", "minor": "2"},
    {"key": "lead", "label": "lead", "kind": "duration"},
    {"key": "wait", "label": "waited", "kind": "duration"},
    {"key": "idle", "label": "idle", "kind": "duration"},
    {"key": "reason", "label": "reason", "kind": "text"},
)


def waterfall(journal: Journal | Fold, until_s: float | None = None, *, n_rounds: int = N_ROUNDS) -> View:
    """Return what every collector did in the newest rounds: a lane per collector, with planned starts and arrivals.

    Amber: ready, and nothing to do yet.  Red: the parameters are there, and it is not ready.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
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
    _at_least_1(n_rounds)
    fold = fold_of(journal, until_s)
    names = tasks_with_starts(fold) or fold.task_names()  # those that start nothing say little beside those that do
    lines = [line for line in (WarmupLine(fold, name) for name in names) if len(line)]
    letters = {style.name: style.letter for style in theme.styles(fold.task_names())}
    lanes: dict[tuple[str, int], int] = {}
    texts = Texts()
    parts = [_bars(line, n_rounds, lanes, texts, fold.now_s) for line in lines]
    bars = _joined([bars for bars, _ in parts], _BAR)
    dots = _joined([dots for _, dots in parts], _DOT)
    low = float(np.min(bars["start"], initial=np.inf)) if len(bars["start"]) else 0.0
    return View(
        name="warmup.waterfall",
        module="timeline",
        origin=fold.origin,
        sentence=_sentence(lines),
        notes=_waterfall_notes(lines, n_rounds),
        columns={"bars": bars, "dots": dots},
        table=WATERFALL,
        names=texts.all,
        numbers=_numbers(lines),
        facts={
            "x": RUN_TIME,
            "span": [low, max(low, float(np.max(bars["stop"], initial=low)))],
            "window_s": None,
            "thin": False,
            "lanes": [{"label": f"{letters[task]} {task} {i}", "kind": "collector"} for task, i in lanes],
            "series": theme.plain(theme.WARMUP),
            "marks": marks.in_time(fold, low),
        },
    )  # fmt: skip


def _at_least_1(n_rounds: int) -> None:
    if n_rounds < 1:
        raise ValueError(f"n_rounds must be >= 1, got {n_rounds}")


#: Columns of the drawn tables and their kinds.
_BAR = {
    "start": np.float64, "stop": np.float64, "held": np.float64, "lane": np.uint16, "series": np.uint16,
    "round": np.uint32, "after": np.float64, "lead": np.float64, "cause": np.uint16, "planner": np.uint16,
    "reason": np.uint16,
}  # fmt: skip
_DOT = {"start": np.float64, "stop": np.float64, "lane": np.uint16, "series": np.uint16, "share": np.float64}


def _joined(parts: Sequence[Table], kinds: Plain) -> Table:
    """Return tables as one, ordered by time."""
    joined = {
        name: np.concatenate([part[name] for part in parts]).astype(kind) if parts else np.zeros(0, dtype=kind)
        for name, kind in kinds.items()
    }
    order = np.lexsort((joined["series"], joined["lane"], joined["start"]))
    return {name: values[order] for name, values in joined.items()}


def _bars(
    line: WarmupLine, n_rounds: int, lanes: dict[tuple[str, int], int], texts: Texts, now: float
) -> tuple[Table, Table]:
    collector = line["collector"].astype(np.int64)
    for number in sorted(set(collector.tolist())):
        lanes.setdefault((line.task, number), len(lanes))
    lane = np.array([lanes[line.task, number] for number in collector.tolist()], dtype=np.int64)
    newest = line["round"] > np.max(line["round"]) - n_rounds
    said = {
        "cause": texts.numbers(line.causes()),
        "planner": texts.numbers(line.texts("planner")),
        "reason": texts.numbers(line.texts("reason")),
    }
    parts = []
    for series, (start, stop) in _phases(line, now).items():
        at = np.flatnonzero(newest & np.isfinite(start) & (stop - start > 0))
        rests = series != _ACTS
        parts.append({
            "start": start[at], "stop": stop[at], "held": stop[at] - start[at], "lane": lane[at],
            "series": np.full(len(at), series), "round": line["round"][at],
            "after": line["after"][at] if rests else np.full(len(at), np.nan),
            "lead": line["lead"][at] if rests else np.full(len(at), np.nan),
            **{name: values[at] if rests else np.zeros(len(at)) for name, values in said.items()},
        })  # fmt: skip
    dots = []
    for series, t, share in ((_PLANNED, line.wanted, 0.5), (_ARRIVAL, line["arrival"], 1.0)):
        at = np.flatnonzero(newest & np.isfinite(t))
        full = np.full(len(at), 1.0)
        dots.append({"start": t[at], "stop": t[at], "lane": lane[at], "series": full * series, "share": full * share})
    return _joined(parts, _BAR), _joined(dots, _DOT)


def _phases(line: WarmupLine, now: float) -> dict[int, tuple[Floats, Floats]]:
    """Return start and stop of each phase of every rest, NaN or nothing where it had none."""
    sent, arrival, ready, begun = line["sent"], line["arrival"], line["ready"], line.begun
    ended = line["ended"]
    nan = np.full(len(line), np.nan)
    came = np.where(np.isnan(arrival), now, arrival)
    begun = np.where(np.isnan(begun) & (line["planned"] <= now), line["planned"], begun)
    # A parked process that was woken with its parameters tells nothing of it: it was up when it acted next.
    acted = _next_began(line)
    up = np.where(np.isnan(ready), np.where(np.isnan(acted), now, acted), ready)
    down = np.minimum(np.where(np.isnan(begun), came, begun), came)
    stays = np.array([action == "keep" for action in line.texts("action")], dtype=np.bool_)
    over = np.array([action == "end" for action in line.texts("action")], dtype=np.bool_)  # and nobody rests
    waits = (ended == 0) & ~stays & ~over
    return {
        _ACTS: (line["began"], sent),
        _ENDED: (np.where(ended == 1, sent, nan), down),
        _PARKED: (np.where((ended == 2) | waits, sent, nan), np.where(waits, came, down)),
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
        wait=_mean(np.concatenate([none, *(line.measured.wait for line in lines)])),
        idle=_mean(np.concatenate([none, *(line.measured.idle for line in lines)])),
        late_s=_mean(-ahead[ahead < 0]),
        early_s=_mean(ahead[ahead > 0]),
    )


def _sentence(lines: Sequence[WarmupLine]) -> str:
    if not lines:
        return "no round has been sent yet"
    numbers = _numbers(lines)
    n = int(numbers["starts"][1] or 0)
    if not n:
        keep = any(action == "keep" for line in lines for action in line.texts("action"))
        how = "are kept" if keep else "stay where they are"
        return f"collectors {how} between rounds: nothing is started, nothing has to be planned"
    return (
        f"{words.plural(n, 'start')}: {words.percent(numbers['on_time'][1])} ready in time; rounds waited "
        f"{words.duration(numbers['wait'][1])} for the last collector, collectors were idle "
        f"{words.duration(numbers['idle'][1])} (means per round)"
    )


def _waterfall_notes(lines: Sequence[WarmupLine], n_rounds: int) -> tuple[str, ...]:
    notes = ["each bar tells who planned it and why: choose one, or walk with the arrow keys"] if lines else []
    if any(len(line) and np.ptp(line["round"]) >= n_rounds for line in lines):
        notes.append(f"the newest {n_rounds} rounds of each task are drawn; the numbers are of all")
    return tuple(notes)


def choices(journal: Journal | Fold, until_s: float | None = None, *, n_rounds: int = N_CHOICES) -> View:
    """Return the table of warm-up choices: planner, choice, lead, what it came to, and the reason; newest last.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    n_rounds
        Newest rounds of each task, at least 1.

    Raises
    ------
    ValueError
        If `n_rounds` < 1.
    """
    _at_least_1(n_rounds)
    fold = fold_of(journal, until_s)
    texts = Texts()
    styles = theme.styles(fold.task_names())
    chosen = [
        (round_, k, row)
        for k, style in enumerate(styles)
        for row, round_ in _choice_rows(WarmupLine(fold, style.name), n_rounds, texts)
    ]
    chosen.sort(key=lambda choice: choice[:2])
    series = [{**styles[k].to_plain(), "name": f"{styles[k].name}, round {round_}"} for round_, k, _ in chosen]
    values = np.array([row for *_, row in chosen], dtype=np.float64).reshape(-1, len(_CHOSEN)).T
    columns = {
        name: of.astype(np.uint16 if k < _N_TEXTS else np.float64)
        for k, (name, of) in enumerate(zip(_CHOSEN, values, strict=True))
    }
    rows: Table = {"row": np.arange(len(chosen), dtype=np.uint16), **columns}
    planned = int(np.sum([texts.all[int(i)] == "start" for i in columns["action"]]))
    sentence = f"newest {words.plural(len(chosen), 'choice')}: {planned} planned" if chosen else "no choice yet"
    return listing(
        "warmup.choices", fold, sentence, {"rows": rows}, CHOICES, shown=_COLUMNS, series=series, names=texts.all
    )


#: Columns of a choice; the first ones are texts.
_CHOSEN, _N_TEXTS = ("planner", "action", "reason", "after", "lead", "wait", "idle"), 3


def _choice_rows(line: WarmupLine, n_rounds: int, texts: Texts) -> list[tuple[tuple[float, ...], int]]:
    """Return a row per round; one collector's words stand for all, its seconds are means over them."""
    if not len(line):
        return []
    done = line.measured
    rows = []
    for round_ in sorted(set(line["round"].astype(np.int64).tolist()), reverse=True)[:n_rounds]:
        mine = np.flatnonzero((line["round"] == round_) & (line["action"] > 0))
        if not len(mine):
            continue
        first = int(mine[0])
        after, lead = (values[np.isfinite(values)] for values in (line["after"][mine], line["lead"][mine]))
        at = np.flatnonzero(done.round == round_ + 1)
        known = [texts.of(line.texts(name)[first]) for name in _CHOSEN[:_N_TEXTS]]
        came = (done.wait[at[-1]], done.idle[at[-1]]) if len(at) else (np.nan, np.nan)
        rows.append(((*known, *(values.mean() if len(values) else np.nan for values in (after, lead)), *came), round_))
    return rows

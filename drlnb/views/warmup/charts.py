"""Draw what a plan of starts was made of: the rounds that its filter kept and dropped, and how long starts take."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views.drawing import marks, theme, words
from drlnb.views.drawing.axes import axis
from drlnb.views.drawing.lines import Lines
from drlnb.views.drawing.payload import Array
from drlnb.views.drawing.view import Numbers, View, meanings, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.warmup.lines import WarmupLine, task_to_draw

__all__ = ["rounds", "starts"]

Floats = NDArray[np.float64]

#: Newest rounds in the history of a task.
_ROUNDS = 200
#: Newest ends of regimes that are drawn.
_CUTS = 12
#: Bars of a histogram.
_BINS = 24

_COLOURS = {"kept": "#009E73", "dropped": "#D55E00", "other": "#999999", "cut": "#CC79A7"}


ROUNDS = table(
    "points",
    """
    line:name | rounds | kept by the filter, dropped by it, or not looked at by the newest plan
    x | round | number of the round
    y | seconds (s) | whole round (planner seed), else mean from sending to the next parameters
    lo | least kept (s) | least seconds among the rounds that the newest plan kept
    hi | most kept (s) | most seconds among them
    """,
)
STARTS = table(
    "points",
    """
    line:name | starts | node, start mode, starts at the same time there
    x | from (s) | lower edge of the bar; measured from the command at the node to ready
    y | starts in it | how many; a line of L* is upright
    """,
)
NUMBERS = meanings(
    """
    starts | starts | starts of a collector's process that were measured
    p50 | p50 (s) | median duration of a start, over all kinds
    p95 | p95 (s) | 95 % of the starts took less
    lead | L* (s) | lead that costs least if the arrival is known; nothing: no plan, or several tasks
    """
)


# -- history and its filter -------------------------------------------------------------------------------------------
def rounds(journal: Journal | Fold, task: str | None = None, until_s: float | None = None) -> View:
    """Return a task's history of rounds: those that the newest plan's filter kept and dropped, and ends of regimes.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    task
        Name of the task; None: the first whose collectors are started between rounds.
    until_s
        As it was so many seconds after the run's first event; None: now.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    fold = fold_of(journal, until_s)
    name = task_to_draw(fold, task)
    line = WarmupLine(fold, name or "")
    plans = [
        tuple(float(attempt.filters.get(i, c)) for c in _FILTER)
        for attempt in line.attempts
        for i in range(len(attempt.filters))
    ]
    of_rounds = bool(plans) and bool(plans[-1][5])
    number, seconds = (line.rounds_s() if of_rounds else line.gaps()) if len(line) else (np.zeros(0), np.zeros(0))
    number, seconds = number[-_ROUNDS:], seconds[-_ROUNDS:]
    label_y = "whole round" if of_rounds else "from sending to the next parameters"
    made = Lines()
    kept, dropped, band = _filtered(number, seconds, plans)
    others = ~kept & ~dropped
    _dots(made, "not looked at" if plans else "rounds", _COLOURS["other" if plans else "kept"], number, seconds, others)
    if plans:
        _dots(made, "kept", _COLOURS["kept"], number, seconds, kept, band)
        _dots(made, "dropped", _COLOURS["dropped"], number, seconds, dropped)
    cuts = [cut for cut in line.cuts if len(number) and cut.round >= number[0]][-_CUTS:]
    top = [0.0, float(seconds.max())] if len(seconds) else [0.0, 1.0]
    for cut in cuts:
        label = f"regime ends in round {cut.round}: {cut.reason}; {words.plural(cut.n_kept, 'round')} kept"
        made.add(label, _COLOURS["cut"], [cut.round] * 2, top, style=("|", "/"))
    axes = (axis("round"), axis(label_y, "s"))
    return made.view(
        "warmup.rounds", fold, _rounds_said(name, line, plans, (int(kept.sum()), int(dropped.sum()))), ROUNDS, axes,
        notes=_rounds_notes(line, plans), facts={"marks": marks.in_rounds(fold, name) if name else []},
    )  # fmt: skip


_FILTER = ("round", "collector", "looked", "least", "most", "of_rounds")


def _filtered(
    number: Array, seconds: Floats, plans: Sequence[tuple[float, ...]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], tuple[float, float] | None]:
    """Return which rounds the newest plan's filter kept and dropped, and the range that it kept."""
    none = np.zeros(len(number), dtype=np.bool_)
    if not plans:
        return none, none.copy(), None
    newest, _, looked, least, most, _ = plans[-1]
    before = np.flatnonzero(number < newest)[-int(looked) :] if looked else np.zeros(0, dtype=np.int64)
    seen = none.copy()
    seen[before] = True
    inside = (seconds >= least - 2e-6) & (seconds <= most + 2e-6)
    return seen & inside, seen & ~inside, (least, most)


def _dots(
    made: Lines, label: str, colour: str, x: Array, y: Floats, which: NDArray[np.bool_],
    band: tuple[float, float] | None = None,
) -> None:  # fmt: skip
    if which.any():
        made.add(label, colour, x[which], y[which], dots=True, band=band or (np.nan, np.nan))


def _rounds_said(name: str | None, line: WarmupLine, plans: Sequence[tuple[float, ...]], n: tuple[int, int]) -> str:
    if name is None or not len(line):
        return "no collector was ended or parked between rounds yet: there is no history to plan from"
    why = line.newest_reason
    if not plans:
        return f"{name}: no filter was asked; the newest plan says: {why}"
    return f"{name}: {n[0]} rounds kept, {n[1]} dropped; the newest plan says: {why}"


def _rounds_notes(line: WarmupLine, plans: Sequence[tuple[float, ...]]) -> tuple[str, ...]:
    notes = []
    if plans:
        notes.append("the band reaches from the least to the most seconds of the rounds that the newest plan kept")
    elif len(line):
        notes.append("planners seed and mean filter the history; saa and progress look at all rounds of a regime")
    if line.cuts:
        last = line.cuts[-1]
        notes.append(f"{words.plural(len(line.cuts), 'regime')} ended; the last in round {last.round}: {last.reason}")
    return tuple(notes)


# -- durations of starts ----------------------------------------------------------------------------------------------
def starts(journal: Journal | Fold, until_s: float | None = None) -> View:
    """Return how long starts take: a histogram per node, start mode and number of starts at the same time, and L*.

    L* is the newsvendor's lead of each task's newest plan: what would cost least if the arrival were known.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    """
    fold = fold_of(journal, until_s)
    by_key: dict[tuple[str, str, int], list[float]] = {}
    for name in fold.task_names():
        for attempt in (attempt for _, attempt in sorted(fold.warmups.get(name, {}).items())):
            known = tuple(attempt.texts)
            columns = (attempt.starts[column].tolist() for column in ("node", "mode", "n_starting", "start_s"))
            for node, mode, n, start_s in zip(*columns, strict=True):
                by_key.setdefault((known[int(node)], known[int(mode)], int(n)), []).append(start_s)
    made = Lines()
    everything = np.array([value for values in by_key.values() for value in values])
    edges = np.linspace(0.0, float(everything.max()), _BINS + 1) if len(everything) else np.zeros(0)
    top = 1.0
    for k, key in enumerate(sorted(by_key)):
        counts, _ = np.histogram(by_key[key], bins=edges)
        top = max(top, float(counts.max()))
        colour = theme.PALETTE[k % len(theme.PALETTE)]
        hatch = theme.HATCHES[k // len(theme.PALETTE) % len(theme.HATCHES)]
        made.add(_key_said(*key), colour, edges, [*counts.tolist(), 0], step=True, style=("", hatch))
    leads = _leads(fold, made, top)
    axes = (axis("from the command to ready", "s"), axis("starts"))
    notes = ["starts of new and of lost collectors are counted, too"] if len(everything) else []
    if leads:
        notes.append(
            "L*: the lead that costs least if the parameters' arrival is known, a quantile of the starts that the "
            "task's newest plan looked at (newsvendor)"
        )
    return made.view(
        "warmup.starts", fold, _starts_said(everything, len(by_key)), STARTS, axes,
        notes=notes, numbers=_starts_numbers(everything, leads[0][1] if len(leads) == 1 else None),
    )  # fmt: skip


def _leads(fold: Fold, made: Lines, top: float) -> list[tuple[float, float]]:
    """Draw every task's L* as an upright line of this height, and return them: quantile, seconds."""
    leads = []
    for name in fold.task_names():
        lead = WarmupLine(fold, name).newsvendor
        if lead is not None:
            label = f"L* of {name}: {words.duration(lead[1])}, longer than {words.percent(lead[0])} of its starts"
            made.add(label, _COLOURS["cut"], [lead[1]] * 2, [0.0, top], style=("", "/"))
            leads.append(lead)
    return leads


def _key_said(node: str, mode: str, n_starting: int) -> str:
    return f"node {node}, {mode}, {n_starting} at once"


def _starts_said(values: Floats, n_keys: int) -> str:
    if not len(values):
        return "no start has been measured yet"
    p50, p95 = (words.duration(float(np.quantile(values, q))) for q in (0.5, 0.95))
    kinds = f", of {n_keys} kinds" if n_keys > 1 else ""
    return f"{words.plural(len(values), 'start')}{kinds}: median {p50}, 95 % below {p95}"


def _starts_numbers(values: Floats, lead_s: float | None) -> Numbers:
    p50, p95 = np.quantile(values, (0.5, 0.95)).tolist() if len(values) else (None, None)
    return numbered(NUMBERS, starts=float(len(values)), p50=p50, p95=p95, lead=lead_s)

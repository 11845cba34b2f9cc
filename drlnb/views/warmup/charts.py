"""Draw what a plan of starts was made of: the rounds that its filter kept and dropped, and how long starts take."""

import numpy as np

from drlnb.records.columns.warmup import WarmupPlanned
from drlnb.records.journal import Journal
from drlnb.views.drawing import marks, theme, words
from drlnb.views.drawing.payload import Array, Floats
from drlnb.views.drawing.pictures import Lines, axis, picture
from drlnb.views.drawing.view import Column, View, numbered, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.warmup.lines import WarmupLine, line_to_draw

__all__ = ["rounds", "starts"]

#: Newest rounds in the history of a task.
_ROUNDS = 200
#: Newest ends of regimes that are drawn.
_CUTS = 12
#: Bars of a histogram.
_BINS = 24

_COLOURS = {"kept": "#009E73", "dropped": "#D55E00", "other": "#999999", "cut": "#CC79A7"}


ROUNDS = table(
    "points",
    Column("line", "rounds", "kept by the filter, dropped by it, or not looked at by the newest plan", kind="name"),
    Column("x", "round", "number of the round"),
    Column("y", "seconds", "whole round (planner patent), else mean from sending to the next parameters", unit="s"),
    Column("lo", "least kept", "least seconds among the rounds that the newest plan kept", unit="s"),
    Column("hi", "most kept", "most seconds among them", unit="s"),
)
STARTS = table(
    "points",
    Column("line", "starts", "node, start mode, starts at the same time there", kind="name"),
    Column("x", "from", "lower edge of the bar; measured from the command at the node to ready", unit="s"),
    Column("y", "starts in it", "how many"),
)
NUMBERS = {
    "starts": ("starts", "", "starts of a collector's process that were measured"),
    "p50": ("p50", "s", "median duration of a start, over all kinds"),
    "p95": ("p95", "s", "95 % of the starts took less"),
}


# -- history and its filter -------------------------------------------------------------------------------------------
def rounds(journal: Journal | Fold, task: str | None = None) -> View:
    """Return a task's history of rounds: those that the newest plan's filter kept and dropped, and ends of regimes.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    task
        Name of the task; None: the first whose collectors are started between rounds.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    line = line_to_draw(fold_of(journal), task)
    plan = line.filtered
    of_rounds = plan is not None and plan.planner == "patent"
    number, seconds = (of[-_ROUNDS:] for of in (line.rounds_s() if of_rounds else line.gaps()))
    made = Lines()
    kept, dropped = _filtered(number, seconds, plan)
    dots = [("rounds", "kept", ~(kept | dropped), _NO_BAND)]
    if plan is not None and plan.filtered is not None:
        dots = [("not looked at", "other", ~(kept | dropped), _NO_BAND), ("kept", "kept", kept, plan.filtered[1:])]
        dots.append(("dropped", "dropped", dropped, _NO_BAND))
    for label, colour, which, band in dots:
        if which.any():
            made.add(label, _COLOURS[colour], number[which], seconds[which], dots=True, band=band)
    top = [0.0, float(seconds.max()) if len(seconds) else 1.0]
    for cut in [cut for cut in line.cuts if len(number) and cut.round >= number[0]][-_CUTS:]:
        label = f"regime ends in round {cut.round}: {cut.reason}; {words.plural(cut.n_kept, 'round')} kept"
        made.add(label, _COLOURS["cut"], [cut.round] * 2, top, style=("|", "/"))
    label_y = "whole round" if of_rounds else "from sending to the next parameters"
    said = _rounds_said(line, (int(kept.sum()), int(dropped.sum())))
    body, notes = made.body(axis("round"), axis(label_y, "s")), _rounds_notes(line)
    facts = {"marks": marks.in_rounds(line.fold, line.task) if line.task else []}
    return picture("warmup.rounds", line.fold, said, ROUNDS, body, notes=notes, facts=facts)


#: Band of a line that has none.
_NO_BAND = (np.nan, np.nan)


def _filtered(number: Array, seconds: Floats, plan: WarmupPlanned | None) -> tuple[Array, Array]:
    """Return which rounds a plan's filter kept and dropped."""
    seen = np.zeros(len(number), dtype=np.bool_)
    if plan is None or plan.filtered is None:
        return seen, seen
    looked, least, most = plan.filtered
    seen[np.flatnonzero(number < plan.round)[-looked:] if looked else []] = True
    inside = (seconds >= least - 2e-6) & (seconds <= most + 2e-6)
    return seen & inside, seen & ~inside


def _rounds_said(line: WarmupLine, n: tuple[int, int]) -> str:
    if not len(line):
        return "no collector was ended between rounds yet: there is no history to plan from"
    done = "no filter was asked" if line.filtered is None else f"{n[0]} rounds kept, {n[1]} dropped"
    return f"{line.task}: {done}; the newest plan says: {line.newest_reason}"


def _rounds_notes(line: WarmupLine) -> tuple[str, ...]:
    notes = []
    if line.filtered is not None:
        notes.append("the band reaches from the least to the most seconds of the rounds that the newest plan kept")
    elif len(line):
        notes.append("planner patent filters the history; saa looks at all rounds of a regime")
    if line.cuts:
        last = line.cuts[-1]
        notes.append(f"{words.plural(len(line.cuts), 'regime')} ended; the last in round {last.round}: {last.reason}")
    return tuple(notes)


# -- durations of starts ----------------------------------------------------------------------------------------------
def starts(journal: Journal | Fold) -> View:
    """Return how long starts take: a histogram per node, start mode and number of starts at the same time.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    """
    fold = fold_of(journal)
    by_key: dict[tuple[str, str, int], list[float]] = {}
    for attempt in (attempt for name in fold.task_names() for attempt in WarmupLine(fold, name).attempts):
        for start in attempt.starts:
            by_key.setdefault((start.node, start.start_mode, start.n_starting), []).append(start.start_s)
    made = Lines()
    everything = np.array([value for values in by_key.values() for value in values])
    edges = np.linspace(0.0, float(everything.max()), _BINS + 1) if len(everything) else np.zeros(0)
    kinds = theme.styles(f"node {node}, {mode}, {n} at once" for node, mode, n in sorted(by_key))
    for key, style in zip(sorted(by_key), kinds, strict=True):
        counts, _ = np.histogram(by_key[key], bins=edges)
        made.add(style.name, style.colour, edges, [*counts.tolist(), 0], step=True, style=("", style.hatch))
    notes = ["starts of new and of lost collectors are counted, too"] if len(everything) else []
    n = len(everything)
    p50, p95 = np.quantile(everything, (0.5, 0.95)).tolist() if n else (None, None)
    said = f"{words.plural(n, 'start')}{f', of {len(by_key)} kinds' if len(by_key) > 1 else ''}"
    said += f": median {words.duration(p50)}, 95 % below {words.duration(p95)}"
    said = said if n else "no start has been measured yet"
    body, numbers = made.body(axis("from the command to ready", "s"), axis("starts")), {"p50": p50, "p95": p95}
    of = numbered(NUMBERS, starts=float(n), **numbers)
    return picture("warmup.starts", fold, said, STARTS, body, notes=notes, numbers=of)

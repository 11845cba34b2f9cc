"""Draw the training steps of a task under swap plans, beside what was predicted: their peaks or their seconds."""

import math

import numpy as np

from drlnb.records.journal import Journal
from drlnb.records.units import said_bytes
from drlnb.views.drawing import decimate, words
from drlnb.views.drawing.pictures import Lines, axis, picture
from drlnb.views.drawing.view import View, numbered, points
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.swapping import SwapFold
from drlnb.views.swapping.computed import MIB

__all__ = ["newest", "steps", "typical"]

#: Pixel columns of a line, latest steps in a median, and newest marks that are drawn.
_COLUMNS, _LATEST, _MARKS = 400, 64, 24
_STEP = ("step", "", "training step, from 1; of settled plans one for each round")
#: What is drawn of a step -> its axis, the factor to its unit, and the table twin.
_KINDS = {
    "peak": (axis("peak of a step", "MiB"), 1 / MIB, points(_STEP, ("peak", "MiB", "greatest number of bytes in use"))),
    "time": (axis("time of a step", "ms"), 1e3, points(_STEP, ("time", "ms", "seconds of the step, waits included"))),
}
NUMBERS = {
    "budget": ("budget", "MiB", "what a step may use; nothing: no limit"),
    "peak": ("peak", "MiB", "median over the latest steps under the plan that runs, 64 at most"),
    "time": ("step", "s", "median over the same steps"),
    "ratio": ("measured / predicted", "x", "of their seconds"),
    "swapped": ("swapped", "MiB", "bytes that left the device in the newest step"),
    "stall": ("waits", "s", "that the newest step waited for copies"),
}


def newest(fold: Fold, task: str | None = None) -> tuple[str, SwapFold]:
    """Return a task whose steps are planned, and what is known of them; nothing if there is none.

    Parameters
    ----------
    fold
        A run's columns.
    task
        Its name; None: the first of which anything is known.
    """
    names = [task] if task is not None else [*fold.task_names(), *fold.swappings]
    active = [name for name in names if name in fold.swappings and fold.swappings[name].active]
    return (active[0], fold.swappings[active[0]]) if active else (task or "", SwapFold())


def typical(of: SwapFold) -> tuple[float, float, float]:
    """Return peak bytes, seconds, and measured over predicted seconds of the plan that runs: medians, NaN before."""
    mine = np.flatnonzero((of.steps["step"] > of.since) & np.isfinite(of.steps["time"]))
    planned = mine[np.isfinite(of.steps["time_said"][mine])]  # the first steps may still be of the plan before
    mine = (planned if len(planned) else mine)[-_LATEST:]
    if not len(mine):
        return math.nan, math.nan, math.nan
    peak, time, said = (of.steps[name][mine] for name in ("peak", "time", "time_said"))
    return float(np.median(peak)), float(np.median(time)), float(np.median(time / said))


def steps(journal: Journal | Fold, kind: str = "peak", task: str | None = None) -> View:
    """Return the peaks (below their budget) or seconds of all steps, as measured and predicted; trials stand apart.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    kind
        ``peak`` or ``time``.
    task
        Name of the task; None: the first whose steps are planned.
    """
    fold = fold_of(journal)
    name, of = newest(fold, task)
    y_axis, factor, twin = _KINDS[kind]
    lines, x, tried, origin = Lines(), of.steps["step"], of.steps["trial"] > 0, fold.origin
    drawn = [("budget", "#D55E00", ("B", ""), "budget", x > 0)] if kind == "peak" else []
    for label, colour, look, key, mine in (
        *drawn,
        ("predicted", "#777777", ("P", "/"), f"{kind}_said", x > 0),
        (origin, "#0072B2", ("M", ""), kind, ~tried),
        (f"{origin}, in a trial", "#E69F00", ("T", ""), kind, tried),
    ):
        y, level = factor * of.steps[key], key not in _KINDS
        known = np.flatnonzero(np.isfinite(y) & mine)
        known = known[decimate.min_max(x[known], y[known], _COLUMNS)]
        lines.add(label, colour, x[known], y[known], step=level, dots=not level, style=look)
    peak, time, ratio = typical(of)
    marks = [{"t": at + 0.5, "label": label, "said": said, "task": ""} for at, label, said in of.marks[-_MARKS:]]
    swapped, stall = (of.steps.get(-1, key) if of.n_steps else math.nan for key in ("swapped", "stall"))
    numbers = {
        "budget": of.memory_budget_bytes / MIB,
        "peak": peak / MIB,
        "time": time,
        "ratio": ratio,
        "swapped": swapped / MIB,
        "stall": stall,
    }
    body, notes = lines.body(axis("training step"), y_axis), [of.unavailable] if of.unavailable else []
    said, facts = _sentence(name, of, origin), {"marks": marks}
    return picture(
        f"swapping.{kind}", origin, said, twin, body, facts=facts, notes=notes, numbers=numbered(NUMBERS, **numbers)
    )


def _sentence(name: str, of: SwapFold, origin: str) -> str:
    if not of.active:
        return "no step is planned: there is no memory budget, or no step yet"
    peak, time, _ = typical(of)
    limit = "without a budget" if math.isnan(of.memory_budget_bytes) else f"of {said_bytes(of.memory_budget_bytes)}"
    plan = "no plan" if of.running == "none" else f"plan {of.running[:6]}"
    said = f"{origin} {said_bytes(peak)} {limit}, {words.duration(time)} a step"
    return f"{name}: {plan} by {of.planner}, {'no step yet' if math.isnan(peak) else said}, predicted " + (
        f"{words.duration(of.predicted[0])}{f' ({of.reason})' if of.reason else ''}"
    )

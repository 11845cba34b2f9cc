"""Draw how well the tasks learn: a line per task, or per group with a band over its seeds."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import decimate, marks, theme, words
from drlnb.views.drawing.payload import Floats
from drlnb.views.drawing.pictures import Lines, axis, picture
from drlnb.views.drawing.view import Column, View, table
from drlnb.views.folds.fold import Fold, acts, fold_of
from drlnb.views.folds.task import TaskFold

__all__ = ["Band", "band", "curves"]

#: Pixel columns of a line: two points in each, so at most 800 points; many lines share twice as many, and each has
#: the lesser number at least.
N_COLUMNS, FEWEST_COLUMNS = 400, 100
#: The metric that evaluations are drawn beside, and what is drawn in its place where no task has environments.
_RETURN, _LOSS = "rollout/ep_rew_mean", "train/loss"

TABLE = table(
    "points",
    Column("line", "curve", "task, or group of tasks that differ by their seeds alone", kind="name"),
    Column("x", "timesteps", "environment steps over all environments"),
    Column("y", "value", "the metric; for a group, its mean over the seeds"),
    Column("lo", "lowest", "lowest of the group's seeds at this step"),
    Column("hi", "highest", "highest of the group's seeds at this step"),
)


class Band(NamedTuple):
    """A curve over several seeds; all arrays have shape ``(n,)``."""

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def band(curves: Sequence[tuple[Floats, Floats]]) -> Band:
    """Return mean, lowest and highest of several curves where all of them have values.

    Values between two points of a curve are interpolated linearly.

    Parameters
    ----------
    curves
        Pairs of x (ascending) and y, without NaN.

    Examples
    --------
    >>> import numpy as np
    >>> found = band([(np.array([0.0, 2.0]), np.array([0.0, 2.0])), (np.array([1.0, 3.0]), np.array([5.0, 5.0]))])
    >>> found.x.tolist(), found.mean.tolist(), found.low.tolist(), found.high.tolist()
    ([1.0, 2.0], [3.0, 3.5], [1.0, 2.0], [5.0, 5.0])
    """
    if not curves or any(len(x) == 0 for x, _ in curves):
        return Band(*[np.zeros(0)] * 4)
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    return Band(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def curves(
    journal: Journal | Fold,
    metric: str = _RETURN,
    *,
    n_columns: int | None = None,
) -> View:
    """Return the curves of one recorded metric; the tasks of a group are one curve with a band.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    metric
        Any name in the tasks' ``MetricsRecorded`` rows; the default is the loss where no task has environments.
    n_columns
        Most pixel columns of a line; None: 400, fewer if there are many.

    Raises
    ------
    ValueError
        If no task has recorded the metric although others were recorded; the message names those.
    """
    fold = fold_of(journal)
    metric = _LOSS if metric == _RETURN and not acts(fold) else metric
    known = sorted({name for task in fold.tasks.values() for name in task.metric_names()})
    if known and metric not in known and metric != (_RETURN if acts(fold) else _LOSS):
        raise ValueError(f"no metric {metric!r} in this journal; it has {', '.join(known)}")
    names = fold.task_names()
    members = _members(names, fold)
    width = n_columns or max(FEWEST_COLUMNS, 2 * N_COLUMNS // max(2, len(members)))
    styles = theme.task_styles(fold)
    made, last = Lines(styles), []
    for label, tasks in members.items():
        state = tuple((task.name, task.n_changes) for task in tasks)
        thin = fold.keep(("learning.curve", metric, label, width), state, partial(_thin, tasks, metric, width))
        if len(thin.x):
            series = names.index(tasks[0].name)
            made.add(label, series, thin.x, thin.mean, band=(thin.low, thin.high))
            last.append(f"{styles[series].letter} {words.number(float(thin.mean[-1]), 4)}")
    notes = []
    if (n_seeds := max((len(tasks) for tasks in members.values()), default=0)) > 1:
        notes.append(f"bands reach from the lowest to the highest of up to {n_seeds} seeds")
    evaluated = [(i, fold.tasks[name].evaluations()) for i, name in enumerate(names) if name in fold.tasks]
    for series, evaluations in evaluated if metric == _RETURN else ():
        if evaluations:
            x, y = [steps for steps, _ in evaluations], [event.mean_reward for _, event in evaluations]
            made.add(f"{names[series]}, deterministic evaluation", series, x, y, dots=True)
    if any(line["dots"] for line in made.lines):
        notes.append("squares: mean return of deterministic evaluation episodes")
    steps = "environment steps" if acts(fold) else "optimiser steps"
    body, facts = made.body(axis(steps), axis(metric)), {"marks": marks.in_steps(fold)}
    return picture("learning.curves", fold, _sentence(metric, last, names), TABLE, body, notes=notes, facts=facts)


def _members(names: Sequence[str], fold: Fold) -> dict[str, list[TaskFold]]:
    by_group: dict[str, list[TaskFold]] = {}
    for name in names:
        if name in fold.tasks:
            by_group.setdefault(fold.groups.get(name) or name, []).append(fold.tasks[name])
    return by_group


def _xy(task: TaskFold, metric: str) -> tuple[Floats, Floats]:
    x, y = task.metric("n_timesteps"), task.metric(metric)
    known = np.isfinite(x) & np.isfinite(y)
    order = np.argsort(x[known], kind="stable")
    return x[known][order], y[known][order]


def _curve(tasks: Sequence[TaskFold], metric: str) -> Band:
    pairs = [pair for pair in (_xy(task, metric) for task in tasks) if len(pair[0])]
    if len(pairs) != 1:
        return band(pairs)
    nothing = np.full(len(pairs[0][0]), np.nan)
    return Band(*pairs[0], nothing, nothing)


def _thin(tasks: Sequence[TaskFold], metric: str, n_columns: int) -> Band:
    """Return a curve with no more points than pixels need."""
    whole = _curve(tasks, metric)
    keep = decimate.min_max(whole.x, whole.mean, n_columns)
    return Band(*(values[keep] for values in whole))


def _sentence(metric: str, last: Sequence[str], names: Sequence[str]) -> str:
    if not last:
        return f"no {metric} yet" if names else "no tasks yet"
    more = f" and {len(last) - 6} more" if len(last) > 6 else ""
    return f"latest {metric}: {', '.join(last[:6])}{more}"

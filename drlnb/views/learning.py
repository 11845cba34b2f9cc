"""How well do the tasks learn?  One line per task, or per group with a band over its seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views.drawing import decimate, marks, theme, words
from drlnb.views.drawing.view import Column, View
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.task import TaskFold

__all__ = ["Band", "band", "curves"]

Floats = NDArray[np.float64]

#: Pixel columns of a line: two points in each, so at most 800 points; many lines share twice as many, and each has
#: the lesser number at least.
N_COLUMNS, FEWEST_COLUMNS = 400, 100
#: The metric that evaluations are drawn beside.
_RETURN = "rollout/ep_rew_mean"

TABLE = (
    Column(
        label="curve",
        unit="",
        definition="task, or group of tasks that differ by their seeds alone",
        source="points.line",
        kind="name",
    ),
    Column(label="timesteps", unit="", definition="environment steps over all environments", source="points.x"),
    Column(label="value", unit="", definition="the metric; for a group, its mean over the seeds", source="points.y"),
    Column(label="lowest", unit="", definition="lowest of the group's seeds at this step", source="points.lo"),
    Column(label="highest", unit="", definition="highest of the group's seeds at this step", source="points.hi"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
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
        empty = np.zeros(0)
        return Band(x=empty, mean=empty, low=empty, high=empty)
    low, high = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    return Band(x=grid, mean=values.mean(axis=0), low=values.min(axis=0), high=values.max(axis=0))


def curves(
    journal: Journal | Fold,
    metric: str = _RETURN,
    groups: Mapping[str, str] | None = None,
    until_s: float | None = None,
    *,
    n_columns: int | None = None,
) -> View:
    """Return the curves of one recorded metric.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    metric
        Any name in the tasks' ``MetricsRecorded`` rows.
    groups
        Task -> group (``run.json`` has it); tasks of one group become one curve with a band.  None: the fold's.
    until_s
        As it was so many seconds after the run's first event; None: now.
    n_columns
        Most pixel columns of a line; None: 400, fewer if there are many.

    Raises
    ------
    ValueError
        If no task has recorded the metric although others were recorded; the message names those.
    """
    fold = fold_of(journal, until_s)
    known = sorted({name for task in fold.tasks.values() for name in task.metric_names()})
    if known and metric not in known and metric != _RETURN:
        raise ValueError(f"no metric {metric!r} in this journal; it has {', '.join(known)}")
    names = fold.task_names()
    members = _members(names, fold, groups if groups is not None else fold.groups)
    width = n_columns or max(FEWEST_COLUMNS, 2 * N_COLUMNS // max(2, len(members)))
    lines, parts = list[dict[str, Any]](), list[dict[str, Floats]]()
    for label, tasks in members.items():
        state = tuple((task.name, task.n_changes) for task in tasks)
        one = fold.keep(("learning.curve", metric, label, width), state, partial(_thin, tasks, metric, width))
        _add(lines, parts, one, label=label, series=names.index(tasks[0].name))
    for task in (fold.tasks[name] for name in names if name in fold.tasks and metric == _RETURN):
        _add_evaluations(lines, parts, task, names.index(task.name))
    biggest = max((len(tasks) for tasks in members.values()), default=0)
    return View(
        name="learning.curves",
        module="chart",
        origin=fold.origin,
        sentence=_sentence(metric, lines, parts, names),
        notes=_notes(biggest, lines),
        columns={"points": _points(parts)},
        table=TABLE,
        names=tuple(str(line["label"]) for line in lines),
        facts={
            "x": {"label": "environment steps", "unit": "", "kind": "number"},
            "y": {"label": metric, "unit": "", "kind": "number"},
            "lines": lines,
            "series": [style.to_plain() for style in theme.styles(names)],
            "marks": marks.in_steps(fold),
        },
    )


def _notes(n_seeds: int, lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    notes = []
    if n_seeds > 1:
        notes.append(f"bands reach from the lowest to the highest of up to {n_seeds} seeds")
    if any(line["dots"] for line in lines):
        notes.append("squares: mean return of deterministic evaluation episodes")
    return tuple(notes)


def _members(names: Sequence[str], fold: Fold, groups: Mapping[str, str]) -> dict[str, list[TaskFold]]:
    found: dict[str, list[TaskFold]] = {}
    for name in names:
        if name in fold.tasks:
            found.setdefault(groups.get(name) or name, []).append(fold.tasks[name])
    return found


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
    return Band(x=pairs[0][0], mean=pairs[0][1], low=nothing, high=nothing)


def _thin(tasks: Sequence[TaskFold], metric: str, n_columns: int) -> Band:
    """Return a curve with no more points than pixels need."""
    one = _curve(tasks, metric)
    keep = decimate.min_max(one.x, one.mean, n_columns)
    return Band(x=one.x[keep], mean=one.mean[keep], low=one.low[keep], high=one.high[keep])


def _add(lines: list[dict[str, Any]], parts: list[dict[str, Floats]], one: Band, *, label: str, series: int) -> None:
    if len(one.x):
        lines.append({"label": label, "series": series, "dots": False})
        parts.append({"x": one.x, "y": one.mean, "lo": one.low, "hi": one.high})


def _add_evaluations(lines: list[dict[str, Any]], parts: list[dict[str, Floats]], task: TaskFold, series: int) -> None:
    found = task.evaluations()
    if found:
        lines.append({"label": f"{task.name}, deterministic evaluation", "series": series, "dots": True})
        nothing = np.full(len(found), np.nan)
        parts.append({
            "x": np.array([float(steps) for steps, _ in found]), "y": np.array([one.mean_reward for _, one in found]),
            "lo": nothing, "hi": nothing,
        })  # fmt: skip


def _points(parts: Sequence[Mapping[str, Floats]]) -> dict[str, NDArray[Any]]:
    line = [np.full(len(part["x"]), i, dtype=np.uint16) for i, part in enumerate(parts)]
    columns: dict[str, NDArray[Any]] = {"line": np.concatenate(line) if line else np.zeros(0, dtype=np.uint16)}
    for name in ("x", "y", "lo", "hi"):
        columns[name] = np.concatenate([part[name] for part in parts]) if parts else np.zeros(0)
    return columns


def _sentence(
    metric: str, lines: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Floats]], names: Sequence[str]
) -> str:
    last = [
        f"{theme.letter(line['series'])} {words.number(float(part['y'][-1]), 4)}"
        for line, part in zip(lines, parts, strict=True)
        if not line["dots"]
    ]
    if not last:
        return f"no {metric} yet" if names else "no tasks yet"
    more = f" and {len(last) - 6} more" if len(last) > 6 else ""
    return f"latest {metric}: {', '.join(last[:6])}{more}"

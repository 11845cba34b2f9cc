"""Draw where each round's time went: collect, wait for a slot, update, push, control, stacked per task."""

import numpy as np

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Floats, Table
from drlnb.views.drawing.pictures import axis, lanes_of, picture, timeline
from drlnb.views.drawing.view import Column, View, table
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.task import TaskFold

__all__ = ["anatomy"]

#: Said when the parts of a round add up to more than the round.
_OVERLAP = "collecting went on while a slot was waited for: the parts add up to more than the round"

#: Metrics of the parts, in the order of the styles; that of control includes the push.
_METRICS = ("collect", "wait_lease", "update", "push", "control")
_PUSH, _CONTROL = 3, 4

TABLE = table(
    "bars",
    Column("lane", "task", "task, with its letter", kind="lane"),
    Column("series", "part", "what the time went into", kind="series"),
    Column("mean", "mean", "mean seconds per finished round", unit="s"),
    Column("share", "share", "of the mean round", unit="%", factor=100),
    Column("count", "rounds", "finished rounds"),
)


def anatomy(journal: Journal | Fold) -> View:
    """Return the mean round of every task, part by part.

    ``collect`` is the slowest collector's time, ``wait for a slot`` from request to grant, ``update`` staging and
    gradient steps, ``push`` the way of the parameters to every host, ``control`` all that is left.  A task has no bar
    of a part that its rounds do not have.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    """
    fold = fold_of(journal)
    means = {name: _parts(fold.tasks[name]) for name in fold.task_names() if name in fold.tasks}
    means = {name: parts for name, parts in means.items() if parts[1] > 0}
    bars = _bars(means)
    lettered = [f"{style.letter} {style.name}" for style in theme.task_styles(fold) if style.name in means]
    body = timeline(
        {"bars": bars},
        lanes_of("task", lettered),
        theme.PHASES,
        (0.0, float(np.max(bars["stop"], initial=0.0)) or 1.0),
        axis("mean time per round", "s"),
    )
    notes = (_OVERLAP,) if any(parts[3] for parts in means.values()) else ()
    return picture("rounds.anatomy", fold, _sentence(means), TABLE, body, notes=notes, facts={"window_s": None})


def _parts(task: TaskFold) -> tuple[Floats, int, float, bool]:
    """Return mean seconds per part (NaN: not of its rounds), rounds, mean round, and whether parts overlapped."""
    round_s = task.metric("round/time_s")
    known = np.isfinite(round_s)
    if not known.any():
        return np.zeros(len(theme.PHASES)), 0, 0.0, False

    values = np.array([task.metric(f"round/{name}_s")[known] for name in _METRICS])
    has = np.isfinite(values)
    parts = np.where(has, values, 0.0).mean(axis=1)
    parts[_CONTROL] -= parts[_PUSH]
    whole = float(np.mean(round_s[known]))
    seconds = np.where(has.any(axis=1), np.maximum(0.0, parts), np.nan)
    return seconds, int(known.sum()), whole, bool(parts[_CONTROL] < -1e-3 * whole)


def _bars(means: dict[str, tuple[Floats, int, float, bool]]) -> Table:
    n = len(theme.PHASES)
    parts = np.array([parts for parts, *_ in means.values()], dtype=np.float64).reshape(-1, n)
    stop = np.nancumsum(parts, axis=1)
    whole = np.array([round_s for _, _, round_s, _ in means.values()], dtype=np.float64).reshape(-1, 1)
    bars = {
        "start": (stop - parts).ravel(),
        "stop": stop.ravel(),
        "mean": parts.ravel(),
        "share": np.divide(parts, whole, out=np.zeros_like(parts), where=whole > 0).ravel(),
        "count": np.repeat(np.array([n_rounds for _, n_rounds, *_ in means.values()], dtype=np.int64), n),
        "lane": np.repeat(np.arange(len(means)), n),
        "series": np.tile(np.arange(n), len(means)),
    }
    return {name: values[np.isfinite(bars["mean"])] for name, values in bars.items()}


def _sentence(means: dict[str, tuple[Floats, int, float, bool]]) -> str:
    if not means:
        return "no finished rounds yet"
    total = np.nansum([parts * n for parts, n, _, _ in means.values()], axis=0)
    n_rounds = sum(n for _, n, _, _ in means.values())
    largest = int(np.argmax(total))
    share = float(total[largest] / total.sum()) if total.sum() > 0 else 0.0
    return (
        f"{words.plural(n_rounds, 'round')}: most time went into {theme.PHASES[largest].name} ({words.percent(share)})"
    )

"""Where did each round's time go?  Collect, wait for a slot, update, push, control, stacked per task."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.view import Column, View
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.views.folds.task import TaskFold

__all__ = ["anatomy"]

Floats = NDArray[np.float64]

#: Said when the parts of a round add up to more than the round.
_OVERLAP = "collecting went on while a slot was waited for: the parts add up to more than the round"

TABLE = (
    Column(label="task", unit="", definition="task, with its letter", source="bars.lane", kind="lane"),
    Column(label="part", unit="", definition="what the time went into", source="bars.series", kind="series"),
    Column(label="mean", unit="s", definition="mean seconds per finished round", source="bars.mean"),
    Column(label="share", unit="%", definition="of the mean round", source="bars.share", factor=100.0),
    Column(label="rounds", unit="", definition="finished rounds", source="bars.count"),
)


def anatomy(journal: Journal | Fold, until_s: float | None = None) -> View:
    """Return the mean round of every task, part by part.

    ``collect`` is the slowest collector's time, ``wait for a slot`` from request to grant, ``update`` staging and
    gradient steps, ``push`` the way of the parameters to every host, ``control`` all that is left.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    until_s
        As it was so many seconds after the run's first event; None: now.
    """
    fold = fold_of(journal, until_s)
    names = fold.task_names()
    found = {name: _parts(fold.tasks[name]) for name in names if name in fold.tasks}
    found = {name: parts for name, parts in found.items() if parts[1] > 0}
    bars = _bars(found)
    overlapping = any(parts[3] for parts in found.values())
    longest = float(np.max(bars["stop"], initial=0.0))
    return View(
        name="rounds.anatomy",
        module="timeline",
        origin=fold.origin,
        sentence=_sentence(found),
        notes=(_OVERLAP,) if overlapping else (),
        columns={"bars": bars},
        table=TABLE,
        facts={
            "x": {"label": "mean time per round", "unit": "s", "kind": "number"},
            "span": [0.0, longest or 1.0],
            "window_s": None,
            "thin": False,
            "lanes": [{"label": f"{theme.letter(names.index(name))} {name}", "kind": "task"} for name in found],
            "series": [{"name": n, "letter": c, "colour": colour, "hatch": ""} for n, c, colour in theme.PHASES],
            "marks": [],
        },
    )  # fmt: skip


def _parts(task: TaskFold) -> tuple[Floats, int, float, bool]:
    """Return mean seconds per part, number of rounds, mean round, and whether parts overlapped."""
    round_s = task.metric("round/time_s")
    known = np.isfinite(round_s)
    if not known.any():
        return np.zeros(len(theme.PHASES)), 0, 0.0, False

    def mean(name: str) -> float:
        values = task.metric(name)[known]
        return float(np.mean(np.where(np.isfinite(values), values, 0.0)))

    push = mean("round/push_s")
    control = mean("round/control_s") - push
    parts = np.array([
        mean("round/collect_s"),
        mean("round/wait_lease_s"),
        mean("round/update_s"),
        push,
        max(0.0, control),
    ])
    whole = float(np.mean(round_s[known]))
    return parts, int(known.sum()), whole, control < -1e-3 * whole


def _bars(found: dict[str, tuple[Floats, int, float, bool]]) -> dict[str, NDArray[Any]]:
    columns: dict[str, list[float]] = {
        name: [] for name in ("start", "stop", "mean", "share", "count", "lane", "series")
    }
    for lane, (parts, n, round_s, _) in enumerate(found.values()):
        stops = np.cumsum(parts)
        for series, (part, stop) in enumerate(zip(parts, stops, strict=True)):
            row = (stop - part, stop, part, part / round_s if round_s > 0 else 0.0, n, lane, series)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(float(value))
    whole = {"count": np.uint32, "lane": np.uint16, "series": np.uint16}
    return {name: np.array(values, dtype=whole.get(name, np.float64)) for name, values in columns.items()}


def _sentence(found: dict[str, tuple[Floats, int, float, bool]]) -> str:
    if not found:
        return "no finished rounds yet"
    total = np.sum([parts * n for parts, n, _, _ in found.values()], axis=0)
    n_rounds = sum(n for _, n, _, _ in found.values())
    largest = int(np.argmax(total))
    share = float(total[largest] / total.sum()) if total.sum() > 0 else 0.0
    return f"{words.plural(n_rounds, 'round')}: most time went into {theme.PHASES[largest][0]} ({words.percent(share)})"

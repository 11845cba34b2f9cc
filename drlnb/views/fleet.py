"""What does every task do, how far is it, and when is it done?  One row per task."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.records.journal import Journal
from drlnb.views import theme, words
from drlnb.views.fold import Fold, fold_of
from drlnb.views.task_fold import TaskFold
from drlnb.views.view import Column, View

__all__ = ["ACTIONS", "eta_s", "tasks", "wait_quantiles"]

#: Rounds in the median that the remaining time is guessed from, and the fewest for a guess.
_ROUNDS, _FEWEST = 10, 3
#: Rounds whose waits are summed up.
_WAITS = 100
#: Points of a sparkline: about as many as it has pixels.
_SPARK = 40

#: States in the order in which a sentence names them, and how it says them.
_STATES = {
    "failed": "failed", "computing": "computing", "collecting": "collecting", "waiting": "waiting for a slot",
    "publishing": "publishing", "evaluating": "evaluating", "starting": "starting", "paused": "paused",
    "queued": "queued", "stopped": "stopped", "done": "done",
}  # fmt: skip

#: States that nothing follows.
_ENDS = frozenset({"done", "stopped", "failed"})

#: What a row's buttons ask for; a bit of the column ``can`` says whether it can be asked now.
ACTIONS: tuple[Mapping[str, str], ...] = (
    {"name": "start", "label": "Start", "glyph": "play", "confirm": ""},
    {"name": "pause", "label": "Pause", "glyph": "pause", "confirm": ""},
    {"name": "resume", "label": "Resume", "glyph": "play", "confirm": ""},
    {"name": "stop", "label": "Stop", "glyph": "stop", "confirm": "Stop {task}?"},
)

TABLE = (
    Column(
        label="task",
        unit="",
        definition="name, with the letter that it has in every picture",
        source="rows.task",
        kind="series",
    ),
    Column(label="state", unit="", definition="what the task does now", source="rows.state", kind="name"),
    Column(label="rounds", unit="", definition="finished rounds", source="rows.rounds"),
    Column(label="of", unit="", definition="rounds of the whole budget", source="rows.total"),
    Column(
        label="ETA",
        unit="s",
        definition="rounds left x median of the last 10 round times; nothing before 3",
        source="rows.eta",
    ),
    Column(
        label="return",
        unit="",
        definition="rollout/ep_rew_mean: mean return of the last 100 episodes",
        source="rows.ret",
    ),
    Column(label="wait p50", unit="s", definition="median wait for a slot over the last 100 rounds", source="rows.p50"),
    Column(label="wait p95", unit="s", definition="95 % of the last 100 rounds waited less", source="rows.p95"),
    Column(
        label="attempt",
        unit="",
        definition="run of the task's master; +1 when it is started anew",
        source="rows.attempt",
    ),
    Column(label="seed", unit="", definition="seed of environments, parameters and sampling", source="rows.seed"),
    Column(
        label="restarts",
        unit="",
        definition="collectors, executors and masters that were started again",
        source="rows.restarts",
    ),
)

#: How the page shows the columns of ``rows``; a sparkline comes from the table ``spark``.
_COLUMNS: tuple[Mapping[str, str], ...] = (
    {"key": "task", "label": "task", "kind": "series"},
    {"key": "state", "label": "state", "kind": "state"},
    {"key": "rounds", "label": "rounds", "kind": "progress", "of": "total"},
    {"key": "eta", "label": "ETA", "kind": "duration"},
    {"key": "ret", "label": "return", "kind": "number"},
    {"key": "spark", "label": "", "kind": "spark"},
    {"key": "p50", "label": "wait p50", "kind": "duration", "minor": "1"},
    {"key": "p95", "label": "p95", "kind": "duration", "minor": "1"},
    {"key": "attempt", "label": "attempt", "kind": "number", "minor": "1"},
    {"key": "seed", "label": "seed", "kind": "number", "minor": "1"},
    {"key": "restarts", "label": "restarts", "kind": "number", "minor": "1"},
)


def eta_s(round_s: Sequence[float], n_left: int) -> float | None:
    """Guess the seconds until the budget is used.

    Parameters
    ----------
    round_s
        Durations of finished rounds in seconds, oldest first; shape ``(n,)``.
    n_left
        Rounds left.

    Returns
    -------
    float or None
        Rounds left times the median of the last 10; None before 3.

    Examples
    --------
    >>> eta_s([9.0, 2.0, 4.0], 5), eta_s([1.0, 2.0], 5)
    (20.0, None)
    """
    return n_left * float(np.median(round_s[-_ROUNDS:])) if len(round_s) >= _FEWEST else None


def wait_quantiles(wait_s: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 95 % quantile (linear) of the last 100 waits, None if there is none.

    Examples
    --------
    >>> wait_quantiles([0.0, 1.0, 2.0, 3.0, 4.0])
    (2.0, 3.8)
    """
    last = np.asarray(wait_s[-_WAITS:], dtype=np.float64)
    if not len(last):
        return None, None
    return float(np.quantile(last, 0.5)), round(float(np.quantile(last, 0.95)), 12)


def tasks(
    journal: Journal | Fold,
    specs: Iterable[Mapping[str, Any]] = (),
    until_s: float | None = None,
    *,
    live: bool = False,
) -> View:
    """Return the table of tasks.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    specs
        The run's tasks as ``run.json`` holds them: for seed and environment, and for tasks that have not begun.
    until_s
        As it was so many seconds after the run's first event; None: now.
    live
        Whether the run can be steered: rows then say which buttons work.
    """
    fold = fold_of(journal, until_s)
    by_name = {str(spec["name"]): spec for spec in specs}
    names = tuple(dict.fromkeys([*fold.task_names(), *by_name]))
    rows = [_row(fold.tasks.get(name), by_name.get(name, {}), live=live) for name in names]
    texts = tuple(dict.fromkeys(["", *(text for row in rows for text in (row["state"], row["failure"]))]))
    columns = _columns(rows, texts)
    columns["spark"] = _sparks([fold.tasks.get(name) for name in names])
    return View(
        name="fleet.tasks",
        module="table",
        origin=fold.origin,
        sentence=_sentence(rows),
        notes=tuple(fold.defects),
        columns=columns,
        table=TABLE,
        names=texts,
        numbers={
            "tasks": ("tasks", float(len(rows)), "", "tasks of the run"),
            "ended": ("ended", float(sum(r["state"] in _ENDS for r in rows)), "", "done, stopped or failed"),
            "rounds": ("rounds", float(sum(r["rounds"] for r in rows)), "", "finished rounds of all tasks"),
        },
        facts={
            "cols": [dict(one) for one in _COLUMNS],
            "series": [style.to_plain() for style in theme.styles(names)],
            "actions": [dict(one) for one in ACTIONS] if live else [],
            "row_key": "task",
            "now": fold.now_s,
        },
    )  # fmt: skip


def _row(task: TaskFold | None, spec: Mapping[str, Any], *, live: bool) -> dict[str, Any]:
    latest = task.latest if task is not None else None
    config = latest.config if latest is not None else {}
    total = _total({**spec, **spec.get("hyperparameters", {}), **config})
    if task is None or latest is None:
        return {
            "state": "queued", "rounds": 0, "total": total, "eta": None, "ret": None, "p50": None, "p95": None,
            "attempt": 0, "seed": spec.get("seed"), "restarts": 0, "failure": "", "can": 0,
        }  # fmt: skip
    done = int(np.nanmax(task.metric("round"), initial=latest.n_before))
    state = task.state
    p50, p95 = wait_quantiles(task.metric("round/wait_lease_s").tolist())
    ended = state in _ENDS
    left = max(0, total - done)
    returns = task.metric("rollout/ep_rew_mean")
    known = returns[np.isfinite(returns)]
    return {
        "state": _STATES.get(state, state),
        "rounds": done,
        "total": total,
        "eta": None if ended or state == "paused" or not total else eta_s(task.metric("round/time_s").tolist(), left),
        "ret": float(known[-1]) if len(known) else None,
        "p50": p50,
        "p95": p95,
        "attempt": latest.number,
        "seed": spec.get("seed"),
        "restarts": task.n_restarts,
        "failure": _failure(latest.reason, latest.detail) if state == "failed" else "",
        "can": _can(state) if live else 0,
    }


def _failure(reason: str, detail: str) -> str:
    return f"{reason}\n{detail}".strip()


def _total(config: Mapping[str, Any]) -> int:
    """Return the rounds of the whole budget, 0 if that is not known."""
    per_round = int(config.get("n_envs", 0) or 0) * int(config.get("n_steps", 0) or 0)
    return math.ceil(int(config["total_timesteps"]) / per_round) if per_round and "total_timesteps" in config else 0


def _can(state: str) -> int:
    """Return the buttons that make sense now, as bits in the order of :data:`ACTIONS`."""
    wanted = {"paused": ("resume", "stop"), "queued": (), "done": (), "stopped": (), "failed": ()}
    names = wanted.get(state, ("pause", "stop"))
    return sum(1 << i for i, action in enumerate(ACTIONS) if action["name"] in names)


def _columns(rows: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> dict[str, dict[str, NDArray[Any]]]:
    def floats(key: str) -> NDArray[np.float64]:
        return np.array([math.nan if row[key] is None else float(row[key]) for row in rows], dtype=np.float64)

    def index(key: str) -> NDArray[np.uint32]:
        return np.array([texts.index(row[key]) for row in rows], dtype=np.uint32)

    columns: dict[str, NDArray[Any]] = {"task": np.arange(len(rows), dtype=np.uint32), "state": index("state")}
    columns |= {
        key: floats(key) for key in ("rounds", "total", "eta", "ret", "p50", "p95", "attempt", "seed", "restarts")
    }
    columns["failure"] = index("failure")
    columns["can"] = np.array([row["can"] for row in rows], dtype=np.uint8)
    return {"rows": columns}


def _sparks(found: Sequence[TaskFold | None]) -> dict[str, NDArray[Any]]:
    row: list[NDArray[np.uint32]] = []
    value: list[NDArray[np.float64]] = []
    for i, task in enumerate(found):
        returns = task.metric("rollout/ep_rew_mean") if task is not None else np.zeros(0)
        returns = returns[np.isfinite(returns)]
        if len(returns) > _SPARK:
            returns = returns[np.linspace(0, len(returns) - 1, _SPARK).round().astype(np.int64)]
        row.append(np.full(len(returns), i, dtype=np.uint32))
        value.append(returns)
    return {
        "row": np.concatenate(row) if row else np.zeros(0, dtype=np.uint32),
        "value": np.concatenate(value) if value else np.zeros(0),
    }


def _sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no tasks yet"
    counts = Counter(str(row["state"]) for row in rows)
    order = list(_STATES.values())
    said = sorted(counts, key=lambda state: (order.index(state) if state in order else len(order), state))
    return f"{words.plural(len(rows), 'task')}: " + ", ".join(f"{counts[state]} {state}" for state in said)

"""Tabulate what every task does, how far it is, and when it will be done: a row per task."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from drlnb.records.journal import Journal
from drlnb.records.round import ENDS
from drlnb.views.drawing import theme, words
from drlnb.views.drawing.payload import Array, Content, Plain
from drlnb.views.drawing.pictures import listing, picture, shown
from drlnb.views.drawing.view import Column, View, numbered, table
from drlnb.views.folds import failure
from drlnb.views.folds.fold import Fold, acts, fold_of
from drlnb.views.folds.grow import finite
from drlnb.views.folds.status import STATES, TaskStatus, statuses
from drlnb.views.folds.task import TaskFold

__all__ = ["ACTIONS", "REASONS", "tasks", "wait_quantiles"]

#: Rounds whose waits are summed up.
_WAITS = 100
#: Points of a sparkline: about as many as it has pixels.
_SPARK = 40
#: Rounds that the number of rounds is estimated from, where they differ in size.
_LATEST = 10

#: What a row says in words, beside its task's name and state.
_TEXTS = ("failure", "cause", "restart_label")

#: What a row's buttons ask for; a bit of the column ``can`` says whether it can be asked now.
ACTIONS: tuple[Mapping[str, str], ...] = (
    {"name": "pause", "label": "Pause", "confirm": ""},
    {"name": "resume", "label": "Resume", "confirm": ""},
    {"name": "stop", "label": "Stop", "confirm": "Stop {task}?"},
    {"name": "restart", "label": "Restart", "confirm": ""},
)

#: Actions that a state allows; a task that goes on can be paused and stopped.
_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "paused": ("resume", "stop"), "queued": (), "done": (), "stopped": ("restart",), "failed": ("restart",),
}  # fmt: skip

#: Action -> state as it is shown -> why it cannot be asked now.  An action without a reason has no place in that row: a
#: task that goes on has three buttons, one that has ended at most one.
REASONS: Mapping[str, Mapping[str, str]] = {
    "pause": {"paused": "it is paused already", "queued": "it has not begun yet"},
    "resume": {
        state: "it has not begun yet" if state == "queued" else "it is not paused"
        for state in STATES
        if state not in {*ENDS, "paused"}
    },
    "stop": {"queued": "it has not begun yet"},
}

TABLE = table(
    "rows",
    Column("task", "task", "name, with the letter that it has in every picture", kind="series"),
    Column("state", "state", "what the task does now", kind="name"),
    Column("rounds", "rounds", "finished rounds"),
    Column("total", "of", "rounds of the whole budget; of supervised work at the latest ones' size"),
    Column("eta", "ETA", "rounds left x median of the last 10 round times; nothing before 3", unit="s"),
    Column("ret", "return", "rollout/ep_rew_mean: mean return of the latest episodes"),
    Column("p50", "wait p50", "median wait for a slot over the last 100 rounds", unit="s"),
    Column("p95", "wait p95", "95 % of the last 100 rounds waited less", unit="s"),
    Column("attempt", "attempt", "run of the task's master; +1 when it is started anew"),
    Column("seed", "seed", "seed of environments, parameters and sampling"),
    Column("restarts", "restarts", "collectors, executors and masters that were started again"),
    Column("loss", "last loss", "why the latest collector or executor that was started again was lost", kind="name"),
)

NUMBERS = {
    "tasks": ("tasks", "", "tasks of the run"),
    "ended": ("ended", "", "done, stopped or failed"),
    "rounds": ("rounds", "", "finished rounds of all tasks"),
}

#: How the page shows the columns of ``rows``; a sparkline comes from the table ``spark``.
_COLUMNS: tuple[Mapping[str, str], ...] = (
    *shown(TABLE, "task"),
    {"key": "state", "label": "state", "kind": "state"},
    {"key": "rounds", "label": "rounds", "kind": "progress", "of": "total"},
    *shown(TABLE, "eta ret"),
    {"key": "spark", "label": "", "kind": "spark", "minor": "1"},
    *shown(TABLE, "p50/2 p95/2 attempt/3 seed/3 restarts/3 loss/3", p95="p95"),
)


def wait_quantiles(wait_s: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median and the 95 % quantile (linear) of the last 100 waits, None if there is none.

    Examples
    --------
    >>> wait_quantiles([0.0, 1.0, 2.0, 3.0, 4.0])
    (2.0, 3.8)
    """
    if not len(wait_s):
        return None, None
    p50, p95 = np.quantile(wait_s[-_WAITS:], (0.5, 0.95)).tolist()
    return p50, round(p95, 12)


def tasks(
    journal: Journal | Fold,
    specs: Iterable[Plain] = (),
    *,
    live: bool = False,
    over: bool = False,
    ends: Mapping[str, tuple[str, str]] | None = None,
) -> View:
    """Return the table of tasks.

    Parameters
    ----------
    journal
        A run's journal, or its columns.
    specs
        The run's tasks as ``run.json`` holds them: for seed and environment, and for tasks that have not begun.
    live
        Whether the run can be steered: rows then say which buttons work.
    over
        Whether no row comes any more: of a live run's buttons, only those that start an ended task again are left, and
        what a task that was not seen to end does is said to be what it did when it was last heard of.
    ends
        Task -> (state, reason) of ends that no row tells, as when the cluster is gone.
    """
    fold = fold_of(journal)
    by_name = {str(spec["name"]): spec for spec in specs}
    styles = theme.task_styles(fold, by_name)
    names = [style.name for style in styles]
    stand = statuses(fold, by_name, ends=ends)
    rows = [{"task": i, **_row(fold, stand[names[i]], by_name.get(names[i], {}))} for i in _shown(fold, names, by_name)]
    actions = [dict(action) for action in ACTIONS if not over or action["name"] == "restart"] if live else []
    can = [sum(1 << i for i, action in enumerate(actions) if action["name"] in row["allowed"]) for row in rows]
    body = listing(
        rows,
        TABLE,
        _COLUMNS if acts(fold) else tuple(column for column in _COLUMNS if column["key"] != "ret"),
        styles,
        row_key="task",
        texts=_TEXTS,
        tables={"rows": {"can": np.array(can, dtype=np.uint8)}, "spark": _sparks(fold, names)},
    )
    numbers = numbered(
        NUMBERS,
        tasks=float(len(rows)),
        ended=float(sum(row["state"] in ENDS for row in rows)),
        rounds=float(sum(row["rounds"] for row in rows)),
    )
    reasons = {name: dict(why) for name, why in REASONS.items()} if live and not over else {}
    facts = {"actions": actions, "reasons": reasons, "now": fold.now_s}
    notes = [*fold.defects, *_unwritten(fold)]
    unseen = over and any(row["state"] not in ENDS for row in rows)
    said = f"{_sentence(rows)}{', when last heard of' if unseen else ''}"
    return picture("fleet.tasks", fold, said, TABLE, body, notes=notes, numbers=numbers, facts=facts)


def _unwritten(fold: Fold) -> list[str]:
    """Return which tasks cannot save their work now."""
    latest = {name: task.latest for name, task in fold.tasks.items()}
    return [f"{name}: {of.unsaved.text}" for name, of in latest.items() if of.unsaved is not None and not of.ended]


def _shown(fold: Fold, names: Sequence[str], specs: Plain) -> list[int]:
    """Return which names have a row: others that share the pool have a letter in every picture, and none here."""
    known = {*fold.tasks, *fold.named, *specs} if specs or fold.named else {*names}
    return [i for i, name in enumerate(names) if name in known]


def _row(fold: Fold, status: TaskStatus, spec: Plain) -> Content:
    task = fold.tasks.get(status.name)
    latest = task.latest if task is not None else None
    config = latest.config if latest is not None else {}
    known = fold.keep(("fleet.rounds", task.name), task.n_changes, partial(_rounds, task)) if task is not None else {}
    allowed = _ALLOWED.get(status.word, ("pause", "stop")) if task is not None else ()
    detail = latest.detail if latest is not None and status.state == "failed" else ""
    return {
        "state": status.word,
        "rounds": known.get("rounds", 0),
        "total": known.get("total") or _total({**spec, **spec.get("hyperparameters", {}), **config}),
        "eta": status.eta_s,
        "ret": status.ep_rew_mean,
        "p50": known.get("p50"),
        "p95": known.get("p95"),
        "attempt": latest.number if latest is not None else 0,
        "seed": status.seed,
        "restarts": status.n_restarts,
        "loss": status.last_loss,
        "failure": f"{status.failure}\n{detail}".strip(),
        "cause": failure.first_cause(detail) or status.failure,
        "allowed": allowed,
        "restart_label": _restart(latest.n_kept) if latest is not None and "restart" in allowed else "",
    }


def _rounds(task: TaskFold) -> Content:
    """Return what a task's finished rounds say; it changes once per round."""
    p50, p95 = wait_quantiles(task.metric("round/wait_lease_s")[-_WAITS:].tolist())
    values = finite(task.metric("rollout/ep_rew_mean" if task.acts else "train/loss"))
    few = np.linspace(0, len(values) - 1, min(_SPARK, len(values))).round().astype(np.int64)
    return {
        "rounds": int(np.nanmax(task.metric("round"), initial=task.latest.n_before)),
        "total": _estimated(task),
        "p50": p50,
        "p95": p95,
        "spark": values[few],
    }


def _estimated(task: TaskFold) -> int:
    """Return the rounds of supervised work, at the mean size of the latest ones; 0 of other work."""
    made, number = (task.metric(name)[-_LATEST:] for name in ("n_timesteps", "round"))
    if task.acts or len(made) < 2:
        return 0
    left = int(task.latest.config.get("total_timesteps", 0)) - float(made[-1])
    return math.ceil(float(number[-1]) + left * float((number[-1] - number[0]) / (made[-1] - made[0])))


def _total(config: Plain) -> int:
    """Return the rounds of the whole budget, 0 if that is not known."""
    if config.get("n_collectors") == 0:
        return 0
    width = int(config.get("n_envs", 0) or 0)
    per_round = width * int(config.get("n_steps", 0) or 0)
    return math.ceil(int(config["total_timesteps"]) / per_round) if per_round and "total_timesteps" in config else 0


def _restart(n_rounds: int) -> str:
    """Return in words what a restart goes on from."""
    return f"Restart from round {words.count(n_rounds)}" if n_rounds else "Restart from the start"


def _sparks(fold: Fold, names: Sequence[str]) -> dict[str, Array]:
    tasks = {i: fold.tasks[name] for i, name in enumerate(names) if name in fold.tasks}
    parts = [fold.keep(("fleet.rounds", t.name), t.n_changes, partial(_rounds, t))["spark"] for t in tasks.values()]
    return {
        "row": np.repeat(list(tasks), [len(values) for values in parts]).astype(np.uint32),
        "value": np.concatenate([np.zeros(0), *parts]),
    }


def _sentence(rows: Sequence[Plain]) -> str:
    if not rows:
        return "no tasks yet"
    counts = Counter(str(row["state"]) for row in rows)
    said = sorted(counts, key=lambda state: (STATES.index(state) if state in STATES else len(STATES), state))
    return f"{words.plural(len(rows), 'task')}: " + ", ".join(f"{counts[state]} {state}" for state in said)

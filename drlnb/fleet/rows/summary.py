"""Summarise a run from what its rows have come to: the object that ``drlnb train --json`` prints; pure."""

import numpy as np

from drlnb.fleet.plain import Row
from drlnb.fleet.rows.board import Board
from drlnb.views.drawing.payload import picked
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.status import TaskStatus
from drlnb.views.leasing.lines import LeaseLine, expected, inflation, sharing

__all__ = ["summarise"]

#: What is said of the slots.
_LEASES = (
    "grants", "utilisation", "held", "bound", "inflation", "expected_utilisation", "expected_inflation", "hold_planner"
)  # fmt: skip


def summarise(run: str, board: Board) -> Row:
    """Return the summary of a run as plain data: of the slots, the figures of its pictures.

    ``utilisation`` = seconds computing / seconds that slots were there, from the first grant to the last release;
    ``held`` the same with seconds held; ``inflation`` = mean over tasks of the time with waits for slots / without
    them, from each task's first slot on.  ``bound`` (the most that utilisation can be, sum of duties / slots),
    ``expected_utilisation`` and ``expected_inflation`` are what queueing theory expected of the pool's load, each
    estimate weighed by the time for which it held between the first grant and the last release.  What cannot be said
    is None.  No journal is read: a long run is summed up as fast as a short one.

    Parameters
    ----------
    run
        The run's id.
    board
        What its rows have come to; where some were missed, nothing is said of the slots.
    """
    tasks = board.statuses()
    leases = dict.fromkeys(_LEASES) if board.missed else _leases(run, set(tasks), board.fold)
    return {"run": run, "tasks": [_task(status) for status in tasks.values()], "leases": leases}


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _task(task: TaskStatus) -> Row:
    acted = {"env": task.env, "ep_rew_mean": task.ep_rew_mean, "eval_mean_reward": task.eval_mean_reward}
    return {
        "name": task.name,
        "seed": task.seed,
        "timesteps": task.n_timesteps,
        **(acted if task.loss is None else {"loss": task.loss}),
        "seconds": task.elapsed_s,
        "steps_per_s": _share(task.n_timesteps, task.elapsed_s),
        "restarts": task.n_restarts,
    }


def _leases(run: str, tasks: set[str], fold: Fold) -> Row:
    """Sum up the leases of a run; a pool may serve other runs, too, whose leases do not count."""
    line = LeaseLine.of(fold)
    names = (name.rpartition("/") for name in fold.pool.tasks)
    ours = [i for i, (owner, _, task) in zip(line.series, names, strict=True) if task in tasks and owner in {"", run}]
    leases = picked(line.leases, np.isin(line.leases["series"], ours))
    ended = picked(leases, ~leases["is_open"])
    first = float(np.min(leases["low"], initial=fold.now_s))
    last = float(np.max(ended["high"], initial=first))
    theory = expected(line, first, last) if len(leases["start"]) else {}
    planners = [a.hold_planner for task in fold.tasks.values() for a in task.attempts.values() if a.hold_planner]
    there_s = line.alive_s(first, last)
    return {
        "grants": int(leases["count"].sum()),
        "utilisation": _share(float(np.nansum(ended["computed"])), there_s),
        "held": _share(float(np.sum(ended["held"])), there_s),
        "bound": theory.get("bound"),
        "inflation": inflation([part for part in sharing(line) if part.series in ours]),
        "expected_utilisation": theory.get("expected"),
        "expected_inflation": theory.get("expected_inflation"),
        "hold_planner": planners[-1] if planners else None,
    }

"""Summarise a run from its journal: the object that ``drlnb train --json`` prints; pure."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from drlnb.fleet.plain import Row
from drlnb.fleet.rows.task_status import Board, TaskStatus
from drlnb.records.journal import Journal
from drlnb.records.spec import TaskSpec
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.pool import PoolFold
from drlnb.views.folds.task import TaskFold

__all__ = ["summarise"]


def summarise(run: str, specs: Sequence[TaskSpec], journal: Journal) -> Row:
    """Return the summary of a run as plain data.

    ``utilisation`` = seconds computing / (slots x seconds from the first grant to the last release); ``held`` the same
    with seconds held.  With `g` = seconds computing and `d` = g / (round - lease wait), both summed over a task's
    rounds, ``bound`` = min(1, sum of d / slots) and ``inflation`` = mean over tasks of round / (round - lease wait):
    estimates from within one run (`d` measured alone is the stricter one).  ``expected_utilisation`` and
    ``expected_inflation`` are what queueing theory expected of the pool's load, each estimate weighed by the time for
    which it held between the first grant and the last release.  What cannot be said is None.

    Parameters
    ----------
    run
        The run's id.
    specs
        Its tasks.
    journal
        All of its streams.
    """
    fold, board = Fold(details=False), Board(specs)
    fold.feed(entries_of(journal))
    board.feed(entries_of(journal))
    leases = _leases(run, {spec.name for spec in specs}, fold.pool)
    loads = [tuple(_total(task, f"round/{part}") for part in _PARTS) for task in fold.tasks.values()]
    #: Whole rounds, rounds without the waits for a slot, and updates, in seconds.
    measured = [(whole, whole - wait, update) for whole, wait, update in loads if whole > wait]
    planners = [a.hold_planner for task in fold.tasks.values() for a in task.attempts.values() if a.hold_planner]
    duty = sum(update / alone for _, alone, update in measured)
    return {
        "run": run,
        "tasks": [_task(status) for status in board.statuses().values()],
        "leases": {
            "grants": int(leases["grants"]),
            "utilisation": _share(leases["computed_s"], leases["slot_s"]),
            "held": _share(leases["held_s"], leases["slot_s"]),
            "bound": min(1.0, duty / leases["n_slots"]) if measured and leases["n_slots"] else None,
            "inflation": _share(sum(whole / alone for whole, alone, _ in measured), len(measured)),
            "expected_utilisation": _share(leases["expected_utilisation_s"], leases["estimated_s"]),
            "expected_inflation": _share(leases["expected_inflation_s"], leases["estimated_s"]),
            "hold_planner": planners[-1] if planners else None,
        },
    }


#: Parts of a round that are summed: all of it, waits for a slot, updates.
_PARTS = ("time_s", "wait_lease_s", "update_s")


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _total(task: TaskFold, metric: str) -> float:
    return sum(float(np.nansum(attempt.rounds.padded(metric))) for attempt in task.attempts.values())


def _task(task: TaskStatus) -> Row:
    return {
        "name": task.name,
        "env": task.env,
        "seed": task.seed,
        "timesteps": task.n_timesteps,
        "ep_rew_mean": task.ep_rew_mean,
        "eval_mean_reward": task.eval_mean_reward,
        "seconds": task.elapsed_s,
        "steps_per_s": _share(task.n_timesteps, task.elapsed_s),
        "restarts": task.n_restarts,
    }


def _leases(run: str, tasks: set[str], pool: PoolFold) -> dict[str, float]:
    """Sum the leases of a run; a pool may serve other runs, too, whose leases do not count.

    ``estimated_s``: seconds for which an estimate of theory held; ``expected_utilisation_s`` and
    ``expected_inflation_s``: its utilisation and inflation times these seconds.
    """
    total = defaultdict[str, float](float)
    names = [name.rpartition("/") for name in pool.tasks]
    ours = np.array([task in tasks and owner in {"", run} for owner, _, task in names], dtype=np.bool_)
    first = np.array([rows[0] for rows in pool.lease_rows.values()], dtype=np.int64)  # of a gang's rows, one
    column = {name: pool.leases[name][first] for name in ("stream", "task", "granted", "ended", "held", "computed")}
    for stream in range(len(pool.streams)):
        mine = (column["stream"] == stream) & ours[column["task"].astype(np.int64)]
        if mine.any():
            n_slots = sum(of == stream for _, of in pool.lives)
            span = (float(column["granted"][mine].min()), float(np.nanmax(column["ended"][mine], initial=0.0)))
            total["grants"] += int(mine.sum())
            total["held_s"] += float(np.nansum(column["held"][mine]))
            total["computed_s"] += float(np.nansum(column["computed"][mine]))
            total["n_slots"] = max(total["n_slots"], n_slots)
            total["slot_s"] += n_slots * max(0.0, span[1] - span[0])
            _add_estimates(pool, stream, span, total)
    return total


def _add_estimates(pool: PoolFold, stream: int, span: tuple[float, float], total: dict[str, float]) -> None:
    """Add what theory expected between two seconds, each estimate until the next one."""
    mine = pool.loads["stream"] == stream
    t = pool.loads["t"][mine]
    held_s = np.maximum(0.0, np.minimum(np.append(t[1:], span[1]), span[1]) - np.maximum(t, span[0]))
    total["estimated_s"] += float(held_s.sum())
    total["expected_utilisation_s"] += float(held_s @ pool.loads["utilisation"][mine])
    total["expected_inflation_s"] += float(held_s @ pool.loads["inflation"][mine])

"""Summarise a run from its journal: the object that ``drlnb train --json`` prints; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drlnb.records.journal import Journal
from drlnb.records.spec import TaskSpec
from drlnb.views.folds.entries import entries_of
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.pool import PoolFold
from drlnb.views.folds.task import Attempt, TaskFold

__all__ = ["summarise"]


@dataclass(slots=True)
class _Leases:
    """Sums over the pool's streams of one run."""

    n_grants: int = 0
    computed_s: float = 0.0
    held_s: float = 0.0
    slot_s: float = 0.0
    n_slots: int = 0
    #: Seconds for which an estimate of theory held, and its utilisation and inflation times these seconds.
    estimated_s: float = 0.0
    expected_utilisation_s: float = 0.0
    expected_inflation_s: float = 0.0


def summarise(run: str, specs: Sequence[TaskSpec], journal: Journal) -> dict[str, Any]:
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
    fold = Fold(details=False)
    fold.feed(entries_of(journal))
    by_task = [(spec, _attempts(fold.tasks.get(spec.name))) for spec in specs]
    leases = _leases(run, {spec.name for spec in specs}, fold.pool)
    loads = [tuple(_total(attempts, f"round/{part}") for part in _PARTS) for _, attempts in by_task]
    #: Whole rounds, rounds without the waits for a slot, and updates, in seconds.
    measured = [(whole, whole - wait, update) for whole, wait, update in loads if whole > wait]
    planners = [a.hold_planner for task in fold.tasks.values() for a in task.attempts.values() if a.hold_planner]
    duty = sum(update / alone for _, alone, update in measured)
    return {
        "run": run,
        "tasks": [_task(spec, fold.tasks.get(spec.name), attempts) for spec, attempts in by_task],
        "leases": {
            "grants": leases.n_grants,
            "utilisation": _share(leases.computed_s, leases.slot_s),
            "held": _share(leases.held_s, leases.slot_s),
            "bound": min(1.0, duty / leases.n_slots) if measured and leases.n_slots else None,
            "inflation": _share(sum(whole / alone for whole, alone, _ in measured), len(measured)),
            "expected_utilisation": _share(leases.expected_utilisation_s, leases.estimated_s),
            "expected_inflation": _share(leases.expected_inflation_s, leases.estimated_s),
            "hold_planner": planners[-1] if planners else None,
        },
    }


#: Parts of a round that are summed: all of it, waits for a slot, updates.
_PARTS = ("time_s", "wait_lease_s", "update_s")


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _attempts(task: TaskFold | None) -> list[Attempt]:
    return [] if task is None else task.in_order


def _total(attempts: Sequence[Attempt], metric: str) -> float:
    return sum(float(np.nansum(attempt.rounds.padded(metric))) for attempt in attempts)


def _task(spec: TaskSpec, task: TaskFold | None, attempts: Sequence[Attempt]) -> dict[str, object]:
    latest = next((attempt.rounds for attempt in reversed(attempts) if len(attempt.rounds)), None)

    def last(metric: str) -> float | None:
        value = math.nan if latest is None else float(latest.padded(metric)[-1])
        return None if math.isnan(value) else value

    timesteps = 0 if latest is None else int(latest["n_timesteps"][-1])
    seconds = last("time/time_elapsed") or 0.0
    evaluations = [event for a in attempts for _, event in a.evaluations if event.deterministic]
    return {
        "name": spec.name,
        "env": spec.env,
        "seed": spec.seed,
        "timesteps": timesteps,
        "ep_rew_mean": last("rollout/ep_rew_mean"),
        "eval_mean_reward": evaluations[-1].mean_reward if evaluations else None,
        "seconds": seconds,
        "steps_per_s": _share(timesteps, seconds),
        "restarts": 0 if task is None else task.n_restarts,
    }


def _leases(run: str, tasks: set[str], pool: PoolFold) -> _Leases:
    """Sum the leases of a run; a pool may serve other runs, too, whose leases do not count."""
    total = _Leases()
    names = [name.rpartition("/") for name in pool.tasks]
    ours = np.array([task in tasks and owner in {"", run} for owner, _, task in names], dtype=np.bool_)
    first = np.array([rows[0] for rows in pool.lease_rows.values()], dtype=np.int64)  # of a gang's rows, one
    column = {name: pool.leases[name][first] for name in ("stream", "task", "granted", "ended", "held", "computed")}
    for stream in range(len(pool.streams)):
        mine = (column["stream"] == stream) & ours[column["task"].astype(np.int64)]
        if mine.any():
            n_slots = sum(of == stream for _, of in pool.lives)
            span = (float(column["granted"][mine].min()), float(np.nanmax(column["ended"][mine], initial=0.0)))
            total.n_grants += int(mine.sum())
            total.held_s += float(np.nansum(column["held"][mine]))
            total.computed_s += float(np.nansum(column["computed"][mine]))
            total.n_slots = max(total.n_slots, n_slots)
            total.slot_s += n_slots * max(0.0, span[1] - span[0])
            _add_estimates(pool, stream, span, total)
    return total


def _add_estimates(pool: PoolFold, stream: int, span: tuple[float, float], total: _Leases) -> None:
    """Add what theory expected between two seconds, each estimate until the next one."""
    mine = pool.loads["stream"] == stream
    t = pool.loads["t"][mine]
    held_s = np.maximum(0.0, np.minimum(np.append(t[1:], span[1]), span[1]) - np.maximum(t, span[0]))
    total.estimated_s += float(held_s.sum())
    total.expected_utilisation_s += float(held_s @ pool.loads["utilisation"][mine])
    total.expected_inflation_s += float(held_s @ pool.loads["inflation"][mine])

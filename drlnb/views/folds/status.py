"""Describe how each task of a run stands, from its columns: for pictures, summaries, the command line, a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from drlnb.records.round import ENDS
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.grow import Floats, Plain, finite
from drlnb.views.folds.task import TaskFold

__all__ = ["STATES", "TaskStatus", "at", "statuses"]

#: Rounds in the median that the remaining time is guessed from, and the fewest for a guess.
_ROUNDS, _FEWEST = 10, 3

#: Phases that are called something else in plain words.
_WORDS = {"waiting": "waiting for a slot"}
#: What is said of a task, in the order in which a sentence names it.
STATES = (
    *("failed", "computing", "collecting", _WORDS["waiting"], "publishing", "evaluating", "starting"),
    *("paused", "queued", "stopped", "done"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task as it is now."""

    name: str
    env: str = ""
    seed: int | None = None
    #: ``running``, ``paused``, ``done``, ``stopped`` or ``failed``.
    state: str = "running"
    #: queued, starting, collecting, waiting for a slot, computing, publishing, evaluating; or the state.
    doing: str = "queued"
    n_timesteps: int = 0
    #: The whole budget, 0 if that is not known.
    total_timesteps: int = 0
    #: Mean raw return of the latest episodes, None before the first has ended.
    ep_rew_mean: float | None = None
    #: Mean raw return of the final deterministic episodes, None before them.
    eval_mean_reward: float | None = None
    #: Mean loss of the latest round of supervised work, None of any other and before the first.
    loss: float | None = None
    #: Seconds until the budget is used: rounds left times the median of the last 10 (of supervised work, whose rounds
    #: differ in size: steps left times the mean); None while that is not known.
    eta_s: float | None = None
    #: The slots that it was given, the lead of its learners first, by the latest plan; empty before the first.
    gang: tuple[str, ...] = ()
    #: Collectors, executors and masters of this task that were started again.
    n_restarts: int = 0
    #: Why the latest of these was lost, in a line; empty if nobody was, or it is not known.
    last_loss: str = ""
    #: Seconds of training so far.
    elapsed_s: float = 0.0
    #: Why it failed; empty unless it did.
    failure: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ENDS

    @property
    def word(self) -> str:
        """The state in short: what a running task does, else the state."""
        return self.doing if self.state == "running" else self.state


def statuses(
    fold: Fold,
    specs: Mapping[str, Plain],
    *,
    ends: Mapping[str, tuple[str, str]] | None = None,
    pooled: bool = True,
) -> dict[str, TaskStatus]:
    """Return the status of each task, by name: those of the specs first, then others that the rows name.

    Parameters
    ----------
    fold
        Columns of the run.
    specs
        Task -> its spec as plain data.
    ends
        Task -> (state, reason) of ends that no row tells: it was given up, or the cluster is gone.
    pooled
        Whether the pool's rows are whole, so that its word on who holds a slot counts.
    """
    states = fold.states() if pooled else {name: task.state for name, task in fold.tasks.items()}
    names = dict.fromkeys([*specs, *fold.task_names()])
    gangs = {fold.pool.short(task): gang for task, gang in fold.pool.gangs.items()}
    return {
        name: replace(
            _status(fold, name, states.get(name, "queued"), specs.get(name, {}), (ends or {}).get(name)),
            gang=gangs.get(name, ()),
        )
        for name in names
    }


def _status(fold: Fold, name: str, phase: str, spec: Plain, end: tuple[str, str] | None) -> TaskStatus:
    said = TaskStatus(
        name=name,
        env=str(spec.get("env", "")),
        seed=spec.get("seed"),
        total_timesteps=int(spec.get("total_timesteps", 0)),
    )
    task = fold.tasks.get(name)
    said = _trained(fold, task, at(said, phase, task.latest.reason)) if task is not None else said
    return said if said.ended or end is None else at(said, *end)


def at(status: TaskStatus, phase: str, reason: str = "") -> TaskStatus:
    """Return a status in another phase, or at an end with its reason."""
    state = phase if phase in {*ENDS, "paused"} else "running"
    return replace(
        status,
        state=state,
        doing=_WORDS.get(phase, phase),
        failure=reason if state == "failed" else "",
        eta_s=status.eta_s if state == "running" else None,
    )


def _trained(fold: Fold, task: TaskFold, said: TaskStatus) -> TaskStatus:
    """Return a task's status with what has come of its rounds."""
    latest, made = task.latest, task.made
    total = int(latest.config.get("total_timesteps", said.total_timesteps))
    round_s, n_steps, ep_rew_mean, loss = fold.keep(("status", task.name), task.n_changes, partial(_recent, task))
    n_left = max(0, total - made.n_timesteps)
    unsaved = latest.unsaved if said.state == "paused" else None
    return replace(
        said,
        doing=said.doing if unsaved is None else f"paused: no checkpoint can be written ({unsaved.failure})",
        n_timesteps=made.n_timesteps,
        total_timesteps=total,
        ep_rew_mean=ep_rew_mean,
        loss=loss,
        eval_mean_reward=next((e.mean_reward for _, e in reversed(task.evaluations()) if e.deterministic), None),
        eta_s=_eta_s(round_s, n_left, n_steps, whole=task.acts) if said.state == "running" else None,
        n_restarts=task.n_restarts,
        last_loss=task.last_loss,
        elapsed_s=made.elapsed_s,
    )


def _recent(task: TaskFold) -> tuple[Floats, float, float | None, float | None]:
    """Return the durations of the latest rounds, in seconds, their steps, the latest mean return, and the latest loss.

    They change once per round.  Steps are those of the latest round, or, where rounds differ in size, their mean.
    """
    round_s, returns = (finite(task.metric(name)) for name in ("round/time_s", "rollout/ep_rew_mean"))
    round_s, last = round_s[-_ROUNDS:], float(returns[-1]) if len(returns) else None
    if task.acts:
        return round_s, task.n_samples, last, None
    made, number = (np.concatenate([[0.0], task.metric(name)])[-_ROUNDS - 1 :] for name in ("n_timesteps", "round"))
    losses = finite(task.metric("train/loss"))
    n_steps = float(made[-1] - made[0]) / max(1.0, number[-1] - number[0])  # older rounds may have been thinned out
    return round_s, n_steps, last, float(losses[-1]) if len(losses) else None


def _eta_s(round_s: Floats, n_left: int, n_steps: float, *, whole: bool) -> float | None:
    """Guess the seconds until so many steps are made, in rounds of `n_steps`; `whole`: no round is shorter."""
    if len(round_s) < _FEWEST or n_steps <= 0:
        return None
    n_rounds = n_left / n_steps
    return math.ceil(n_rounds) * float(np.median(round_s)) if whole else float(n_rounds * np.mean(round_s))

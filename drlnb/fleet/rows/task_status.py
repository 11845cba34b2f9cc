"""Fold a run's journal into the present state of each task, in plain words; pure."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from drlnb.records import round as rounds
from drlnb.records.base import Record
from drlnb.records.columns.warmup import CollectorLost, CollectorRestartPlanned, CollectorUnanswered
from drlnb.records.spec import TaskSpec
from drlnb.views.folds.entries import Entry, newest
from drlnb.views.folds.fold import Fold

__all__ = ["Board", "TaskStatus"]

#: Rounds in the median that the remaining time is guessed from, and the fewest for a guess.
_ROUNDS, _FEWEST = 10, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task as it is now."""

    name: str
    env: str
    seed: int
    #: ``running``, ``paused``, ``done``, ``stopped`` or ``failed``.
    state: str = "running"
    #: In plain words: starting, collecting, waiting for a slot, computing, publishing, evaluating, or the state.
    doing: str = "starting"
    n_timesteps: int = 0
    total_timesteps: int
    #: Mean raw return of the last 100 episodes, None before the first has ended.
    ep_rew_mean: float | None = None
    #: Mean raw return of the final deterministic episodes, None before them.
    eval_mean_reward: float | None = None
    #: Seconds until the budget is used, None while that is not known.
    eta_s: float | None = None
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
        return self.state in rounds.ENDS


@dataclass(slots=True)
class _Line:
    """One task's status, and what its next one depends on."""

    status: TaskStatus
    attempt: int = 0
    #: Why a collector was lost that may be started again.
    loss: str = ""
    #: Why its newest checkpoint could not be written; empty if it was.
    unwritten: str = ""
    #: Steps of the latest round.
    n_samples: int = 0
    round_s: deque[float] = field(default_factory=lambda: deque(maxlen=_ROUNDS))

    def take_in(self, record: Record) -> None:
        """Change with one record of the newest attempt."""
        match record:
            case rounds.TaskOpened():
                again = 0 < self.attempt < record.attempt and not self.status.ended
                self.begin(record.attempt)
                self._now(
                    n_timesteps=record.n_timesteps,
                    elapsed_s=record.elapsed_s,
                    n_restarts=self.status.n_restarts + again,
                )
            case rounds.PhaseEntered(phase=phase) if phase != "ended":
                self._now(
                    state="paused" if phase == "paused" else "running",
                    doing=self._doing(phase),
                )
            case rounds.CheckpointWritten(failure=failure):
                self.unwritten = failure
            case rounds.MetricsRecorded():
                self._round(record)
            case rounds.EvaluationFinished(failure="", deterministic=True):
                self._now(eval_mean_reward=float(record.mean_reward))
            case CollectorLost() | CollectorUnanswered():
                self.loss = record.reason
            case CollectorRestartPlanned():
                self._now(n_restarts=self.status.n_restarts + 1, last_loss=self.loss)
            case rounds.ExecutorDied():
                self._now(n_restarts=self.status.n_restarts + 1, last_loss=record.reason)
            case rounds.EndTask():
                self.end(record.state, record.reason)

    def _now(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]  # fields of the status

    def _doing(self, phase: str) -> str:
        if phase == "paused" and self.unwritten:
            return f"paused: no checkpoint can be written ({self.unwritten})"
        return "waiting for a slot" if phase == "waiting" else phase

    def begin(self, attempt: int) -> None:
        """Begin another attempt."""
        self.attempt = attempt
        self._now(state="running", doing="starting", failure="")

    def _round(self, decision: rounds.MetricsRecorded) -> None:
        metrics = decision.metrics
        self.n_samples = decision.n_timesteps - self.status.n_timesteps
        self._now(
            n_timesteps=decision.n_timesteps,
            ep_rew_mean=metrics.get("rollout/ep_rew_mean", self.status.ep_rew_mean),
            elapsed_s=metrics.get("time/time_elapsed", self.status.elapsed_s),
        )
        if "round/time_s" in metrics:
            self.round_s.append(float(metrics["round/time_s"]))

    def end(self, state: str, reason: str) -> None:
        """End it."""
        self._now(state=state, doing=state, failure=reason if state == "failed" else "")

    def eta_s(self) -> float | None:
        """Return the seconds until the budget is used, None while that is not known."""
        if self.status.state != "running" or len(self.round_s) < _FEWEST or self.n_samples <= 0:
            return None
        left = max(0, self.status.total_timesteps - self.status.n_timesteps)
        return math.ceil(left / self.n_samples) * median(self.round_s)


class Board:
    """The present state of a run's tasks, from its journal.

    Parameters
    ----------
    specs
        The run's tasks.
    """

    def __init__(self, specs: Sequence[TaskSpec]) -> None:
        #: Columns of the run, which the summary reads; None once rows were missed.
        self.fold: Fold | None = Fold(details=False)
        self._attempts: dict[str, int] = {}
        self._lines = {
            spec.name: _Line(
                TaskStatus(name=spec.name, env=spec.env, seed=spec.seed, total_timesteps=spec.total_timesteps)
            )
            for spec in specs
        }

    def feed(self, entries: Sequence[Entry]) -> None:
        """Fold entries in; of tasks, what an old attempt says is skipped."""
        if self.fold is not None:
            self.fold.feed(entries)
        for task, record in newest(entries, self._attempts):
            if task in self._lines:
                self._lines[task].take_in(record)

    def restarted(self, task: str, attempt: int) -> None:
        """Begin a task again as `attempt`; what is still on its way of the former one counts no more."""
        if attempt > self._lines[task].attempt:
            self._lines[task].begin(attempt)
            self._attempts[task] = attempt

    def end(self, task: str, state: str, reason: str) -> None:
        """End a task that no record ended: the pool gave it up, or the cluster is gone."""
        if not self._lines[task].status.ended:
            self._lines[task].end(state, reason)

    def statuses(self) -> dict[str, TaskStatus]:
        """Return each task's status, by name, in the order of the run."""
        return {name: replace(line.status, eta_s=line.eta_s()) for name, line in self._lines.items()}

    @property
    def ended(self) -> bool:
        """Whether every task has ended."""
        return all(line.status.ended for line in self._lines.values())

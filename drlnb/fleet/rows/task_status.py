"""What does each task do now, and how far is it?  Journal rows in, plain words out; pure."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from drlnb.records.spec import TaskSpec

__all__ = ["Board", "TaskStatus", "split_stream"]

#: Rounds in the median that the remaining time is guessed from, and the fewest for a guess.
_ROUNDS, _FEWEST = 10, 3

_DOING = {"waiting": "waiting for a slot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task as it is now."""

    name: str
    env: str
    seed: int
    #: ``running``, ``paused``, ``done``, ``stopped`` or ``failed``.
    state: str
    #: In plain words: starting, collecting, waiting for a slot, computing, publishing, evaluating, or the state.
    doing: str
    n_timesteps: int
    total_timesteps: int
    #: Mean raw return of the last 100 episodes, None before the first has ended.
    ep_rew_mean: float | None
    #: Mean raw return of the final deterministic episodes, None before them.
    eval_mean_reward: float | None
    #: Seconds until the budget is used, None while that is not known.
    eta_s: float | None
    #: Collectors, executors and masters of this task that were started again.
    n_restarts: int
    #: Seconds of training so far.
    elapsed_s: float
    #: Why it failed; empty unless it did.
    failure: str

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in {"done", "stopped", "failed"}


def split_stream(stream: str) -> tuple[str, int] | None:
    """Return (task, attempt) of a task's stream name, None for another stream.

    Examples
    --------
    >>> split_stream("task-CartPole-v1-a2"), split_stream("broker-e5")
    (('CartPole-v1', 2), None)
    """
    name, mark, attempt = stream.removeprefix("task-").rpartition("-a")
    return (name, int(attempt)) if mark and attempt.isdigit() and stream.startswith("task-") else None


class _Line:
    """One task's row, in the making."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.attempt = 0
        self.state = "running"
        self.doing = "starting"
        self.n_timesteps = 0
        self.n_samples = 0
        self.ep_rew_mean: float | None = None
        self.eval_mean_reward: float | None = None
        self.round_s: deque[float] = deque(maxlen=_ROUNDS)
        self.n_restarts = 0
        self.elapsed_s = 0.0
        self.failure = ""

    def task_opened(self, row: Mapping[str, Any]) -> None:
        attempt = int(row["attempt"])
        if 0 < self.attempt < attempt and self.state not in {"stopped", "done", "failed"}:
            self.n_restarts += 1
        self.attempt = attempt
        self.state, self.doing, self.failure = "running", "starting", ""
        self.n_timesteps, self.elapsed_s = int(row["n_timesteps"]), float(row["elapsed_s"])

    def phase_entered(self, row: Mapping[str, Any]) -> None:
        phase = str(row["phase"])
        if phase != "ended":
            self.state = "paused" if phase == "paused" else "running"
            self.doing = _DOING.get(phase, phase)

    def metrics_recorded(self, row: Mapping[str, Any]) -> None:
        metrics = row["metrics"]
        self.n_samples = int(row["n_timesteps"]) - self.n_timesteps
        self.n_timesteps = int(row["n_timesteps"])
        self.ep_rew_mean = metrics.get("rollout/ep_rew_mean", self.ep_rew_mean)
        self.elapsed_s = metrics.get("time/time_elapsed", self.elapsed_s)
        if "round/time_s" in metrics:
            self.round_s.append(float(metrics["round/time_s"]))

    def evaluation_finished(self, row: Mapping[str, Any]) -> None:
        if not row["failure"] and row.get("deterministic", True):
            self.eval_mean_reward = float(row["mean_reward"])

    def started_again(self, row: Mapping[str, Any]) -> None:
        del row
        self.n_restarts += 1

    def end_task(self, row: Mapping[str, Any]) -> None:
        self.end(str(row["state"]), str(row["reason"]))

    def end(self, state: str, reason: str) -> None:
        self.state = self.doing = state
        self.failure = reason if state == "failed" else ""

    def eta_s(self) -> float | None:
        if self.state != "running" or len(self.round_s) < _FEWEST or self.n_samples <= 0:
            return None
        n_left = math.ceil(max(0, self.spec.total_timesteps - self.n_timesteps) / self.n_samples)
        return n_left * median(self.round_s)

    def status(self) -> TaskStatus:
        return TaskStatus(
            name=self.spec.name,
            env=self.spec.env,
            seed=self.spec.seed,
            state=self.state,
            doing=self.doing,
            n_timesteps=self.n_timesteps,
            total_timesteps=self.spec.total_timesteps,
            ep_rew_mean=self.ep_rew_mean,
            eval_mean_reward=self.eval_mean_reward,
            eta_s=self.eta_s(),
            n_restarts=self.n_restarts,
            elapsed_s=self.elapsed_s,
            failure=self.failure,
        )


_HANDLERS = {
    "TaskOpened": _Line.task_opened,
    "PhaseEntered": _Line.phase_entered,
    "MetricsRecorded": _Line.metrics_recorded,
    "EvaluationFinished": _Line.evaluation_finished,
    "CollectorRestartPlanned": _Line.started_again,
    "ExecutorDied": _Line.started_again,
    "EndTask": _Line.end_task,
}


class Board:
    """The present state of a run's tasks, from its journal rows.

    Parameters
    ----------
    specs
        The run's tasks.
    """

    def __init__(self, specs: Sequence[TaskSpec]) -> None:
        self._lines = {spec.name: _Line(spec) for spec in specs}

    def feed(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in rows (``{"s": stream, "r": record, ...}``); what is no task's, or of an old attempt, is skipped."""
        for row in rows:
            named = split_stream(str(row.get("s", "")))
            handler = _HANDLERS.get(str(row.get("r")))
            line = self._lines.get(named[0]) if named else None
            if named is None or line is None or handler is None:
                continue
            if named[1] >= line.attempt:
                handler(line, row)

    def restarted(self, task: str, attempt: int) -> None:
        """Note that a task begins again as `attempt`; what is still on its way of the former one counts no more."""
        line = self._lines[task]
        if attempt > line.attempt:
            line.attempt, line.state, line.doing, line.failure = attempt, "running", "starting", ""

    def end(self, task: str, state: str, reason: str) -> None:
        """Note an end that no row told: the pool gave a task up, or the cluster is gone."""
        line = self._lines[task]
        if not line.status().ended:
            line.end(state, reason)

    def statuses(self) -> dict[str, TaskStatus]:
        """Return each task's status, by name, in the order of the run."""
        return {name: line.status() for name, line in self._lines.items()}

    @property
    def ended(self) -> bool:
        """Whether every task has ended."""
        return all(line.status().ended for line in self._lines.values())

"""What do the streams of one task say?  Phases, rounds, scalars, computed seconds, as columns per attempt."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.views.folds.clocks import Clocks
from drlnb.views.folds.fences import Fences
from drlnb.views.folds.grow import Grow
from drlnb.views.folds.pool import fence_of

__all__ = ["Attempt", "TaskFold"]

Row = Mapping[str, Any]
Changed = tuple[str, ...]

#: Columns of a round that every view may ask for; other scalars are added as they come.
_ROUND = ("t", "round", "n_timesteps")


@dataclass(slots=True)
class Attempt:
    """One run of a task's master."""

    number: int
    stream: str
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Rounds that were finished when it began.
    n_before: int = 0
    phase: str = "queued"
    #: ``done``, ``stopped`` or ``failed``; empty while it goes on.
    ended: str = ""
    reason: str = ""
    detail: str = ""
    n_restarts: int = 0
    #: Round of the newest whole checkpoint, 0 if there is none.
    n_kept: int = 0
    #: Version -> round, of checkpoints that are being written.
    writing: dict[int, int] = field(default_factory=dict)
    rounds: Grow = field(default_factory=lambda: Grow(*_ROUND))
    #: One row per piece of work on a slot: when it ended, how long it took, row of its lease in the pool (or NaN).
    work: Grow = field(default_factory=lambda: Grow("stop", "elapsed", "lease"))
    #: Bytes that had to be brought to slots, NaN where no record says so.
    moved_bytes: float = math.nan
    #: (n_timesteps, mean reward, standard deviation, episodes) of deterministic evaluations.
    evaluations: list[tuple[int, float, float, int]] = field(default_factory=list)
    #: (since, until) of each pause, NaN while it goes on.
    pauses: list[tuple[float, float]] = field(default_factory=list)
    #: (t, key, value).
    settings: list[tuple[float, str, Any]] = field(default_factory=list)


class TaskFold:
    """All attempts of one task.

    Parameters
    ----------
    name
        Name of the task.
    clocks
        Where relations between streams are noted.
    fences
        Where work finds its lease.
    """

    def __init__(self, name: str, clocks: Clocks, fences: Fences) -> None:
        self.name = name
        self._clocks = clocks
        self._fences = fences
        #: Grows with every row that changes a scalar of a round.
        self.n_changes = 0
        self.attempts: dict[int, Attempt] = {}

    def stream(self, name: str, attempt: int) -> dict[str, Callable[[Row, float], Changed]]:
        """Return what takes in the rows of one attempt's stream, by the kind of row."""
        one = self.attempts.get(attempt)
        if one is None:
            one = self.attempts[attempt] = Attempt(number=attempt, stream=name)
        return {kind: partial(handler, self, one) for kind, handler in _HANDLERS.items()}

    # -- what views ask ----------------------------------------------------------------------------------------------
    @property
    def latest(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def state(self) -> str:
        """In one word: what the newest attempt does, or how it ended."""
        latest = self.latest
        return "queued" if latest is None else latest.ended or latest.phase

    @property
    def n_restarts(self) -> int:
        """Collectors, executors and masters that were started again."""
        numbers = sorted(self.attempts)
        died = sum(not self.attempts[n].ended for n in numbers[:-1])
        return died + sum(one.n_restarts for one in self.attempts.values())

    @property
    def n_kept(self) -> int:
        """Round of the newest whole checkpoint: what a restart goes on from; 0 if there is none."""
        latest = self.latest
        return latest.n_kept if latest is not None else 0

    @property
    def moved_bytes(self) -> float:
        """Bytes that had to be brought to slots, over all attempts; NaN where no record says so."""
        told = [one.moved_bytes for one in self.attempts.values() if not math.isnan(one.moved_bytes)]
        return sum(told) if told else math.nan

    def metric(self, name: str) -> NDArray[np.float64]:
        """Return a scalar of every finished round (or ``t``, ``round``, ``n_timesteps``), NaN where it is missing.

        Rounds of an attempt that the next one did not go on from are left out: they were lost.
        """
        parts = []
        numbers = sorted(self.attempts)
        for number, after in zip(numbers, [*numbers[1:], None], strict=True):
            one = self.attempts[number]
            values = one.rounds.padded(name)
            if after is not None:
                values = values[one.rounds["round"] <= self.attempts[after].n_before]
            parts.append(values)
        return np.concatenate(parts) if parts else np.zeros(0)

    def metric_names(self) -> tuple[str, ...]:
        """Return the names of all scalars, sorted."""
        return tuple(sorted({name for one in self.attempts.values() for name in one.rounds.others}))

    def evaluations(self) -> list[tuple[int, float, float, int]]:
        """Return (timesteps, mean, deviation, episodes) of the evaluations, in order of attempts."""
        return [e for number in sorted(self.attempts) for e in self.attempts[number].evaluations]

    # -- rows --------------------------------------------------------------------------------------------------------
    def _opened(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        one.config = row.get("config") or {}
        return ("tasks",)

    def _task_opened(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        self.n_changes += 1
        one.n_before = one.n_kept = int(row["n_rounds"])
        one.phase = "starting"
        return ("tasks",)

    def _writes(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        one.writing[int(row["version"])] = int(row["n_rounds"])
        return ()

    def _written(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        n_rounds = one.writing.pop(int(row["version"]), None)
        if n_rounds is not None and not row["failure"]:
            one.n_kept = n_rounds
        return ("tasks",)

    def _phase(self, one: Attempt, row: Row, t: float) -> Changed:
        if one.pauses and math.isnan(one.pauses[-1][1]):
            one.pauses[-1] = (one.pauses[-1][0], t)
        if row["phase"] == "paused":
            one.pauses.append((t, math.nan))
        if row["phase"] != "ended":
            one.phase = str(row["phase"])
        return ("tasks",)

    def _end(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        one.ended, one.reason = str(row["state"]), str(row["reason"])
        return ("tasks",)

    def _failed(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        one.reason, one.detail = str(row["reason"]), str(row["detail"])
        return ("tasks",)

    def _lost(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        one.detail = str(row.get("detail") or one.detail)
        return ("tasks",)

    def _restart(self, one: Attempt, row: Row, t: float) -> Changed:
        del row, t
        one.n_restarts += 1
        return ("tasks",)

    def _metrics(self, one: Attempt, row: Row, t: float) -> Changed:
        self.n_changes += 1
        one.rounds.append(t, float(row["round"]), float(row["n_timesteps"]))
        one.rounds.fill(row["metrics"])
        return ("rounds", "tasks")

    def _evaluated(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        if not row["failure"]:
            steps = one.rounds.get(len(one.rounds) - 1, "n_timesteps") if len(one.rounds) else 0
            mean = float(row["mean_reward"])
            one.evaluations.append((int(steps), mean, float(row["std_reward"]), int(row["n_episodes"])))
        return ("rounds", "tasks")

    def _worked(self, one: Attempt, row: Row, t: float) -> Changed:
        elapsed = float(row["elapsed_s"])
        if math.isfinite(elapsed) and elapsed > 0:
            self._fences.worked(fence_of(row), one.work, one.work.append(t, elapsed, math.nan))
        return ("leases",)

    def _gradient(self, one: Attempt, row: Row, t: float) -> Changed:
        return (*self._moved(one, row, t), *self._worked(one, row, t))

    def _moved(self, one: Attempt, row: Row, t: float) -> Changed:
        del t
        if "moved_bytes" in row:
            before = 0.0 if math.isnan(one.moved_bytes) else one.moved_bytes
            one.moved_bytes = before + float(row["moved_bytes"])
        return ("leases",)

    def _received(self, one: Attempt, row: Row, t: float) -> Changed:
        self._clocks.seen("grant", fence_of(row), one.stream, t)
        return ()

    def _returns(self, one: Attempt, row: Row, t: float) -> Changed:
        self._clocks.sent("return", fence_of(row), one.stream, t)
        return ()

    def _asks(self, one: Attempt, row: Row, t: float) -> Changed:
        self._clocks.sent("ask", str(row["request_id"]), one.stream, t)
        return ()

    def _setting(self, one: Attempt, row: Row, t: float) -> Changed:
        one.settings.append((t, str(row["key"]), row["value"]))
        return ("settings",)


_HANDLERS: dict[str, Callable[[TaskFold, Attempt, Row, float], Changed]] = {
    "StreamOpened": TaskFold._opened,
    "TaskOpened": TaskFold._task_opened,
    "PhaseEntered": TaskFold._phase,
    "EndTask": TaskFold._end,
    "TaskFailed": TaskFold._failed,
    "CollectorLost": TaskFold._lost,
    "CollectorRestartPlanned": TaskFold._restart,
    "ExecutorDied": TaskFold._restart,
    "MetricsRecorded": TaskFold._metrics,
    "EvaluationFinished": TaskFold._evaluated,
    "GradientComputed": TaskFold._gradient,
    "GradientsRestored": TaskFold._moved,
    "ParametersReady": TaskFold._worked,
    "LeaseReceived": TaskFold._received,
    "ReturnLease": TaskFold._returns,
    "RequestSlot": TaskFold._asks,
    "SettingChanged": TaskFold._setting,
    "WriteCheckpoint": TaskFold._writes,
    "CheckpointWritten": TaskFold._written,
}

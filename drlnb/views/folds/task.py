"""Fold the streams of one task into columns per attempt: phases, rounds, scalars, computed seconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drlnb.records import round as of_round
from drlnb.records.columns import leasing, warmup
from drlnb.records.common import SettingChanged
from drlnb.records.journal import StreamOpened
from drlnb.views.folds.clocks import Clocks
from drlnb.views.folds.entries import Handlers, bound
from drlnb.views.folds.fences import Fences
from drlnb.views.folds.grow import Grow

__all__ = ["Attempt", "TaskFold"]

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
    #: Evaluations that did not fail, with the environment steps before them.
    evaluations: list[tuple[int, of_round.EvaluationFinished]] = field(default_factory=list)
    #: (since, until) of each pause, NaN while it goes on.
    pauses: list[tuple[float, float]] = field(default_factory=list)
    #: Changes with their time.
    settings: list[tuple[float, SettingChanged]] = field(default_factory=list)
    #: Name of the planner that decided last how long a slot is kept; empty before.
    hold_planner: str = ""


class TaskFold:
    """All attempts of one task.

    Parameters
    ----------
    name
        Name of the task.
    clocks
        Gets the relations between streams.
    fences
        Matches work with its lease.
    """

    def __init__(self, name: str, clocks: Clocks, fences: Fences) -> None:
        self.name = name
        self.clocks = clocks
        self.fences = fences
        #: Grows with every record that changes a scalar of a round.
        self.n_changes = 0
        self.attempts: dict[int, Attempt] = {}

    def stream(self, name: str, number: int) -> Handlers:
        """Return the handlers of one attempt's stream."""
        attempt = self.attempts.setdefault(number, Attempt(number=number, stream=name))
        return bound(_HANDLERS, self, attempt)

    # -- what views ask ----------------------------------------------------------------------------------------------
    @property
    def latest(self) -> Attempt | None:
        """The newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def in_order(self) -> list[Attempt]:
        """All attempts, oldest first."""
        return [self.attempts[number] for number in sorted(self.attempts)]

    @property
    def state(self) -> str:
        """In one word: what the newest attempt does, or how it ended."""
        latest = self.latest
        return "queued" if latest is None else latest.ended or latest.phase

    @property
    def n_restarts(self) -> int:
        """Collectors, executors and masters that were started again."""
        died = sum(not attempt.ended for attempt in self.in_order[:-1])
        return died + sum(attempt.n_restarts for attempt in self.attempts.values())

    @property
    def n_kept(self) -> int:
        """Round of the newest whole checkpoint: what a restart goes on from; 0 if there is none."""
        latest = self.latest
        return latest.n_kept if latest is not None else 0

    @property
    def moved_bytes(self) -> float:
        """Bytes that had to be brought to slots, over all attempts; NaN where no record says so."""
        known = [a.moved_bytes for a in self.attempts.values() if not math.isnan(a.moved_bytes)]
        return sum(known) if known else math.nan

    def metric(self, name: str) -> NDArray[np.float64]:
        """Return a scalar of every finished round (or ``t``, ``round``, ``n_timesteps``), NaN where it is missing.

        Rounds of an attempt that the next one did not go on from are left out: they were lost.
        """
        parts = []
        attempts = self.in_order
        for attempt, after in zip(attempts, [*attempts[1:], None], strict=True):
            values = attempt.rounds.padded(name)
            parts.append(values if after is None else values[attempt.rounds["round"] <= after.n_before])
        return np.concatenate(parts) if parts else np.zeros(0)

    def metric_names(self) -> tuple[str, ...]:
        """Return the names of all scalars, sorted."""
        return tuple(sorted({name for attempt in self.attempts.values() for name in attempt.rounds.others}))

    def evaluations(self) -> list[tuple[int, of_round.EvaluationFinished]]:
        """Return the evaluations with the environment steps before them, in order of attempts."""
        return [evaluation for attempt in self.in_order for evaluation in attempt.evaluations]


def _opened(fold: TaskFold, attempt: Attempt, header: StreamOpened, t: float) -> None:
    attempt.config = header.config or {}


def _task_opened(fold: TaskFold, attempt: Attempt, event: of_round.TaskOpened, t: float) -> None:
    fold.n_changes += 1
    attempt.n_before = attempt.n_kept = event.n_rounds
    attempt.phase = "starting"


def _writes(fold: TaskFold, attempt: Attempt, command: of_round.WriteCheckpoint, t: float) -> None:
    attempt.writing[command.version] = command.n_rounds


def _written(fold: TaskFold, attempt: Attempt, event: of_round.CheckpointWritten, t: float) -> None:
    n_rounds = attempt.writing.pop(event.version, None)
    if n_rounds is not None and not event.failure:
        attempt.n_kept = n_rounds


def _phase(fold: TaskFold, attempt: Attempt, decision: of_round.PhaseEntered, t: float) -> None:
    if attempt.pauses and math.isnan(attempt.pauses[-1][1]):
        attempt.pauses[-1] = (attempt.pauses[-1][0], t)
    if decision.phase == "paused":
        attempt.pauses.append((t, math.nan))
    if decision.phase != "ended":
        attempt.phase = decision.phase


def _end(fold: TaskFold, attempt: Attempt, command: of_round.EndTask, t: float) -> None:
    attempt.ended, attempt.reason = command.state, command.reason


def _failed(fold: TaskFold, attempt: Attempt, event: of_round.TaskFailed, t: float) -> None:
    attempt.reason, attempt.detail = event.reason, event.detail


def _lost(fold: TaskFold, attempt: Attempt, event: warmup.CollectorLost | warmup.CollectorUnanswered, t: float) -> None:
    attempt.detail = event.detail or attempt.detail


def _restart(
    fold: TaskFold, attempt: Attempt, record: warmup.CollectorRestartPlanned | of_round.ExecutorDied, t: float
) -> None:
    attempt.n_restarts += 1


def _metrics(fold: TaskFold, attempt: Attempt, decision: of_round.MetricsRecorded, t: float) -> None:
    fold.n_changes += 1
    attempt.rounds.append(t, decision.round, decision.n_timesteps)
    attempt.rounds.fill(decision.metrics)


def _evaluated(fold: TaskFold, attempt: Attempt, event: of_round.EvaluationFinished, t: float) -> None:
    if not event.failure:
        n = len(attempt.rounds)
        attempt.evaluations.append((int(attempt.rounds.get(n - 1, "n_timesteps")) if n else 0, event))


def _worked(
    fold: TaskFold, attempt: Attempt, event: of_round.GradientComputed | of_round.ParametersReady, t: float
) -> None:
    if math.isfinite(event.elapsed_s) and event.elapsed_s > 0:
        fold.fences.worked(event.fence, attempt.work, attempt.work.append(t, event.elapsed_s, math.nan))


def _gradient(fold: TaskFold, attempt: Attempt, event: of_round.GradientComputed, t: float) -> None:
    _moved(fold, attempt, event, t)
    _worked(fold, attempt, event, t)


def _moved(
    fold: TaskFold, attempt: Attempt, event: of_round.GradientComputed | leasing.GradientsRestored, t: float
) -> None:
    before = 0.0 if math.isnan(attempt.moved_bytes) else attempt.moved_bytes
    attempt.moved_bytes = before + event.moved_bytes


def _received(fold: TaskFold, attempt: Attempt, event: of_round.LeaseReceived, t: float) -> None:
    fold.clocks.seen("grant", event.fence, attempt.stream, t)


def _returns(fold: TaskFold, attempt: Attempt, command: of_round.ReturnLease, t: float) -> None:
    fold.clocks.sent("return", command.fence, attempt.stream, t)


def _asks(fold: TaskFold, attempt: Attempt, command: of_round.RequestSlot, t: float) -> None:
    fold.clocks.sent("ask", command.request_id, attempt.stream, t)


def _held(fold: TaskFold, attempt: Attempt, decision: leasing.HoldPlanned, t: float) -> None:
    attempt.hold_planner = decision.planner


def _setting(fold: TaskFold, attempt: Attempt, event: SettingChanged, t: float) -> None:
    attempt.settings.append((t, event))


_HANDLERS: Handlers = {
    StreamOpened: _opened,
    of_round.TaskOpened: _task_opened,
    of_round.PhaseEntered: _phase,
    of_round.EndTask: _end,
    of_round.TaskFailed: _failed,
    warmup.CollectorLost: _lost,
    warmup.CollectorUnanswered: _lost,
    warmup.CollectorRestartPlanned: _restart,
    of_round.ExecutorDied: _restart,
    of_round.MetricsRecorded: _metrics,
    of_round.EvaluationFinished: _evaluated,
    of_round.GradientComputed: _gradient,
    leasing.GradientsRestored: _moved,
    of_round.ParametersReady: _worked,
    of_round.LeaseReceived: _received,
    of_round.ReturnLease: _returns,
    of_round.RequestSlot: _asks,
    leasing.HoldPlanned: _held,
    SettingChanged: _setting,
    of_round.WriteCheckpoint: _writes,
    of_round.CheckpointWritten: _written,
}

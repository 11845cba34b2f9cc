"""Fold the streams of one task into columns per attempt: phases, rounds, scalars, computed seconds."""

import math
from dataclasses import dataclass, field

import numpy as np

from drlnb.records import round as of_round
from drlnb.records.columns import batching, leasing, warmup
from drlnb.records.common import SettingChanged
from drlnb.records.journal import StreamOpened
from drlnb.views.folds.entries import Rules, folds, handlers_of
from drlnb.views.folds.grow import Floats, Grow, Plain, Spans, begin_span, end_span

__all__ = ["Attempt", "TaskFold"]

#: Columns of a round that every view may ask for; other scalars are added as they come.
_ROUND = ("t", "round", "n_timesteps")
#: Rounds of an attempt that are kept; of a longer one every 2nd, 4th, ... of the older rounds.
_MOST_ROUNDS = 32_768
#: Newest pieces of work that are kept, at least; of older leases the pool knows how long they computed.
_WORK = 16_384


@folds()
@dataclass(slots=True)
class Attempt:
    """One run of a task's master."""

    number: int
    stream: str
    task: "TaskFold"
    config: Plain = field(default_factory=dict)
    #: Rounds that were finished when it began.
    n_before: int = 0
    #: Environment steps so far, those of the latest round, and seconds of training.
    n_timesteps: int = 0
    n_samples: int = 0
    elapsed_s: float = 0.0
    phase: str = "queued"
    #: ``done``, ``stopped`` or ``failed``; empty while it goes on.
    ended: str = ""
    reason: str = ""
    detail: str = ""
    n_restarts: int = 0
    #: Why a collector was lost latest, and why the latest one that was started again, or an executor, was.
    lost: str = ""
    last_loss: str = ""
    #: Round of the newest whole checkpoint, 0 if there is none.
    n_kept: int = 0
    #: What became of the newest one, if it could not be written.
    unsaved: of_round.CheckpointWritten | None = None
    #: Version -> round, of checkpoints that are being written.
    writing: dict[int, int] = field(default_factory=dict)
    rounds: Grow = field(default_factory=lambda: Grow(*_ROUND))
    #: One row per piece of work on a slot, the newest ones: when it ended, how long it took, fence of its lease, slot.
    work: Grow = field(default_factory=lambda: Grow("stop", "elapsed", "epoch", "token", "slot"))
    #: Slot -> its number in that column; and the first slot of the newest lease, which makes the parameters.
    slots: dict[str, int] = field(default_factory=dict)
    lead: str = ""
    #: Evaluations that did not fail, with the environment steps before them.
    evaluations: list[tuple[int, of_round.EvaluationFinished]] = field(default_factory=list)
    #: (since, until) of each pause, NaN while it goes on.
    pauses: Spans = field(default_factory=list)
    #: Changes with their time.
    settings: list[tuple[float, SettingChanged]] = field(default_factory=list)
    #: Name of the planner that decided last how long a slot is kept; empty before.
    hold_planner: str = ""

    def _opened(self, header: StreamOpened, t: float) -> None:
        self.config = header.config or {}

    def _task_opened(self, event: of_round.TaskOpened, t: float) -> None:
        self.task.n_changes += 1
        self.n_before = self.n_kept = event.n_rounds
        self.n_timesteps, self.elapsed_s = event.n_timesteps, event.elapsed_s
        self.phase = "starting"

    def _writes(self, command: of_round.WriteCheckpoint, t: float) -> None:
        self.writing[command.version] = command.n_rounds

    def _written(self, event: of_round.CheckpointWritten, t: float) -> None:
        self.unsaved = event if event.failure else None
        n_rounds = self.writing.pop(event.version, None)
        if n_rounds is not None and not event.failure:
            self.n_kept = n_rounds

    def _phase_entered(self, decision: of_round.PhaseEntered, t: float) -> None:
        end_span(self.pauses, t)
        if decision.phase == "paused":
            begin_span(self.pauses, t)
        if decision.phase != "ended":
            self.phase = decision.phase

    def _end(self, command: of_round.EndTask, t: float) -> None:
        self.ended, self.reason = command.state, command.reason

    def _failed(self, event: of_round.TaskFailed, t: float) -> None:
        self.reason, self.detail = event.reason, event.detail

    def _lost(self, event: warmup.CollectorLost | warmup.CollectorUnanswered, t: float) -> None:
        self.detail = event.detail or self.detail
        self.lost = event.reason

    def _restarted(self, record: warmup.CollectorRestartPlanned | of_round.ExecutorDied, t: float) -> None:
        self.n_restarts += 1
        self.last_loss = record.reason if isinstance(record, of_round.ExecutorDied) else self.lost

    def _metrics(self, decision: of_round.MetricsRecorded, t: float) -> None:
        self.task.n_changes += 1
        self.n_samples, self.n_timesteps = decision.n_timesteps - self.n_timesteps, decision.n_timesteps
        self.elapsed_s = decision.metrics.get("time/time_elapsed", self.elapsed_s)
        self.rounds.append(t, decision.round, decision.n_timesteps)
        self.rounds.fill(decision.metrics)
        self.rounds.thin("round", _MOST_ROUNDS)

    def _evaluated(self, event: of_round.EvaluationFinished, t: float) -> None:
        if not event.failure:
            n = len(self.rounds)
            self.evaluations.append((int(self.rounds.get(n - 1, "n_timesteps")) if n else 0, event))

    def _worked(
        self,
        event: of_round.GradientComputed
        | of_round.ParametersReady
        | batching.ShareComputed
        | batching.GradientsApplied
        | batching.RoundJoined,
        t: float,
    ) -> None:
        seconds = event.compute_s if isinstance(event, batching.ShareComputed) else event.elapsed_s
        if math.isfinite(seconds) and seconds > 0:
            name = self.lead if isinstance(event, of_round.ParametersReady | batching.GradientsApplied) else event.slot
            slot = self.slots.setdefault(name, len(self.slots))
            self.work.append(t, seconds, event.fence.epoch, event.fence.token, slot)
            if len(self.work) >= 2 * _WORK:
                self.work.take(slice(self._cut(), None))

    def _cut(self) -> int:
        """Return the first piece of work to keep: of a lease whole, or not at all, since the pool knows their sum."""
        fence = self.work["epoch"] + 1j * self.work["token"]
        first = len(fence) - _WORK
        begins = np.flatnonzero(fence[first:] != fence[first - 1 : -1])
        return first + int(begins[0]) if len(begins) else first

    def _received(self, event: of_round.LeaseReceived, t: float) -> None:
        self.lead = event.slots[0]

    def _held(self, decision: leasing.HoldPlanned, t: float) -> None:
        self.hold_planner = decision.planner

    def _setting(self, event: SettingChanged, t: float) -> None:
        self.settings.append((t, event))


class TaskFold:
    """All attempts of one task.

    Parameters
    ----------
    name
        Name of the task.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: Grows with every record that changes a scalar of a round.
        self.n_changes = 0
        self.attempts: dict[int, Attempt] = {}

    def stream(self, name: str, number: int) -> Rules:
        """Return the handlers of one attempt's stream."""
        return handlers_of(self.attempts.setdefault(number, Attempt(number, name, self)))

    # -- what views ask ----------------------------------------------------------------------------------------------
    @property
    def latest(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[max(self.attempts)]

    @property
    def in_order(self) -> list[Attempt]:
        """All attempts, oldest first."""
        return [self.attempts[number] for number in sorted(self.attempts)]

    @property
    def made(self) -> Attempt:
        """The newest attempt that has begun, whose steps count."""
        return next((attempt for attempt in self.in_order[::-1] if attempt.phase != "queued"), self.latest)

    @property
    def acts(self) -> bool:
        """Whether it has environments, as far as is known."""
        return self.latest.config.get("n_collectors") != 0

    @property
    def n_samples(self) -> int:
        """Steps of the latest round, 0 before the first."""
        return next((attempt.n_samples for attempt in self.in_order[::-1] if attempt.n_samples), 0)

    @property
    def state(self) -> str:
        """In one word: what the newest attempt does, or how it ended."""
        return self.latest.ended or self.latest.phase

    @property
    def n_restarts(self) -> int:
        """Collectors, executors and masters that were started again."""
        died = sum(not attempt.ended for attempt in self.in_order[:-1])
        return died + sum(attempt.n_restarts for attempt in self.attempts.values())

    @property
    def last_loss(self) -> str:
        """Why the latest collector or executor that was started again was lost; empty if none was."""
        return next((attempt.last_loss for attempt in self.in_order[::-1] if attempt.last_loss), "")

    def metric(self, name: str) -> Floats:
        """Return a scalar of every finished round (or ``t``, ``round``, ``n_timesteps``), NaN where it is missing.

        Rounds of an attempt that the next one did not go on from are left out: they were lost.  Of an attempt with more
        than 32,768 rounds only every 2nd, 4th, ... of the older ones is kept.
        """
        lasts = [*(attempt.n_before for attempt in self.in_order[1:]), np.inf]
        parts = zip(self.in_order, lasts, strict=True)
        return np.concatenate([of.rounds.padded(name)[of.rounds["round"] <= last] for of, last in parts])

    def metric_names(self) -> tuple[str, ...]:
        """Return the names of all scalars, sorted."""
        return tuple(sorted({name for attempt in self.attempts.values() for name in attempt.rounds.others}))

    def evaluations(self) -> list[tuple[int, of_round.EvaluationFinished]]:
        """Return the evaluations with the environment steps before them, in order of attempts."""
        return [evaluation for attempt in self.in_order for evaluation in attempt.evaluations]

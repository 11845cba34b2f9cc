"""What happens next in one task's round?  The machine at the task's master; it routes between the six systems.

One round: wake collectors -> experience arrives -> lease -> batches to the executor -> new parameters -> commit under
the lease -> return the lease and publish (neither waits for the other) -> hosts hold the version -> wake.

Round 0 makes version 1 (initial parameters) under a lease of its own; round k acts with version k and makes k + 1.
A boundary is the moment after a commit: pauses, stops and checkpoints act there.  Settings are read once per round, as
its first collectors are woken: what is changed while a task rests counts as soon as it goes on.
"""

from collections.abc import Callable, Mapping
from typing import Any

from drlnb.planning.round.boundary import Boundary
from drlnb.planning.round.collect import Collecting
from drlnb.planning.round.compute import Computing
from drlnb.planning.round.off_policy import Replaying
from drlnb.planning.round.state import ROUND_DEFAULTS
from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import distribution, leasing, placement, warmup
from drlnb.records.common import ClockRelated, DeadlinePassed, SettingChanged
from drlnb.records.errors import InvalidTransition

__all__ = ["ROUND_DEFAULTS", "RoundMachine"]

#: Events that warm-up hears once they have been judged here; experience and starts it hears where they are accepted.
_WARMUP = frozenset({
    words.TaskOpened,
    words.LeaseReceived,
    words.LeaseLost,
    words.ExecutorDied,
    words.GradientComputed,
    words.ParametersReady,
    words.ResumeAsked,
    words.TaskFailed,
    distribution.HostCompleted,
    SettingChanged,
})
#: Events that it hears before: it takes starts back that are in the way of what is started anew then.
_WARMUP_FIRST = frozenset({words.PlacementReceived, warmup.CollectorLost})


class RoundMachine(Collecting, Computing, Replaying, Boundary):
    """One task's rounds as a pure machine: event in, records out.

    Parameters
    ----------
    config
        Plain data: ``task``, ``n_envs``, ``n_collectors``, ``n_steps`` (per environment and round),
        ``total_timesteps``, and any key of :data:`ROUND_DEFAULTS`.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            words.TaskOpened: self._task_opened,
            words.PlacementReceived: self._placement_received,
            warmup.CollectorReady: self._collector_ready,
            warmup.CollectorLost: self._collector_lost,
            words.ExperienceArrived: self._experience_arrived,
            words.LeaseReceived: self._lease_received,
            words.LeaseLost: self._lease_lost,
            words.LeaseClosed: self._nothing,
            words.ExecutorDied: self._executor_died,
            leasing.YieldAsked: self._yield_asked,
            words.GradientComputed: self._gradient_computed,
            leasing.GradientsRestored: self._gradients_restored,
            words.ParametersReady: self._parameters_ready,
            words.ParametersCommitted: self._parameters_committed,
            distribution.HostCompleted: self._host_completed,
            distribution.HostUnreachable: self._host_unreachable,
            placement.NodeLost: self._node_lost,
            replay.ReplayReady: self._replay_ready,
            replay.ReplayLost: self._replay_lost,
            replay.MinibatchesDrawn: self._minibatches_drawn,
            replay.ParametersCarried: self._parameters_carried,
            words.CheckpointGathered: self._checkpoint_gathered,
            words.CheckpointWritten: self._checkpoint_written,
            words.EvaluationFinished: self._evaluation_finished,
            words.PauseAsked: self._pause_asked,
            words.ResumeAsked: self._resume_asked,
            words.StopAsked: self._stop_asked,
            words.CheckpointAsked: self._checkpoint_asked,
            words.TaskFailed: self._task_failed,
            SettingChanged: self._setting_changed,
            DeadlinePassed: self._nothing,
            ClockRelated: self._nothing,
        }

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Take one event; return what was decided and what must be done.

        Raises
        ------
        InvalidTransition
            If time runs backwards, the event is not ours, or the phase forbids it: a defect of the caller.
        """
        handler = self._handlers.get(type(event))
        opens = isinstance(event, words.TaskOpened)
        # "not >=" also catches nan
        if handler is None or not event.t >= self.last_t or opens != (self.phase == "new"):
            raise InvalidTransition(f"round of {self.task}", self.phase, event, self._story)
        self.last_t = event.t
        self._story.append(event)
        self._out = []
        if self.phase != "ended":
            if type(event) in _WARMUP_FIRST:
                self._warm(event)
            heard = type(event) in _WARMUP and self._is_ours(event)
            handler(event)
            if heard and self.phase != "ended":
                self._warm(event)
            self._rest_warmup(event.t)
        elif isinstance(event, words.LeaseReceived):
            self._refuse_lease(event)
        self._story.extend(self._out)
        return tuple(self._out)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        hold, crew, version = self.hold, self.crew, self.progress.version
        _assert(hold.fence is None or hold.request_id is None, "a lease is held and asked for at once")
        _assert(hold.staged <= hold.sent <= set(hold.batches), "a batch was staged before it was sent")
        _assert(hold.done.keys() <= set(hold.batches), "a gradient is kept of a batch of this round")
        _assert(not hold.finishing or hold.held, "a round is finished under a lease")
        _assert((hold.fence is None) == (hold.slot is None), "fence and slot come and go together")
        _assert(all(held <= version for held in crew.hosts.values()), "a host is ahead of the task")
        acting = [m.node or "" for m in crew.members.values() if m.status == "acting"]
        _assert(all(crew.hosts.get(node) == version for node in acting), "a collector acts below the round's version")

    def _task_opened(self, event: words.TaskOpened) -> None:
        self.attempt, self.n_bytes = event.attempt, event.n_bytes
        self.checkpoint_t, self.eval_best = event.t, event.eval_best
        self.settings = dict(event.settings)
        self.progress.opened(
            event.t,
            n_rounds=event.n_rounds,
            n_timesteps=event.n_timesteps,
            elapsed_s=event.elapsed_s,
            episodes=event.episodes,
        )
        self._plan_evaluation()
        self._enter("starting")
        if self.config["replay"]:
            self._out.append(replay.StartReplay())
        if event.version == 0:
            self._ask_for_slot("initial parameters")
        elif event.n_timesteps >= self.config["total_timesteps"]:
            self.closing = ["evaluation"]

    def _rest_warmup(self, t: float) -> None:
        """Start nobody for the next round once a person has asked for a pause or a stop.

        Not while somebody is to be started for the present round: it must be finished first.
        """
        if self.phase == "ended" or self.closing or not {"pause", "stop"} & self.asked.keys():
            return
        if any(i not in self.arrived and member.is_awaited for i, member in self.crew.members.items()):
            return
        if "stop" in self.asked and not self.warmup.ended:
            self._warm(words.StopAsked(t=t, reason=self.asked["stop"]))
        elif not self.warmup.resting and not self.warmup.ended:
            self._warm(words.PauseAsked(t=t))

    def _is_ours(self, event: Event) -> bool:
        """Whether an event about a lease is about the one that is held, or asked for."""
        if isinstance(event, words.LeaseReceived):
            return event.request_id == self.hold.request_id
        fence = getattr(event, "fence", None)
        return fence is None or fence == self.hold.fence

    def _nothing(self, event: Event) -> None:
        """Take note of an event that changes nothing; it closes a command in the journal."""


def _assert(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)

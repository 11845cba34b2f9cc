"""What follows from each event for the collectors of one task?  The pure machine of seed 000, claims 2, 7 and 8.

A collector that has sent rests (parked, or its process ended) until it is started for the next round: at its planned
time, or at the arrival of the parameters at its node if that is sooner.  Starts are named by (round, collector): a
repeat never makes a second process, and a task that stops takes back what has not been used.

The machine that drives rounds shows it each event after having judged it itself (stale experience never comes here) and
passes its records on; it keeps the waking of collectors, and the restarts of those that were lost.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from drlnb.planning.warmup.planning import Planning
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import distribution, placement
from drlnb.records.columns import warmup as records
from drlnb.records.common import SettingChanged
from drlnb.records.errors import InvalidTransition

__all__ = ["WarmupMachine"]


class WarmupMachine(Planning):
    """The starts of one task's collectors.

    Parameters
    ----------
    config
        Plain data: ``task``, ``env_shares`` (environments of each collector), ``settings`` (keys of
        :class:`~drlnb.planning.warmup.settings.WarmupSettings`), ``can_respawn`` (the environments can be snapshot),
        ``queued`` (a parked collector waits for a CPU slot, so waking it is a start; without it, where experience
        tells that more collectors share CPU slots than there are), ``hold`` (the hold planner).

    Raises
    ------
    ConfigError
        If a setting is wrong, or the mode is ``respawn`` and environments cannot be snapshot; all is listed.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._story: deque[Record] = deque(maxlen=10)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            words.TaskOpened: self._task_opened,
            words.PlacementReceived: self._placement_received,
            placement.NodeLost: self._node_lost,
            distribution.HostUnreachable: self._host_unreachable,
            records.CollectorReady: self._collector_ready,
            records.CollectorLost: self._collector_lost,
            words.ExperienceArrived: self._experience_arrived,
            words.LeaseReceived: self._lease_received,
            words.LeaseLost: self._work_voided,
            words.ExecutorDied: self._work_voided,
            words.GradientComputed: self._gradient_computed,
            words.ParametersReady: self._parameters_ready,
            distribution.HostCompleted: self._host_completed,
            words.PauseAsked: self._pause_asked,
            words.ResumeAsked: self._resume_asked,
            words.StopAsked: self._stop_asked,
            words.TaskFailed: self._task_failed,
            SettingChanged: self._setting_changed,
        }

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Take one event; return what was decided and what must be done.  Other events say nothing here.

        Raises
        ------
        InvalidTransition
            If time runs backwards: a defect of the caller.
        """
        # "not >=" also catches nan
        if not event.t >= self.last_t:
            raise InvalidTransition(f"warm-up of {self.task}", self.state, event, self._story)
        self.last_t = event.t
        self._story.append(event)
        self._out = []
        for member in self.members:
            if member.status == "resting" and member.planned_t is not None and member.planned_t <= event.t:
                member.status = "starting"
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        self._story.extend(self._out)
        return tuple(self._out)

    def drop(self, node: str) -> None:
        """Forget a node's collectors: they are placed and started anew."""
        self._drop(node)

    def go_on(self, t: float) -> tuple[Record, ...]:
        """End the rest that a person has asked for: collectors are needed after all."""
        self._out = []
        self._go_on(t)
        self._story.extend(self._out)
        return tuple(self._out)

    def last(self, round_: int) -> None:
        """Let nobody rest after a round: no other one follows it."""
        self.last_round = round_

    def end(self, reason: str) -> tuple[Record, ...]:
        """Plan no start any more and take back those that are out: no further round will act."""
        self._out = []
        self._end(reason)
        self._story.extend(self._out)
        return tuple(self._out)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for i, member in enumerate(self.members):
            pending = member.planned_t is not None and member.status == "resting"
            _assert(not (pending and self.ended), f"collector {i} has a start after the end")
            _assert(not pending or bool(member.node), f"collector {i} has a start but no node")
            _assert(member.status != "resting" or member.node != "", f"collector {i} rests nowhere")
            _assert(not member.due or self.resting, f"collector {i} waits for a person who has not paused")
        rounds = [row.round for row in self.history.rows]
        _assert(rounds == sorted(set(rounds)), "rounds of the history rise")

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain data."""
        return self._snapshot()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of :meth:`snapshot`; the same events then give the same records."""
        self._restore(state)


def _assert(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)

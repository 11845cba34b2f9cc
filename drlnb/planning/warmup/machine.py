"""Decide when the collectors of one task rest and start: the pure machine of seed 000, claims 2, 7 and 8.

A collector that has sent rests (parked, or its process ended) until it is started for the next round: at its planned
time, or at the arrival of the parameters at its node if that is sooner.  Starts are named by (round, collector): a
repeat never makes a second process, and a task that stops revokes what has not been used.

The machine that drives rounds passes each event on once it has judged it itself (stale experience never comes here);
it keeps the waking of collectors, and the restarts of those that were lost.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from drlnb.planning.codec import from_plain, to_plain
from drlnb.planning.registry import Planner
from drlnb.planning.warmup import arrivals, processes, resting
from drlnb.planning.warmup.history import History
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.planning.warmup.settings import WarmupSettings
from drlnb.planning.warmup.state import Member, WarmupState, end, revoke
from drlnb.records import round as words
from drlnb.records.base import Event, Record
from drlnb.records.columns import distribution, placement
from drlnb.records.columns import warmup as records
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError, InvalidTransition

__all__ = ["RULES", "WARMUP_DEFAULTS", "WarmupMachine"]

#: Configuration of a warm-up machine beside ``task`` and ``env_shares``.
WARMUP_DEFAULTS: Mapping[str, object] = {"settings": {}, "can_respawn": False, "queued": False, "hold": "yield"}


def _mode_problem(settings: WarmupSettings, *, can_respawn: bool) -> str:
    if settings.collector_mode == "respawn" and not can_respawn:
        return (
            "collector_mode 'respawn' needs environments that can be snapshot: a new process would begin new "
            "episodes each round, so states late in an episode would never be seen; use 'park' or 'keep'"
        )
    return ""


# -------------------------------------------------------------------- what the user asks
def setting_changed(state: WarmupState, event: SettingChanged, out: list[Record]) -> None:
    """Change a setting of warm-up from the next round on, or refuse it."""
    room, _, name = event.key.partition(".")
    if event.key == "leasing.hold":
        state.hold = str(event.value)
    if room != "warmup":
        return
    changed = {**state.changed, name: event.value}
    try:
        settings = replace(state.settings, **changed)
        problem = _mode_problem(settings, can_respawn=state.can_respawn)
    except (ConfigError, TypeError) as error:
        problem = f"unknown setting {event.key!r}" if isinstance(error, TypeError) else str(error)
    if problem:
        out.append(RequestRefused(subject=event.key, reason=problem))
    else:
        state.changed = changed


def pause_asked(state: WarmupState, event: words.PauseAsked, out: list[Record]) -> None:
    """Plan no start while the task rests."""
    del event
    state.resting = True
    revoke(state, "the task is paused", out, begun=False)


def resume_asked(state: WarmupState, event: words.ResumeAsked, out: list[Record]) -> None:
    """Plan starts again."""
    arrivals.go_on(state, event.t, out)


def stop_asked(state: WarmupState, event: words.StopAsked, out: list[Record]) -> None:
    """Plan no start any more."""
    end(state, f"stop: {event.reason}", out)


def task_failed(state: WarmupState, event: words.TaskFailed, out: list[Record]) -> None:
    """Plan no start any more."""
    end(state, f"failed: {event.reason}", out)


#: The rule for each kind of event that changes something here: state, event (of that kind) and the answer so far.
RULES: Mapping[type[Event], Callable[[WarmupState, Any, list[Record]], None]] = {
    words.PlacementReceived: processes.placement_received,
    placement.NodeLost: processes.node_lost,
    distribution.HostUnreachable: processes.host_unreachable,
    records.CollectorReady: processes.collector_ready,
    records.CollectorLost: processes.collector_lost,
    words.ExperienceArrived: resting.experience_arrived,
    words.LeaseReceived: resting.lease_received,
    words.LeaseLost: resting.work_voided,
    words.ExecutorDied: resting.work_voided,
    words.GradientComputed: resting.gradient_computed,
    words.ParametersReady: resting.parameters_ready,
    distribution.HostCompleted: arrivals.host_completed,
    words.PauseAsked: pause_asked,
    words.ResumeAsked: resume_asked,
    words.StopAsked: stop_asked,
    words.TaskFailed: task_failed,
    SettingChanged: setting_changed,
}


class WarmupMachine:
    """The starts of one task's collectors.

    Parameters
    ----------
    config
        Plain data: ``task``, ``env_shares`` (environments of each collector), ``settings`` (keys of
        :class:`~drlnb.planning.warmup.settings.WarmupSettings`), ``can_respawn`` (the environments can be snapshot),
        ``queued`` (a parked collector waits for a CPU slot, so waking it is a start; without it, where experience
        reports that more collectors share CPU slots than there are), ``hold`` (the hold planner).

    build
        Makes a planner by its name.

    Raises
    ------
    ConfigError
        If a setting is wrong, or the mode is ``respawn`` and environments cannot be snapshot; all is listed.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        build: Callable[[str], Planner[WarmupView, WarmupPlan]] = WARMUP.build,
    ) -> None:
        self.config = {**WARMUP_DEFAULTS, **config}
        settings = WarmupSettings.from_mapping(self.config["settings"])
        if problem := _mode_problem(settings, can_respawn=self.config["can_respawn"]):
            raise ConfigError(problem)
        self.state = WarmupState(
            task=config["task"],
            can_respawn=self.config["can_respawn"],
            always_queued=self.config["queued"],
            settings=settings,
            hold=self.config["hold"],
            members=[Member(env_indices=tuple(share)) for share in config["env_shares"]],
            history=History(
                window=settings.window, filter_window=settings.filter_window, min_rounds=settings.min_rounds
            ),
            queued=self.config["queued"],
            build=build,
        )
        self._story: deque[Record] = deque(maxlen=10)

    @property
    def ended(self) -> str:
        """Why no start is planned any more; empty: starts are."""
        return self.state.ended

    @property
    def resting(self) -> bool:
        """Whether the user has asked for a pause."""
        return self.state.resting

    @property
    def settings(self) -> WarmupSettings:
        """The settings of the present round."""
        return self.state.settings

    @property
    def keeps_cpu(self) -> bool:
        """Whether collectors hold their CPU slots from round to round."""
        return self.state.keeps_cpu

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Apply an event; return what was decided and what must be done.  Other events change nothing here.

        Raises
        ------
        InvalidTransition
            If time runs backwards: a defect of the caller.
        """
        state = self.state
        # "not >=" also catches nan
        if not event.t >= state.last_t:
            raise InvalidTransition(f"warm-up of {state.task}", state.phase, event, self._story)
        state.last_t = event.t
        self._story.append(event)
        for member in state.members:
            if member.status == "resting" and member.planned_t is not None and member.planned_t <= event.t:
                member.status = "starting"
        out: list[Record] = []
        rule = RULES.get(type(event))
        if rule is not None:
            rule(state, event, out)
        return self._answer(out)

    def _answer(self, out: list[Record]) -> tuple[Record, ...]:
        self._story.extend(out)
        return tuple(out)

    def drop(self, node: str) -> None:
        """Forget a node's collectors: they are placed and started anew."""
        processes.drop_node(self.state, node)

    def go_on(self, t: float) -> tuple[Record, ...]:
        """End the rest that the user has asked for: collectors are needed after all."""
        out: list[Record] = []
        arrivals.go_on(self.state, t, out)
        return self._answer(out)

    def last(self, round_: int) -> None:
        """Start nobody after a round: no other one follows it."""
        self.state.last_round = round_

    def end(self, reason: str) -> tuple[Record, ...]:
        """Plan no start any more and revoke those that are out: no further round will act."""
        out: list[Record] = []
        end(self.state, reason, out)
        return self._answer(out)

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        state = self.state
        rounds = [row.round for row in state.history.rows]
        laws = {"rounds of the history rise": rounds == sorted(set(rounds))}
        for i, member in enumerate(state.members):
            pending = member.planned_t is not None and member.status == "resting"
            laws[f"collector {i} has no start after the end"] = not (pending and state.ended)
            laws[f"collector {i} has a node if it has a start, or rests"] = bool(
                member.node or not (pending or member.status == "resting")
            )
            laws[f"collector {i} waits for the user in a pause only"] = not member.due or state.resting
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise AssertionError("warm-up: not true: " + "; ".join(broken))

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain data."""
        plain: dict[str, Any] = to_plain(self.state)
        return plain

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the state of :meth:`snapshot`; the same events then give the same records."""
        self.state = from_plain(WarmupState, snapshot, build=self.state.build)

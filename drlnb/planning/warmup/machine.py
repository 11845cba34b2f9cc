"""Decide when the collectors of one task rest and start: the pure machine of the leasing patent, claims 2, 7 and 8.

A collector that has sent rests (in its process, or ended) until it is started for the next round: at its planned
time, or at the arrival of the parameters at its node if that is sooner.  Starts are named by (round, collector): a
repeat never makes a second process, and a task that stops revokes what has not been used.

The machine that drives rounds passes each event on once it has judged it itself (stale experience never comes here);
it keeps the waking of collectors, and the restarts of those that were lost.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from drlnb.planning.machine import Machine, Out, Rule, Rules, ignore
from drlnb.planning.registry import Planner
from drlnb.planning.warmup import processes, resting
from drlnb.planning.warmup.history import History
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WARMUP, WarmupView
from drlnb.planning.warmup.settings import WarmupSettings, mode_problem
from drlnb.planning.warmup.state import Member, WarmupState, end, revoke
from drlnb.records import round as words
from drlnb.records.base import Event, Facts, Record, shared
from drlnb.records.columns import distribution
from drlnb.records.columns import warmup as records
from drlnb.records.columns.leasing import RequestRefused
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError

__all__ = ["RULES", "WARMUP_DEFAULTS", "WarmupMachine"]

#: Configuration of a warm-up machine beside ``task`` and ``env_shares``.
WARMUP_DEFAULTS: Mapping[str, object] = {"settings": {}, "can_respawn": False, "hold": "yield"}


# -------------------------------------------------------------------- what the user asks
def setting_changed(state: WarmupState, event: SettingChanged, out: Out) -> None:
    """Change a setting of warm-up from the next round on, or refuse it."""
    room, _, name = event.key.partition(".")
    if event.key == "leasing.hold":
        state.hold = str(event.value)
    if room != "warmup":
        return
    changed = {**state.changed, name: event.value}
    try:
        settings = replace(state.settings, **changed)
        problem = mode_problem(settings.collector_mode, can_snapshot=state.can_respawn)
    except (ConfigError, TypeError) as error:
        problem = f"unknown setting {event.key!r}" if isinstance(error, TypeError) else str(error)
    if problem:
        out.append(RequestRefused(subject=event.key, reason=problem))
    else:
        state.changed = changed


def pause_asked(state: WarmupState, event: words.PauseAsked, out: Out) -> None:
    """Plan no start while the task rests."""
    state.resting = True
    revoke(state, "the task is paused", out, begun=False)


def resume_asked(state: WarmupState, event: words.ResumeAsked, out: Out) -> None:
    """Plan starts again."""
    processes.go_on(state, event.t, out)


def stop_asked(state: WarmupState, event: words.StopAsked, out: Out) -> None:
    """Plan no start any more."""
    end(state, f"stop: {event.reason}", out)


def task_failed(state: WarmupState, event: words.TaskFailed, out: Out) -> None:
    """Plan no start any more."""
    end(state, f"failed: {event.reason}", out)


#: The rule for each kind of event that changes something here.
RULES: Rules[WarmupState] = {
    words.PlacementReceived: processes.placement_received,
    records.CollectorReady: processes.collector_ready,
    records.CollectorLost: processes.collector_lost,
    words.ExperienceArrived: resting.experience_arrived,
    words.LeaseReceived: resting.lease_received,
    words.LeaseLost: resting.work_voided,
    words.ExecutorDied: resting.work_voided,
    distribution.HostCompleted: processes.host_completed,
    words.PauseAsked: pause_asked,
    words.ResumeAsked: resume_asked,
    words.StopAsked: stop_asked,
    words.TaskFailed: task_failed,
    SettingChanged: setting_changed,
}


class WarmupMachine(Machine[WarmupState]):
    """The starts of one task's collectors.

    Parameters
    ----------
    config
        Plain data: ``task``, ``env_shares`` (environments of each collector), ``settings`` (keys of
        :class:`~drlnb.planning.warmup.settings.WarmupSettings`), ``can_respawn`` (the environments can be snapshot),
        ``hold`` (the hold planner).
    build
        Makes a planner by its name.

    Raises
    ------
    ConfigError
        If a setting is wrong, or the mode is ``respawn`` and environments cannot be snapshot; all is listed.
    """

    def __init__(self, config: Facts, build: Callable[[str], Planner[WarmupView, WarmupPlan]] = WARMUP.build) -> None:
        self.config = {**WARMUP_DEFAULTS, **config}
        settings = WarmupSettings.from_mapping(self.config["settings"])
        if problem := mode_problem(settings.collector_mode, can_snapshot=self.config["can_respawn"]):
            raise ConfigError(problem)
        state = WarmupState(
            task=config["task"],
            can_respawn=self.config["can_respawn"],
            settings=settings,
            hold=self.config["hold"],
            members=[Member(env_indices=tuple(share)) for share in config["env_shares"]],
            history=History(**shared(settings, History)),
            build=build,
        )
        super().__init__(f"warm-up of {state.task}", state, RULES, ignore)

    @property
    def phase(self) -> str:
        """What a message says of the state."""
        return self.state.phase

    def _apply(self, rule: Rule[WarmupState], event: Event, out: Out) -> None:
        for member in self.state.members:
            if member.status == "resting" and member.planned_t is not None and member.planned_t <= event.t:
                member.status = "starting"
        rule(self.state, event, out)

    def drop(self, node: str) -> None:
        """Forget a node's collectors: they are placed and started anew."""
        processes.drop_node(self.state, node)

    def last(self, round_: int) -> None:
        """Start nobody after a round: no other one follows it."""
        self.state.last_round = round_

    def end(self, reason: str) -> tuple[Record, ...]:
        """Plan no start any more and revoke those that are out: no further round will act."""
        out: Out = []
        end(self.state, reason, out)
        return tuple(out)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        state = self.state
        rounds = [row.round for row in state.history.rows]
        yield rounds == sorted(set(rounds)), "rounds of the history rise"
        for i, member in enumerate(state.members):
            pending = member.planned_t is not None and member.status == "resting"
            yield not (pending and state.ended), f"collector {i} has no start after the end"
            homeless = (pending or member.status == "resting") and not member.node
            yield not homeless, f"collector {i} has a node if it has a start, or rests"
            yield not member.due or state.resting, f"collector {i} waits for the user in a pause only"

"""What does the warm-up machine remember, and how is it saved?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from drlnb.planning.warmup.history import History, StartBook
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WarmupView
from drlnb.planning.warmup.progress import Pace
from drlnb.planning.warmup.settings import WarmupSettings
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Record
from drlnb.records.columns.warmup import RevokeStart, StartCollector
from drlnb.records.errors import ConfigError

__all__ = ["WARMUP_DEFAULTS", "Member", "WarmupState"]

#: Configuration of a warm-up machine beside ``task`` and ``env_shares``.
WARMUP_DEFAULTS: Mapping[str, Any] = {
    "settings": {}, "can_respawn": False, "queued": False, "hold": "yield",
}  # fmt: skip

#: Values that a snapshot holds as they are.
_PLAIN = ("hold", "version", "version_t", "resting", "ended", "last_t", "n_slots", "queued", "last_round")


@dataclass(slots=True, kw_only=True)
class Member:
    """One collector."""

    env_indices: tuple[int, ...]
    #: Empty: none.
    node: str = ""
    #: ``absent``, ``up`` (ready or acting), ``resting`` (not started for the next round yet) or ``starting``.
    status: str = "absent"
    #: It must be started before it can act: its process ended, or it gave its CPU slot back.
    ended: bool = False
    #: Its process lives: a CPU slot is all that it needs, and its wake asks for one if nothing has before.
    parked: bool = False
    #: Event time in seconds at which it starts; None: at the parameters' arrival.
    planned_t: float | None = None
    #: The parameters are here, but the task is paused: started when it goes on.
    due: bool = False
    #: How it was started last; empty: not since the mode was changed.
    mode: str = ""


class WarmupState:
    """State of one task's warm-up; see :class:`~drlnb.planning.warmup.machine.WarmupMachine`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = {**WARMUP_DEFAULTS, **config}
        self.task: str = config["task"]
        self.settings = WarmupSettings.from_mapping(self.config["settings"])
        problem = self._mode_problem(self.settings)
        if problem:
            raise ConfigError(problem)
        self.members = [Member(env_indices=tuple(share)) for share in config["env_shares"]]
        self.history = self._fresh_history()
        self.starts = StartBook()
        self.trace: RoundTrace | None = None
        #: Plan of the present round, made at its first arrival; None: not made yet.
        self.plan: WarmupPlan | None = None
        #: Settings that a person changed: they count from the next round's plan on.
        self.changed: dict[str, Any] = {}
        self.hold: str = self.config["hold"]
        #: Live slots of the pool; 0: not told.
        self.n_slots = 0
        #: Node -> CPU slots that it lends, collectors that share them.
        self.cpu: dict[str, tuple[int, int]] = {}
        #: In the present round a parked collector may have to wait for a CPU slot.
        self.queued = bool(self.config["queued"])
        #: The round before the present one, if what its collectors waited for CPU slots is not all known yet.
        self.former: RoundTrace | None = None
        #: Round after which nobody rests, because no other follows; 0: not known.
        self.last_round = 0
        #: Version that reached a host last, and when.
        self.version, self.version_t = 0, 0.0
        #: Node -> event time at which its zygote's first child was ready.
        self.warm_t: dict[str, float] = {}
        #: A person has asked for a pause.
        self.resting = False
        self.ended = ""
        self.last_t = 0.0
        #: What the planner has seen, pace and lead of ``progress``: functions of the rest, kept within a round.
        self.seen: WarmupView | None = None
        self.paced: tuple[Pace, float] | None = None
        self._out: list[Record] = []

    @property
    def state(self) -> str:
        """A word for messages."""
        return "ended" if self.ended else "paused" if self.resting else "running"

    @property
    def starts_needed(self) -> bool:
        """Whether a collector that rests must be started before it can act."""
        mode = self.settings.collector_mode
        return mode == "respawn" or (mode == "park" and self.queued)

    @property
    def keeps_cpu(self) -> bool:
        """Whether collectors hold their CPU slots from round to round."""
        return "keep" in {self.settings.collector_mode, self.settings.planner}

    @property
    def plans_starts(self) -> bool:
        """Whether former rounds have a say: only then is it told that they are no guide any more."""
        return self.starts_needed and self.settings.planner not in {"cold", "keep"}

    def _mode_problem(self, settings: WarmupSettings) -> str:
        if settings.collector_mode == "respawn" and not self.config["can_respawn"]:
            return (
                "collector_mode 'respawn' needs environments that can be snapshot: a new process would begin new "
                "episodes each round, so states late in an episode would never be seen; use 'park' or 'keep'"
            )
        return ""

    def _fresh_history(self) -> History:
        settings = self.settings
        return History(window=settings.window, filter_window=settings.filter_window, min_rounds=settings.min_rounds)

    # ------------------------------------------------------------------ small moves that the parts share
    def _unsee(self) -> None:
        """Let the next plan look again: something that it rests on has changed."""
        self.seen = self.paced = None

    def _start(self, i: int, after_s: float, t: float, *, round_: int | None = None) -> None:
        """Command a start for the next round, or for `round_`; it replaces one that has not happened."""
        member = self.members[i]
        assert self.trace is not None
        after_s = round(after_s, 6)  # as it is commanded: else it is not due yet when the driver has begun
        member.planned_t = t + after_s
        if after_s <= 0.0:
            member.status = "starting"
        self._out.append(
            StartCollector(
                collector=i,
                node=member.node,
                env_indices=member.env_indices,
                after_s=after_s,
                round=self.trace.round + 1 if round_ is None else round_,
                parked=member.parked,
            )
        )

    def _revoke(self, i: int, reason: str) -> None:
        """Take back a start of the next round that has not been used."""
        member = self.members[i]
        if member.planned_t is None or member.status not in {"resting", "starting"} or self.trace is None:
            return
        member.planned_t, member.status = None, "resting"
        round_ = self.trace.round + 1
        self._out.append(RevokeStart(collector=i, node=member.node, round=round_, reason=reason, parked=member.parked))

    def _end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = reason
        for i, member in enumerate(self.members):
            self._revoke(i, reason)
            member.due = False

    # ------------------------------------------------------------------ snapshots
    def _snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _PLAIN} | {
            "settings": asdict(self.settings),
            "changed": dict(self.changed),
            "members": [asdict(member) | {"env_indices": list(member.env_indices)} for member in self.members],
            "history": self.history.snapshot(),
            "starts": self.starts.snapshot(),
            "warm_t": dict(self.warm_t),
            "trace": None if self.trace is None else self.trace.snapshot(),
            "former": None if self.former is None else self.former.snapshot(),
            "cpu": {node: list(pair) for node, pair in self.cpu.items()},
            "plan": None if self.plan is None else asdict(self.plan),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._unsee()
        for name in _PLAIN:
            setattr(self, name, state[name])
        self.settings = WarmupSettings(**state["settings"])
        self.changed, self.warm_t = dict(state["changed"]), dict(state["warm_t"])
        self.members = [
            Member(**{**member, "env_indices": tuple(member["env_indices"])}) for member in state["members"]
        ]
        self.history = self._fresh_history()
        self.history.restore(state["history"])
        self.starts.restore(state["starts"])
        self.trace = None if state["trace"] is None else RoundTrace.restore(state["trace"])
        self.former = None if state["former"] is None else RoundTrace.restore(state["former"])
        self.cpu = {node: (pair[0], pair[1]) for node, pair in state["cpu"].items()}
        self.plan = None if state["plan"] is None else _plan_of(state["plan"])

    # The parts of the machine are one class in the end and call each other through this name.
    _revise: Callable[[float], None]


def _plan_of(plain: Mapping[str, Any]) -> WarmupPlan:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value

    return WarmupPlan(**{name: tuples(value) for name, value in plain.items()})

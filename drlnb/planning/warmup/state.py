"""Hold what the warm-up machine of one task remembers, and command starts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from drlnb.planning.codec import TRANSIENT
from drlnb.planning.registry import Planner
from drlnb.planning.warmup.history import History, StartBook
from drlnb.planning.warmup.plan import WarmupPlan
from drlnb.planning.warmup.planner import WarmupView
from drlnb.planning.warmup.settings import WarmupSettings
from drlnb.planning.warmup.trace import RoundTrace
from drlnb.records.base import Record, Row, shared
from drlnb.records.columns.warmup import RevokeStart, StartCollector

__all__ = ["Member", "WarmupState", "end", "revoke", "start"]


@dataclass(slots=True, kw_only=True)
class Member:
    """One collector."""

    env_indices: tuple[int, ...]
    #: Empty: none.
    node: str = ""
    #: ``absent``, ``up`` (ready or acting), ``resting`` (not started for the next round yet) or ``starting``.
    status: str = "absent"
    #: Its process ended: it must be started before it can act.
    ended: bool = False
    #: Event time in seconds at which it starts; None: at the parameters' arrival.
    planned_t: float | None = None
    #: The parameters are here, but the task is paused: started when it goes on.
    due: bool = False
    #: How it was started last; empty: not since the mode was changed.
    mode: str = ""

    def goes_up(self) -> None:
        """Count it as ready to act."""
        self.status, self.planned_t, self.ended = "up", None, False

    def is_lost(self) -> None:
        """Forget its process."""
        self.status, self.planned_t, self.ended, self.due = "absent", None, False, False


@dataclass(slots=True, kw_only=True)
class WarmupState:
    """State of one task's warm-up; see :class:`~drlnb.planning.warmup.machine.WarmupMachine`."""

    task: str
    #: The environments can be snapshot.
    can_respawn: bool
    settings: WarmupSettings
    #: The hold planner.
    hold: str
    members: list[Member]
    history: History
    starts: StartBook = field(default_factory=StartBook)
    trace: RoundTrace | None = None
    #: The round before the present one: where rounds are short, its starts are not all in yet.
    former: RoundTrace | None = None
    #: Plan of the present round, made at its first arrival; None: not made yet.
    plan: WarmupPlan | None = None
    #: Settings that the user changed: they count from the next round's plan on.
    changed: dict[str, object] = field(default_factory=dict)
    #: Live slots of the pool; 0: not known.
    n_slots: int = 0
    #: Round after which nobody rests, because no other follows; 0: not known.
    last_round: int = 0
    #: Version that reached a host last, and when.
    version: int = 0
    version_t: float = 0.0
    #: Node -> event time at which its zygote's first child was ready.
    warm_t: dict[str, float] = field(default_factory=dict)
    #: The user has asked for a pause.
    resting: bool = False
    #: Why no start is planned any more; empty: starts are.
    ended: str = ""
    #: Time of the last event, in seconds.
    t: float = 0.0
    #: Makes a planner by its name.
    build: Callable[[str], Planner[WarmupView, WarmupPlan]] = field(metadata=TRANSIENT)

    @property
    def phase(self) -> str:
        """A word for messages."""
        return "ended" if self.ended else "paused" if self.resting else "running"

    @property
    def starts_needed(self) -> bool:
        """Whether a collector that rests must be started before it can act."""
        return self.settings.collector_mode == "respawn"

    @property
    def plans_starts(self) -> bool:
        """Whether plans rest on former rounds: only then is it journalled that these are no guide any more."""
        return self.starts_needed and self.settings.planner not in {"cold", "keep"}

    def at(self, collector: int, node: str) -> Member | None:
        """Return a collector if it lives on a node."""
        member = self.members[collector] if 0 <= collector < len(self.members) else None
        return member if member is not None and member.node == node else None

    def trace_before(self, round_: int) -> RoundTrace | None:
        """Return the trace of the round after which collectors rested for this one."""
        return next((t for t in (self.trace, self.former) if t is not None and t.round + 1 == round_), None)


def start(state: WarmupState, i: int, after_s: float, t: float, round_: int, out: list[Record]) -> None:
    """Command a start for a round; it replaces one that has not happened."""
    member = state.members[i]
    after_s = round(after_s, 6)  # as it is commanded: else it is not due yet when the driver has begun
    member.planned_t = t + after_s
    if after_s <= 0.0:
        member.status = "starting"
    of_round: Row = {"after_s": after_s, "round": round_, "start_mode": state.settings.start_mode}
    out.append(StartCollector(collector=i, **of_round, **shared(member, StartCollector)))


def revoke(state: WarmupState, reason: str, out: list[Record], *, begun: bool = True) -> None:
    """Revoke the starts of the next round that have not been used; `begun`: also those whose time has come."""
    statuses = {"resting", "starting"} if begun else {"resting"}
    for i, member in enumerate(state.members):
        if member.planned_t is not None and member.status in statuses and state.trace is not None:
            member.planned_t, member.status = None, "resting"
            round_ = state.trace.round + 1
            out.append(RevokeStart(collector=i, node=member.node, round=round_, reason=reason))


def end(state: WarmupState, reason: str, out: list[Record]) -> None:
    """Plan no start any more, and revoke those that are out."""
    if not state.ended:
        state.ended = reason
        revoke(state, reason, out)
        for member in state.members:
            member.due = False

"""Fold what a stream says of a task's collectors between two rounds: a record per round and collector."""

import math
from collections import deque
from dataclasses import dataclass, field

from drlnb.records import round as rounds
from drlnb.records.columns import warmup
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.common import SettingChanged
from drlnb.records.journal import StreamOpened
from drlnb.views.folds.entries import folds

__all__ = ["NEWEST", "Rest", "WarmupFold"]


@dataclass(slots=True, kw_only=True)
class Rest:
    """What became of a collector after a round; seconds of the stream's clock, NaN: not known, or not yet."""

    collector: int
    #: Whose experience was sent; when the collector began to act, and when it had sent.
    round: int
    began: float
    sent: float
    #: When its start was planned for, when its process was ready and how long that took.
    planned: float = math.nan
    ready: float = math.nan
    start_s: float = math.nan
    #: When the next parameters were at its node.
    arrival: float = math.nan
    #: Whether its process was ended.
    ended: bool = False
    #: Of the plan: seconds from sending to the start, lead; in words.
    after: float = math.nan
    lead: float = math.nan
    action: str = ""
    planner: str = ""
    reason: str = ""


#: Newest rests of an attempt's collectors that are kept, and starts and rounds.
NEWEST = 8_192


@folds()
@dataclass(slots=True)
class WarmupFold:
    """The newest rests of the collectors of one attempt at a task."""

    #: Name of its stream.
    stream: str
    rests: deque[Rest] = field(default_factory=lambda: deque(maxlen=NEWEST))
    #: Starts, as they were measured.
    starts: deque[warmup.CollectorReady] = field(default_factory=lambda: deque(maxlen=NEWEST))
    #: What the starts for the parameters of a round came to.
    measured: deque[warmup.WarmupMeasured] = field(default_factory=lambda: deque(maxlen=NEWEST))
    #: When each version was at its last host.
    versions: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=NEWEST))
    #: Rounds before one of these are no guide any more.
    cuts: list[warmup.WarmupRegimeEnded] = field(default_factory=list)
    #: The newest plan that has weighed start times.
    weighed: warmup.WarmupPlanned | None = None
    #: The newest plan whose filter was asked.
    filtered: warmup.WarmupPlanned | None = None
    #: Settings of warm-up that the stream names, without ``warmup.``.
    settings: dict[str, object] = field(default_factory=dict)
    _latest: dict[int, Rest] = field(default_factory=dict)
    _nodes: dict[int, str] = field(default_factory=dict)

    def _of_round(self, collector: int, round_: int) -> Rest | None:
        """Return the collector's latest rest, if it follows that round."""
        rest = self._latest.get(collector)
        return rest if rest is not None and rest.round == round_ else None

    # -- records -----------------------------------------------------------------------------------------------------
    def _opened(self, header: StreamOpened, t: float) -> None:
        config = header.config or {}
        known = dict(config.get("warmup") or config.get("settings") or {})
        if "warmup" in (config.get("planners") or {}):
            known.setdefault("planner", config["planners"]["warmup"])
        self.settings.update(known)

    def _placed(self, event: rounds.PlacementReceived, t: float) -> None:
        self._nodes.update(enumerate(event.collector_nodes))

    def _sent(self, event: rounds.ExperienceArrived, t: float) -> None:
        former = self._latest.get(event.collector)
        if former is None or former.round < event.round:  # else an old round's, or sent twice
            rest = Rest(collector=event.collector, round=event.round, began=t - event.collect_s, sent=t)
            self._latest[event.collector] = rest
            self.rests.append(rest)

    def _planned(self, plan: warmup.WarmupPlanned, t: float) -> None:
        rest = self._of_round(plan.collector, plan.round)
        if rest is None:
            return
        rest.action, rest.planner, rest.reason = plan.action, plan.planner, plan.reason
        rest.after = math.nan if plan.start_after_s is None else plan.start_after_s
        rest.lead = math.nan if plan.lead_s is None else plan.lead_s
        self.weighed = plan if plan.candidates else self.weighed
        self.filtered = self.filtered if plan.filtered is None else plan

    def _ended(self, command: warmup.StopCollector, t: float) -> None:
        self._nodes[command.collector] = command.node
        rest = self._of_round(command.collector, command.round)
        if rest is not None:
            rest.ended = True

    def _starts(self, command: warmup.StartCollector, t: float) -> None:
        self._plan_start(command.collector, command.round, t + command.after_s)

    def _revoked(self, command: warmup.RevokeStart, t: float) -> None:
        self._plan_start(command.collector, command.round, math.nan)

    def _plan_start(self, collector: int, round_: int, start: float) -> None:
        rest = self._of_round(collector, round_ - 1)
        if rest is not None and math.isnan(rest.ready):
            rest.planned = start

    def _ready(self, event: warmup.CollectorReady, t: float) -> None:
        self.starts.append(event)
        rest = self._latest.get(event.collector)
        if rest is not None and math.isnan(rest.ready) and not math.isnan(rest.planned):
            rest.ready, rest.start_s = t, event.start_s

    def _arrived(self, event: HostCompleted, t: float) -> None:
        if self.versions and self.versions[-1][0] == event.version:
            self.versions.pop()
        self.versions.append((event.version, t))
        for collector, rest in self._latest.items():
            # Nobody acts on the parameters of the last round: who has sent then is not late for anything.
            mine = rest.round == event.version - 1 and rest.action != "end"
            if mine and self._nodes.get(collector, event.host) == event.host and math.isnan(rest.arrival):
                rest.arrival = t

    def _measured(self, decision: warmup.WarmupMeasured, t: float) -> None:
        self.measured.append(decision)

    def _setting(self, event: SettingChanged, t: float) -> None:
        room, _, name = event.key.partition(".")
        if room == "warmup":
            self.settings[name] = event.value

    def _cut(self, decision: warmup.WarmupRegimeEnded, t: float) -> None:
        self.cuts.append(decision)

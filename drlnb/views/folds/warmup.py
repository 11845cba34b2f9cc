"""Fold what a stream says of a task's collectors between two rounds into columns: a row per round and collector."""

import math
from dataclasses import dataclass, field

from drlnb.records import round as rounds
from drlnb.records.columns import warmup
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.common import SettingChanged
from drlnb.records.journal import StreamOpened
from drlnb.views.folds.entries import folds
from drlnb.views.folds.grow import Grow

__all__ = ["NEWEST", "REST", "WarmupFold"]

#: Newest rests of an attempt's collectors that are kept, at least, and starts and rounds; about twice as many at most.
NEWEST = 8_192

#: Columns of a rest: collector; the round whose experience was sent; when it began to act and when it had
#: sent; when its start was planned for; when its process was ready and how long that took; when the next parameters
#: were at its node; what became of it (0: it stays, 1: its process
#: was ended), seconds from sending to the planned start, lead; texts.
REST = (
    "collector", "round", "began", "sent", "planned", "ready", "start_s", "arrival", "ended", "after",
    "lead", "action", "planner", "reason",
)  # fmt: skip


@folds()
@dataclass(slots=True)
class WarmupFold:
    """The newest rests of the collectors of one attempt at a task."""

    #: Name of its stream.
    stream: str
    rests: Grow = field(default_factory=lambda: Grow(*REST))
    #: One row per measured start: node and mode (texts), how many started at once, seconds.
    starts: Grow = field(default_factory=lambda: Grow("node", "mode", "n_starting", "start_s"))
    #: What the starts for the parameters of a round came to.
    measured: Grow = field(default_factory=lambda: Grow("round", "wait", "idle"))
    #: When each version was at its last host.
    versions: Grow = field(default_factory=lambda: Grow("version", "t"))
    #: Rounds before one of these are no guide any more.
    cuts: list[warmup.WarmupRegimeEnded] = field(default_factory=list)
    #: The newest plan that has weighed start times.
    weighed: warmup.WarmupPlanned | None = None
    #: The newest plan whose filter was asked.
    filtered: warmup.WarmupPlanned | None = None
    #: Text -> its number in the columns of texts.
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    #: Settings of warm-up that the stream names, without ``warmup.``.
    settings: dict[str, object] = field(default_factory=dict)
    _latest: dict[int, int] = field(default_factory=dict)
    _nodes: dict[int, str] = field(default_factory=dict)

    def _text(self, text: str) -> float:
        return self.texts.setdefault(text, len(self.texts))

    def _of_round(self, collector: int, round_: int) -> int | None:
        """Return the collector's latest rest, if it follows that round."""
        at = self._latest.get(collector)
        return at if at is not None and self.rests.get(at, "round") == round_ else None

    def _is_open(self, at: int, name: str) -> bool:
        return math.isnan(self.rests.get(at, name))

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
        if former is not None and self.rests.get(former, "round") >= event.round:
            return  # an old round's, or sent twice
        unknown = (math.nan,) * 4
        self._latest[event.collector] = self.rests.append(
            event.collector, event.round, t - event.collect_s, t, *unknown, 0.0, math.nan, math.nan, 0, 0, 0
        )
        if len(self.rests) >= 2 * NEWEST:
            self._forget()

    def _forget(self) -> None:
        """Keep the newest rows, and the texts that they name."""
        n_old = len(self.rests) - NEWEST
        self._latest = {collector: at - n_old for collector, at in self._latest.items() if at >= n_old}
        for grow in (self.rests, self.starts, self.measured, self.versions):
            grow.take(slice(-NEWEST, None))
        texts, self.texts = [*self.texts], {"": 0}
        for name in ("action", "planner", "reason", "node", "mode"):
            grow = self.rests if name in REST else self.starts
            for row, number in enumerate(grow[name].tolist()):
                grow.set(row, name, self._text(texts[int(number)]))

    def _planned(self, plan: warmup.WarmupPlanned, t: float) -> None:
        at = self._of_round(plan.collector, plan.round)
        if at is None:
            return
        for name in ("action", "planner", "reason"):
            self.rests.set(at, name, self._text(getattr(plan, name)))
        self.rests.set(at, "after", math.nan if plan.start_after_s is None else plan.start_after_s)
        self.rests.set(at, "lead", math.nan if plan.lead_s is None else plan.lead_s)
        self.weighed = plan if plan.candidates else self.weighed
        self.filtered = self.filtered if plan.filtered is None else plan

    def _ended(self, command: warmup.StopCollector, t: float) -> None:
        self._nodes[command.collector] = command.node
        at = self._of_round(command.collector, command.round)
        if at is not None:
            self.rests.set(at, "ended", 1.0)

    def _starts(self, command: warmup.StartCollector, t: float) -> None:
        self._plan_start(command.collector, command.round, t + command.after_s)

    def _revoked(self, command: warmup.RevokeStart, t: float) -> None:
        self._plan_start(command.collector, command.round, math.nan)

    def _plan_start(self, collector: int, round_: int, start: float) -> None:
        at = self._of_round(collector, round_ - 1)
        if at is not None and self._is_open(at, "ready"):
            self.rests.set(at, "planned", start)

    def _ready(self, event: warmup.CollectorReady, t: float) -> None:
        self.starts.append(self._text(event.node), self._text(event.start_mode), event.n_starting, event.start_s)
        at = self._latest.get(event.collector)
        if at is not None and self._is_open(at, "ready") and not self._is_open(at, "planned"):
            self.rests.set(at, "ready", t)
            self.rests.set(at, "start_s", event.start_s)

    def _arrived(self, event: HostCompleted, t: float) -> None:
        n = len(self.versions)
        if n and self.versions.get(n - 1, "version") == event.version:
            self.versions.set(n - 1, "t", t)
        else:
            self.versions.append(event.version, t)
        for collector, at in self._latest.items():
            # Nobody acts on the parameters of the last round: who has sent then is not late for anything.
            over = self.rests.get(at, "action") == self.texts.get("end")
            mine = self.rests.get(at, "round") == event.version - 1 and not over
            if mine and self._nodes.get(collector, event.host) == event.host and self._is_open(at, "arrival"):
                self.rests.set(at, "arrival", t)

    def _measured(self, decision: warmup.WarmupMeasured, t: float) -> None:
        self.measured.append(decision.round, decision.wait_s, decision.idle_s)

    def _setting(self, event: SettingChanged, t: float) -> None:
        room, _, name = event.key.partition(".")
        if room == "warmup":
            self.settings[name] = event.value

    def _cut(self, decision: warmup.WarmupRegimeEnded, t: float) -> None:
        self.cuts.append(decision)

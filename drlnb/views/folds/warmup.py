"""What does a stream say of a task's collectors between two rounds?  One row per round and collector, as columns."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from drlnb.views.folds.grow import Grow

__all__ = ["Cut", "WarmupFold", "Weighed"]

Row = Mapping[str, Any]
Changed = tuple[str, ...]

#: Columns of a rest: collector; the round whose experience was sent; when it began to act and when it had
#: sent; when its start was planned for; when its process was ready and how long that took; when the next parameters
#: were at its node; what became of it (:data:`ENDED`), seconds from sending to the planned start, lead; texts.
_REST = (
    "collector", "round", "began", "sent", "planned", "ready", "start_s", "arrival", "ended", "after",
    "lead", "action", "planner", "reason", "revised",
)  # fmt: skip
#: What became of a collector that has sent: nothing (it stays), process ended, CPU slot given back.
ENDED = ("stays", "stopped", "parked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Rounds before this one are no guide any more."""

    round: int
    n_kept: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What a plan has weighed: start after sending (None: cold), expected wait of the round, idle time; in seconds."""

    round: int
    action: str
    planner: str
    reason: str
    start_after_s: float | None
    candidates: tuple[tuple[float | None, float, float], ...]
    #: Beside each candidate: standard errors in seconds of the wait saved over cold and of the idle time, and their
    #: correlation; empty in journals that have none.
    errors: tuple[tuple[float, float, float], ...] = ()
    #: What the best planned start saves over cold, and the standard error, in seconds.
    saved_s: float | None = None
    saved_error_s: float | None = None

    def error_s(self, k: int, rho: float) -> float:
        """Return the standard error of what a candidate saves over cold at a price of waiting, in seconds."""
        of_wait, of_idle, along = self.errors[k]
        variance = (rho * of_wait) ** 2 + of_idle**2 - 2.0 * along * rho * of_wait * of_idle
        return math.sqrt(max(0.0, variance))


@dataclass(slots=True)
class WarmupFold:
    """All rests of the collectors of one attempt at a task."""

    #: Name of its stream.
    stream: str
    rests: Grow = field(default_factory=lambda: Grow(*_REST))
    #: One row per measured start: node and mode (texts), how many started at once, seconds.
    starts: Grow = field(default_factory=lambda: Grow("node", "mode", "n_starting", "start_s"))
    #: What the starts for the parameters of a round came to.
    measured: Grow = field(default_factory=lambda: Grow("round", "wait", "idle"))
    #: What a plan's filter did: rounds looked at, least and most seconds kept, whether of round times.
    filters: Grow = field(default_factory=lambda: Grow("round", "collector", "looked", "least", "most", "of_rounds"))
    #: When each version was at its last host.
    versions: Grow = field(default_factory=lambda: Grow("version", "t"))
    cuts: list[Cut] = field(default_factory=list)
    weighed: Weighed | None = None
    #: The newest newsvendor's answer: quantile of the starts, and the lead at it in seconds.
    newsvendor: tuple[float, float] | None = None
    #: Text -> its number in the columns of texts.
    texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    #: Settings of warm-up that the stream names, without ``warmup.``.
    settings: dict[str, Any] = field(default_factory=dict)
    _latest: dict[int, int] = field(default_factory=dict)
    _nodes: dict[int, str] = field(default_factory=dict)

    def handlers(self) -> dict[str, Callable[[Row, float], Changed]]:
        """Return what takes in the rows of its stream, by the kind of row."""
        return {kind: partial(handler, self) for kind, handler in _HANDLERS.items()}

    def _text(self, text: Any) -> float:
        return self.texts.setdefault(str(text), len(self.texts))

    def _rest(self, row: Row) -> int | None:
        """Return the collector's latest rest."""
        return self._latest.get(int(row["collector"]))

    def _of_round(self, row: Row, round_: int) -> int | None:
        at = self._rest(row)
        return at if at is not None and self.rests.get(at, "round") == round_ else None

    def _is_open(self, at: int, name: str) -> bool:
        return math.isnan(self.rests.get(at, name))

    # -- rows --------------------------------------------------------------------------------------------------------
    def _opened(self, row: Row, t: float) -> Changed:
        del t
        config = row.get("config") or {}
        known = dict(config.get("warmup") or config.get("settings") or {})
        if "warmup" in (config.get("planners") or {}):
            known.setdefault("planner", config["planners"]["warmup"])
        self.settings.update(known)
        return ()

    def _placed(self, row: Row, t: float) -> Changed:
        del t
        self._nodes.update(enumerate(row["collector_nodes"]))
        return ()

    def _sent(self, row: Row, t: float) -> Changed:
        collector, round_ = int(row["collector"]), int(row["round"])
        former = self._rest(row)
        if former is not None and self.rests.get(former, "round") >= round_:
            return ()  # an old round's, or told twice
        unknown = (math.nan,) * 4
        self._latest[collector] = self.rests.append(
            collector, round_, t - float(row["collect_s"]), t, *unknown, 0.0, math.nan, math.nan, 0, 0, 0, 0
        )
        return ("warmup",)

    def _planned(self, row: Row, t: float) -> Changed:
        at = self._of_round(row, int(row["round"]))
        if at is None:
            return ()
        if self.rests.get(at, "action"):
            self.rests.set(at, "revised", self.rests.get(at, "revised") + 1)
        for name in ("action", "planner", "reason"):
            self.rests.set(at, name, self._text(row[name]))
        # What is told counts from its own event, which for a revised plan is later than the sending.
        after = math.nan if row["start_after_s"] is None else t - self.rests.get(at, "sent") + row["start_after_s"]
        self.rests.set(at, "after", after)
        self.rests.set(at, "lead", math.nan if row["lead_s"] is None else float(row["lead_s"]))
        self._weighed(row)
        return ("warmup",)

    def _weighed(self, row: Row) -> None:
        if row["candidates"]:
            self.weighed = Weighed(
                round=int(row["round"]),
                action=str(row["action"]),
                planner=str(row["planner"]),
                reason=str(row["reason"]),
                start_after_s=row["start_after_s"],
                candidates=tuple((u, float(w), float(i)) for u, w, i in row["candidates"]),
                errors=tuple((float(w), float(i), float(r)) for w, i, r in row.get("candidate_errors") or ()),
                saved_s=row.get("saved_s"),
                saved_error_s=row.get("saved_error_s"),
            )
        if row.get("newsvendor") is not None:
            quantile, lead_s = row["newsvendor"]
            self.newsvendor = float(quantile), float(lead_s)
        if row.get("filtered") is not None:
            of_rounds = float(row["planner"] == "seed")
            self.filters.append(float(row["round"]), float(row["collector"]), *map(float, row["filtered"]), of_rounds)

    def _stopped(self, row: Row, t: float) -> Changed:
        return self._ended(row, t, kind=1.0)

    def _parked(self, row: Row, t: float) -> Changed:
        return self._ended(row, t, kind=2.0)

    def _ended(self, row: Row, t: float, *, kind: float) -> Changed:
        del t
        self._nodes[int(row["collector"])] = str(row["node"])
        at = self._of_round(row, int(row["round"]))
        if at is not None:
            self.rests.set(at, "ended", kind)
        return ("warmup",)

    def _starts(self, row: Row, t: float) -> Changed:
        at = self._of_round(row, int(row["round"]) - 1)
        if at is not None and self._is_open(at, "ready"):
            self.rests.set(at, "planned", t + float(row["after_s"]))
        return ("warmup",)

    def _revoked(self, row: Row, t: float) -> Changed:
        del t
        at = self._of_round(row, int(row["round"]) - 1)
        if at is not None and self._is_open(at, "ready"):
            self.rests.set(at, "planned", math.nan)
        return ("warmup",)

    def _ready(self, row: Row, t: float) -> Changed:
        start_s = float(row["start_s"])
        self.starts.append(self._text(row["node"]), self._text(row["start_mode"]), float(row["n_starting"]), start_s)
        at = self._rest(row)
        if at is not None and self._is_open(at, "ready") and not self._is_open(at, "planned"):
            self.rests.set(at, "ready", t)
            self.rests.set(at, "start_s", start_s)
        return ("warmup",)

    def _arrived(self, row: Row, t: float) -> Changed:
        version, host = int(row["version"]), str(row["host"])
        n = len(self.versions)
        if n and self.versions.get(n - 1, "version") == version:
            self.versions.set(n - 1, "t", t)
        else:
            self.versions.append(version, t)
        for collector, at in self._latest.items():
            # Nobody acts on the parameters of the last round: who has sent then is not late for anything.
            over = self.rests.get(at, "action") == self.texts.get("end")
            mine = self.rests.get(at, "round") == version - 1 and not over
            if mine and self._nodes.get(collector, host) == host and self._is_open(at, "arrival"):
                self.rests.set(at, "arrival", t)
        return ("warmup",)

    def _measured(self, row: Row, t: float) -> Changed:
        del t
        self.measured.append(float(row["round"]), float(row["wait_s"]), float(row["idle_s"]))
        return ("warmup",)

    def _cut(self, row: Row, t: float) -> Changed:
        del t
        self.cuts.append(Cut(round=int(row["round"]), n_kept=int(row["n_kept"]), reason=str(row["reason"])))
        return ("warmup",)

    def _setting(self, row: Row, t: float) -> Changed:
        del t
        room, _, name = str(row["key"]).partition(".")
        if room == "warmup":
            self.settings[name] = row["value"]
        return ("settings",)


_HANDLERS: dict[str, Callable[..., Changed]] = {
    "StreamOpened": WarmupFold._opened,
    "PlacementReceived": WarmupFold._placed,
    "ExperienceArrived": WarmupFold._sent,
    "WarmupPlanned": WarmupFold._planned,
    "StopCollector": WarmupFold._stopped,
    "ParkCollector": WarmupFold._parked,
    "StartCollector": WarmupFold._starts,
    "RevokeStart": WarmupFold._revoked,
    "CollectorReady": WarmupFold._ready,
    "HostCompleted": WarmupFold._arrived,
    "WarmupMeasured": WarmupFold._measured,
    "WarmupRegimeEnded": WarmupFold._cut,
    "SettingChanged": WarmupFold._setting,
}

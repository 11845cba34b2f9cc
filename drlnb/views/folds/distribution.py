"""Fold what became of the versions of one task, or of one publisher: predicted and measured seconds, and each host."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.records.columns.distribution import (
    DistributionPlanned,
    HostCompleted,
    HostDropped,
    LinkMeasured,
    MessageLost,
    SendParameters,
    VersionPublished,
)
from drlnb.records.columns.warmup import CollectorReady, WakeCollector
from drlnb.records.round import ExperienceArrived
from drlnb.views.folds.entries import folds
from drlnb.views.folds.grow import Grow

__all__ = ["DistributionFold", "HostLine"]

#: Versions that are kept; of more every 2nd, 4th, ... of the older ones.
_MOST = 8_192


@dataclass(slots=True)
class HostLine:
    """What is known of one host."""

    #: Newest version that it holds.
    version: int = 0
    #: Versions that it has held, and sums of the seconds that they took from the first send, and at the host.
    n_versions: int = 0
    publish_s: float = 0.0
    arrival_s: float = 0.0
    #: Messages that it did not take.
    n_lost: int = 0
    #: Why it was dropped; empty: it was not.
    dropped: str = ""


@folds()
@dataclass(slots=True)
class DistributionFold:
    """Versions in the order of their plans."""

    #: Version, number of its planner in :attr:`planners`, seconds that were expected, and by the closed form alone,
    #: seconds until all hosts held it (NaN before), hosts, its megabytes and those of them that hosts kept, seconds
    #: until the first and the last host held it, and the longest time for which a collector waited for it.
    versions: Grow = field(
        default_factory=lambda: Grow(
            "version", "planner", "predicted", "form", "measured", "hosts", "mb", "kept", "first", "last", "pause"
        )
    )
    #: Names of planners in the order of their first plans.
    planners: list[str] = field(default_factory=list)
    hosts: dict[str, HostLine] = field(default_factory=dict)
    n_repairs: int = 0
    #: Of the newest version: what was sent, when that began, seconds from then on until each host that holds it had its
    #: first byte and its last, and until a host was dropped meanwhile.
    sent: list[SendParameters] = field(default_factory=list)
    begun_t: float = 0.0
    arrived: dict[str, tuple[float, float]] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    #: Collector -> when it had nothing more to do but to wait for the newest version.
    rests: dict[int, float] = field(default_factory=dict)
    #: Figures of the network, by their names, as they were measured last.
    link: Mapping[str, float] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """Newest version that was planned, 0 before the first."""
        return int(self.versions.get(-1, "version")) if len(self.versions) else 0

    def _planned(self, decision: DistributionPlanned, t: float) -> None:
        if len(self.versions) and decision.version == self.newest:
            self.n_repairs += 1
            return
        if decision.planner not in self.planners:
            self.planners.append(decision.planner)
        for host in decision.hosts:
            self.hosts.setdefault(host, HostLine()).dropped = ""
        form_s = decision.predicted_s or math.nan
        self.versions.append(
            decision.version,
            self.planners.index(decision.planner),
            form_s * decision.correction,
            form_s,
            math.nan,
            len(decision.hosts),
            decision.n_bytes / 1e6,
            decision.kept_bytes / 1e6,
            math.nan,
            math.nan,
            math.nan,
        )
        self.versions.thin("version", _MOST)
        self.sent, self.begun_t, self.arrived, self.gone = [], t, {}, {}

    def _sends(self, command: SendParameters, t: float) -> None:
        if command.version == self.newest:
            self.sent.append(command)

    def _rested(self, event: ExperienceArrived | CollectorReady, t: float) -> None:
        self.rests[event.collector] = event.t

    def _woken(self, command: WakeCollector, t: float) -> None:
        since = self.rests.pop(command.collector, None)
        if since is not None and command.version == self.newest:
            known = self.versions.get(-1, "pause")
            paused_s = t - max(since, self.begun_t)
            self.versions.set(-1, "pause", paused_s if math.isnan(known) else max(known, paused_s))

    def _measured(self, event: LinkMeasured, t: float) -> None:
        self.link = {**self.link, **event.figures}

    def _completed(self, event: HostCompleted, t: float) -> None:
        host = self.hosts.setdefault(event.host, HostLine())
        host.version = max(host.version, event.version)
        host.n_versions += 1
        host.publish_s += event.publish_s
        host.arrival_s += event.arrival_s
        if event.version == self.newest:
            self.arrived[event.host] = event.publish_s - event.arrival_s, event.publish_s
            for name, pick in (("first", min), ("last", max)):
                known = self.versions.get(-1, name)
                self.versions.set(-1, name, event.publish_s if math.isnan(known) else pick(known, event.publish_s))

    def _published(self, decision: VersionPublished, t: float) -> None:
        if decision.version == self.newest:
            self.versions.set(-1, "measured", decision.publish_s)

    def _lost(self, event: MessageLost, t: float) -> None:
        self.hosts.setdefault(event.host, HostLine()).n_lost += 1

    def _dropped(self, decision: HostDropped, t: float) -> None:
        self.hosts.setdefault(decision.host, HostLine()).dropped = decision.reason
        if len(self.versions) and math.isnan(self.versions.get(-1, "measured")):
            self.gone[decision.host] = t - self.begun_t

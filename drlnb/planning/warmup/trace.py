"""Record what happens to the collectors of one round between their sending and the next parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drlnb.planning.warmup.history import RoundRow
from drlnb.records.columns.warmup import WarmupMeasured

__all__ = ["RoundTrace"]

#: Digits of what is journalled: microseconds.
_DIGITS = 6


@dataclass(slots=True, kw_only=True)
class RoundTrace:
    """One round as the machine sees it; times are event times in seconds, mappings by collector."""

    round: int
    n_workers: int
    #: When its parameters reached the last host; None: before this attempt.
    start_t: float | None
    #: Experience arrived, next parameters arrived at the node, process ready.
    sent_t: dict[int, float] = field(default_factory=dict)
    n_samples: dict[int, int] = field(default_factory=dict)
    arrival_t: dict[int, float] = field(default_factory=dict)
    ready_t: dict[int, float] = field(default_factory=dict)
    start_s: dict[int, float] = field(default_factory=dict)
    #: Node and mode of a start: its collector may live elsewhere by the time that every start is in.
    place: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: Most collectors that started at once, by node.
    n_starting: dict[str, int] = field(default_factory=dict)
    #: Collectors that are not stopped.
    kept: list[int] = field(default_factory=list)
    #: Somebody was lost: its times say nothing about warm-up.
    broken: bool = False
    #: The row of this round is in the history.
    closed: bool = False
    measured: bool = False

    @property
    def complete(self) -> bool:
        """Whether everybody has sent, and has the next parameters at its node."""
        return len(self.sent_t) == self.n_workers == len(self.arrival_t)

    def row(self, key: Mapping[str, object]) -> RoundRow | None:
        """Return the round for the history; None if it is not complete, or its start is not known."""
        if not self.complete or self.start_t is None:
            return None
        workers = range(self.n_workers)
        end_t = max(self.arrival_t.values())
        return RoundRow(
            round=self.round,
            gap_s=tuple(_s(self.arrival_t[i] - self.sent_t[i]) for i in workers),
            round_s=_s(end_t - self.start_t),
            key={**key, "samples": tuple(self.n_samples[i] for i in workers)},
            start_s=[None] * self.n_workers,
        )

    def outcome(self) -> WarmupMeasured | None:
        """Return what the starts came to; None while one is out, if somebody was lost, or if nothing was started."""
        workers = range(self.n_workers)
        if self.broken or not self.complete or not (self.kept or self.ready_t):
            return None
        if any(i not in self.ready_t and i not in self.kept for i in workers):
            return None
        ahead = [self.arrival_t[i] - (self.sent_t[i] if i in self.kept else self.ready_t[i]) for i in workers]
        early, late = [_s(max(0.0, x)) for x in ahead], [_s(max(0.0, -x)) for x in ahead]
        return WarmupMeasured(
            round=self.round + 1,
            wait_s=max(late),
            idle_s=_s(sum(early) / self.n_workers),
            collectors=tuple(workers),
            early_s=tuple(early),
            late_s=tuple(late),
        )


def _s(value: float) -> float:
    """Round to microseconds, so that sums of rounded event times compare equal."""
    return round(value, _DIGITS)

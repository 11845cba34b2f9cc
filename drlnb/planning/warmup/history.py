"""Keep former rounds: gaps of the present regime, and start durations by how they were made.

A start takes longer while others start on the same node (4 at once on 2 cores: 3.6 times as long), so its duration is
kept under (node, start mode, starts at once), and the workers of a node share what they learn: one worker's 32 rounds
do not show the rare long start that a round of eight waits for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from drlnb.planning.warmup.stability import stable_window

__all__ = ["History", "RoundRow", "StartBook"]

#: Start durations kept under one key: 8 workers in 32 rounds.
_STARTS = 256
#: Rounds whose median is compared with all of them; what is left of them after a shift.
_LATEST = 5


@dataclass(slots=True, kw_only=True)
class RoundRow:
    """One complete round; shapes ``(n,)`` are by worker, times in seconds."""

    round: int
    #: From a worker's sending to the arrival of the next parameters at its node.
    gap_s: tuple[float, ...]
    #: From the round's start to the next one's.
    round_s: float
    #: What must not change within a regime: word -> value.
    key: Mapping[str, object]
    #: Duration of each worker's start for the next round; None: none was measured.
    start_s: list[float | None]

    @property
    def mean_gap_s(self) -> float:
        """Mean gap over the workers, in seconds."""
        return sum(self.gap_s) / len(self.gap_s)

    @property
    def whole(self) -> bool:
        """Whether every worker's start was measured."""
        return None not in self.start_s


@dataclass(slots=True)
class StartBook:
    """Start durations in seconds by (node, start mode, starts at once)."""

    known: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)

    def add(self, node: str, mode: str, n_starting: int, start_s: float) -> None:
        """Add a start."""
        samples = self.known.setdefault((node, mode, n_starting), [])
        samples.append(start_s)
        del samples[:-_STARTS]

    def samples(self, node: str, mode: str, n_starting: int) -> tuple[float, ...]:
        """Return the starts of the nearest known number at once, the larger of two: rather early than late."""
        counts = [n for at, of, n in self.known if (at, of) == (node, mode)]
        if not counts:
            return ()
        nearest = min(counts, key=lambda n: (abs(n - n_starting), -n))
        return tuple(self.known[node, mode, nearest])


@dataclass(slots=True)
class History:
    """The rounds of the present regime, oldest first."""

    #: Latest rounds kept.
    window: int
    #: Latest rounds that the filter looks at.
    filter_window: int
    min_rounds: int
    rows: list[RoundRow] = field(default_factory=list)

    def append(self, row: RoundRow) -> str:
        """Add a round; return why the regime has ended with it, empty if it has not."""
        reason = self._changed(row)
        if reason:
            self.rows = [row]
            return reason
        self.rows = [*self.rows, row][-max(self.window, self.filter_window) :]
        gaps = [each.mean_gap_s for each in self.rows]
        verdict = stable_window(gaps, window=self.filter_window, min_rounds=self.min_rounds)
        if not verdict.shifted:
            return ""
        now = median(gaps[-_LATEST:])
        before = verdict.median_s
        latest = self.rows[-_LATEST:]
        while len(latest) > 1 and abs(latest[0].mean_gap_s - now) > abs(latest[0].mean_gap_s - before):
            latest = latest[1:]
        self.rows = latest
        return f"gaps have moved from {before:.3g} s to {now:.3g} s (spread {verdict.width_s:.2g} s)"

    def end(self) -> None:
        """Forget every round: the user has ended the regime."""
        self.rows = []

    def starts(self) -> list[list[float]]:
        """Return the starts beside the latest rounds, shape ``(k, n)``; empty if none is known.

        A round in which nothing was started, because it was kept, borrows those of the rounds that have some, in turn.
        """
        known = [row.start_s for row in self.latest if row.whole]
        if not known:
            return []
        lent = 0
        table = []
        for row in self.latest:
            values = row.start_s
            if not row.whole:
                values, lent = known[lent % len(known)], lent + 1
            table.append([float(value or 0.0) for value in values])
        return table

    @property
    def latest(self) -> list[RoundRow]:
        """The rounds that a plan looks at."""
        return self.rows[-self.window :]

    def _changed(self, row: RoundRow) -> str:
        if not self.rows:
            return ""
        former = self.rows[-1].key
        return "; ".join(
            f"{word} changed from {_shown(former[word])} to {_shown(value)}"
            for word, value in row.key.items()
            if former.get(word, value) != value
        )


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

"""Hold what a bench measured: rows with their samples, baselines, spreads and bars.

A row holds every sample, so that its figures are computed in one place: medians, the ratio of the medians, and the
spread of each.  Where a value and its baseline were measured in pairs, one after the other, the spread of the ratio is
that of the pairs: a change of the machine's load hits both halves of a pair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeVar

import numpy as np

__all__ = ["Bar", "Paired", "Row", "Spread", "amount", "in_turn", "pair_up", "quantile", "spread_of"]

T = TypeVar("T")
#: From so many samples on, a spread is p10..p90; below, min..max (a tenth of fewer samples is less than one of them).
_N_QUANTILES = 10
#: Bars that are fractions of whole numbers are printed as such.
_FRACTIONS = {1 / 2: "1/2", 1 / 3: "1/3", 1 / 10: "1/10", 1 / 30: "1/30"}


class Spread(TypedDict):
    """How far samples lie apart."""

    kind: str
    low: float
    high: float
    n: int


class Paired(TypedDict):
    """The fields of a :class:`Row` that was measured in turn."""

    samples: tuple[float, ...]
    baseline_samples: tuple[float, ...]
    pairs: tuple[float, ...]


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile of at least one sample, linear between neighbours."""
    return float(np.quantile(values, q))


def spread_of(values: Sequence[float]) -> Spread | None:
    """Return how far samples lie apart; ``None`` without samples.

    Examples
    --------
    >>> spread_of([1.0, 2.0, 4.0])
    {'kind': 'min..max', 'low': 1.0, 'high': 4.0, 'n': 3}
    """
    if not values:
        return None
    if len(values) < _N_QUANTILES:
        return {"kind": "min..max", "low": min(values), "high": max(values), "n": len(values)}
    return {"kind": "p10..p90", "low": quantile(values, 0.1), "high": quantile(values, 0.9), "n": len(values)}


def in_turn(n: int, ways: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Measure every way in turn, A B A B, `n` times; return what each came to, by its name."""
    measured: dict[str, list[T]] = {name: [] for name in ways}
    for _ in range(n):
        for name, measure in ways.items():
            measured[name].append(measure())
    return measured


def pair_up(turns: Sequence[float | Sequence[float]], baseline_turns: Sequence[float | Sequence[float]]) -> Paired:
    """Return the fields of a :class:`Row` that was measured in turn: all samples, and each pair's ratio.

    Parameters
    ----------
    turns, baseline_turns
        The sample of each turn, or its block of samples; as many turns of one as of the other.

    Examples
    --------
    >>> pair_up([1.0, 2.0], [[4.0], [4.0]])
    {'samples': (1.0, 2.0), 'baseline_samples': (4.0, 4.0), 'pairs': (0.25, 0.5)}
    """
    mine, theirs = (
        [(turn,) if isinstance(turn, float | int) else turn for turn in of] for of in (turns, baseline_turns)
    )
    return {
        "samples": tuple(sample for block in mine for sample in block),
        "baseline_samples": tuple(sample for block in theirs for sample in block),
        "pairs": tuple(quantile(a, 0.5) / quantile(b, 0.5) for a, b in zip(mine, theirs, strict=True)),
    }


@dataclass(frozen=True, slots=True)
class Bar:
    """What a row must not exceed, must reach, or both.

    Raises
    ------
    ValueError
        If `on` is unknown, or there is no limit.
    """

    #: ``ratio`` (to the baseline), ``value`` (in the row's unit), or ``worst`` (the smallest sample).
    on: str
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.on not in ("ratio", "value", "worst"):
            raise ValueError(f"on must be 'ratio', 'value' or 'worst', got {self.on!r}")
        if self.at_most is None and self.at_least is None:
            raise ValueError("a bar has at_most, at_least or both, got neither")

    def kept_by(self, value: float) -> bool:
        """Return whether a figure keeps the bar."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    def text(self, unit: str) -> str:
        """Return the bar in words: ``ratio <= 1/10``, ``value <= 5 ms``, ``worst >= 475 reward``."""
        limits = [(sign, limit) for sign, limit in ((">=", self.at_least), ("<=", self.at_most)) if limit is not None]
        if self.on == "ratio":
            words = [f"{sign} {_FRACTIONS.get(limit, f'{limit:.3g}')}" for sign, limit in limits]
        else:
            words = [f"{sign} {amount(limit, unit)}" for sign, limit in limits]
        return f"{self.on} {' and '.join(words)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One claim with its samples.

    Raises
    ------
    ValueError
        If a bar on the ratio stands without a baseline's name.
    """

    id: str
    #: What was measured, in words; the baseline's words follow in `against`.
    title: str
    samples: Sequence[float] = ()
    #: ``s``, or a noun of what is counted.
    unit: str = "s"
    #: What it is compared with, in words; empty where there is no baseline.
    against: str = ""
    baseline_samples: Sequence[float] = ()
    #: Ratio of each interleaved pair (of blocks), see :func:`pair_up`.
    pairs: Sequence[float] = ()
    #: Between what the value lies, where that is not how far samples lie apart.
    interval: Spread | None = None
    bar: Bar | None = None
    #: Whether a missed bar fails ``--strict``.
    binding: bool = True
    origin: str = "measured"
    #: Why there is no value (or no baseline), in words; empty if there is.
    not_measured: str = ""
    #: Whether it was left out on purpose (then the bench's exit code does not mind).
    skipped: bool = False

    def __post_init__(self) -> None:
        if self.bar is not None and self.bar.on == "ratio" and not self.against:
            raise ValueError(f"row {self.id}: a bar on the ratio needs a baseline")

    @property
    def value(self) -> float | None:
        """Median of the samples."""
        return quantile(self.samples, 0.5) if self.samples else None

    @property
    def baseline(self) -> float | None:
        """Median of the baseline's samples."""
        return quantile(self.baseline_samples, 0.5) if self.baseline_samples else None

    @property
    def ratio(self) -> float | None:
        """Median value / median baseline, dimensionless."""
        value, baseline = self.value, self.baseline
        return value / baseline if value is not None and baseline else None

    @property
    def spread(self) -> dict[str, Spread | None]:
        """Spread of the value, of the baseline, and of the ratio over pairs; each ``None`` without samples."""
        samples = {"value": self.samples, "baseline": self.baseline_samples, "ratio": self.pairs}
        spreads = {name: spread_of(values) for name, values in samples.items()}
        return spreads if self.interval is None else spreads | {"value": self.interval}

    @property
    def holds(self) -> bool | None:
        """Whether the bar is kept; ``None`` without a bar or without what it speaks of."""
        if self.bar is None:
            return None
        figures = {"ratio": self.ratio, "value": self.value, "worst": min(self.samples, default=None)}
        value = figures[self.bar.on]
        return None if value is None else self.bar.kept_by(value)

    @property
    def measured(self) -> bool:
        """Whether everything that the row promises has been measured."""
        return not self.not_measured and self.value is not None

    def to_plain(self) -> dict[str, object]:
        """Return the row as plain data, in the form that every bench shares."""
        title = f"{self.title}, {self.unit}" + (f"; v {self.against}" if self.against else "")
        if self.not_measured:
            title += f" (not measured: {self.not_measured})"
        return {
            "id": self.id,
            "what": title,
            "baseline": self.baseline,
            "value": self.value,
            "ratio": self.ratio,
            "spread": self.spread,
            "bar": self.bar.text(self.unit) if self.bar is not None else None,
            "holds": self.holds,
            "binding": self.binding and self.bar is not None,
            "origin": self.origin,
        }

    def lines(self) -> list[str]:
        """Return the row as lines of text: its claim, then its figures, then what stands against it."""
        verdict = {True: ": holds", False: ": MISSED", None: ""}[self.holds]
        bar = f"  [{self.bar.text(self.unit)}{verdict}]" if self.bar is not None else ""
        spread = self.spread
        lines = [f"{self.id}: {self.title}"]
        if self.value is not None:
            ratio = f"  ratio {self.ratio:.3g}{_range(spread['ratio'], '')}" if self.ratio is not None else ""
            lines.append(f"    {amount(self.value, self.unit)}{_range(spread['value'], self.unit)}{ratio}{bar}")
        if self.baseline is not None:
            seen = f"{amount(self.baseline, self.unit)}{_range(spread['baseline'], self.unit)}"
            lines.append(f"    v {seen}: {self.against}")
        if self.not_measured:
            lines.append(f"    not measured: {self.not_measured}")
        return lines


def amount(value: float, unit: str) -> str:
    """Return a quantity in words: seconds below 1 as milliseconds."""
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} {unit}"


def _range(spread: Spread | None, unit: str) -> str:
    if spread is None or spread["n"] < 2:
        return ""
    low, high = (amount(end, unit).strip() for end in (spread["low"], spread["high"]))
    return f" ({spread['kind']} {low} .. {high}, n={spread['n']})"

"""What does a bench say, and in which form?  Rows of (value, baseline, ratio, spread, bar), as a table and as JSON.

A row holds every sample, so that its figures are computed in one place: medians, the ratio of the medians, and the
spread of each.  Where a value and its baseline were taken in pairs, one after the other, the spread of the ratio is
that of the pairs: a change of the machine's load hits both halves of a pair.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from drlnb.records.errors import ConfigError
from drlnb.runtime.files.versions import versions

__all__ = ["Bar", "Report", "Row", "busy_notice", "load", "machine", "pair_up", "quantile", "row_lines", "spread_of"]

#: From so many samples on, a spread is p10..p90; below, min..max (a tenth of fewer samples is less than one of them).
_N_QUANTILES = 10
#: Load average above which the figures are said to be noisy: half a core's worth of other work.
_BUSY_LOAD = 0.5
#: Decimals that tell a bar as a fraction of whole numbers.
_FRACTIONS = {1 / 2: "1/2", 1 / 3: "1/3", 1 / 10: "1/10", 1 / 30: "1/30"}


def quantile(values: Sequence[float], q: float) -> float:
    """Return a quantile of some samples, linear between neighbours.

    Parameters
    ----------
    values
        At least one sample.
    q
        Fraction of samples below, in [0, 1].

    Raises
    ------
    ValueError
        If there are no samples, or `q` is outside its range.

    Examples
    --------
    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([0.0, 10.0], 0.9)
    (2.0, 9.0)
    """
    if not values:
        raise ValueError("values must hold at least one sample, got none")
    if not 0 <= q <= 1:
        raise ValueError(f"q must be in [0, 1], got {q}")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def spread_of(values: Sequence[float]) -> dict[str, Any] | None:
    """Return how far samples lie apart: ``{"kind", "low", "high", "n"}``; ``None`` without samples.

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


def pair_up(blocks: Sequence[Sequence[float]], baseline_blocks: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the fields of a :class:`Row` that was measured in turn, A B A B: all samples, and each pair's ratio.

    Parameters
    ----------
    blocks, baseline_blocks
        Samples of each turn; as many blocks of one as of the other, each with at least one sample.

    Examples
    --------
    >>> pair_up([[1.0], [2.0]], [[4.0], [4.0]])
    {'samples': (1.0, 2.0), 'baseline_samples': (4.0, 4.0), 'pairs': (0.25, 0.5)}
    """
    turns = zip(blocks, baseline_blocks, strict=True)
    return {
        "samples": tuple(sample for block in blocks for sample in block),
        "baseline_samples": tuple(sample for block in baseline_blocks for sample in block),
        "pairs": tuple(quantile(mine, 0.5) / quantile(theirs, 0.5) for mine, theirs in turns),
    }


@dataclass(frozen=True, slots=True)
class Bar:
    """What a row must not exceed, or must reach.

    Raises
    ------
    ValueError
        If `on` is unknown, or there is not just one limit.
    """

    #: ``ratio`` (to the baseline), ``value`` (in the row's unit), or ``worst`` (the smallest sample).
    on: str
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.on not in ("ratio", "value", "worst"):
            raise ValueError(f"on must be 'ratio', 'value' or 'worst', got {self.on!r}")
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"a bar has at_most or at_least, got {self.at_most} and {self.at_least}")

    def kept_by(self, seen: float) -> bool:
        """Return whether a figure keeps the bar."""
        return seen <= self.at_most if self.at_most is not None else seen >= (self.at_least or 0.0)

    def text(self, unit: str) -> str:
        """Say the bar in words: ``ratio <= 1/10``, ``value <= 5 ms``, ``worst >= 475 reward``."""
        sign, limit = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least or 0.0)
        if self.on == "ratio":
            return f"ratio {sign} {_FRACTIONS.get(limit, f'{limit:.3g}')}"
        return f"{self.on} {sign} {_amount(limit, unit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim with its samples.

    Raises
    ------
    ValueError
        If a bar on the ratio stands without a baseline's name.
    """

    id: str
    #: What was measured, in words; the baseline's words follow in `against`.
    what: str
    #: ``s``, or a noun of what is counted.
    unit: str = "s"
    samples: tuple[float, ...] = ()
    #: What it is compared with, in words; empty where there is no baseline.
    against: str = ""
    baseline_samples: tuple[float, ...] = ()
    #: Ratio of each interleaved pair (of blocks), see :func:`pair_up`.
    pairs: tuple[float, ...] = ()
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
    def spread(self) -> dict[str, Any]:
        """Spread of the value, of the baseline, and of the ratio over pairs; each ``None`` without samples."""
        return {
            "value": spread_of(self.samples),
            "baseline": spread_of(self.baseline_samples),
            "ratio": spread_of(self.pairs),
        }

    @property
    def holds(self) -> bool | None:
        """Whether the bar is kept; ``None`` without a bar or without what it speaks of."""
        if self.bar is None:
            return None
        worst = min(self.samples, default=None)
        seen = {"ratio": self.ratio, "value": self.value, "worst": worst}[self.bar.on]
        return None if seen is None else self.bar.kept_by(seen)

    @property
    def measured(self) -> bool:
        """Whether everything that the row promises has been measured."""
        return not self.not_measured and self.value is not None

    def to_plain(self) -> dict[str, Any]:
        """Return the row as plain data, in the form that every bench shares."""
        what = f"{self.what}, {self.unit}" + (f"; v {self.against}" if self.against else "")
        if self.not_measured:
            what += f" (not measured: {self.not_measured})"
        return {
            "id": self.id,
            "what": what,
            "baseline": self.baseline,
            "value": self.value,
            "ratio": self.ratio,
            "spread": self.spread,
            "bar": self.bar.text(self.unit) if self.bar is not None else None,
            "holds": self.holds,
            "binding": self.binding and self.bar is not None,
            "origin": self.origin,
        }


def load() -> float:
    """Return the machine's load average over the last minute, 0 where the system has none."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def machine() -> dict[str, Any]:
    """Describe this machine: processor, cores, memory, system, load."""
    return {
        "cpu": _cpu_name(),
        "n_cpus": os.cpu_count() or 1,
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "load_1min": load(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def busy_notice(load_1min: float) -> str:
    """Return what to say about a machine's load; empty if it is idle."""
    if load_1min <= _BUSY_LOAD:
        return ""
    return f"load average {load_1min:.2f}: the machine is busy, so these figures are noisy; repeat on an idle one"


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that one bench found."""

    bench: str
    machine: dict[str, Any] = field(default_factory=machine)
    versions: Mapping[str, str] = field(default_factory=versions)
    rows: list[Row] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """Return the report as plain data."""
        rows = [row.to_plain() for row in self.rows]
        return {"bench": self.bench, "machine": self.machine, "versions": dict(self.versions), "rows": rows}

    def write(self, path: Path) -> None:
        """Write the JSON form, whole or not at all.

        Raises
        ------
        ConfigError
            If it cannot be written.
        """
        temporary = path.with_name(path.name + ".part")
        try:
            temporary.write_text(json.dumps(self.to_plain(), indent=1) + "\n", encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise ConfigError(f"--json {path} cannot be written: {error.strerror}") from None

    def header(self) -> str:
        """Return one line on the machine, and one on its load if it is busy."""
        facts = self.machine
        memory_gib = facts["memory_bytes"] / 2**30
        line = f"{facts['n_cpus']} x {facts['cpu']}, {memory_gib:.0f} GiB, load {facts['load_1min']:.2f}"
        notice = busy_notice(facts["load_1min"])
        named = ", ".join(
            f"{name} {self.versions[name]}" for name in ("python", "distributed", "torch") if name in self.versions
        )
        return "\n".join(part for part in (line, named, notice) if part)

    def table(self) -> str:
        """Return the rows for a terminal."""
        return "\n".join(line for row in self.rows for line in row_lines(row))

    def exit_code(self, *, strict: bool) -> int:
        """Return 0 if the rows could be measured; with `strict`, 1 also for a missed binding bar."""
        if any(not row.measured and not row.skipped for row in self.rows):
            return 1
        missed = any(row.holds is False and row.binding for row in self.rows)
        return 1 if strict and missed else 0


def row_lines(row: Row) -> list[str]:
    """Return a row as lines of text: its claim, then its figures, then what stands against it."""
    verdict = {True: "holds", False: "MISSED", None: ""}[row.holds]
    bar = f"  [{row.bar.text(row.unit)}{': ' + verdict if verdict else ''}]" if row.bar is not None else ""
    lines = [f"{row.id}: {row.what}"]
    if row.value is not None:
        ratio = f"  ratio {row.ratio:.3g}{_range(row.spread['ratio'], '')}" if row.ratio is not None else ""
        lines.append(f"    {_amount(row.value, row.unit)}{_range(row.spread['value'], row.unit)}{ratio}{bar}")
    if row.baseline is not None:
        lines.append(
            f"    v {_amount(row.baseline, row.unit)}{_range(row.spread['baseline'], row.unit)}: {row.against}"
        )
    if row.not_measured:
        lines.append(f"    not measured: {row.not_measured}")
    return lines


def _amount(value: float, unit: str) -> str:
    """Return a quantity for a person: seconds below 1 as milliseconds."""
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} {unit}"


def _range(spread: Mapping[str, Any] | None, unit: str) -> str:
    if spread is None or spread["n"] < 2:
        return ""
    low, high = (_amount(spread[end], unit).strip() for end in ("low", "high"))
    return f" ({spread['kind']} {low} .. {high}, n={spread['n']})"

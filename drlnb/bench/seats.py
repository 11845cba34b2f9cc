"""``drlnb bench seats``: is a lease with seats ever worse than what a lab does without leases?

The same tasks share one device exclusively, as ordinary processes at once, and leased with seats 1, 2 and ``auto``
(:mod:`drlnb.bench.sharing`), with small kernels, with large ones, and in very short rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from drlnb.bench.groups import BenchParser, chosen, go_through
from drlnb.bench.report import Report, Row
from drlnb.bench.sharing import REGIMES, apart, compare, rows

__all__ = ["GROUPS", "Effort", "isolation", "large", "main", "short", "small"]

#: Row group -> (module, function): called with the effort, returns rows.
GROUPS = {name: ("drlnb.bench.seats", name) for name in (*REGIMES, "isolation")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Interleaved turns of all ways.
    repeats: int = 3
    #: Seconds that count, per way and turn.
    seconds: float = 30.0


def small(effort: Effort) -> tuple[Row, ...]:
    """Compare with small kernels: what one executor leaves of a device is most of it."""
    return rows(REGIMES["small"], compare(REGIMES["small"], effort.seconds, effort.repeats))


def large(effort: Effort) -> tuple[Row, ...]:
    """Compare with large kernels: one executor nearly fills a device."""
    return rows(REGIMES["large"], compare(REGIMES["large"], effort.seconds, effort.repeats))


def short(effort: Effort) -> tuple[Row, ...]:
    """Compare with rounds of some 20 ms, in which control weighs most."""
    return rows(REGIMES["short"], compare(REGIMES["short"], effort.seconds, effort.repeats))


def isolation(effort: Effort) -> tuple[Row, ...]:
    """Compare one executor per task with one for both of two tasks, in short rounds: they change hands most often."""
    return apart(replace(REGIMES["short"], n_tasks=2), effort.seconds, effort.repeats)


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench seats``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser(
        "seats", "Share one device exclusively, by processes at once, and by leases with seats.", GROUPS
    )
    parser.number("repeats", 3, least=1, help="turns of every way")
    parser.number("seconds", 30.0, least=1, help="that count, per way")
    args = parser.parse(argv)
    report = Report(bench="seats")
    effort = Effort(repeats=args.repeats, seconds=args.seconds)
    go_through(report, GROUPS, chosen(args.rows, GROUPS), effort, args.json)
    return report.exit_code(strict=args.strict)

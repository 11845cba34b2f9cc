"""``drlnb bench runtime``: what does it cost to run on Dask, in processes, under leases?

Each group of rows lives in a file of its own and is imported when it is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.bench.groups import BenchParser, chosen, go_through
from drlnb.bench.report import Report

__all__ = ["GROUPS", "Effort", "main"]

#: Row group -> (module, function): called with the effort, returns rows.  In the order in which they are measured.
GROUPS = {
    "hops": ("drlnb.bench.messages", "hops"),
    "handover": ("drlnb.bench.messages", "handover"),
    "overhead": ("drlnb.bench.training", "overhead"),
    "overhead-train": ("drlnb.bench.training", "overhead_train"),
    "startup": ("drlnb.bench.starts", "startup"),
    "reclaim": ("drlnb.bench.reclaim", "reclaim"),
    "failover": ("drlnb.bench.deaths", "failover"),
    "first-step": ("drlnb.bench.training", "first_step"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Interleaved pairs of blocks per row.
    repeats: int = 3
    #: Leave out what takes longer than a minute by its own rules.
    quick: bool = False
    #: Environment steps of ``overhead-train``.
    steps: int = 50_000


def _parser() -> BenchParser:
    parser = BenchParser(
        "runtime", "Measure what drlnb's processes, messages and leases cost, each against a named baseline.", GROUPS
    )
    parser.number("repeats", 3, least=1, help="interleaved pairs per row")
    parser.number("steps", 50_000, least=1, help="steps of overhead-train")
    parser.add_argument(
        "--quick", action="store_true", help="leave out the baseline of reclaim: it takes 30-40 s by its rules"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench runtime``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    args = _parser().parse(argv)
    names = chosen(args.rows, GROUPS)
    report = Report(bench="runtime")
    effort = Effort(repeats=args.repeats, quick=args.quick, steps=args.steps)
    go_through(report, GROUPS, names, effort, args.json)
    return report.exit_code(strict=args.strict)

"""``drlnb bench leasing``: does sharing slots pay, at what price in round time, and how fast is the table?"""

from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.bench.groups import BenchParser, chosen, go_through, live_part
from drlnb.bench.report import Report

__all__ = ["GROUPS", "Effort", "main"]

#: Row group -> (module, function): called with the effort, returns rows.  In the order in which they are measured.
GROUPS = {
    "utilisation": ("drlnb.bench.leasing_rows", "utilisation"),
    "throughput": ("drlnb.bench.leasing_rows", "throughput"),
    "fairness": ("drlnb.bench.leasing_rows", "fairness"),
    "makespan": ("drlnb.bench.leasing_rows", "makespan"),
    "table": ("drlnb.bench.leasing_rows", "table"),
    "held-out": ("drlnb.bench.leasing_rows", "held_out"),
    "events": ("drlnb.bench.leasing_events", "events"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Rounds per task and simulated run; a tenth does not count.
    rounds: int = 60
    #: Rounds per task where slot seconds are compared.
    fair_rounds: int = 200
    #: Seeds of the rows that are no hold-outs.
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    #: Seeds on which nothing was ever tuned.
    held_out: tuple[int, ...] = (100, 101, 102, 103, 104)
    #: Events that the table is timed with, for each number of waiting tasks.
    events: int = 20_000


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench leasing``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser("leasing", "Share slots by each hold planner, in simulation; time the lease table.", GROUPS)
    parser.number("rounds", 60, least=20, help="rounds per simulated run")
    parser.number("repeats", 5, least=1, most=5, help="seeds per row, at most 5")
    parser.live("leasing-live", least_rounds=8)
    args = parser.parse(argv)
    live = live_part(args, "drlnb.bench.leasing_live")
    names = chosen(args.rows, GROUPS, live[0] if live else None)
    report = Report(bench="leasing")
    whole = Effort()
    effort = Effort(
        rounds=args.rounds,
        fair_rounds=max(args.rounds, whole.fair_rounds) if args.rounds >= whole.rounds else args.rounds,
        seeds=whole.seeds[: args.repeats],
        held_out=whole.held_out[: args.repeats],
    )
    more = live and (live[0], [name for name in live[1] if name in names], live[2])
    go_through(report, GROUPS, [name for name in GROUPS if name in names], effort, args.json, more)
    return report.exit_code(strict=args.strict)

"""``drlnb bench rl``: how fast is one training, and four at once, beside Stable-Baselines3, and are returns equal?"""

from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.bench.groups import BenchParser, chosen, go_through
from drlnb.bench.report import Report

__all__ = ["GROUPS", "Effort", "main"]

#: Row group -> (module, function): called with the effort, returns rows.  In the order in which they are measured.
GROUPS = {
    "cartpole": ("drlnb.bench.rl_rows", "cartpole"),
    "acrobot": ("drlnb.bench.rl_rows", "acrobot"),
    "pendulum": ("drlnb.bench.rl_rows", "pendulum"),
    "four": ("drlnb.bench.rl_rows", "four"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Interleaved pairs of trainings, each pair under a seed of its own.
    pairs: int = 5
    #: Environment steps per training; None: those of the row.
    steps: int | None = None
    #: Seed of the first pair.
    seed: int = 0


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench rl``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser("rl", "Train with the same settings here and in Stable-Baselines3, in turn.", GROUPS)
    # The returns are compared under every relabelling: more pairs would take for ever.
    parser.number("pairs", 5, least=1, most=10, help="interleaved pairs per row, at most 10")
    parser.number("steps", None, least=1, help="environment steps per training (default: the row's)")
    parser.number("seed", 0, least=0, help="seed of the first pair")
    args = parser.parse(argv)
    names = chosen(args.rows, GROUPS)
    report = Report(bench="rl")
    go_through(report, GROUPS, names, Effort(pairs=args.pairs, steps=args.steps, seed=args.seed), args.json)
    return report.exit_code(strict=args.strict)

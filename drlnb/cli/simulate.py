"""``drlnb simulate train``: the same machines on a virtual clock."""

import argparse
from typing import Any

from drlnb.cli.parser import at_least

__all__ = ["add_parser"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="run the machines on a virtual clock")
    parser.add_argument("what", choices=["train"], metavar="WHAT", help="train: whole runs")
    parser.add_argument("--tasks", type=at_least(1), default=4, metavar="T", help="tasks (default 4)")
    parser.add_argument("--gpus", type=at_least(1), default=1, metavar="K", help="slots (default 1)")
    parser.add_argument("--rounds", type=at_least(1), default=100, metavar="N", help="rounds per task (default 100)")
    parser.add_argument(
        "--collectors", type=at_least(1), default=2, metavar="N", help="collectors per task (default 2)"
    )
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of the durations (default 0)")
    parser.add_argument(
        "--hold",
        choices=["round", "last"],
        default="round",
        metavar="NAME",
        help="hold planner: round (default) or last",
    )
    parser.add_argument("--out", metavar="DIR", help="write the journal there")
    parser.add_argument("--json", action="store_true", help="last line of standard output: the summary as JSON")
    parser.set_defaults(run=run, parser=parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the simulator."""
    from drlnb.sim import train

    code: int | None = train.main(args)
    return code or 0

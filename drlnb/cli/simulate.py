"""``drlnb simulate WHAT``: the same machines on a virtual clock."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from drlnb.cli.parser import Parser, at_least, seed_list

__all__ = ["add_parser"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command; each kind of simulation has options of its own."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="run the machines on a virtual clock")
    kinds = parser.add_subparsers(metavar="WHAT", dest="what", required=True, parser_class=Parser)
    for what, (words, add_options, module) in _KINDS.items():
        kind = kinds.add_parser(what, help=words)
        add_options(kind)
        kind.add_argument("--json", action="store_true", help="last line of standard output: the summary as JSON")
        kind.add_argument("--debug", action="store_true", help="show the traceback of an error")
        kind.set_defaults(run=run, parser=kind, module=module)
    return parser


def _train_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=at_least(1), default=4, metavar="T", help="tasks (default 4)")
    parser.add_argument("--gpus", type=at_least(1), default=1, metavar="K", help="slots (default 1)")
    parser.add_argument("--rounds", type=at_least(1), default=100, metavar="N", help="rounds per task (default 100)")
    parser.add_argument(
        "--collectors", type=at_least(1), default=2, metavar="N", help="collectors per task (default 2)"
    )
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of the durations (default 0)")
    parser.add_argument(
        "--hold",
        choices=["round", "yield", "last"],
        default="yield",
        metavar="NAME",
        help="hold planner: yield (default), round (the seed's) or last",
    )
    parser.add_argument("--out", metavar="DIR", help="write the journal there")


def _leasing_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--hold", default="all", metavar="LIST", help="hold planners by comma, or all (default)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--load", type=float, metavar="X", help="as many tasks as make this load (default 1.0)")
    size.add_argument("--tasks", type=at_least(1), metavar="T", help="tasks")
    add("--gpus", type=at_least(1), default=2, metavar="K", help="slots (default 2)")
    add("--workers", type=at_least(1), default=4, metavar="N", help="collectors per task, one batch each (default 4)")
    add("--cv", type=float, default=0.2, metavar="X", help="spread of the collectors' times (default 0.2)")
    add("--compute", type=float, default=0.25, metavar="S", help="seconds per batch (default 0.25)")
    add("--collect", type=float, default=4.0, metavar="S", help="mean seconds of a collector (default 4)")
    add("--switch", type=float, default=0.0, metavar="S", help="seconds to switch a slot's task (default 0)")
    add("--unequal", type=float, default=0.0, metavar="X", help="the last task collects so much longer (default 0)")
    add("--queue", default="fifo", metavar="NAME", help="who is next: fifo (default) or drr")
    add("--no-stream", action="store_true", help="nothing is computed before all experience of a round is there")
    add(
        "--faults",
        default="",
        metavar="LIST",
        help="what goes wrong per hour, as holder=20,frozen=20,executor=10,slot=5,collector=30 (default nothing)",
    )
    add("--rounds", type=at_least(20), default=60, metavar="N", help="rounds per task, a tenth discarded (default 60)")
    add("--seeds", type=seed_list, default=[0, 1, 2, 3, 4], metavar="LIST", help="of the durations (default 0-4)")


def _warmup_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--planners", default="all", metavar="LIST", help="warm-up planners by comma, or all (default)")
    add("--shape", default="jitter", metavar="NAME", help="of the rounds: jitter (default), outliers, shifts")
    add("--start-mode", default="spawn", metavar="MODE", help="spawn (default) or zygote")
    add("--rho", type=float, default=1.0, metavar="X", help="price of a second's wait (default 1)")
    add("--kappa", type=float, default=1.0, metavar="X", help="price of a second of starting (default 1)")
    add("--workers", type=at_least(1), default=8, metavar="N", help="collectors of the task (default 8)")
    add("--rounds", type=at_least(1), default=400, metavar="N", help="rounds of the task (default 400)")
    add("--gap", type=float, default=6.0, metavar="S", help="seconds from sending to new parameters (default 6)")
    add("--jitter", type=float, default=0.1, metavar="X", help="spread of the gap, relative to it (default 0.1)")
    add("--start-p95", type=float, metavar="S", help="95%% quantile of a start (default: measured for the mode)")
    add("--seeds", type=seed_list, default=[0], metavar="LIST", help="of the durations: 0-4 or 1,5 (default 0)")
    add("--out", metavar="DIR", help="write the journals there")


#: What can be simulated -> words of ``--help``, its options, the module whose ``main`` runs it.
_KINDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str]] = {
    "train": ("whole runs", _train_options, "drlnb.sim.training.report"),
    "leasing": ("who holds which slot when", _leasing_options, "drlnb.sim.leasing.report"),
    "warmup": ("when collectors start", _warmup_options, "drlnb.sim.warmup.report"),
}


def run(args: argparse.Namespace) -> int:
    """Run the simulator."""
    code: int | None = import_module(args.module).main(args)
    return code or 0

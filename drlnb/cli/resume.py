"""``drlnb resume DIR``: go on with a run that was stopped or interrupted."""

import argparse
from pathlib import Path
from typing import Any

from drlnb.cli.parser import UsageError
from drlnb.cli.train import add_cluster_options

__all__ = ["add_parser"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="go on with a run, from its last checkpoints")
    parser.add_argument("dir", metavar="DIR", type=Path, help="run directory")
    add_cluster_options(parser)
    parser.set_defaults(run=run, parser=parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Go on."""
    if args.client and args.workers:
        raise UsageError("--workers is for the local cluster, not for the one at --client")
    from drlnb.fleet.fleet import Fleet
    from drlnb.fleet.resume import as_before

    asked = {"n_workers": args.workers, "slots": args.gpus, "seats": args.seats, "isolation": args.isolation}
    wanted = as_before(args.dir, args.client, asked)  # before a cluster is started

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        fleet = session.open(lambda: Fleet(args.client, **wanted))
        return session.follow(fleet.go_on(args.dir))

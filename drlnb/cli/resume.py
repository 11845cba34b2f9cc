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
    from drlnb.fleet.cluster.existing import check
    from drlnb.fleet.fleet import Fleet
    from drlnb.runtime.files.run_directory import RunDir

    spec = RunDir(args.dir).read_spec()
    check(args.dir, spec, "resume")  # before a cluster is started
    pool = {} if args.client else spec.get("pool", {})

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        slots = args.gpus or pool.get("slots") or pool.get("n_slots", "auto")
        workers = args.workers or pool.get("n_workers")
        seats = args.seats or pool.get("seats", 1)
        isolation = args.isolation or pool.get("isolation", "shared")
        wanted = {"n_workers": workers, "slots": slots, "seats": seats, "isolation": isolation}
        fleet = session.open(lambda: Fleet(args.client, **wanted))
        return session.follow(fleet.go_on(args.dir))

"""``drlnb resume DIR``: go on with a run that was stopped or interrupted."""

import argparse
from pathlib import Path

from drlnb.cli.parser import Command, option
from drlnb.cli.train import CLUSTER, check_cluster

__all__ = ["COMMAND"]


def run(args: argparse.Namespace) -> int:
    """Go on."""
    check_cluster(args)
    from drlnb.fleet.fleet import Fleet
    from drlnb.fleet.resume import as_before

    asked = {"n_workers": args.workers, "slots": args.gpus, "seats": args.seats, "isolation": args.isolation}
    wanted = as_before(args.dir, args.client, asked)  # before a cluster is started

    from drlnb.cli.session import Session

    with Session(as_json=args.json, debug=args.debug) as session:
        session.fleet = Fleet(args.client, **wanted)
        return session.follow(session.fleet.go_on(args.dir))


_DIR = option("dir", metavar="DIR", type=Path, help="run directory")
#: How ``drlnb resume`` is called.
COMMAND = Command("go on with a run, from its last checkpoints", run, (_DIR, *CLUSTER))

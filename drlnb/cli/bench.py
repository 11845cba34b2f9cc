"""``drlnb bench NAME``: print claims as ratios against named baselines."""

import argparse

from drlnb.cli.parser import Command, UsageError, nearest, option

__all__ = ["COMMAND"]


def run(args: argparse.Namespace) -> int:
    """Run one bench; 0 if its rows could be measured."""
    from drlnb.bench.benches import BENCHES

    if args.name not in BENCHES:
        raise UsageError(f"unknown bench {args.name!r}{nearest(args.name, BENCHES)}")
    return BENCHES[args.name].main([word for word in args.words if word != "--debug"])


#: How ``drlnb bench`` is called.
COMMAND = Command(
    "measure the claims against their baselines",
    run,
    (
        option("name", metavar="NAME", help="which bench; its own options follow (NAME --help lists them)"),
        option("words", nargs=argparse.REMAINDER, metavar="...", help="such as --json FILE"),
    ),
)

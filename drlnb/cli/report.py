"""``drlnb report DIR``: write a run as one HTML file that opens with the network off."""

import argparse
from pathlib import Path

from drlnb.cli.parser import Command, option
from drlnb.cli.replay import naming_damage

__all__ = ["COMMAND", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Write the report; print its path and its size."""
    from drlnb.report.build import build

    with naming_damage(arguments.dir):
        written = build(arguments.dir, arguments.out or arguments.dir / "report.html")
    print(f"{written.path}: {written.n_bytes:,} bytes")
    return 0


#: How ``drlnb report`` is called.
COMMAND = Command(
    "write a run as one HTML file that works offline",
    run,
    (
        option("dir", metavar="DIR", type=Path, help="run directory, or its journal folder"),
        option("--out", metavar="FILE", type=Path, help="the file to write (default: report.html in DIR)"),
    ),
)

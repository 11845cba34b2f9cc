"""``drlnb report DIR``: a run as one HTML file that opens with the network off."""

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="write a run as one HTML file that works offline")
    parser.add_argument("dir", metavar="DIR", type=Path, help="run directory, or its journal folder")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the file to write (default: report.html in DIR)")
    parser.set_defaults(run=run, parser=parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Write the report; print its path, size, and how many addresses outside it could ask (0)."""
    from drlnb.report.build import build

    written = build(arguments.dir, arguments.out or arguments.dir / "report.html")
    print(f"{written.path}: {written.n_bytes:,} bytes, {written.n_external_urls} external URLs")
    return 0

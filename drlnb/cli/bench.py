"""``drlnb bench NAME``: print a claim as a ratio against a named baseline."""

import argparse
import pkgutil
from importlib import import_module
from typing import Any

from drlnb.cli.parser import UsageError, nearest

__all__ = ["add_parser"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="measure the claims against their baselines")
    parser.add_argument("name", metavar="NAME", help="which bench")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    parser.set_defaults(run=run, parser=parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run one bench; 0 if its rows could be measured."""
    import drlnb.bench

    known = sorted(module.name for module in pkgutil.iter_modules(drlnb.bench.__path__) if module.name[0] != "_")
    known = [name for name in known if hasattr(import_module(f"drlnb.bench.{name}"), "main")]
    if not known:
        raise UsageError("this version has no bench yet")
    if args.name not in known:
        raise UsageError(f"unknown bench {args.name!r}{nearest(args.name, known)}")
    code: int | None = import_module(f"drlnb.bench.{args.name}").main(args)
    return code or 0

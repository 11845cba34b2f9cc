"""``drlnb bench NAME``: print a claim as a ratio against a named baseline."""

import argparse
import pkgutil
from importlib import import_module
from typing import Any

from drlnb.cli.parser import UsageError, nearest

__all__ = ["add_parser"]

#: Names of benches, in the order of ``docs/reference/cli.md``; a version knows those whose module it has.
_NAMES = (
    "runtime", "rl", "returns", "leasing", "leasing-live", "seats", "warmup", "warmup-live", "batching",
    "swapping", "distribution", "placement", "lab",
)  # fmt: skip


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="measure the claims against their baselines")
    parser.add_argument("name", metavar="NAME", help="which bench; its own options follow (NAME --help lists them)")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="such as --json FILE")
    parser.set_defaults(run=run, parser=parser)
    return parser


def known_names() -> list[str]:
    """Return the benches that this version has."""
    import drlnb.bench

    found = {module.name for module in pkgutil.iter_modules(drlnb.bench.__path__)}
    return [name for name in _NAMES if _module(name) in found]


def _module(name: str) -> str:
    return name.replace("-", "_")


def run(args: argparse.Namespace) -> int:
    """Run one bench; 0 if its rows could be measured."""
    known = known_names()
    if args.name not in known:
        raise UsageError(f"unknown bench {args.name!r}{nearest(args.name, known)}")
    code: int | None = import_module(f"drlnb.bench.{_module(args.name)}").main([
        w for w in args.words if w != "--debug"
    ])
    return code or 0

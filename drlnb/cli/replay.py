"""``drlnb replay DIR``: do fresh machines, fed the events of a run, decide the same again?"""

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any, name: str) -> argparse.ArgumentParser:
    """Add the command."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help="check that a run's decisions can be made again")
    parser.add_argument("dir", metavar="DIR", type=Path, help="run directory, or its journal folder")
    parser.set_defaults(run=run, parser=parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Replay each stream; 0 only if every decision is identical."""
    from drlnb.planning.replay import replay
    from drlnb.records.journal import Journal

    results = [replay(stream) for stream in Journal.read(args.dir).streams.values()]
    for result in results:
        verdict = "DIFFERS" if result.difference else "identical"
        print(f"{result.stream}: {result.n_events} events, {result.n_records} records, {verdict}")
        for kind, count in result.counts.items():
            print(f"    {count:8d} {kind}")
    differences = [result.difference for result in results if result.difference]
    if differences:
        print(f"first difference: {differences[0]}")
        return 1
    print(f"{len(results)} streams, every decision identical")
    return 0

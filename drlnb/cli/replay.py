"""``drlnb replay DIR``: check that fresh machines, fed the events of a run, decide the same again."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drlnb.cli.parser import Command, option

__all__ = ["COMMAND", "naming_damage"]


@contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Where reading a journal fails without words of ours, say which value in it is of a wrong kind, if one is.

    Raises
    ------
    JournalError
        With that value, its field and its stream, instead of what it led to.
    """
    from drlnb.records.errors import InputError, JournalError
    from drlnb.records.journal import Journal
    from drlnb.records.kinds import first_wrong

    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if problem := first_wrong(Journal.read(folder)):
            raise JournalError(problem) from error
        raise


def run(args: argparse.Namespace) -> int:
    """Replay each stream; 0 only if every decision is identical, and no stream was lost."""
    with naming_damage(args.dir):
        return _replay(args)


def _replay(args: argparse.Namespace) -> int:
    import drlnb.learned  # noqa: F401  # its planners have names, too
    from drlnb.planning.replay import replay
    from drlnb.records.journal import Journal
    from drlnb.runtime.files.run_directory import RunDir

    folder = RunDir(args.dir if (args.dir / "journal").is_dir() else args.dir.parent)
    results = [replay(stream) for stream in Journal.read(args.dir).streams.values()]
    for result in results:
        verdict = "DIFFERS" if result.difference else "identical"
        print(f"{result.stream}: {result.n_events} events, {result.n_records} records, {verdict}")
        for kind, count in result.counts.items():
            print(f"    {count:8d} {kind}")
    differences = [result.difference for result in results if result.difference]
    problems = [f"first difference: {text}" for text in differences[:1]] + [f"LOST {text}" for text in folder.lost()]
    if problems:
        print("\n".join(problems))
        return 1
    if not folder.streams():
        print("status.json names no streams: whether one was lost cannot be told")
    print(f"{len(results)} streams, every decision identical")
    return 0


_DIR = option("dir", metavar="DIR", type=Path, help="run directory, or its journal folder")
#: How ``drlnb replay`` is called.
COMMAND = Command("check that a run's decisions can be made again", run, (_DIR,))

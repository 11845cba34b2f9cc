"""Compare planners on the same workloads, and report what came out: tables, JSON, journals."""

import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

import drlnb
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream
from drlnb.records.packed import Packer

__all__ = [
    "Comparison",
    "chosen_names",
    "compare",
    "figure_row",
    "new_directory",
    "print_report",
    "table_lines",
    "write_journal",
]

W = TypeVar("W")
R = TypeVar("R")
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Comparison(Generic[R]):
    """One planner on several workloads."""

    planner: str
    #: One result per workload.
    results: Sequence[R]

    def samples(self, name: str) -> list[float]:
        """Return a figure of each workload."""
        return [getattr(result, name) for result in self.results]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the workloads."""
        return float(np.mean(self.samples(name)))

    def spread(self, name: str) -> Row:
        """Return between which ends a figure lies."""
        samples = self.samples(name)
        return {"kind": "min..max", "low": min(samples), "high": max(samples), "n": len(samples)}


def compare(planners: Iterable[str], workloads: Sequence[W], run: Callable[[W, str], R]) -> tuple[Comparison[R], ...]:
    """Run planners on the same workloads.

    Parameters
    ----------
    planners
        Their names.
    workloads
        Most often one per seed.
    run
        Simulates one workload under a planner.
    """
    return tuple(Comparison(name, [run(workload, name) for workload in workloads]) for name in planners)


def chosen_names(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Return the planners that an option names, each once.

    Parameters
    ----------
    option
        The option.
    text
        Names by comma, or ``all``.
    known
        All names.

    Raises
    ------
    ConfigError
        If a name is unknown, or none is given.

    Examples
    --------
    >>> chosen_names("--hold", "last,round,last", ("round", "yield", "last"))
    ['last', 'round']
    """
    names = list(known) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [repr(name) for name in names if name not in known]
    if unknown or not names:
        raise ConfigError(
            f"{option} must name some of {', '.join(known)}, or be all; got {', '.join(unknown) or repr(text)}"
        )
    return list(dict.fromkeys(names))


# ------------------------------------------------------------------ text and JSON
def table_lines(rows: Sequence[Mapping[str, str]], n_left: int = 1) -> list[str]:
    """Return rows as lines below the names of their columns, each as wide as what is in it.

    Parameters
    ----------
    rows
        Column -> text; the first row has all columns.
    n_left
        Columns that stand at the left, as one without a name does; the others stand at the right.
    """
    columns = [[name, *(row.get(name, "") for row in rows)] for name in rows[0]]
    places = ["<" if i < n_left or not column[0] else ">" for i, column in enumerate(columns)]
    forms = [f"{place}{max(map(len, column))}" for place, column in zip(places, columns, strict=True)]
    return ["  ".join(map(format, line, forms)).rstrip() for line in zip(*columns, strict=True)]


def figure_row(
    name: str, description: str, value: float, against: str, base: float, spread: object = None, **more: object
) -> Row:
    """Return a figure as a row of JSON beside what it is to be compared with; `more`: what else is told."""
    return {
        "id": name,
        "what": description,
        "baseline": f"{against} {base:.6f}",
        "value": value,
        "ratio": value / base if base else None,
        "spread": spread,
        **more,
    }


def print_report(lines: Iterable[str], bench: str, rows: Iterable[Row], *, json_to: str | None, **more: object) -> None:
    """Print a table, and write the rows as JSON with the machine and the versions that they were made by.

    Parameters
    ----------
    lines
        The table.
    bench, rows, more
        What goes into the JSON.
    json_to
        File that it is written to; ``-``: the last line of standard output; None: none is.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if json_to is not None:
        common = {"bar": None, "holds": None, "binding": False, "origin": "simulated"}
        report = {
            "bench": bench,
            "machine": {"system": platform.system(), "processor": platform.machine()},
            "versions": {"drlnb": drlnb.__version__, "python": platform.python_version(), "numpy": np.__version__},
            **more,
            "rows": [row | common for row in rows],
        }
        text = json.dumps(report) + "\n"
        try:
            sys.stdout.write(text) if json_to == "-" else Path(json_to).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--json {json_to} cannot be written: {error.strerror}") from None


# ------------------------------------------------------------------ journals
def new_directory(text: str | None) -> Path | None:
    """Return where ``--out`` wants the journal.

    Raises
    ------
    ConfigError
        If it exists and is not an empty directory, or cannot be made.
    """
    directory = Path(text) if text is not None else None
    if directory is not None and directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConfigError(f"--out must be a new or empty directory, got {directory}")
    try:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be made: {error.strerror}") from None
    return directory


def write_journal(streams: Mapping[str, Stream], directory: Path | None) -> None:
    """Write streams as the journal of a run directory, if there is one."""
    if directory is not None:
        folder = directory / "journal"
        folder.mkdir(parents=True)
        for name, stream in streams.items():
            lines = map(Packer().line, (stream.header, *stream.records))
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

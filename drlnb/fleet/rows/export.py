"""Write the scalars of a run to ``metrics/<task>.csv`` while it trains, under SB3's names."""

import contextlib
import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from drlnb.records.base import Record
from drlnb.records.episodes import success_rate
from drlnb.records.journal import Journal
from drlnb.records.round import EvaluationFinished, MetricsRecorded, TaskOpened
from drlnb.rl.tracking.sinks import evaluation_scalars
from drlnb.views.folds.entries import Entry, entries_of, newest, split_stream

__all__ = ["MetricsCsv", "MetricsExport"]

_ROUND, _STEPS = "time/iterations", "time/total_timesteps"


class MetricsCsv:
    """A CSV file with one row per round, whose header grows when a new metric appears.

    A row is written whole and flushed at once; a row torn by a kill is dropped when the file is opened again.  A new
    column rewrites the file beside the old one and swaps the names, so a reader never sees half a file.

    Parameters
    ----------
    path
        Where the file is, or will be; its folder must exist.
    n_rounds
        Keep the rounds of an older file up to this one.
    """

    def __init__(self, path: Path, n_rounds: float = math.inf) -> None:
        self._path = path
        self._rewrite(n_rounds)

    def _rewrite(self, n_rounds: float = math.inf, new: Sequence[str] = ()) -> None:
        """Replace the file by one with its whole rows up to a round and more columns, and go on behind them."""
        self._path.touch()
        beside = self._path.with_name(self._path.name + ".part")
        with (
            self._path.open(newline="\n", encoding="utf-8", errors="replace") as old,
            beside.open("w", newline="", encoding="utf-8") as file,
        ):
            rows = csv.DictReader(line for line in old if line.endswith("\n"))  # they may be more than memory holds
            names = [*(rows.fieldnames or ()), *new]
            writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in rows if _round(row) <= n_rounds)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        self._file = self._path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, names, lineterminator="\n")

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row: metric -> value; a metric that is missing leaves its cell empty."""
        if new := [name for name in row if name not in self._writer.fieldnames]:
            self._file.close()
            self._rewrite(new=new)
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file; it may be opened again."""
        self._file.close()


def _round(row: Mapping[str, str]) -> float:
    number = row.get(_ROUND) or ""
    return int(number) if number.isdigit() else math.inf


class MetricsExport:
    """The CSV files of one run's tasks.

    Parameters
    ----------
    folder
        Where they are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, MetricsCsv] = {}
        self._attempts: dict[str, int] = {}
        #: Round and steps of each task's latest row.
        self._last: dict[str, dict[str, object]] = {}
        #: Why nothing is written any more; empty while all is well.
        self.failure = ""

    def feed(self, entries: Iterable[Entry]) -> None:
        """Write what is a metric; after a failure of the disk, nothing more (the journal has it all)."""
        if self.failure:
            return
        try:
            for task, record in newest(entries, self._attempts):
                self._write(task, record)
        except OSError as error:
            self.failure = f"metrics/*.csv: {error.strerror}; the journal has all rows"

    def _write(self, task: str, record: Record) -> None:
        if isinstance(record, TaskOpened):  # the rounds that a new attempt makes again are dropped
            if task in self._files:
                self._files.pop(task).close()
            if (self._folder / f"{task}.csv").exists():
                self._file(task, record.n_rounds)
        elif isinstance(record, MetricsRecorded):
            self._last[task] = {key: record.metrics.get(key) for key in (_ROUND, _STEPS)}
            self._file(task).write(record.metrics)
        elif isinstance(record, EvaluationFinished) and not record.failure:
            rate, how = success_rate(record.episodes), record.deterministic
            scalars = evaluation_scalars(record.mean_reward, rate, deterministic=how)
            self._file(task).write({**self._last.get(task, {}), **scalars})

    def _file(self, task: str, n_rounds: float = math.inf) -> MetricsCsv:
        if task not in self._files:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files[task] = MetricsCsv(self._folder / f"{task}.csv", n_rounds)
        return self._files[task]

    def rebuild(self, journal: Journal) -> None:
        """Write the files anew from the whole journal, because some were missed."""
        self.close()
        self._attempts.clear()
        for task in {named[0] for name in journal.streams if (named := split_stream(name))}:
            (self._folder / f"{task}.csv").unlink(missing_ok=True)
        self.feed(entries_of(journal))
        self.close()

    def close(self) -> None:
        """Close the files; what the disk still refuses is in the journal."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()

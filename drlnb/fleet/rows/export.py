"""Write the scalars of a run to ``metrics/<task>.csv`` while it trains, under SB3's names."""

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from drlnb.records.base import Record
from drlnb.records.journal import Journal
from drlnb.records.round import EvaluationFinished, MetricsRecorded, TaskOpened
from drlnb.rl.tracking.sinks import evaluation_name
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
        Keep the rounds of an older file up to this one; None: all that it holds.
    """

    def __init__(self, path: Path, n_rounds: int | None = None) -> None:
        self._path = path
        rows = self._rows()
        kept = [row for row in rows if n_rounds is None or _round(row) <= n_rounds]
        self._rewrite(kept, dict.fromkeys(name for row in rows[:1] for name in row))

    def _rows(self) -> list[dict[str, str]]:
        """Return the whole rows that are in the file."""
        text = self._path.read_bytes().decode("utf-8", errors="replace") if self._path.exists() else ""
        return list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))

    def _rewrite(self, rows: Iterable[Mapping[str, str]], columns: Iterable[str]) -> None:
        """Replace the file by one with these rows and columns, and go on behind them."""
        beside = self._path.with_name(self._path.name + ".part")
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(columns), lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        self._file = self._path.open("a", newline="", encoding="utf-8")
        self._writer = csv.DictWriter(self._file, writer.fieldnames, lineterminator="\n")

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row: metric -> value; a metric that is missing leaves its cell empty."""
        if new := [name for name in row if name not in self._writer.fieldnames]:
            self._file.close()
            self._rewrite(self._rows(), [*self._writer.fieldnames, *new])
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file; it may be opened again."""
        self._file.close()


def _round(row: Mapping[str, str]) -> float:
    number = row.get(_ROUND) or ""
    return int(number) if number.isdigit() else float("inf")


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
            name = evaluation_name(deterministic=record.deterministic)
            self._file(task).write({**self._last.get(task, {}), name: record.mean_reward})

    def _file(self, task: str, n_rounds: int | None = None) -> MetricsCsv:
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

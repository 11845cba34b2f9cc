"""Write the scalars of a run to ``metrics/<task>.csv`` while it trains, under SB3's names."""

import contextlib
import csv
from collections.abc import Iterable
from pathlib import Path

from drlnb.records.base import Record
from drlnb.records.journal import Journal
from drlnb.records.round import EvaluationFinished, MetricsRecorded, TaskOpened
from drlnb.rl.tracking.metrics import MetricsCsv, evaluation_name
from drlnb.views.folds.entries import Entry, newest, split_stream

__all__ = ["MetricsExport"]

_ROUND, _STEPS = "time/iterations", "time/total_timesteps"


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
        if isinstance(record, TaskOpened):
            self._rewind(task, record.n_rounds)
        elif isinstance(record, MetricsRecorded):
            self._last[task] = {key: record.metrics.get(key) for key in (_ROUND, _STEPS)}
            self._file(task).write(record.metrics)
        elif isinstance(record, EvaluationFinished) and not record.failure:
            name = evaluation_name(deterministic=record.deterministic)
            self._file(task).write({**self._last.get(task, {}), name: record.mean_reward})

    def _file(self, task: str) -> MetricsCsv:
        if task not in self._files:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files[task] = MetricsCsv(self._folder / f"{task}.csv")
        return self._files[task]

    def _rewind(self, task: str, n_rounds: int) -> None:
        """Drop the rounds that a new attempt makes again."""
        path = self._folder / f"{task}.csv"
        if task in self._files:
            self._files.pop(task).close()
        if not path.exists():
            return
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        kept = [row for row in rows if (row.get(_ROUND) or "").isdigit() and int(row[_ROUND]) <= n_rounds]
        if len(kept) == len(rows):
            return
        beside = path.with_name(path.name + ".part")
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(kept)
        beside.replace(path)

    def rebuild(self, journal: Journal) -> None:
        """Write the files anew from the whole journal, because some were missed."""
        self.close()
        self._attempts.clear()
        for task in {named[0] for name in journal.streams if (named := split_stream(name))}:
            (self._folder / f"{task}.csv").unlink(missing_ok=True)
        for name, stream in sorted(journal.streams.items(), key=lambda item: split_stream(item[0]) or ("", 0)):
            self.feed((name, record) for record in stream.records)
        self.close()

    def close(self) -> None:
        """Close the files; what the disk still refuses is in the journal."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()

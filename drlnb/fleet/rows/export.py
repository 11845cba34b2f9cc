"""How do the scalars of a run reach ``metrics/<task>.csv``?  Row by row while it trains, under SB3's names."""

import contextlib
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from drlnb.fleet.rows.task_status import split_stream
from drlnb.records.journal import Journal
from drlnb.rl.tracking.metrics import MetricsCsv, evaluation_name

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
        self._last: dict[str, dict[str, Any]] = {}
        #: Why nothing is written any more; empty while all is well.
        self.failure = ""

    def feed(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write what is a metric; after a failure of the disk, nothing more (the journal has it all)."""
        if self.failure:
            return
        try:
            for row in rows:
                named = split_stream(str(row.get("s", "")))
                if named is not None and named[1] >= self._attempts.get(named[0], 0):
                    self._feed(*named, row)
        except OSError as error:
            self.failure = f"metrics/*.csv: {error.strerror}; the journal has all rows"

    def _feed(self, task: str, attempt: int, row: Mapping[str, Any]) -> None:
        kind = row.get("r")
        if kind == "TaskOpened":
            self._attempts[task] = attempt
            self._rewind(task, int(row["n_rounds"]))
        elif kind == "MetricsRecorded":
            self._last[task] = {key: row["metrics"].get(key) for key in (_ROUND, _STEPS)}
            self._file(task).write(row["metrics"])
        elif kind == "EvaluationFinished" and not row["failure"]:
            name = evaluation_name(deterministic=row.get("deterministic", True))
            self._file(task).write({**self._last.get(task, {}), name: row["mean_reward"]})

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
        """Write the files anew from the whole journal, because rows were missed."""
        self.close()
        self._attempts.clear()
        tasks = {named[0] for stem in journal.streams if (named := split_stream(stem))}
        for task in tasks:
            (self._folder / f"{task}.csv").unlink(missing_ok=True)
        for stem, stream in sorted(journal.streams.items(), key=lambda item: split_stream(item[0]) or ("", 0)):
            self.feed({"s": stem, **record.to_row()} for record in stream.records)
        self.close()

    def close(self) -> None:
        """Close the files; what the disk still refuses is in the journal."""
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()
        self._files.clear()

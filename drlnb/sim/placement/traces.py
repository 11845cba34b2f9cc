"""Read traces of jobs from CSV files, and cut windows of consecutive jobs out of them.

A trace has a header with the columns ``job_id``, ``submit_time_s``, ``n_gpus``, ``duration_s`` and, if it has them,
``tenant`` (or ``vc``); others are ignored.  The duration is taken as work without failures: how a job ended says
nothing about the slots that it had.
"""

import csv
import hashlib
import io
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from drlnb.records.errors import ConfigError, nearest
from drlnb.records.settings import quoted

__all__ = ["FAMILIES", "Trace", "TraceJob", "Window", "load_trace"]

#: Families of jobs: those of tenants who mostly train on several slots; all but those of tenants who send bursts of
#: small ones; all.
FAMILIES = ("gang", "mixed", "all")
#: Shorter jobs are no trainings; a family of fewer jobs, a window and one, is not used.
_LEAST_S, _LEAST_JOBS = 60.0, 65


class TraceJob(NamedTuple):
    """One job of a trace."""

    job: str
    submitted_s: float
    #: Slots that it needs at once.
    n_slots: int
    #: Seconds that it takes where nothing fails.
    work_s: float
    tenant: str = ""


@dataclass(frozen=True)
class Window:
    """Consecutive jobs of a trace, in the order of their submission."""

    jobs: tuple[TraceJob, ...]
    #: Family that they are of: ``all`` where the one that was asked for has too few jobs.
    family: str
    #: Jobs whose duration, and whose number of slots, was cut.
    n_cut_s: int
    n_cut_slots: int

    def __iter__(self) -> Iterator[TraceJob]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True)
class Trace:
    """The jobs of a trace, by the time of their submission."""

    name: str
    jobs: tuple[TraceJob, ...]
    #: Jobs of no duration, which are left out.
    n_dropped: int = 0
    #: Digest of the file; empty where there is none.
    sha256: str = ""

    @cached_property
    def families(self) -> dict[str, tuple[TraceJob, ...]]:
        """Jobs of a minute or more of each family; without tenants, or of too few jobs, a family has all of them."""
        jobs = tuple(job for job in self.jobs if job.work_s >= _LEAST_S)
        n_rows, n_jobs = Counter(job.tenant for job in self.jobs), Counter(job.tenant for job in jobs)
        n_gangs = Counter(job.tenant for job in jobs if job.n_slots > 1)
        del n_jobs[""]
        chosen = {
            # Those of 100 jobs or more, at least half of them on several slots.
            "gang": {name for name, n in n_jobs.items() if n >= 100 and n_gangs[name] >= 0.5 * n},
            # All but those of more than 15 % of the rows, of whose jobs fewer than 2 % are on several slots.
            "mixed": {
                name for name, n in n_jobs.items() if n_rows[name] <= 0.15 * len(self.jobs) or n_gangs[name] >= 0.02 * n
            },
        }
        of = {family: tuple(job for job in jobs if job.tenant in tenants) for family, tenants in chosen.items()}
        return {family: some if len(some) >= _LEAST_JOBS else jobs for family, some in of.items()} | {"all": jobs}

    def window(
        self,
        start: int = 0,
        n_jobs: int = 64,
        family: str = "gang",
        *,
        cap_s: float = 86_400.0,
        max_gpus: int = 32,
        arrivals: bool = False,
    ) -> Window:
        """Return consecutive jobs.

        Parameters
        ----------
        start
            Number of the first one within its family, from 0.
        n_jobs
            Number of jobs.
        family
            One of :data:`FAMILIES`; where it has fewer than 65 jobs of a minute or more it is ``all``.
        cap_s
            Longer durations are cut to these seconds: else the longest job alone decides when all are done.
        max_gpus
            Larger gangs are cut to this size.
        arrivals
            Keep the times of submission, from the first job's on; else all are submitted at 0.

        Raises
        ------
        ConfigError
            If there are not so many jobs, or an argument is out of its range.
        """
        least = {"start": (start, 0), "n_jobs": (n_jobs, 1), "cap_s": (cap_s, 1), "max_gpus": (max_gpus, 1)}
        problems = [f"{k} must be >= {low}, got {value}" for k, (value, low) in least.items() if not value >= low]
        if family not in FAMILIES:
            problems.append(f"family must be one of {', '.join(FAMILIES)}, got {family!r}{nearest(family, FAMILIES)}")
        if problems:
            raise ConfigError(problems)
        known = self.families[family]
        chosen = known[start : start + n_jobs]
        if len(chosen) < n_jobs:
            raise ConfigError(
                f"{self.name} has {len(known)} jobs of a minute or more in family {family}: "
                f"no window of {n_jobs} from {start}"
            )
        began_s = chosen[0].submitted_s
        jobs = tuple(
            job._replace(
                submitted_s=job.submitted_s - began_s if arrivals else 0.0,
                n_slots=min(job.n_slots, max_gpus),
                work_s=min(job.work_s, cap_s),
            )
            for job in chosen
        )
        return Window(
            jobs,
            "all" if known is self.families["all"] else family,
            n_cut_s=sum(job.work_s > cap_s for job in chosen),
            n_cut_slots=sum(job.n_slots > max_gpus for job in chosen),
        )


def load_trace(path: str | PathLike[str] | None = None) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path
        A CSV file; None: the sample that is part of the package.

    Raises
    ------
    ConfigError
        If it cannot be read, a column is missing (all of them are listed), or rows are wrong (the first five are).
    """
    file = Path(__file__).with_name("philly_sample.csv") if path is None else Path(path).expanduser()
    try:
        raw = file.read_bytes()
        reader = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""))
        header = [name.strip() for name in next(reader, [])]
        read = _reader(header, str(file))
        jobs, problems = _jobs(reader, read)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} must be a CSV file of UTF-8 text: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise ConfigError(f"{file} must be a CSV file: {error} in line {reader.line_num}") from None
    if problems:
        more = [f"and {len(problems) - 5} more rows"] if len(problems) > 5 else []
        raise ConfigError([f"{file}: {problems[0]}", *problems[1:5], *more])
    kept = sorted((job for job in jobs if job.work_s), key=lambda job: job.submitted_s)
    if not kept:
        raise ConfigError(f"{file} has no job with a duration above 0")
    return Trace(file.name, tuple(kept), len(jobs) - len(kept), hashlib.sha256(raw).hexdigest())


def _reader(header: Sequence[str], file: str) -> Callable[[Sequence[str]], TraceJob]:
    """Return what makes a job of a row; ConfigError if columns are missing."""
    columns = ("job_id", "submit_time_s", "n_gpus", "duration_s")
    if missing := [name for name in columns if name not in header]:
        raise ConfigError(
            f"{file} has no column {', '.join(missing)}; its header is {quoted(','.join(header))}, "
            f"and a trace has {','.join(columns)}[,tenant]"
        )
    places = [header.index(name) for name in columns]
    tenant = next((header.index(name) for name in ("tenant", "vc") if name in header), -1)

    def read(row: Sequence[str]) -> TraceJob:
        cells = (*row, *[""] * (len(header) - len(row)), "")
        job, submitted, n_slots, work = (cells[place].strip() for place in places)
        if not job:
            raise ValueError("job_id is empty")
        return TraceJob(
            job,
            _number("submit_time_s", submitted, "seconds >= 0 (no date)", 0.0),
            int(_number("n_gpus", n_slots, "a whole number >= 1", 1.0, whole=True)),
            _number("duration_s", work, "seconds >= 0", 0.0),
            cells[tenant].strip(),
        )

    return read


def _number(column: str, text: str, words: str, least: float, *, whole: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf or (whole and value % 1):
        raise ValueError(f"{column} must be {words}, got {quoted(text)}")
    return value


def _jobs(rows: Iterator[list[str]], read: Callable[[Sequence[str]], TraceJob]) -> tuple[list[TraceJob], list[str]]:
    """Return the jobs of all rows, and what is wrong with rows; blank lines count, and are nothing."""
    jobs, problems, lines = list[TraceJob](), list[str](), dict[str, int]()
    for line, row in enumerate(rows, 2):
        if not any(row):
            continue
        try:
            job = read(row)
        except ValueError as error:
            problems.append(f"row {line}: {error}")
            continue
        if (known := lines.setdefault(job.job, line)) != line:
            problems.append(f"row {line}: job_id {quoted(job.job)} stands in row {known} already")
        jobs.append(job)
    return jobs, problems

"""Report utilisation and round times of T tasks on K slots: whole trainings on the virtual clock.

The tasks are those of a real run with durations drawn from :mod:`drlnb.sim.costs`; nothing is learned.
"""

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import drlnb
from drlnb.planning.leasing.settings import HOLD_PLANNERS
from drlnb.planning.leasing.theory import ExpectedLoad, bound, expected_load
from drlnb.records.columns.leasing import LeaseExpired, LeaseGranted, LeaseReleased
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream, line_of
from drlnb.records.round import MetricsRecorded
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task

__all__ = ["Result", "main", "run_tasks", "simulate_train", "write_journal"]

#: Largest numbers that are accepted: above, a slip of the finger is likelier than a wish.
_LIMITS = {"tasks": 1000, "gpus": 1000, "rounds": 100_000, "collectors": 256}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a simulated training gave."""

    #: Journals by stream name.
    streams: Mapping[str, Stream]
    #: How each task ended, by name.
    ends: Mapping[str, str]
    #: Seconds computing / (slots x seconds from first grant to last release), dimensionless.
    utilisation_frac: float
    #: The same with the seconds held instead: what is held and not computed is waste.
    held_frac: float
    #: The most that utilisation can be, from each task's duty measured alone on the same seed.
    bound_frac: float
    #: What queueing theory expects for the mean duty.
    expected: ExpectedLoad
    #: Mean round time relative to that of the same task alone, dimensionless.
    inflation: float
    #: Duty of each task alone, in the order of tasks.
    duty_frac: tuple[float, ...]
    n_grants: int
    #: Seconds from the start to the last release.
    makespan_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What the pool's journal says of its slots."""

    computed_s: float
    held_s: float
    n_grants: int
    first_t: float
    last_t: float

    @property
    def span_s(self) -> float:
        """Seconds from the first grant to the last release."""
        return self.last_t - self.first_t


def simulate_train(
    n_tasks: int,
    n_slots: int,
    n_rounds: int,
    n_collectors: int = 2,
    hold: str = "yield",
    seed: int = 0,
    *,
    n_nodes: int = 1,
    costs: Costs | None = None,
    faults: Sequence[Fault] = (),
    validate: bool = False,
) -> Result:
    """Train `n_tasks` tasks on `n_slots` slots on the virtual clock, and each of them alone for comparison.

    Alone, every task has a slot of its own and the hold planner ``round``, which never waits for one; so the
    comparison is the same for every planner.

    Parameters
    ----------
    n_tasks, n_slots, n_rounds, n_collectors
        Tasks, slots, rounds per task, collectors per task; each at least 1.
    hold
        Hold planner of every task.
    seed
        Seed of all durations, at least 0.
    n_nodes
        Nodes over which the slots are dealt, at least 1; the masters live on the first, which no fault takes whole.
    costs
        Durations; None for the defaults.
    faults
        Faults in the run with all tasks (never in those alone), in the order of their times.
    validate
        Check every machine's invariants after each event.

    Raises
    ------
    ConfigError
        If a number is out of its range or there is no such hold planner; the message lists all of it.
    """
    problems = _problems(
        {"tasks": n_tasks, "gpus": n_slots, "rounds": n_rounds, "collectors": n_collectors}, hold=hold, seed=seed
    )
    if problems:
        raise ConfigError(problems)
    shape: dict[str, Any] = {
        "n_rounds": n_rounds,
        "n_collectors": n_collectors,
        "seed": seed,
        "costs": costs or Costs(),
    }
    pool, tasks = run_tasks(
        range(n_tasks), n_slots=n_slots, hold=hold, n_nodes=n_nodes, faults=faults, validate=validate, **shape
    )
    return _result(pool, tasks, n_slots=n_slots, shape=shape)


def _result(pool: Pool, tasks: Sequence[Any], *, n_slots: int, shape: Mapping[str, Any]) -> Result:
    """Compare a run with each of its tasks alone."""
    duties, inflations = [], []
    for i, task in enumerate(tasks):
        alone_pool, (alone,) = run_tasks([i], n_slots=1, hold="round", **shape)
        load = _load(alone_pool.host.stream)
        duties.append(load.computed_s / load.span_s)
        inflations.append(_round_s(task) / _round_s(alone))
    load = _load(pool.host.stream)
    return Result(
        streams={
            stream.header.stream: stream
            for stream in (pool.host.stream, *[stream for task in tasks for stream in task.streams])
        },
        ends={task.name: task.end.state if task.end else "unfinished" for task in tasks},
        utilisation_frac=load.computed_s / (n_slots * load.span_s),
        held_frac=load.held_s / (n_slots * load.span_s),
        bound_frac=bound(duties, n_slots),
        expected=expected_load(len(tasks), n_slots, sum(duties) / len(tasks)),
        inflation=sum(inflations) / len(tasks),
        duty_frac=tuple(duties),
        n_grants=load.n_grants,
        makespan_s=load.last_t,
    )


def _load(stream: Stream) -> _Load:
    computed_s = held_s = last_t = 0.0
    granted: list[float] = []
    for event, answer in stream.answers():
        for record in answer:
            if isinstance(record, LeaseGranted):
                granted.append(event.t)
            elif isinstance(record, LeaseReleased | LeaseExpired):
                computed_s += record.computed_s if isinstance(record, LeaseReleased) else 0.0
                held_s += record.held_s
                last_t = event.t
    return _Load(computed_s=computed_s, held_s=held_s, n_grants=len(granted), first_t=granted[0], last_t=last_t)


def _round_s(task: Task) -> float:
    """Mean time of a round in seconds; nan for a task that finished none."""
    times = [record.metrics["round/time_s"] for stream in task.streams for record in stream.of(MetricsRecorded)]
    return sum(times) / len(times) if times else float("nan")


def write_journal(streams: Mapping[str, Stream], directory: Path) -> None:
    """Write streams as the journal of a run directory.

    Raises
    ------
    ConfigError
        If `directory` exists and is not an empty directory.
    """
    _refuse_full(directory)
    folder = directory / "journal"
    folder.mkdir(parents=True)
    for name, stream in streams.items():
        lines = [line_of(record) for record in (stream.header, *stream.records)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


# ------------------------------------------------------------------ the command
def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate train`` and print what came out.

    Parameters
    ----------
    arguments
        ``tasks``, ``gpus``, ``rounds``, ``collectors``, ``hold``, ``seed``, ``out`` (None: no journal), ``json``.

    Returns
    -------
    int
        Exit code: 0, or 1 if a task failed.

    Raises
    ------
    ConfigError
        If an option is out of its range, or `out` is not a new or empty directory.
    """
    out = None if arguments.out is None else Path(arguments.out)
    if out is not None:
        _refuse_full(out)  # before the work, not after it
    result = simulate_train(
        arguments.tasks,
        arguments.gpus,
        arguments.rounds,
        arguments.collectors,
        arguments.hold,
        arguments.seed,
    )
    if out is not None:
        write_journal(result.streams, out)
    sys.stdout.write(_table(result, arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(_report(result)) + "\n")
    return 0 if set(result.ends.values()) == {"done"} else 1


def _problems(numbers: Mapping[str, int], *, hold: str, seed: int) -> list[str]:
    problems = [
        f"--{name} must be in 1..{_LIMITS[name]}, got {value}"
        for name, value in numbers.items()
        if not 1 <= value <= _LIMITS[name]
    ]
    if seed < 0:
        problems.append(f"--seed must be >= 0, got {seed}")
    if hold not in HOLD_PLANNERS:
        problems.append(f"--hold must be one of {', '.join(HOLD_PLANNERS)}, got {hold!r}")
    return problems


def _refuse_full(directory: Path) -> None:
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise ConfigError(f"--out must be a new or empty directory, got {directory}")


def _rows(result: Result) -> list[dict[str, Any]]:
    """Return what is printed: value beside what it is to be compared with."""
    shown = [
        ("utilisation", "seconds computing / (slots x seconds)", result.utilisation_frac, "bound", result.bound_frac),
        (
            "utilisation-expected",
            "the same beside the machine-repairman model",
            result.utilisation_frac,
            "expected",
            result.expected.utilisation_frac,
        ),
        ("held", "seconds held / (slots x seconds)", result.held_frac, "utilisation", result.utilisation_frac),
        ("inflation", "round time / round time alone", result.inflation, "expected", result.expected.inflation),
    ]
    return [
        {
            "id": name,
            "what": description,
            "baseline": f"{against} {base:.6f}",
            "value": value,
            "ratio": value / base,
            "spread": None,
            "bar": None,
            "holds": None,
            "binding": False,
            "origin": "simulated",
        }
        for name, description, value, against, base in shown
    ]


def _report(result: Result) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "bench": "simulate-train",
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "versions": {"drlnb": drlnb.__version__, "python": platform.python_version(), "numpy": np.__version__},
        "utilisation_frac": result.utilisation_frac,
        "held_frac": result.held_frac,
        "bound_frac": result.bound_frac,
        "expected_utilisation_frac": result.expected.utilisation_frac,
        "inflation": result.inflation,
        "expected_inflation": result.expected.inflation,
        "duty_frac": list(result.duty_frac),
        "n_grants": result.n_grants,
        "makespan_s": result.makespan_s,
        "ends": dict(result.ends),
        "rows": _rows(result),
    }


def _table(result: Result, arguments: argparse.Namespace) -> str:
    """Return the short table for the user."""
    load = result.expected
    lines = [
        f"{arguments.tasks} tasks, {arguments.gpus} slots, {arguments.rounds} rounds, "
        f"{arguments.collectors} collectors each, hold {arguments.hold}, seed {arguments.seed} (simulated)",
        f"{'':14}{'measured':>10}{'expected':>10}{'bound':>10}",
        f"{'utilisation':14}{result.utilisation_frac:10.3f}{load.utilisation_frac:10.3f}{result.bound_frac:10.3f}",
        f"{'held':14}{result.held_frac:10.3f}",
        f"{'inflation':14}{result.inflation:10.3f}{load.inflation:10.3f}",
        f"{'grants':14}{result.n_grants:10d}",
        f"{'makespan':14}{result.makespan_s:9.1f}s",
    ]
    return "\n".join(lines) + "\n"

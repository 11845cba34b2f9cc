"""Report utilisation and round times of T tasks on K slots: whole trainings on the virtual clock.

The tasks are those of a real run with durations drawn from :mod:`drlnb.sim.costs`; nothing is learned.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from drlnb.planning.leasing.load import bound, expected_load
from drlnb.planning.leasing.settings import HOLD_PLANNERS
from drlnb.records.base import Facts
from drlnb.records.columns.leasing import LeaseGranted
from drlnb.records.columns.swapping import SwapStepMeasured
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Stream
from drlnb.records.round import MetricsRecorded
from drlnb.records.settings import Declared, choice, count, setting
from drlnb.records.spec import LIMITS
from drlnb.records.units import read_bytes, said_bytes
from drlnb.sim.costs import Costs
from drlnb.sim.faults import Fault
from drlnb.sim.leases import SlotUse, leases
from drlnb.sim.report import Row, figure_row, new_directory, print_report, table_lines, write_journal
from drlnb.sim.swapping.steps import PRETENDED, kept_s, least_bytes
from drlnb.sim.training.fleet import run_tasks
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task

__all__ = ["Result", "main", "simulate_train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape(Declared):
    """What can be simulated: above the largest numbers a slip of the finger is likelier than a wish."""

    tasks: int = setting(4, count(1, 1000))
    gpus: int = setting(1, count(1, 1000))
    rounds: int = setting(100, count(1, 100_000))
    collectors: int = setting(2, count(1, 256))
    learners: int = setting(1, LIMITS["n_learners"])
    seed: int = setting(0, count(0))
    hold: str = setting("yield", choice(*HOLD_PLANNERS))

    @classmethod
    def together(cls, values: Facts, wrong: Collection[str]) -> list[str]:
        """Return where there are more learners than slots or collectors to make them."""
        makes = {"gpus": "each computes on a slot of its own", "collectors": "each computes what whole collectors made"}
        return [
            f"learners must be <= {name} = {values[name]}, got {values['learners']}: {why}"
            for name, why in makes.items()
            if not {name, "learners"} & set(wrong) and values["learners"] > values[name]
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(SlotUse):
    """What a simulated training gave, from the first grant to the last release."""

    #: Journals by stream name.
    streams: Mapping[str, Stream]
    #: Duty of each task alone, over the slots of its learners, in the order of tasks.
    duty_frac: tuple[float, ...]
    #: What queueing theory expects of utilisation, and of inflation, for the mean duty; None where a task has several
    #: learners: it knows no leases of several slots.
    expected_utilisation_frac: float | None
    expected_inflation: float | None
    n_grants: int
    #: Seconds from the start to the last release.
    makespan_s: float
    #: How each task ended, by name.
    ends: Mapping[str, str]
    #: Last gradient step under a byte budget / one that keeps everything, mean over the tasks; 1.0 without a budget.
    swap_slower: float


def simulate_train(
    n_tasks: int,
    n_slots: int,
    n_rounds: int,
    n_collectors: int = 2,
    hold: str = "yield",
    seed: int = 0,
    *,
    n_learners: int = 1,
    n_nodes: int = 1,
    costs: Costs | None = None,
    faults: Sequence[Fault] = (),
    memory_budget_bytes: int | None = None,
    validate: bool = False,
) -> Result:
    """Train `n_tasks` tasks on `n_slots` slots on the virtual clock, and each of them alone for comparison.

    Alone, each has a slot per learner and the hold planner ``round``: the comparison is the same for every planner.

    Parameters
    ----------
    n_tasks, n_slots, n_rounds, n_collectors
        Tasks, slots, rounds per task, collectors per task; each at least 1.
    hold
        Hold planner of every task.
    seed
        Seed of all durations, at least 0.
    n_learners
        Slots of a lease of each task, on which its round's gradients are computed side by side; at most `n_slots` and
        at most `n_collectors`.
    n_nodes
        Nodes over which the slots are dealt, at least 1; the masters live on the first, which no fault takes whole.
    costs
        Durations; None for the defaults.
    faults
        Faults in the run with all tasks (never in those alone), in the order of their times.
    memory_budget_bytes
        Bytes that a gradient step of each task may use: it takes as much longer as its plan does on a pretended network
        (:data:`~drlnb.sim.swapping.steps.PRETENDED`); None: any number.
    validate
        Check every machine's invariants after each event.

    Raises
    ------
    ConfigError
        If a number is out of its range or there is no such hold planner, the message lists all of it; or if the budget
        is not above what the pretended network needs anyway.
    """
    _Shape(
        tasks=n_tasks,
        gpus=n_slots,
        rounds=n_rounds,
        collectors=n_collectors,
        learners=n_learners,
        seed=seed,
        hold=hold,
    )
    config = {"swapping": _swapping(memory_budget_bytes), "n_learners": n_learners}
    shape = partial(run_tasks, n_rounds=n_rounds, n_collectors=n_collectors, seed=seed, costs=costs or Costs())
    shape = partial(shape, config=config)
    pool, tasks = shape(range(n_tasks), n_slots=n_slots, hold=hold, n_nodes=n_nodes, faults=faults, validate=validate)
    pairs = [_beside(task, n_learners, *shape([i], n_slots=n_learners, hold="round")) for i, task in enumerate(tasks)]
    return _result(n_slots, n_learners, pool.host.stream, tasks, *zip(*pairs, strict=True))


def _result(
    n_slots: int,
    n_learners: int,
    stream: Stream,
    tasks: Sequence[Task],
    duties: tuple[float, ...],
    inflations: tuple[float, ...],
) -> Result:
    """Return what came out, by the pool's stream and the tasks beside each of them alone."""
    computed_s, held_s, begin_t, end_t = _load(stream)
    n_tasks, span_s = len(tasks), end_t - begin_t
    expected = expected_load(n_tasks, n_slots, sum(duties) / n_tasks) if n_learners == 1 else None
    return Result(
        streams={each.header.stream: each for each in (stream, *[each for task in tasks for each in task.streams])},
        ends={task.name: task.end.state if task.end else "unfinished" for task in tasks},
        utilisation_frac=computed_s / (n_slots * span_s),
        held_frac=held_s / (n_slots * span_s),
        bound_frac=bound([duty for duty in duties for _ in range(n_learners)], n_slots),
        inflation=sum(inflations) / n_tasks,
        expected_utilisation_frac=expected.utilisation_frac if expected else None,
        expected_inflation=expected.inflation if expected else None,
        duty_frac=duties,
        n_grants=len(stream.of(LeaseGranted)),
        makespan_s=end_t,
        swap_slower=_slower(tasks),
    )


def _swapping(memory_budget_bytes: int | None) -> dict[str, int]:
    """Return what a task is configured with of swapping."""
    if memory_budget_bytes is not None and memory_budget_bytes <= (least := least_bytes()):
        more = f"the {said_bytes(least)} that stay anyway ({PRETENDED}), got {said_bytes(memory_budget_bytes)}"
        raise ConfigError(f"the budget must be above {more}")
    return {} if memory_budget_bytes is None else {"memory_budget_bytes": memory_budget_bytes}


def _beside(task: Task, n_slots: int, pool: Pool, alone: tuple[Task, ...]) -> tuple[float, float]:
    """Return the duty of a task alone on so many slots, and how much longer its rounds take with the others."""
    computed_s, _, begin_t, end_t = _load(pool.host.stream)
    return computed_s / (n_slots * (end_t - begin_t)), _round_s(task) / _round_s(alone[0])


def _slower(tasks: Sequence[Task]) -> float:
    """Return the time of the tasks' last gradient steps, relative to steps that keep everything."""
    steps = [step.step_s for task in tasks for step in task.streams[-1].of(SwapStepMeasured)[-1:]]
    return sum(steps) / len(steps) / kept_s() if steps else 1.0


def _load(pool: Stream) -> tuple[float, float, float, float]:
    """Return the seconds that were computed and held, and the times of the first grant and of the last release."""
    ended = list(leases(pool))
    computed_s, held_s = sum(lease.computed_s for lease in ended), sum(lease.held_s for lease in ended)
    return computed_s, held_s, min(lease.granted_t for lease in ended), ended[-1].ended_t


def _round_s(task: Task) -> float:
    """Mean time of a round in seconds; nan for a task that finished none."""
    times = [record.metrics["round/time_s"] for stream in task.streams for record in stream.of(MetricsRecorded)]
    return sum(times) / len(times) if times else float("nan")


# ------------------------------------------------------------------ the command
def main(arguments: argparse.Namespace) -> int:
    """Run ``drlnb simulate train`` and print what came out.

    Parameters
    ----------
    arguments
        ``tasks``, ``gpus``, ``rounds``, ``collectors``, ``learners``, ``hold``, ``seed``, ``swap_budget`` (None: any
        number), ``out`` (None: no journal), ``json``.

    Returns
    -------
    int
        Exit code: 0, or 1 if a task failed.

    Raises
    ------
    ConfigError
        If an option is out of its range, or `out` is not a new or empty directory.
    """
    out = new_directory(arguments.out)  # before the work, not after it
    shape = (arguments.tasks, arguments.gpus, arguments.rounds, arguments.collectors, arguments.hold, arguments.seed)
    try:
        budget = None if arguments.swap_budget is None else read_bytes(arguments.swap_budget)
        _swapping(budget)
    except ValueError as error:
        raise ConfigError(f"--swap-budget: {error}") from None
    result = simulate_train(*shape, n_learners=arguments.learners, memory_budget_bytes=budget)
    write_journal(result.streams, out)
    learners = f"{arguments.learners} learners each, " if arguments.learners > 1 else ""
    title = (
        f"{arguments.tasks} tasks, {arguments.gpus} slots, {arguments.rounds} rounds, "
        f"{arguments.collectors} collectors each, {learners}hold {arguments.hold}, seed {arguments.seed} (simulated)"
    )
    figures = {each.name: getattr(result, each.name) for each in fields(result) if each.name != "streams"}
    lines = [title, *table_lines(_table(result))]
    print_report(lines, "simulate-train", _rows(result), json_to=arguments.json, **figures)
    return 0 if set(result.ends.values()) == {"done"} else 1


def _rows(result: Result) -> list[Row]:
    """Return what is printed as JSON: value beside what it is to be compared with."""
    used, expected, slower = result.utilisation_frac, result.expected_utilisation_frac, result.expected_inflation
    rows = [figure_row("utilisation", "seconds computing / (slots x seconds)", used, "bound", result.bound_frac)]
    if expected is not None:
        title = "the same beside the machine-repairman model"
        rows += [figure_row("utilisation-expected", title, used, "expected", expected)]
    base = ("expected", slower) if slower is not None else ("alone", 1.0)
    rows += [
        figure_row("held", "seconds held / (slots x seconds)", result.held_frac, "utilisation", used),
        figure_row("inflation", "round time / round time alone", result.inflation, *base),
    ]
    if (swapped := result.swap_slower) != 1.0:
        rows += [figure_row("swapping", f"seconds of a gradient step ({PRETENDED})", swapped, "keeping all", 1.0)]
    return rows


def _table(result: Result) -> list[dict[str, str]]:
    """Return the short table for the user; without a column of what is expected where nothing is."""
    figures = {
        "utilisation": (result.utilisation_frac, result.expected_utilisation_frac, result.bound_frac),
        "held": (result.held_frac,),
        "inflation": (result.inflation, result.expected_inflation),
    }
    cells = [[name, *("" if value is None else f"{value:.3f}" for value in row)] for name, row in figures.items()]
    cells += [[f"step v plain ({PRETENDED})", f"{result.swap_slower:.3f}"]] if result.swap_slower != 1.0 else []
    cells += [["grants", f"{result.n_grants}"], ["makespan", f"{result.makespan_s:.1f}s"]]
    columns = ("", "measured", "expected", "bound")
    return [{name: text for name, text in zip(columns, row, strict=False) if text} for row in cells]

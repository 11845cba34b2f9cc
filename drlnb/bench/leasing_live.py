"""``drlnb bench leasing-live``: four tasks on one virtual slot, in real processes and modelled time (B5, B6).

Steps and gradients sleep (:mod:`drlnb.bench.padded`), so that what is measured is the lease and not how processes fight
for the cores.  The same tasks train leased together, exclusively (each alone on the slot, one after the other), and
co-located (as ordinary processes at once, without a slot: their sleeping gradients overlap, which kernels do not).
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from drlnb.bench.groups import BenchParser, chosen, go_through
from drlnb.bench.messages import ask_alone
from drlnb.bench.padded import ENV, GRADIENT_S, STEP_S, padded_policy
from drlnb.bench.report import Bar, Report, Row, pair_up
from drlnb.bench.sharing import processes, rate
from drlnb.bench.stage import open_stage, virtual_devices
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.planning.leasing import expected_load
from drlnb.planning.leasing.theory import bound
from drlnb.records.columns import leasing
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.spec import TaskSpec
from drlnb.rl.envs.make import probe
from drlnb.runtime.protocol import BROKER

__all__ = [
    "GROUPS",
    "N_TASKS",
    "Effort",
    "Held",
    "Turn",
    "grants",
    "held",
    "main",
    "tasks_on_one_slot",
    "throughput_rows",
    "train",
]

#: Row group -> (module, function): called with the effort, returns rows.
GROUPS = {
    "throughput": ("drlnb.bench.leasing_live", "tasks_on_one_slot"),
    "grants": ("drlnb.bench.leasing_live", "grants"),
    "predicted": ("drlnb.bench.leasing_predicted", "predicted"),
}
#: Tasks on the slot: as many as its bound carries at a duty of a quarter.
N_TASKS = 4
_N_STEPS = 16
#: Time of a round alone, without what drlnb adds, in seconds: a fifth of it on the slot.
MODELLED_S = _N_STEPS * STEP_S + GRADIENT_S
#: Rounds at a run's start that do not count.
_WARM_ROUNDS = 2
#: Share of the modelled time above which real computing spoils a run, dimensionless.
_SPOILT = 0.30
#: Longest training, in seconds.
_TRAIN_S = 600.0
#: Grants per block, and how they are asked for.
_BLOCK = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Interleaved turns.
    repeats: int = 3
    #: Rounds of each task.
    rounds: int = 40


# ------------------------------------------------------------------ B5
@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the leases of one run came to, while every task was at work."""

    rounds_per_s: float
    #: Share of the time in which the slot's executor computed.
    busy: float
    #: Seconds of computing per round.
    compute_s: float


def held(journal: Journal, n_warm: int = _WARM_ROUNDS) -> Held:
    """Read from the pool's stream how many rounds were computed per second, and for how long.

    Raises
    ------
    TrainingFailed
        If the tasks were never all at work.
    """
    computed: dict[tuple[str, int], tuple[float, float]] = {}
    for stream in journal.streams.values():
        if stream.header.machine != "pool":
            continue
        rounds = {one.fence: one.round for one in stream.of(leasing.LeaseGranted)}
        for event, answer in stream.answers():
            for one in answer:
                if isinstance(one, leasing.LeaseReleased) and rounds.get(one.fence, 0) > n_warm:
                    key = (one.task, rounds[one.fence])  # given away in between, a round has several leases
                    computed[key] = (event.t, one.computed_s + computed.get(key, (0.0, 0.0))[1])
    tasks = {task for task, _ in computed}
    ends = [sorted(t for (task, _), (t, _) in computed.items() if task == one) for one in tasks]
    hz, _ = rate(ends)
    first, last = max(one[0] for one in ends), min(one[-1] for one in ends)
    busy_s = sum(seconds for t, seconds in computed.values() if first < t <= last)
    n = sum(first < t <= last for t, _ in computed.values())
    return Held(rounds_per_s=hz, busy=busy_s / (last - first), compute_s=busy_s / n)


def _tasks(rounds: int) -> list[Task]:
    return [
        Task(
            ENV,
            algo="gpf",
            name=f"t{seed}",
            seed=seed,
            total_timesteps=rounds * _N_STEPS,
            n_envs=1,
            n_collectors=1,
            n_steps=_N_STEPS,
            n_epochs=1,
            batch_size=_N_STEPS,
            reward_scale=1.0,
            policy=padded_policy,
        )
        for seed in range(N_TASKS)
    ]


@contextlib.contextmanager
def _cpu_seconds() -> Iterator[list[tuple[float, float]]]:
    """Note twice a second (monotonic time, processor seconds) of the executors and collectors below this process."""
    found: list[tuple[float, float]] = []
    seen: dict[psutil.Process, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if " ".join(process.cmdline()).startswith(("drlnb executor", "drlnb collector")):
                        times = process.cpu_times()
                        seen[process] = times.user + times.system
            found.append((time.monotonic(), sum(seen.values())))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of all three ways."""

    leased: Held
    alone: tuple[Held, ...]
    co_located: float
    #: Real computing / modelled time, in the leased run.
    real: float
    n_same: int


def tasks_on_one_slot(effort: Effort) -> tuple[Row, ...]:
    """Train four tasks on one slot, each alone on it, and as processes at once, in turn (B5)."""
    turns: list[Turn] = []
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(),
        Fleet(slots=1) as fleet,
    ):
        fleet.set("agent.collector_slots", N_TASKS)  # who sleeps needs no CPU
        turns += [_turn(fleet, effort.rounds, Path(folder) / str(n)) for n in range(effort.repeats)]
    return throughput_rows(turns)


def _turn(fleet: Fleet, rounds: int, folder: Path) -> Turn:
    tasks = _tasks(rounds)
    with _cpu_seconds() as cpu:
        leased = train(fleet, tasks, folder / "leased")
    lone = [train(fleet, [task], folder / f"alone-{task.spec.name}") for task in tasks]
    specs = [TaskSpec.from_plain(task.spec.to_plain() | probe(ENV)) for task in tasks]
    together, _ = rate(processes(specs, rounds * MODELLED_S))
    return Turn(
        leased=held(leased),
        alone=tuple(held(one) for one in lone),
        co_located=together,
        real=_real_share(cpu, N_TASKS * rounds * MODELLED_S),
        n_same=sum(
            _parameters(folder / "leased", task.spec.name)
            == _parameters(folder / f"alone-{task.spec.name}", task.spec.name)
            for task in tasks
        ),
    )


def train(fleet: Fleet, tasks: Sequence[Task], out: Path) -> Journal:
    """Train tasks to their end, and return the journal.

    Raises
    ------
    TrainingFailed
        If one of them ends otherwise.
    """
    run = fleet.train(list(tasks), out=out)
    for name, task in run.wait(timeout_s=_TRAIN_S).items():
        if task.state != "done":
            raise TrainingFailed(f"task {name} is {task.state}: {task.failure}")
    return Journal.read(out)


def _parameters(out: Path, task: str) -> bytes:
    folder = out / "checkpoints" / task
    return (folder / (folder / "LATEST").read_text() / "model.safetensors").read_bytes()


def _real_share(cpu: Sequence[tuple[float, float]], modelled_s: float) -> float:
    """Return processor seconds of computing per modelled second; executors' and collectors' starts are in it."""
    return (cpu[-1][1] - cpu[0][1]) / modelled_s if cpu else 0.0


def throughput_rows(turns: Sequence[Turn]) -> tuple[Row, ...]:
    """Return B5's figures: share of the bound, v exclusive, v co-located, and tasks with the same parameters."""
    duties = [[one.compute_s * one.rounds_per_s for one in turn.alone] for turn in turns]
    bounds = [bound(one, 1) for one in duties]
    exclusive = [N_TASKS / sum(1 / one.rounds_per_s for one in turn.alone) for turn in turns]
    leased = [turn.leased.rounds_per_s for turn in turns]
    real = max(turn.real for turn in turns)
    valid = f"real computing {real:.0%} of the modelled time" + ("" if real <= _SPOILT else ": INVALID, above 30 %")
    d = sum(map(sum, duties)) / sum(map(len, duties))
    expected = expected_load(N_TASKS, 1, d)
    of_bound = expected.utilisation_frac / expected.bound_frac
    what = f"{N_TASKS} tasks, 1 virtual slot, d = {d:.3f}"
    pair = {"unit": "rounds/s", "samples": tuple(leased)}
    return (
        Row(
            id="b5-bound",
            what=f"{what}: utilisation of the slot; {valid}",
            unit="of the slot",
            against=f"the bound, of which the machine repairman expects {of_bound:.2f}",
            bar=Bar("ratio", at_least=0.85),
            **pair_up([[turn.leased.busy] for turn in turns], [[one] for one in bounds]),
        ),
        Row(
            id="b5-exclusive",
            what=f"{what}: rounds per second, leased; {valid}",
            against="each task alone on the slot, in sequence",
            bar=Bar("ratio", at_least=3.0),
            baseline_samples=tuple(exclusive),
            pairs=tuple(a / b for a, b in zip(leased, exclusive, strict=True)),
            **pair,  # type: ignore[arg-type]
        ),
        Row(
            id="b5-co-located",
            what=f"{what}: rounds per second, leased",
            against="four ordinary processes at once, whose sleeping gradients overlap as no device's kernels do",
            baseline_samples=tuple(turn.co_located for turn in turns),
            pairs=tuple(turn.leased.rounds_per_s / turn.co_located for turn in turns),
            **pair,  # type: ignore[arg-type]
        ),
        Row(
            id="b5-same",
            what=f"tasks of {N_TASKS} whose final parameters are those of the task alone, bit by bit",
            unit="tasks",
            samples=tuple(float(turn.n_same) for turn in turns),
            bar=Bar("worst", at_least=float(N_TASKS)),
        ),
        Row(
            id="b5-real",
            what="processor seconds of executors and collectors per modelled second, leased",
            unit="of the time",
            samples=tuple(turn.real for turn in turns),
            bar=Bar("value", _SPOILT),
        ),
    )


# ------------------------------------------------------------------ B6
def grants(effort: Effort) -> tuple[Row, ...]:
    """Measure a free slot's grant in the scheduler's own process and over RPC, in turn (B6)."""
    near: list[float] = []
    far: list[float] = []
    with open_stage(1) as stage:
        for turn in range(4 * effort.repeats):
            near += stage.client.run_on_scheduler(grants_here, f"near-{turn}", _BLOCK)
            far += next(iter(stage.client.run(ask_alone, f"far-{turn}", _BLOCK).values()))
    what = "free slot asked for until granted, p50"
    return (
        Row(id="b6-near", what=f"{what}: in the scheduler's process", samples=tuple(near), bar=Bar("value", 0.001)),
        Row(id="b6-far", what=f"{what}: over RPC from a worker", samples=tuple(far), bar=Bar("value", 0.015)),
    )


async def grants_here(name: str, n: int, dask_scheduler: Any) -> list[float]:
    """Lease and release the free slot `n` times; runs in the scheduler."""
    broker = dask_scheduler.plugins[BROKER]
    times = []
    for turn in range(n):
        began = time.perf_counter()
        reply = await broker.acquire(
            request_id=f"bench/{name}/{turn}", task=f"bench/{name}", attempt=1, round=turn, node=""
        )
        times.append(time.perf_counter() - began)
        await broker.release(fence=reply["fence"], clean=True, computed_s=0.0)
    return times


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench leasing-live``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser("leasing-live", "Lease one slot to four tasks, in real processes and modelled time.", GROUPS)
    parser.number("repeats", 3, least=1, help="turns of every way")
    parser.number("rounds", 40, least=8, help="rounds of each task")
    args = parser.parse(argv)
    report = Report(bench="leasing-live")
    effort = Effort(repeats=args.repeats, rounds=args.rounds)
    go_through(report, GROUPS, chosen(args.rows, GROUPS), effort, args.json)
    return report.exit_code(strict=args.strict)

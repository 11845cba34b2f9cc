"""Measure leases in real processes and modelled time: four tasks on one slot (B5), and the price of a grant (B6).

Steps and gradients sleep (:mod:`benchmarks.frame.padded`), so that what is measured is the lease and not how processes
fight for the cores.  The same tasks train leased together, exclusively (each alone on the slot, one after the other),
and co-located (as ordinary processes at once, without a slot: their sleeping gradients overlap, which kernels do not).
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import psutil

from benchmarks.efforts import LeasingLive
from benchmarks.frame.journals import pool_leases, rate
from benchmarks.frame.padded import GRADIENT_S, STEP_S
from benchmarks.frame.processes import train_all
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import Stage, local_spec, open_stage, padded_task, parameters
from benchmarks.runtime.turns import Hold, on_one, turns_in_scheduler, turns_in_worker
from drlnb.planning.leasing import expected_load
from drlnb.planning.leasing.load import bound
from drlnb.records.journal import Journal

__all__ = ["MODELLED_S", "N_TASKS", "Held", "Turn", "grants", "held", "throughput", "throughput_rows"]

#: Tasks on the slot, as many as its bound carries at a duty of a quarter; and steps of a round.
N_TASKS, _N_STEPS = 4, 16
#: Time of a round alone, without what drlnb adds, in seconds: a fifth of it on the slot.
MODELLED_S = _N_STEPS * STEP_S + GRADIENT_S
#: Rounds at a run's start that do not count, and grants per block.
_WARM_ROUNDS, _BLOCK = 2, 50
#: Share of the modelled time above which real computing spoils a run, dimensionless.
_SPOILT = 0.30


# ------------------------------------------------------------------ B5
@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the leases of one run came to, while every task was at work."""

    rounds_per_s: float
    #: Share of the time in which the slot's executor computed.
    busy: float
    #: Seconds of computing per round.
    compute_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of all three ways."""

    leased: Held
    alone: Sequence[Held]
    #: Rounds per second of the co-located processes.
    co_located: float
    #: Real computing / modelled time, in the leased run.
    real: float
    #: Tasks whose parameters are those of the task alone.
    n_same: int


def held(journal: Journal, n_warm: int = _WARM_ROUNDS) -> Held:
    """Read from the pool's stream how many rounds were computed per second, and for how long.

    Raises
    ------
    TrainingFailed
        If the tasks were never all at work.
    """
    computed: dict[tuple[str, int], tuple[float, float]] = {}
    for lease in pool_leases(journal):
        if lease.grant.round > n_warm:
            key = (lease.grant.task, lease.grant.round)  # given away in between, a round has several leases
            computed[key] = (lease.ended_t, lease.computed_s + computed.get(key, (0.0, 0.0))[1])
    ends: dict[str, list[float]] = {}
    for (task, _), (t, _) in sorted(computed.items(), key=lambda item: item[1]):
        ends.setdefault(task, []).append(t)
    hz, _ = rate(list(ends.values()))
    first, last = max(times[0] for times in ends.values()), min(times[-1] for times in ends.values())
    counted = [seconds for t, seconds in computed.values() if first < t <= last]
    return Held(rounds_per_s=hz, busy=sum(counted) / (last - first), compute_s=sum(counted) / len(counted))


@contextlib.contextmanager
def _cpu_seconds() -> Iterator[list[float]]:
    """Record twice a second the processor seconds of the executors and collectors below this process."""
    totals: list[float] = []
    seconds: dict[psutil.Process, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if " ".join(process.cmdline()).startswith(("drlnb executor", "drlnb collector")):
                        seconds[process] = sum(process.cpu_times()[:2])
            totals.append(sum(seconds.values()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield totals
    finally:
        over.set()
        thread.join()


def throughput(effort: LeasingLive) -> Iterator[Row]:
    """Train four tasks on one slot, each alone on it, and as processes at once, in turn (B5)."""
    with open_stage() as stage:
        stage.fleet.set("agent.collector_slots", N_TASKS)  # who sleeps needs no CPU
        return throughput_rows([_turn(stage, effort.rounds, f"turn{n}") for n in range(effort.repeats)])


def _turn(stage: Stage, rounds: int, name: str) -> Turn:
    tasks = {f"t{seed}": padded_task(f"t{seed}", seed, rounds, _N_STEPS) for seed in range(N_TASKS)}
    with _cpu_seconds() as cpu:
        leased = stage.train(list(tasks.values()), f"{name}-leased")
    alone = [stage.train([task], f"{name}-alone-{key}") for key, task in tasks.items()]
    works = [{"spec": local_spec(task).to_plain(), "seconds": rounds * MODELLED_S} for task in tasks.values()]
    co_located, _ = rate([done.ends for done in train_all(works)])
    same = [
        parameters(stage.folder / f"{name}-leased", key) == parameters(stage.folder / f"{name}-alone-{key}", key)
        for key in tasks
    ]
    return Turn(
        leased=held(leased),
        alone=[held(journal) for journal in alone],
        co_located=co_located,
        real=(cpu[-1] - cpu[0]) / (N_TASKS * rounds * MODELLED_S) if cpu else 0.0,
        n_same=sum(same),
    )


def throughput_rows(turns: Sequence[Turn]) -> Iterator[Row]:
    """Return B5's figures: share of the bound, v exclusive, v co-located, and tasks with the same parameters."""
    duties = [[alone.compute_s * alone.rounds_per_s for alone in turn.alone] for turn in turns]
    exclusive = [N_TASKS / sum(1 / alone.rounds_per_s for alone in turn.alone) for turn in turns]
    leased = [turn.leased.rounds_per_s for turn in turns]
    real = [turn.real for turn in turns]
    valid = f"real computing {max(real):.0%} of the modelled time"
    valid += ": INVALID, above 30 %" if max(real) > _SPOILT else ""
    d = sum(map(sum, duties)) / sum(map(len, duties))
    expected = expected_load(N_TASKS, 1, d)
    of_bound = expected.utilisation_frac / expected.bound_frac
    setting = f"{N_TASKS} tasks, 1 virtual slot, d = {d:.3f}"
    rounds = partial(Row, unit="rounds/s")
    busy = pair_up([turn.leased.busy for turn in turns], [bound(task_duties, 1) for task_duties in duties])
    title = f"{setting}: utilisation of the slot; {valid}"
    against = f"the bound, of which the machine repairman expects {of_bound:.2f}"
    yield Row("b5-bound", title, unit="of the slot", against=against, bar=Bar("ratio", at_least=0.85), **busy)
    title, against = f"{setting}: rounds per second, leased", "each task alone on the slot, in sequence"
    bar = Bar("ratio", at_least=3.0)
    yield rounds("b5-exclusive", f"{title}; {valid}", against=against, bar=bar, **pair_up(leased, exclusive))
    against = "four ordinary processes at once, whose sleeping gradients overlap as no device's kernels do"
    yield rounds("b5-co-located", title, against=against, **pair_up(leased, [turn.co_located for turn in turns]))
    title = f"tasks of {N_TASKS} whose final parameters are those of the task alone, bit by bit"
    bar = Bar("worst", at_least=float(N_TASKS))
    yield Row("b5-same", title, [float(turn.n_same) for turn in turns], "tasks", bar=bar)
    title = "processor seconds of executors and collectors per modelled second, leased"
    yield Row("b5-real", title, real, "of the time", bar=Bar("value", _SPOILT))


# ------------------------------------------------------------------ B6
def grants(effort: LeasingLive) -> tuple[Row, ...]:
    """Measure a free slot's grant in the scheduler's own process and over RPC, in turn (B6)."""
    with open_stage() as stage:

        def near() -> list[Hold]:
            holds: list[Hold] = stage.client.run_on_scheduler(
                turns_in_scheduler, f"bench/near-{time.monotonic_ns()}", _BLOCK
            )
            return holds

        def far() -> list[Hold]:
            return on_one(stage.client, turns_in_worker, f"bench/far-{time.monotonic_ns()}", _BLOCK, 0.0, False)

        blocks = in_turn(4 * effort.repeats, {"near": near, "far": far})
    took = {way: [hold.got_t - hold.asked_t for holds in blocks[way] for hold in holds] for way in blocks}
    title = "free slot asked for until granted, p50"
    return (
        Row("b6-near", f"{title}: in the scheduler's process", took["near"], bar=Bar("value", 0.001)),
        Row("b6-far", f"{title}: over RPC from a worker", took["far"], bar=Bar("value", 0.015)),
    )

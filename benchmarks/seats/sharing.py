"""Measure the same tasks on one device: one after the other, all at once as processes, and leased with seats.

Exclusive allocation alone is a straw man: what a lab does today is to start N processes on one device.  So both stand
beside every figure of leasing.  All three train the same tasks with the same seeds for a while; what counts is rounds
per second while every task is at work, so that starts and ends are left out.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.efforts import Seats
from benchmarks.frame.journals import pool_leases, rate
from benchmarks.frame.processes import train_all
from benchmarks.frame.rows import Row, in_turn, pair_up
from benchmarks.frame.stage import Arguments, local_spec, virtual_devices
from benchmarks.frame.training_child import LEAST
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.fleet.training import Training
from drlnb.planning.placement.seats import ISOLATIONS
from drlnb.records.columns.leasing import LeaseReleased
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import settings_of

__all__ = ["REGIMES", "Regime", "Shared", "co_located", "exclusive", "isolation", "leased", "regime", "regime_rows"]

#: Longest wait for processes or executors, in seconds.
_BEGIN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Tasks of one size."""

    name: str
    #: Under Stable-Baselines3's names.
    settings: Arguments
    n_envs: int = 8
    n_tasks: int = 4
    env: str = "CartPole-v1"
    #: On a CUDA device instead of a virtual one.
    cuda: bool = False
    #: Seats that are compared.
    seats: tuple[int, ...] = (1, 2)

    def tasks(self) -> list[Task]:
        """Return the tasks, one seed each, with more steps than any of these trainings takes."""
        make = partial(Task, self.env, total_timesteps=10**9, n_envs=self.n_envs, n_collectors=1, **self.settings)
        return [make(seed=seed) for seed in range(self.n_tasks)]

    def works(self, seconds: float) -> list[dict[str, object]]:
        """Return them as work for children that train for so many seconds."""
        where = {"device": "cuda"} if self.cuda else {}
        return [{"spec": local_spec(task).to_plain(), "seconds": seconds, **where} for task in self.tasks()]


#: Small kernels under Stable-Baselines3's defaults (2,560 updates of 64 samples through two layers of 64); large ones
#: (32 of 512 through two of 512); and small ones in the shortest rounds that people use, rl-zoo's for CartPole: 40
#: updates, which end so soon that what a lease costs is a good part of them.
REGIMES: dict[str, Regime] = {
    "small": Regime(name="small", settings={"n_steps": 2048, "batch_size": 64, "n_epochs": 10}),
    "large": Regime(
        name="large",
        settings={"n_steps": 256, "batch_size": 512, "n_epochs": 8, "policy_kwargs": {"net_arch": [512, 512]}},
    ),
    "short": Regime(name="short", settings={"n_steps": 32, "batch_size": 64, "n_epochs": 10}),
}
_ON_CUDA = partial(Regime, env="drlnb/Catch-v0", cuda=True)
_PIXELS: Arguments = {"n_steps": 128, "batch_size": 256, "n_epochs": 4}
#: The same for a CUDA device: pixels through two layers of 64, and through the Atari papers' convolutions.
REGIMES = {
    **REGIMES,
    "mlp": _ON_CUDA(name="mlp", settings={**_PIXELS, "policy": "MlpPolicy"}),
    "cnn": _ON_CUDA(name="cnn", settings={**_PIXELS, "policy": "CnnPolicy"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The result of one way of sharing."""

    #: Rounds of all tasks per second while each of them was at work.
    rounds_per_s: float
    n_rounds: int
    #: Seats of the device; 0 where nothing was leased.
    n_seats: int = 0
    #: Share of the time in which a slot of the device computed; NaN where nothing was leased.
    busy: float = math.nan


# ------------------------------------------------------------------ without leases
def exclusive(regime: Regime, seconds: float) -> Shared:
    """Train the tasks one after the other, each alone on the device, each for its share of the time."""
    alone = [rate([train_all([work])[0].ends]) for work in regime.works(seconds / regime.n_tasks)]
    # In sequence each task's rounds take the seconds that they take alone.
    return Shared(rounds_per_s=len(alone) / sum(1 / hz for hz, _ in alone), n_rounds=sum(n for _, n in alone))


def co_located(regime: Regime, seconds: float) -> Shared:
    """Train the tasks all at once, in as many ordinary processes on the device."""
    hz, n_rounds = rate([done.ends for done in train_all(regime.works(seconds))])
    return Shared(rounds_per_s=hz, n_rounds=n_rounds)


# ------------------------------------------------------------------ with leases
def leased(
    regime: Regime,
    seconds: float,
    n_seats: int,
    *,
    isolation: str = "shared",
    meanwhile: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Shared:
    """Train the tasks all at once on one device of a cluster of their own, with so many seats.

    Parameters
    ----------
    regime
        The tasks.
    seconds
        Time that counts, once every task has computed.
    n_seats
        Seats of the device.
    isolation
        Whether the tasks share an executor process, or have one each.
    meanwhile
        What is watched during the time that counts.
    """
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as name,
        virtual_devices(cuda=regime.cuda),
    ):
        out = Path(name) / "run"
        with Fleet(slots=1, seats=n_seats, isolation=isolation) as fleet:
            run = fleet.train(regime.tasks(), out=out)
            _until(run, lambda: _rounds(run) >= LEAST)
            since = _rounds(run)
            with meanwhile():
                time.sleep(seconds)
            _until(run, lambda: _rounds(run) >= since + LEAST)
            run.stop()
            run.wait(timeout_s=_BEGIN_S)
        return _shared(Journal.read(out), n_seats)


def _until(run: Training, holds: Callable[[], bool]) -> None:
    """Look once a second: reading a journal again and again would take a core from what is measured."""
    deadline = time.monotonic() + _BEGIN_S
    while not holds():
        if run.ended or time.monotonic() > deadline:
            raise TrainingFailed(f"the tasks were not all at work within {_BEGIN_S:g} s: {dict(run.tasks)}")
        time.sleep(1.0)


def _rounds(run: Training) -> int:
    """Return how many rounds the slowest task has ended."""
    specs = {name: spec for name, spec in run.specs.items() if isinstance(spec, RlWork)}
    steps = {name: settings_of(spec).round_steps() * spec.n_envs for name, spec in specs.items()}
    return min(task.n_timesteps // steps[name] for name, task in run.tasks.items())


def _shared(journal: Journal, n_seats: int) -> Shared:
    ends: dict[str, list[float]] = {}
    computed_s = list[float]()
    for lease in pool_leases(journal):
        if isinstance(lease.end, LeaseReleased) and lease.end.reason == "returned" and lease.grant.round > 0:
            ends.setdefault(lease.grant.task, []).append(lease.ended_t)
            computed_s.append(lease.computed_s)
    hz, n_rounds = rate(list(ends.values()))
    busy = hz * fmean(computed_s) / n_seats
    return Shared(rounds_per_s=hz, n_rounds=n_rounds, n_seats=n_seats, busy=busy)


# ------------------------------------------------------------------ side by side
def isolation(effort: Seats) -> Iterator[Row]:
    """Compare one executor per task with one for both of two tasks, in short rounds: they change hands most often."""
    tasks = replace(REGIMES["short"], n_tasks=2)
    ways = {way: partial(leased, tasks, effort.seconds, 1, isolation=way) for way in ISOLATIONS}
    hz = {way: [shared.rounds_per_s for shared in of] for way, of in in_turn(effort.repeats, ways).items()}
    title = f"{tasks.n_tasks} {tasks.name} tasks on one slot, isolation"
    row, paired = partial(Row, unit="rounds/s"), pair_up(hz["process"], hz["shared"])
    yield row("isolation-shared", f"{title} shared: rounds per second", hz["shared"])
    yield row("isolation-process", f"{title} process: rounds per second", against="isolation shared", **paired)


def regime(effort: Seats, name: str) -> Iterator[Row]:
    """Compare every way of sharing in turn, with kernels of one size."""
    tasks, seconds = REGIMES[name], effort.seconds
    ways: dict[str, Callable[[], Shared]] = {
        "exclusive": partial(exclusive, tasks, seconds),
        "co-located": partial(co_located, tasks, seconds),
    }
    ways |= {f"lease, seats {n}": partial(leased, tasks, seconds, n) for n in tasks.seats}
    return regime_rows(tasks, in_turn(effort.repeats, ways))


def regime_rows(tasks: Regime, turns: Mapping[str, Sequence[Shared]]) -> Iterator[Row]:
    """Return each way's rounds per second: leases against the better of exclusive and co-located of the same turn."""
    hz = {way: [shared.rounds_per_s for shared in of] for way, of in turns.items()}
    better = [max(pair) for pair in zip(hz["exclusive"], hz["co-located"], strict=True)]
    for way, samples in hz.items():
        title = f"{tasks.n_tasks} {tasks.name} tasks on one device, {way}: rounds per second"
        row = partial(Row, f"sharing-{tasks.name}-{way.rpartition(' ')[2]}", unit="rounds/s")
        paired, against = pair_up(samples, better), "the better of exclusive and co-located"
        if way.startswith("lease"):
            yield row(title, against=against, **paired)
        else:
            yield row(title, samples)

"""What do the same tasks do on one device: one after the other, all at once as processes, or leased with seats?

Exclusive allocation alone is a straw man: what a lab does today is to start N processes on one device.  So both stand
beside every figure of leasing.  All three train the same tasks with the same seeds for a while; what counts is rounds
per second while every task is at work, so that starts, ends and the probe of ``seats="auto"`` are left out (how long a
probe lasted is said apart).
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drlnb.bench.report import Bar, Row, pair_up
from drlnb.bench.sharing_child import LEAST
from drlnb.bench.stage import virtual_devices
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.fleet.training import Training
from drlnb.planning.seats.rules import ISOLATIONS
from drlnb.records import seats
from drlnb.records.columns import leasing
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.registry import round_steps
from drlnb.rl.envs.make import probe
from drlnb.runtime.ipc.start_modes import child_environment

__all__ = [
    "REGIMES",
    "Regime",
    "Shared",
    "apart",
    "co_located",
    "compare",
    "exclusive",
    "leased",
    "processes",
    "rate",
    "rows",
]

#: More steps than any of these trainings takes.
_ENDLESS = 10**9
#: Longest wait for processes, executors, or a probe, in seconds.
_BEGIN_S = 600.0
#: Seats that are compared.
SEATS: tuple[int | str, ...] = (1, 2, "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Tasks of one size."""

    name: str
    #: Under Stable-Baselines3's names.
    settings: Mapping[str, Any]
    n_envs: int = 8
    n_tasks: int = 4
    env: str = "CartPole-v1"

    def tasks(self) -> list[Task]:
        """Return the tasks, one seed each."""
        return [
            Task(self.env, total_timesteps=_ENDLESS, seed=seed, n_envs=self.n_envs, n_collectors=1, **self.settings)
            for seed in range(self.n_tasks)
        ]

    def specs(self) -> list[TaskSpec]:
        """Return them as specs that a process can train."""
        spaces = probe(self.env)
        return [TaskSpec.from_plain(task.spec.to_plain() | spaces) for task in self.tasks()]


#: Small kernels under Stable-Baselines3's defaults (2,560 updates of 64 samples through two layers of 64); large ones
#: (32 of 512 through two of 512); and small ones in the shortest rounds that people use, rl-zoo's for CartPole: 40
#: updates, which end so soon that what a lease costs is a good part of them.
REGIMES: Mapping[str, Regime] = {
    one.name: one
    for one in (
        Regime(name="small", settings={"n_steps": 2048, "batch_size": 64, "n_epochs": 10}),
        Regime(
            name="large",
            settings={
                "n_steps": 256,
                "batch_size": 512,
                "n_epochs": 8,
                "policy_kwargs": {"net_arch": [512, 512]},
            },
        ),
        Regime(name="short", settings={"n_steps": 32, "batch_size": 64, "n_epochs": 10}),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What one way of sharing came to."""

    #: Rounds of all tasks per second while each of them was at work.
    rounds_per_s: float
    n_rounds: int
    #: Seats of the device; 0 where nothing was leased.
    n_seats: int = 0
    #: What the probe found: work per second with 1, 2, ... seats, relative to one; and how long it held the device.
    rates: tuple[float, ...] = field(default=())
    probe_s: float = 0.0


def rate(ends: Sequence[Sequence[float]], since: float = 0.0) -> tuple[float, int]:
    """Return rounds per second over all tasks, and how many were counted, while every task was at work.

    Parameters
    ----------
    ends
        Seconds at which each task's rounds ended; shape ``(n_tasks, n_rounds)``, ragged.
    since
        Nothing before this second counts.

    Raises
    ------
    TrainingFailed
        If some task ended fewer than two rounds while all were at work.

    Examples
    --------
    >>> rate([[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5]])
    (2.0, 4)
    """
    counted = [[t for t in one if t >= since] for one in ends]
    if min(map(len, counted), default=0) < 2:
        raise TrainingFailed(f"a task ended {min(map(len, counted), default=0)} rounds in the time: give it more")
    first, last = max(one[0] for one in counted), min(one[-1] for one in counted)
    n_rounds = sum(first < t <= last for one in counted for t in one)
    if last <= first:
        raise TrainingFailed("the tasks were never all at work: give them more time")
    return n_rounds / (last - first), n_rounds


# ------------------------------------------------------------------ without leases
def exclusive(regime: Regime, seconds: float) -> Shared:
    """Train the tasks one after the other, each alone on the device, each for its share of the time."""
    found = [processes([spec], seconds / regime.n_tasks)[0] for spec in regime.specs()]
    alone = [rate([ends]) for ends in found]
    # In sequence each task's rounds take the seconds that they take alone.
    return Shared(rounds_per_s=len(alone) / sum(1 / hz for hz, _ in alone), n_rounds=sum(n for _, n in alone))


def co_located(regime: Regime, seconds: float) -> Shared:
    """Train the tasks all at once, in as many ordinary processes on the device."""
    hz, n_rounds = rate(processes(regime.specs(), seconds))
    return Shared(rounds_per_s=hz, n_rounds=n_rounds)


def processes(specs: Sequence[TaskSpec], seconds: float) -> list[list[float]]:
    """Train each task in a process, all beginning together; return when their rounds ended."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_process()) for _ in specs]
        for process, spec in zip(started, specs, strict=True):
            _say(process, json.dumps({"spec": spec.to_plain(), "seconds": seconds}))
        for process in started:
            _hear(process)
        for process in started:
            _say(process, "go")
        return [json.loads(_hear(process)) for process in started]


@contextlib.contextmanager
def _process() -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "drlnb.bench.sharing_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise TrainingFailed(f"a training process ended ({process.wait()}): its error is above")
    return line


# ------------------------------------------------------------------ with leases
def leased(
    regime: Regime, seconds: float, n_seats: int | str, *, virtual: bool = True, isolation: str = "shared"
) -> Shared:
    """Train the tasks all at once on one device of a cluster of their own, with so many seats.

    Parameters
    ----------
    regime
        The tasks.
    seconds
        Time that counts, once every task has computed (and, with ``auto``, the seats have been found).
    n_seats
        Seats of the device, or ``auto``.
    virtual
        Hide CUDA devices, so that the device is the CPU; else it is the first CUDA device.
    isolation
        Whether the tasks share an executor process, or have one each.
    """
    hidden = virtual_devices() if virtual else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as name, hidden:
        out = Path(name) / "run"
        with Fleet(slots=1, seats=n_seats, isolation=isolation) as fleet:
            run = fleet.train(regime.tasks(), out=out)
            _until(run, lambda: _rounds(run) >= LEAST)
            if n_seats == "auto":
                _until(run, lambda: _has_seats(run))
            since = _rounds(run)
            time.sleep(seconds)
            _until(run, lambda: _rounds(run) >= since + LEAST)
            run.stop()
            run.wait(timeout_s=_BEGIN_S)
        return _shared(Journal.read(out), 1 if n_seats == "auto" else int(n_seats))


def _until(run: Training, holds: Callable[[], bool]) -> None:
    """Look once a second: whoever reads a journal again and again takes a core from what is measured."""
    deadline = time.monotonic() + _BEGIN_S
    while not holds():
        if run.ended or time.monotonic() > deadline:
            raise TrainingFailed(f"the tasks were not all at work within {_BEGIN_S:g} s: {dict(run.tasks)}")
        time.sleep(1.0)


def _rounds(run: Training) -> int:
    """Return how many rounds the slowest task has ended."""
    specs = run.specs
    return min(task.n_timesteps // (round_steps(specs[name]) * specs[name].n_envs) for name, task in run.tasks.items())


def _has_seats(run: Training) -> bool:
    """Whether the number of seats has been found, or there can be one only, by the journal's text."""
    for path in run.out.glob("journal/seats-*.jsonl"):
        first, _, rest = path.read_text(encoding="utf-8").partition("\n")
        devices = json.loads(first)["snapshot"]["devices"] if rest else []
        if '"SeatsSet"' in rest or (devices and all(device["n_most"] == 1 for device in devices)):
            return True
    return False


def _ends(journal: Journal) -> list[list[float]]:
    """Return when each task's rounds ended on its slot, on the pool's clock; round 0 is left out."""
    ends: dict[str, list[float]] = {}
    for stream in journal.streams.values():
        if stream.header.machine != "pool":
            continue
        rounds = {one.fence: one.round for one in stream.of(leasing.LeaseGranted)}
        for event, answer in stream.answers():
            for one in answer:
                if isinstance(one, leasing.LeaseReleased) and one.reason == "returned" and rounds.get(one.fence, 0) > 0:
                    ends.setdefault(one.task, []).append(event.t)
    return [found for task, found in ends.items() if not task.startswith("seats/")]


def _shared(journal: Journal, n_seats: int) -> Shared:
    set_, plans = journal.of(seats.SeatsSet), journal.of(seats.SeatsPlanned)
    hz, n_rounds = rate(_ends(journal), since=set_[-1].t if set_ else 0.0)
    held = [one.held_s for one in journal.of(leasing.LeaseReleased) if one.task.startswith("seats/")]
    return Shared(
        rounds_per_s=hz,
        n_rounds=n_rounds,
        n_seats=set_[-1].n_seats if set_ else n_seats,
        rates=plans[-1].rates if plans else (),
        probe_s=max(held, default=0.0),
    )


# ------------------------------------------------------------------ side by side
def apart(regime: Regime, seconds: float, repeats: int) -> tuple[Row, ...]:
    """Measure one executor per task beside one for all tasks, in turn; return rounds per second of both."""
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for isolation in ISOLATIONS:
            measured = leased(regime, seconds, 1, isolation=isolation)
            found.setdefault(isolation, []).append(measured.rounds_per_s)
    shared, process = found["shared"], found["process"]
    what = f"{regime.n_tasks} {regime.name} tasks on one slot, isolation"
    return (
        Row(id="isolation-shared", what=f"{what} shared: rounds per second", unit="rounds/s", samples=tuple(shared)),
        Row(
            id="isolation-process",
            what=f"{what} process: rounds per second",
            unit="rounds/s",
            against="isolation shared",
            **pair_up([[one] for one in process], [[one] for one in shared]),
        ),
    )


def compare(regime: Regime, seconds: float, repeats: int) -> dict[str, list[Shared]]:
    """Measure every way of sharing in turn, again and again; return what each came to, by its name."""
    found: dict[str, list[Shared]] = {}
    for _ in range(repeats):
        found.setdefault("exclusive", []).append(exclusive(regime, seconds))
        found.setdefault("co-located", []).append(co_located(regime, seconds))
        for n_seats in SEATS:
            found.setdefault(f"lease, seats {n_seats}", []).append(leased(regime, seconds, n_seats))
    return found


def rows(regime: Regime, found: Mapping[str, Sequence[Shared]]) -> tuple[Row, ...]:
    """Return each way's rounds per second: leases against the better of exclusive and co-located of the same turn."""
    plain = {name: [one.rounds_per_s for one in measured] for name, measured in found.items()}
    better = [[max(pair)] for pair in zip(plain["exclusive"], plain["co-located"], strict=True)]
    made = []
    for name, samples in plain.items():
        what = f"{regime.n_tasks} {regime.name} tasks on one device, {name}: rounds per second"
        if not name.startswith("lease"):
            made.append(
                Row(id=f"sharing-{regime.name}-{name}", what=what, unit="rounds/s", samples=tuple(map(float, samples)))
            )
            continue
        auto = name.endswith("auto")
        seats_ = ", ".join(str(one.n_seats) for one in found[name])
        made.append(
            Row(
                id=f"sharing-{regime.name}-{name.rpartition(' ')[2]}",
                what=f"{what} (found: {seats_})" if auto else what,
                unit="rounds/s",
                against="the better of exclusive and co-located",
                bar=Bar("ratio", at_least=0.97) if auto else None,
                **pair_up([[one] for one in samples], better),
            )
        )
        if auto:
            made.append(
                Row(
                    id=f"sharing-{regime.name}-probe",
                    what=f"the probe that finds the seats for {regime.name} tasks holds the device",
                    samples=tuple(one.probe_s for one in found[name]),
                )
            )
    return tuple(made)

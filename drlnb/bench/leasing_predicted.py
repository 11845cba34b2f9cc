"""``drlnb bench leasing-live --rows predicted``: does the first half of a run foretell the second?

Four tasks of PPO on CartPole, nothing padded, on one virtual slot.  The simulator is calibrated on the first half of
the journal (durations, not rules) and tells the second half's utilisation and inflation; beside that, what drlnb
itself takes of a round.  There is no bar: nothing was ever tuned on these.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from drlnb.bench.leasing_live import N_TASKS, Effort, train
from drlnb.bench.report import Row
from drlnb.bench.stage import virtual_devices
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.journal import Journal
from drlnb.sim.recorded.play import Load, load_of, pools_of, recorded_tasks, simulate_recorded, slots_of
from drlnb.sim.recorded.settings import Rules, pool_settings
from drlnb.sim.recorded.task import RecordedTask

__all__ = ["Foretold", "Share", "foretell", "predicted", "predicted_rows", "shares"]

#: Rounds of these tasks for each one of the padded group: they are that much shorter.
_SHORTER = 4
#: Rounds at a task's start that do not count.
_WARM_ROUNDS = 2
#: Rounds of all tasks that are simulated at least, so that its begin and end do not count.
_ROUNDS = 600
_N_ENVS, _N_STEPS = 4, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """A figure of the second half of a run: as the first half foretells it, and as it was."""

    held: tuple[float, float]
    #: Mean over the tasks of round time / round time with a slot of one's own (simulated, with that half's durations).
    inflation: tuple[float, float]


def foretell(journal: Journal, tasks: Sequence[str]) -> Foretold:
    """Calibrate on the first half of the time in which all tasks trained, and hold it against the second.

    Parameters
    ----------
    journal
        Of a run with one pool.
    tasks
        Names of the tasks.

    Raises
    ------
    ValueError
        If a half holds too few rounds of a task.
    """
    pools = pools_of(journal)
    n_slots = slots_of(pools[-1])
    first, second = (load_of(pools, tasks, n_slots, part=part) for part in ((0.0, 0.5), (0.5, 1.0)))
    settings = pool_settings(pools[-1])
    until_s = max(second.window_s, _ROUNDS / first.rounds_per_s)

    def played(tasks: Sequence[RecordedTask], n: int) -> Load:
        return simulate_recorded(tasks, Rules(n_slots=n, settings=settings), until_s=until_s)

    def lone_s(tasks: Sequence[RecordedTask]) -> dict[str, float]:
        """Return round times without sharing: those of the same half, for processors may have been faster in it."""
        return {name: mean for task in tasks for name, mean in played([task], 1).round_s.items()}

    known, later = (recorded_tasks(journal, half.rounds) for half in (first, second))
    told = played(known, n_slots)
    return Foretold(
        held=(told.held_frac, second.held_frac),
        inflation=(_over(told.round_s, lone_s(known)), _over(second.round_s, lone_s(later))),
    )


def _over(round_s: Mapping[str, float], lone_s: Mapping[str, float]) -> float:
    return fmean(round_s[name] / lone_s[name] for name in lone_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of one round was not the task's own work, as shares of the round."""

    #: Neither acting, nor update, nor waiting for a slot.
    control: float
    #: The way of the requests for its leases to the pool and back, without the wait there.
    asking: float


def shares(journal: Journal, n_warm: int = _WARM_ROUNDS) -> tuple[Share, ...]:
    """Return what drlnb took of each round of every task, but for the first ones."""
    found: list[Share] = []
    for stream in journal.streams.values():
        asked: dict[str, float] = {}
        asking_s = 0.0
        rounds: list[Share] = []
        for event, answer in stream.answers():
            if isinstance(event, words.LeaseReceived) and event.request_id in asked:
                asking_s += max(0.0, event.t - asked.pop(event.request_id) - event.waited_s)
            for one in answer:
                if isinstance(one, words.RequestSlot):
                    asked[one.request_id] = event.t
                elif isinstance(one, words.MetricsRecorded):
                    round_s = one.metrics["round/time_s"]
                    rounds.append(Share(control=one.metrics["round/control_s"] / round_s, asking=asking_s / round_s))
                    asking_s = 0.0
        found += rounds[n_warm:]
    return tuple(found)


def _tasks(rounds: int) -> list[Task]:
    return [
        Task(
            "CartPole-v1",
            algo="ppo",
            name=f"p{seed}",
            seed=seed,
            n_envs=_N_ENVS,
            n_collectors=1,
            n_steps=_N_STEPS,
            n_epochs=2,
            batch_size=_N_ENVS * _N_STEPS // 4,
            total_timesteps=rounds * _N_ENVS * _N_STEPS,
        )
        for seed in range(N_TASKS)
    ]


def predicted(effort: Effort) -> tuple[Row, ...]:
    """Train four tasks together, as often as there are turns, and foretell each run's second half from its first."""
    found: list[Foretold] = []
    spent: list[Share] = []
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(),
        Fleet(slots=1) as fleet,
    ):
        for turn in range(effort.repeats):
            tasks = _tasks(_SHORTER * effort.rounds)
            journal = train(fleet, tasks, Path(folder) / str(turn))
            found.append(foretell(journal, [task.spec.name for task in tasks]))
            spent += shares(journal)
    return predicted_rows(found, spent)


def predicted_rows(found: Sequence[Foretold], spent: Sequence[Share]) -> tuple[Row, ...]:
    """Return what was foretold beside what was, with the error in words; and drlnb's own share of a round.

    Parameters
    ----------
    found
        One per run.
    spent
        One per round.
    """
    what = f"{N_TASKS} tasks of PPO on CartPole-v1, 1 virtual slot: second half of the run from its first"

    def row(name: str, figure: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
        ratios = tuple(told / was for told, was in pairs)
        errors = ", ".join(f"{ratio - 1.0:+.1%}" for ratio in ratios)
        return Row(
            id=f"predicted-{name}",
            what=f"{what}, {figure}; error {errors}",
            unit=unit,
            samples=tuple(told for told, _ in pairs),
            against="what was measured there",
            baseline_samples=tuple(was for _, was in pairs),
            pairs=ratios,
        )

    return (
        row("utilisation", "time in which the slot was held", "of the slot", [one.held for one in found]),
        row(
            "inflation", "round time / that with a slot of one's own (simulated)", "x", [one.inflation for one in found]
        ),
        Row(
            id="lease-overhead",
            what="control (neither acting, nor update, nor waiting for the slot) of a round of these tasks",
            unit="of the round",
            samples=tuple(one.control for one in spent),
        ),
        Row(
            id="lease-asking",
            what="of that, requests for its leases on their way to the pool and back",
            unit="of the round",
            samples=tuple(one.asking for one in spent),
        ),
    )

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
from drlnb.fleet.task import Task
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.journal import Journal
from drlnb.records.round import MetricsRecorded
from drlnb.sim.recorded import load_of, pools_of, recorded_tasks, simulate_recorded, slots_of

__all__ = ["Foretold", "foretell", "overhead_frac", "predicted", "predicted_rows"]

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
    #: Mean over the tasks of round time / round time with a slot of one's own.
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
    played = recorded_tasks(journal, first.rounds)
    settings = LeasingSettings.from_mapping(dict(pools[-1].header.config["settings"]))
    until_s = max(second.window_s, _ROUNDS / first.rounds_per_s)
    told = simulate_recorded(played, n_slots=n_slots, settings=settings, planners={}, until_s=until_s)
    lone: dict[str, float] = {}
    for task in played:
        lone |= simulate_recorded([task], n_slots=1, settings=settings, planners={}, until_s=until_s).round_s
    return Foretold(
        held=(told.held_frac, second.held_frac), inflation=(_over(told.round_s, lone), _over(second.round_s, lone))
    )


def _over(round_s: Mapping[str, float], lone_s: Mapping[str, float]) -> float:
    return fmean(round_s[name] / lone_s[name] for name in lone_s)


def overhead_frac(journal: Journal, n_warm: int = _WARM_ROUNDS) -> tuple[float, ...]:
    """Return, by round of every task, the share that is neither acting, nor update, nor waiting for a slot."""
    rounds = [one.metrics for stream in journal.streams.values() for one in stream.of(MetricsRecorded)[n_warm:]]
    return tuple(one["round/control_s"] / one["round/time_s"] for one in rounds)


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
    shares: list[tuple[float, ...]] = []
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(),
        Fleet(slots=1) as fleet,
    ):
        for turn in range(effort.repeats):
            tasks = _tasks(_SHORTER * effort.rounds)
            journal = train(fleet, tasks, Path(folder) / str(turn))
            found.append(foretell(journal, [task.spec.name for task in tasks]))
            shares.append(overhead_frac(journal))
    return predicted_rows(found, [share for each in shares for share in each])


def predicted_rows(found: Sequence[Foretold], shares: Sequence[float]) -> tuple[Row, ...]:
    """Return what was foretold beside what was, with the error in words; and drlnb's own share of a round.

    Parameters
    ----------
    found
        One per run.
    shares
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
        row("inflation", "round time / that with a slot of one's own", "x", [one.inflation for one in found]),
        Row(
            id="lease-overhead",
            what="control (neither acting, nor update, nor waiting for the slot) of a round of these tasks",
            unit="of the round",
            samples=tuple(shares),
        ),
    )

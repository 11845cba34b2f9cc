"""Measure whether the first half of a run predicts the second: four tasks of PPO on CartPole, on one virtual slot.

Nothing is padded.  The simulator is calibrated on the first half of the journal (durations, not rules) and predicts the
second half's utilisation and inflation; beside that, what drlnb itself takes of a round.  There is no bar: nothing was
ever tuned on these.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from drlnb.bench.benches import LeasingLive
from drlnb.bench.frame.rows import Row, pair_up
from drlnb.bench.frame.stage import Arguments, open_stage
from drlnb.bench.leasing.live import N_TASKS
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.journal import Journal
from drlnb.sim.recorded.play import load_of, pools_of, recorded_tasks, simulate_recorded, slots_of
from drlnb.sim.recorded.settings import Rules, pool_settings
from drlnb.sim.recorded.task import RecordedTask

__all__ = ["Predicted", "Share", "predict", "predicted", "predicted_rows", "shares"]

#: Rounds of these tasks for each one of the padded group: they are that much shorter.
_SHORTER = 4
#: Rounds at a task's start that do not count.
_WARM_ROUNDS = 2
#: Rounds of all tasks that are simulated at least, so that its begin and end do not count.
_ROUNDS = 600
_N_ENVS, _N_STEPS = 4, 256


class Predicted(NamedTuple):
    """Figures of the second half of a run: as the first half predicts them, and as they were."""

    held: tuple[float, float]
    #: Mean over the tasks of round time / round time with a slot of one's own (simulated, with that half's durations).
    inflation: tuple[float, float]


class Share(NamedTuple):
    """What of one round was not the task's own work, as shares of the round."""

    #: Neither acting, nor update, nor waiting for a slot.
    control: float
    #: The way of the requests for its leases to the pool and back, without the wait there.
    asking: float


def predict(journal: Journal, tasks: Sequence[str]) -> Predicted:
    """Calibrate on the first half of the time in which all tasks trained, and hold it against the second.

    Raises
    ------
    ValueError
        If a half holds too few rounds of a task.
    """
    pools = pools_of(journal)
    n_slots, settings = slots_of(pools[-1]), pool_settings(pools[-1])
    first, second = (load_of(pools, tasks, n_slots, part=part) for part in ((0.0, 0.5), (0.5, 1.0)))
    until_s = max(second.window_s, _ROUNDS / first.rounds_per_s)

    def inflation(round_s: dict[str, float], tasks: Sequence[RecordedTask]) -> float:
        """Compare with round times without sharing in the same half: processors may have been faster in it."""
        rules = Rules(n_slots=1, settings=settings)
        lone = [simulate_recorded([task], rules, until_s=until_s).round_s for task in tasks]
        return fmean(round_s[name] / mean for round_s_alone in lone for name, mean in round_s_alone.items())

    known, later = (recorded_tasks(journal, half.rounds) for half in (first, second))
    simulated = simulate_recorded(known, Rules(n_slots=n_slots, settings=settings), until_s=until_s)
    ratios = inflation(dict(simulated.round_s), known), inflation(dict(second.round_s), later)
    return Predicted(held=(simulated.held_frac, second.held_frac), inflation=ratios)


def shares(journal: Journal, n_warm: int = _WARM_ROUNDS) -> list[Share]:
    """Return what drlnb took of each round of every task, but for the first ones."""
    taken: list[Share] = []
    for stream in journal.streams.values():
        asked: dict[str, float] = {}
        asking_s = 0.0
        rounds: list[Share] = []
        for event, answer in stream.answers():
            if isinstance(event, words.LeaseReceived) and event.request_id in asked:
                asking_s += max(0.0, event.t - asked.pop(event.request_id) - event.waited_s)
            for record in answer:
                if isinstance(record, words.RequestSlot):
                    asked[record.request_id] = event.t
                elif isinstance(record, words.MetricsRecorded):
                    round_s = record.metrics["round/time_s"]
                    rounds.append(Share(record.metrics["round/control_s"] / round_s, asking_s / round_s))
                    asking_s = 0.0
        taken += rounds[n_warm:]
    return taken


def predicted(effort: LeasingLive) -> tuple[Row, ...]:
    """Train four tasks together, as often as there are turns, and predict each run's second half from its first."""
    steps = _SHORTER * effort.rounds * _N_ENVS * _N_STEPS
    counts: Arguments = {"n_envs": _N_ENVS, "n_collectors": 1, "total_timesteps": steps}
    settings: Arguments = {"n_steps": _N_STEPS, "n_epochs": 2, "batch_size": _N_ENVS * _N_STEPS // 4}
    tasks = [Task("CartPole-v1", name=f"p{seed}", seed=seed, **counts, **settings) for seed in range(N_TASKS)]
    with open_stage() as stage:
        journals = [stage.train(tasks, f"turn{turn}") for turn in range(effort.repeats)]
    names = [task.spec.name for task in tasks]
    return predicted_rows(
        [predict(journal, names) for journal in journals], [share for journal in journals for share in shares(journal)]
    )


def predicted_rows(halves: Sequence[Predicted], spent: Sequence[Share]) -> tuple[Row, ...]:
    """Return what was predicted of each run beside what was, the error in words; and drlnb's share of each round."""
    setting = f"{N_TASKS} tasks of PPO on CartPole-v1, 1 virtual slot: second half of the run from its first"

    def row(name: str, figure: str, unit: str, pairs: Sequence[tuple[float, float]]) -> Row:
        paired = pair_up([predicted for predicted, _ in pairs], [was for _, was in pairs])
        errors = ", ".join(f"{ratio - 1.0:+.1%}" for ratio in paired["pairs"])
        words = f"{setting}, {figure}; error {errors}"
        return Row(f"predicted-{name}", words, unit=unit, against="what was measured there", **paired)

    by_own = "round time / that with a slot of one's own (simulated)"
    control = "control (neither acting, nor update, nor waiting for the slot) of a round of these tasks"
    asking = "of that, requests for its leases on their way to the pool and back"
    return (
        row("utilisation", "time in which the slot was held", "of the slot", [half.held for half in halves]),
        row("inflation", by_own, "x", [half.inflation for half in halves]),
        Row("lease-overhead", control, [share.control for share in spent], "of the round"),
        Row("lease-asking", asking, [share.asking for share in spent], "of the round"),
    )

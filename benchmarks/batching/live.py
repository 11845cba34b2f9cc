"""Measure in real processes what a second learner gives a task whose gradients take long (M10).

Gradients sleep (:mod:`benchmarks.frame.padded`), so that two of them overlap on any machine: what is measured is the
gang, its leases, kept gradients and messages, and not how processes fight for the cores.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.efforts import BatchingLive
from benchmarks.frame.journals import rate, round_ends, round_stream
from benchmarks.frame.padded import GRADIENT_S, padded_policy
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import open_stage, parameters
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal

__all__ = ["Trained", "gang", "gang_rows", "task", "trained"]

#: Collectors, one environment and one gradient of a round each; steps of each in a round.
_N_COLLECTORS, _N_STEPS = 4, 16
#: Rounds at a training's start that do not count: both executors have to start, and to meet the task.
_WARM_ROUNDS = 4
#: M10: least rounds per second of two learners / of one.
_LEAST = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one training came to."""

    rounds_per_s: float
    #: Its final parameters, as the file holds them.
    parameters: bytes


def task(n_learners: int, n_rounds: int) -> Task:
    """Return a task of four collectors whose gradients of a round are padded, one of each collector's experience."""
    n_samples = _N_COLLECTORS * _N_STEPS
    return Task(
        "CartPole-v1",
        "gpf",
        name="a",
        seed=0,
        policy=padded_policy,
        n_learners=n_learners,
        n_envs=_N_COLLECTORS,
        n_collectors=_N_COLLECTORS,
        n_steps=_N_STEPS,
        n_epochs=1,
        reward_scale=1.0,
        total_timesteps=n_rounds * n_samples,
    )


def gang(effort: BatchingLive) -> Iterator[Row]:
    """Train a task with one learner and with two, in turn, on the same two slots (M10)."""
    with open_stage(slots=2) as stage:
        turn = itertools.count()

        def way(n_learners: int) -> Callable[[], Trained]:
            def once() -> Trained:
                name = f"{n_learners}-learners-{next(turn)}"
                journal = stage.train([task(n_learners, effort.rounds + _WARM_ROUNDS)], name)
                return trained(journal, parameters(stage.folder / name, "a"), n_learners)

            return once

        yield from gang_rows(in_turn(effort.repeats, {"one": way(1), "two": way(2)}))


def trained(journal: Journal, parameters: bytes, n_learners: int) -> Trained:
    """Read a training's pace from its journal.

    Raises
    ------
    TrainingFailed
        If there was a round whose gradients were not computed on as many slots as there were to be learners.
    """
    stream = round_stream(journal)
    slots: dict[int, set[str]] = {}
    for computed in stream.of(words.GradientComputed):
        slots.setdefault(computed.round, set()).add(computed.slot)
    for number, used in slots.items():
        if len(used) != n_learners and number > _WARM_ROUNDS:
            raise TrainingFailed(f"round {number} of {n_learners} learners was computed on {len(used)} slots")
    hz, _ = rate([round_ends(stream)[_WARM_ROUNDS - 1 :]])
    return Trained(rounds_per_s=hz, parameters=parameters)


def gang_rows(found: Mapping[str, Sequence[Trained]]) -> Iterator[Row]:
    """Return M10's figures: rounds per second of two learners beside one, and trainings with the same parameters."""
    two, one = ([each.rounds_per_s for each in found[way]] for way in ("two", "one"))
    title = f"rounds per second, GPF, {_N_COLLECTORS} gradients a round of {GRADIENT_S * 1e3:.0f} ms each: two learners"
    bar = Bar("ratio", at_least=_LEAST)
    yield Row("m10-rounds", title, unit="rounds/s", against="one learner", bar=bar, **pair_up(two, one))
    first = found["one"][0].parameters
    n_all = sum(map(len, found.values()))
    n_same = sum(each.parameters == first for ways in found.values() for each in ways)
    title = f"trainings of {n_all}, of one learner and of two, with the same final parameters, bit by bit"
    yield Row("m10-same", title, [float(n_same)], "trainings", bar=Bar("worst", at_least=float(n_all)))

"""Measure `fleet.fit` in real processes: with one learner beside a plain loop (M9)."""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.batching import work
from benchmarks.efforts import BatchingLive
from benchmarks.frame.journals import round_stream
from benchmarks.frame.processes import train_all
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import Arguments, Stage, open_stage, parameters
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.round import MetricsRecorded

__all__ = ["Fitted", "fit_plain", "fitted", "plain_rows", "step_s"]

#: M9: most seconds per step of `fit` with one learner / of a plain loop.
_OF_PLAIN = 1.15
#: Steps of a plain loop that do not count: pages are touched, caches fill.
_WARM_STEPS = 3
#: Longest a training may take, in seconds.
_LONGEST_S = 600.0
#: The child that trains by a plain loop.
_PLAIN = "benchmarks.batching.plain_child"


class Fitted(NamedTuple):
    """What one training came to."""

    #: Seconds per step once it was under way, and from the call to the end.
    step_s: float
    whole_s: float
    #: Its final parameters, as the file holds them.
    parameters: bytes


def fit_plain(effort: BatchingLive) -> Iterator[Row]:
    """Train by `fit` with one learner, and by a plain loop in a fresh process, in turn (M9)."""
    n_epochs = -(-effort.steps * work.BATCH // work.N_SAMPLES)
    with open_stage() as stage:
        turn = itertools.count()

        def mine() -> Fitted:
            return fitted(stage, f"fit-{next(turn)}", n_epochs)[0]

        def plain() -> Fitted:
            out = stage.folder / f"plain-{next(turn)}"
            began = time.monotonic()
            asked = {"n_steps": n_epochs * work.N_SAMPLES // work.BATCH, "out": str(out)}
            (trained,) = train_all([asked], module=_PLAIN)
            whole_s, ends = time.monotonic() - began, trained.ends[_WARM_STEPS - 1 :]
            return Fitted(step_s=(ends[-1] - ends[0]) / (len(ends) - 1), whole_s=whole_s, parameters=out.read_bytes())

        yield from plain_rows(in_turn(effort.repeats, {"fit": mine, "plain": plain}))


def fitted(stage: Stage, name: str, n_epochs: int, more: Arguments | None = None) -> tuple[Fitted, Journal]:
    """Train the work by `fit`; return what it came to, and its journal.

    Raises
    ------
    TrainingFailed
        If it ends otherwise than done, or in fewer than two rounds.
    """
    given: Arguments = {"optimizer_kwargs": {"lr": work.LR}, "batch_size": work.BATCH, **(more or {})}
    out = stage.folder / name
    began = time.monotonic()
    run = stage.fleet.fit(work.module(), work.data_set(), work.loss, work.ADAM, n_epochs=n_epochs, out=out, **given)
    task = run.wait(timeout_s=_LONGEST_S)["fit"]
    whole_s = time.monotonic() - began
    if task.state != "done":
        raise TrainingFailed(f"{name} is {task.state}: {task.failure}")
    journal = Journal.read(out)
    return Fitted(step_s=step_s(journal), whole_s=whole_s, parameters=parameters(out, "fit")), journal


def step_s(journal: Journal) -> float:
    """Return the seconds per step from the end of a training's first round to the end of its last one.

    Raises
    ------
    TrainingFailed
        If there were fewer than two rounds.
    """
    ends = [(t, row.n_timesteps) for t, row in round_stream(journal).timed(MetricsRecorded)]
    if len(ends) < 2:
        raise TrainingFailed(f"a training had {len(ends)} rounds: ask for more steps")
    (first_t, first_n), (last_t, last_n) = ends[0], ends[-1]
    return (last_t - first_t) / (last_n - first_n)


def plain_rows(found: Mapping[str, Sequence[Fitted]]) -> Iterator[Row]:
    """Return M9's figures: seconds per step and of all, and trainings with the same parameters."""
    against = "a plain PyTorch loop of the same steps in a fresh process"
    steps, wholes = (
        [[getattr(each, name) for each in found[way]] for way in ("fit", "plain")] for name in ("step_s", "whole_s")
    )
    title = "seconds per step of fit, one learner, after its first round"
    yield Row("m9-step", title, against=against, bar=Bar("ratio", _OF_PLAIN), **pair_up(*steps))
    title = "seconds from the call of fit to its end, one learner, a fleet that is up"
    yield Row("m9-whole", title, against=f"{against}, from its start to its end", **pair_up(*wholes))
    first = found["plain"][0].parameters
    n_all = sum(map(len, found.values()))
    n_same = sum(each.parameters == first for ways in found.values() for each in ways)
    title = f"trainings of {n_all}, by fit and by a plain loop, with the same final parameters, bit by bit"
    yield Row("m9-same", title, [float(n_same)], "trainings", bar=Bar("worst", at_least=float(n_all)))

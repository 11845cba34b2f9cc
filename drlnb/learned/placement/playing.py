"""Play batches of jobs under a network, many at once, and reward what came out beside a reference on the same faults.

What is played comes from the caller: a batch of jobs on a path of faults can be played again and again; one of real
processes (:data:`Interval`) once.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from drlnb.learned.placement.features import Array
from drlnb.learned.placement.network import Weights, log_softmax
from drlnb.learned.placement.planner import Question, Scores, Steps, ended
from drlnb.planning.placement.cluster import ClusterView, Pick
from drlnb.planning.placement.rules import random_rule
from drlnb.planning.registry import Planner

__all__ = [
    "Answers",
    "Batch",
    "Interval",
    "Played",
    "Progress",
    "Sample",
    "Trained",
    "makespan_s",
    "play_together",
    "questions",
    "random_s",
    "sampled",
    "simulated",
]


class _Outcome(Protocol):
    """What a run came to."""

    @property
    def makespan_s(self) -> float:
        """Seconds until all jobs were over."""
        ...


#: Yields views, is sent what starts, and returns what came out.
_Run = Generator[ClusterView, Pick | None, _Outcome]
#: Asks the questions of a run, is sent the number of a row for each, and returns what came out.
_Game = Generator[Question, int, _Outcome]
#: Returns the row that is chosen of each of several groups of a part of a network, and its log-probability.
Answers = Callable[[str, Sequence[Array]], tuple[Sequence[int], Sequence[float]]]
#: Returns the share of a training that is over; it ends at 1.
Progress = Callable[[], float]
#: Batches of jobs of an interval that is simulated.
_BATCHES = 8
#: Random placements, the best of which is the reference of the placement patent.
_N_RANDOM = 8


class Batch(NamedTuple):
    """Jobs on a path of faults."""

    #: Begins a run; each one has the same jobs and faults.
    play: Callable[[], _Run]
    #: Whether it shows several jobs to choose from.
    window: bool


class Sample(NamedTuple):
    """A question, its answer, and the log-probability that this answer had."""

    question: Question
    chosen: int
    log_p: float
    #: How much better its game went than others; dimensionless.
    advantage: float = 0.0


class Played(NamedTuple):
    """What a batch came to under a network, and what was asked in it."""

    makespan_s: float
    #: Seconds that the makespan is judged beside.
    reference_s: float
    samples: list[Sample]


#: Plays some batches by such answers: what training gets before each of its updates.
Interval = Callable[[Answers], Sequence[Played]]


class Trained(NamedTuple):
    """What a training came to."""

    weights: Weights
    #: Mean reward of each round.
    rewards: list[float]


def makespan_s(batch: Batch, planner: Planner[ClusterView, Pick | None]) -> float:
    """Return the makespan of a batch under a planner, in seconds."""
    return ended(batch.play(), planner.plan).makespan_s


def random_s(batch: Batch) -> float:
    """Return the least makespan of eight random placements of a batch, in seconds."""
    return min(makespan_s(batch, random_rule(seed)) for seed in range(_N_RANDOM))


def simulated(
    batches: Iterator[Batch], decide: Callable[[ClusterView], Steps], reference: Callable[[Batch], float] = random_s
) -> Interval:
    """Return what plays eight of these batches at once in each interval.

    Parameters
    ----------
    batches
        As many as are asked for.
    decide
        Asks a network for a plan.
    reference
        Returns the seconds that a batch's makespan is judged beside.
    """

    def interval(answers: Answers) -> list[Played]:
        some = [next(batches) for _ in range(_BATCHES)]
        ends = play_together([questions(batch, decide) for batch in some], answers)
        return [
            Played(end.makespan_s, reference(batch), samples) for batch, (end, samples) in zip(some, ends, strict=True)
        ]

    return interval


def questions(batch: Batch, decide: Callable[[ClusterView], Steps]) -> _Game:
    """Ask all questions of a run."""
    run = batch.play()
    try:
        view = next(run)
        while True:
            view = run.send((yield from decide(view)))
    except StopIteration as end:
        outcome: _Outcome = end.value
        return outcome


def play_together(games: Sequence[_Game], answers: Answers) -> list[tuple[_Outcome, list[Sample]]]:
    """Play games to their ends, with one pass of the network for the questions of all of them.

    Returns
    -------
    list of tuple
        What each game came to, and what was asked in it.
    """
    ends, samples = dict[int, _Outcome](), [list[Sample]() for _ in games]
    asked = dict[int, Question]()

    def go_on(i: int, chosen: int | None) -> None:
        try:
            asked[i] = games[i].send(chosen)  # type: ignore[arg-type]  # a generator begins with None
        except StopIteration as end:
            asked.pop(i, None)
            ends[i] = end.value

    for i in range(len(games)):
        go_on(i, None)
    while asked:
        for part in sorted({question.part for question in asked.values()}):
            mine = [(i, question) for i, question in asked.items() if question.part == part]
            for (i, question), chosen, log_p in zip(mine, *answers(part, [q.rows for _, q in mine]), strict=True):
                samples[i].append(Sample(question, chosen, log_p))
                go_on(i, chosen)
    return [(ends[i], some) for i, some in enumerate(samples)]


def sampled(network: Scores, rng: np.random.Generator, drawn: str) -> Answers:
    """Return answers that are drawn with a network's probabilities in a part of it, elsewhere the best ones."""

    def answers(part: str, groups: Sequence[Array]) -> tuple[Sequence[int], Sequence[float]]:
        log_p = log_softmax(network.logits(part, groups))
        noise = rng.gumbel(size=log_p.shape) if part == drawn else 0.0
        chosen = (log_p + noise).argmax(axis=1)
        return chosen.tolist(), log_p[np.arange(len(chosen)), chosen].tolist()

    return answers

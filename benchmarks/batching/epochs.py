"""Measure from which minibatch on two slots that compute it together pay: PPO's epochs on pixels, on real compute."""

import itertools
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.efforts import BatchingLive
from benchmarks.frame.journals import round_stream
from benchmarks.frame.rows import Row, in_turn, pair_up
from benchmarks.frame.stage import open_stage
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.errors import TrainingFailed

__all__ = ["epochs"]

#: Samples of a minibatch; a round has 512, twice over.
_MINIBATCHES = (16, 64, 256)
#: Rounds of a training; the first two start libraries, and meet the task.
_ROUNDS, _WARM_ROUNDS = 6, 2


def _task(n_learners: int, batch_size: int) -> Task:
    return Task(
        "drlnb/Catch-v0",
        "ppo",
        name="a",
        seed=0,
        policy="CnnPolicy",
        n_learners=n_learners,
        deterministic=False,
        n_envs=4,
        n_collectors=2,
        n_steps=128,
        batch_size=batch_size,
        n_epochs=2,
        eval_episodes=0,
        total_timesteps=_ROUNDS * 512,
    )


def epochs(effort: BatchingLive) -> Iterator[Row]:
    """Train PPO's convolutional network with one learner and with two, in turn, for each size of minibatch."""
    with open_stage(slots=2) as stage:
        turn = itertools.count()

        def way(n_learners: int, batch_size: int) -> Callable[[], float]:
            def once() -> float:
                name = f"epochs-{batch_size}-{n_learners}-{next(turn)}"
                stream = round_stream(stage.train([_task(n_learners, batch_size)], name))
                finished = stream.of(words.FinishRound)[_WARM_ROUNDS:]
                if {len(round_.members) or 1 for round_ in finished} != {n_learners}:
                    raise TrainingFailed(f"not all rounds were computed on {n_learners} slots")
                made = stream.of(words.ParametersReady)[-len(finished) :]
                return median(ready.elapsed_s for ready in made)

            return once

        for batch_size in _MINIBATCHES:
            found = in_turn(effort.repeats, {"one": way(1, batch_size), "two": way(2, batch_size)})
            title = f"epochs of a round, PPO, convolutional network, minibatches of {batch_size}: two learners"
            pair = pair_up(found["two"], found["one"])
            yield Row(f"m10-epochs-{batch_size}", title, against="one learner", **pair)

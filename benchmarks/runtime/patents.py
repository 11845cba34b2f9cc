"""Train two tasks by all of the patents' own rules, and by drlnb's, to their returns; count what each took."""

import resource
import subprocess
import time
from collections.abc import Iterator
from typing import TypedDict

from benchmarks.efforts import Patents
from benchmarks.frame.processes import drlnb_train
from benchmarks.frame.rows import Bar, Row
from benchmarks.frame.stage import parameters
from drlnb.fleet.rows.tables import table_rows
from drlnb.planning.replay import replay
from drlnb.records.columns.distribution import SendParameters
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.round import EvaluationFinished

__all__ = ["patents"]

#: Environment -> mean return of deterministic episodes that it must reach.
_RETURNS = {"CartPole-v1": 475.0, "Acrobot-v1": -100.0}
#: One gradient for each round, of all its samples, computed as they arrive.  Advantages are not normalised: where all
#: episodes are good that blows up noise, and one of five trainings of CartPole forgets what it could.
_HYPER = (
    "n_epochs=1 n_steps=32 batch_size=256 learning_rate=lin_0.005 gamma=0.98 gae_lambda=0.8 normalize_advantage=false"
)
#: The budget is there for the planner of swapping: of an MLP nothing can leave a slot, which is said.
_WORDS = "--learners 2 --gpus 2 --workers 2 --n-envs 8 --eval-episodes 40 --swap-budget 64MiB"
#: Longest training, in seconds.
_LONGEST_S = 900.0
#: What is counted of a training -> in words, and its unit.
_COUNTED = {
    "wall": ("command to its end", "s"),
    "processor": ("processor time of all its processes", "s"),
    "leased": ("seconds of leased slots", "s"),
    "rounds": ("rounds", "rounds"),
    "unused": ("samples that were not used", "samples"),
    "sent": ("sent to workers, over all hops", "bytes"),
    "swapped": ("swapped", "bytes"),
}


class _Came(TypedDict):
    """What came of one training."""

    returns: dict[str, float]
    counted: dict[str, float]
    #: Share of the streams that replay to the same decisions.
    replayed: float
    #: Of each task.
    parameters: dict[str, bytes]


def patents(effort: Patents) -> Iterator[Row]:
    """Train by both sets of rules in turn; the worst return of each has the bar."""
    seeds = range(effort.seed, effort.seed + effort.seeds)
    came = [(_train("patent", seed, effort.steps), _train("auto", seed, effort.steps)) for seed in seeds]
    mine, theirs = zip(*came, strict=True)
    setting = f"{' and '.join(_RETURNS)}, {effort.steps} steps each, 2 learners, seeds {', '.join(map(str, seeds))}"
    for env, bar in _RETURNS.items():
        for rules, some in (("patent", mine), ("auto", theirs)):
            title = f"{env} by --planners {rules}: mean return of 40 deterministic episodes, a sample per seed"
            samples = [each["returns"][env] for each in some]
            yield Row(f"return-{env}-{rules}", title, samples, "reward", bar=Bar("worst", at_least=bar))
    for name, (title, unit) in _COUNTED.items():
        samples, others = ([each["counted"][name] for each in some] for some in (mine, theirs))
        yield Row(
            name,
            f"{setting}, --planners patent: {title}",
            samples,
            unit,
            "--planners auto",
            others,
            pairs=[a / b for a, b in zip(samples, others, strict=True) if b],
        )
    same = [a["parameters"][env] == b["parameters"][env] for a, b in zip(mine, theirs, strict=True) for env in _RETURNS]
    title = "tasks whose parameters are the same, bit by bit, by both sets of rules"
    yield Row("same", title, [float(each) for each in same], "of all", bar=Bar("worst", at_least=1.0))
    shares = [each["replayed"] for each in (*mine, *theirs)]
    title = "streams whose replay decides the same, of all, a sample per training"
    yield Row("replayed", title, shares, "of all", bar=Bar("worst", at_least=1.0))


def _train(rules: str, seed: int, n_steps: int) -> _Came:
    """Train both tasks by a set of rules, and count."""
    words = (
        f"{' '.join(_RETURNS)} {_WORDS} --total-timesteps {n_steps} --seed {seed} --hyper {_HYPER} --planners {rules}"
    )
    began_s, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with drlnb_train(words.split()) as (process, out):
        try:
            process.wait(_LONGEST_S)
        except subprocess.TimeoutExpired:
            raise TrainingFailed(f"drlnb train took more than {_LONGEST_S:.0f} s and was stopped") from None
        wall_s, now = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        journal = Journal.read(out)
        counted = _counted(journal) | {
            "wall": wall_s,
            "processor": now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime,
        }
        differences = [replay(stream).difference for stream in journal.streams.values()]
        return {
            "returns": _returns(journal),
            "counted": counted,
            "replayed": differences.count(None) / len(differences),
            "parameters": {env: parameters(out, env) for env in _RETURNS},
        }


def _counted(journal: Journal) -> dict[str, float]:
    """Return what a run's journal tells of :data:`_COUNTED`."""
    splits = [row for row in table_rows(journal, "batching") if row["role"] == "update"]
    return {
        "leased": sum(row["held_s"] * len(row["slots"].split()) for row in table_rows(journal, "leases")),
        "rounds": float(len(table_rows(journal, "rounds"))),
        "unused": float(sum(row["n_planned"] - row["n_used"] for row in splits)),
        "sent": float(sum(map(_sent_bytes, journal.of(SendParameters)))),
        "swapped": float(sum(row["swapped_bytes"] or 0 for row in table_rows(journal, "swapping"))),
    }


def _returns(journal: Journal) -> dict[str, float]:
    """Return each task's mean return of the episodes that were played in the end; TrainingFailed if there is none."""
    played = {}
    for name, stream in journal.streams.items():
        for event in stream.of(EvaluationFinished):
            played[name.removeprefix("task-").rpartition("-a")[0]] = event.mean_reward
    if missing := _RETURNS.keys() - played.keys():
        raise TrainingFailed(f"{', '.join(sorted(missing))} ended without an evaluation")
    return played


def _sent_bytes(command: SendParameters) -> int:
    """Return the bytes that messages carry, over all hops of their routes."""
    return sum((stop - start) * len(command.routes[route]) for start, stop, route in command.sends)

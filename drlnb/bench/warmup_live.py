"""``drlnb bench warmup-live``: what do starts ahead save in real processes, and do they ever act on old parameters?

One task trains again and again on one cluster, its collectors ended after each round (seed 000, claim 2): started by
the parameters' arrival or ahead of it, as new interpreters or forked; and beside them collectors that rest.  The ways
are measured in turn, so that a change of the machine's load hits all of them.
"""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drlnb.bench import padded
from drlnb.bench.groups import BenchParser, chosen, go_through
from drlnb.bench.report import Bar, Report, Row, pair_up, quantile
from drlnb.bench.stage import virtual_devices
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.columns import warmup
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal, Stream

__all__ = ["GROUPS", "WAYS", "Effort", "Lived", "Way", "ahead", "main", "old_steps", "rows", "starts", "train"]

#: Row group -> (module, function): called with the effort, returns rows.
GROUPS = {
    "starts": ("drlnb.bench.warmup_live", "starts"),
    "ahead": ("drlnb.bench.warmup_live", "ahead"),
}
#: Rounds of a training that do not count: the planner's window has to fill, and everything is met for the first time.
_WARM_ROUNDS = 9
#: Longest training, in seconds.
_TRAIN_S = 600.0
ENV = "CartPole-v1"
#: Steps of each environment in a round of padded gradients: .24 s.
_AHEAD_STEPS = 8


def _task(n_rounds: int) -> Task:
    """Return 8 x 64 samples a round, sixteen passes through two layers of 256, by two collectors."""
    n_envs, n_steps = 8, 64
    return Task(
        ENV,
        name="a",
        total_timesteps=n_rounds * n_envs * n_steps,
        n_envs=n_envs,
        n_collectors=2,
        n_steps=n_steps,
        batch_size=64,
        n_epochs=16,
        policy_kwargs={"net_arch": [256, 256]},
    )


def _padded_task(n_rounds: int) -> Task:
    """Return a round of .24 s of acting and 3 s of computing, both slept, by one collector."""
    return Task(
        padded.ENV,
        algo="gpf",
        name="a",
        total_timesteps=n_rounds * _AHEAD_STEPS,
        n_envs=1,
        n_collectors=1,
        n_steps=_AHEAD_STEPS,
        n_epochs=1,
        batch_size=_AHEAD_STEPS,
        reward_scale=1.0,
        policy=padded.long_policy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How collectors come back for the next round."""

    planner: str
    #: Of scheduling.
    settings: Mapping[str, Any]


def _respawn(start_mode: str) -> dict[str, Any]:
    return {"warmup.collector_mode": "respawn", "warmup.start_mode": start_mode}


#: Every way that is measured, in this order.
WAYS: Mapping[str, Way] = {
    "spawn-cold": Way(planner="cold", settings=_respawn("spawn")),
    "spawn-saa": Way(planner="saa", settings=_respawn("spawn")),
    "spawn-seed": Way(planner="seed", settings=_respawn("spawn")),
    "spawn-progress": Way(planner="progress", settings=_respawn("spawn")),
    "zygote-cold": Way(planner="cold", settings=_respawn("zygote")),
    "zygote-saa": Way(planner="saa", settings=_respawn("zygote")),
    "park": Way(planner="saa", settings={"warmup.collector_mode": "park"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to measure."""

    #: Trainings of each way.
    repeats: int = 3
    #: Rounds of each that count.
    rounds: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What one training's journal says."""

    #: Seconds from one round's end to the next one's, of those that count.
    round_s: tuple[float, ...]
    #: Environment steps made, and those of them under an older version than the newest.
    n_steps: int
    n_old: int
    #: Seconds of starts, and how many were begun ahead of the parameters.
    start_s: tuple[float, ...]
    n_ahead: int
    #: What was planned for the collectors, by action.
    actions: Mapping[str, int]


def train(fleet: Fleet, way: Way, task: Task, out: Path) -> Lived:
    """Train a task called ``a`` once by one way and read its journal.

    Raises
    ------
    TrainingFailed
        If it does not end as done.
    """
    run = fleet.train([task], out=out, planners={"warmup": way.planner}, settings=way.settings)
    ended = run.wait(timeout_s=_TRAIN_S)
    if ended["a"].state != "done":
        raise TrainingFailed(f"the task is {ended['a'].state}: {ended['a'].failure}")
    (stream,) = [one for one in Journal.read(out).streams.values() if one.header.machine == "round"]
    return read(stream)


def read(stream: Stream) -> Lived:
    """Return what a task's stream says."""
    ends = [event.t for event, answer in stream.answers() if any(isinstance(r, words.MetricsRecorded) for r in answer)]
    counted = ends[_WARM_ROUNDS - 1 :]
    n_steps, n_old = old_steps(stream)
    ready = [one for one in stream.of(warmup.CollectorReady) if one.round]
    return Lived(
        round_s=tuple(after - before for before, after in itertools.pairwise(counted)),
        n_steps=n_steps,
        n_old=n_old,
        start_s=tuple(one.start_s for one in ready),
        n_ahead=_ahead(stream),
        actions=Counter(one.action for one in stream.of(warmup.WarmupPlanned)),
    )


def old_steps(stream: Stream) -> tuple[int, int]:
    """Return how many environment steps a task made, and how many of them below its newest version (W4).

    Counted from what each collector says that it acted with, against the version that the task's master had accepted
    before that round's experience came; never from what the collector was told.
    """
    newest = n_steps = n_old = 0
    for record in stream.records:
        if isinstance(record, words.TaskOpened | words.ParametersCommitted):
            newest = record.version
        elif isinstance(record, words.ExperienceArrived):
            n_steps += record.n_samples
            n_old += record.n_samples if record.version < newest else 0
    return n_steps, n_old


def _ahead(stream: Stream) -> int:
    """Return how many starts were commanded before the round's parameters were accepted."""
    accepted: set[int] = set()
    n = 0
    for record in stream.records:
        if isinstance(record, words.ParametersCommitted):
            accepted.add(record.version)
        elif isinstance(record, warmup.StartCollector) and record.round:
            n += record.round not in accepted
    return n


def starts(effort: Effort) -> tuple[Row, ...]:
    """Train rounds that are about as long as a start, by every way in turn, again and again (W3, W4)."""
    return rows(_in_turn(effort, WAYS, _task), _PAIRS)


def ahead(effort: Effort) -> tuple[Row, ...]:
    """Train rounds whose gradient takes several starts, likewise (W3, W4)."""
    ways = {name: WAYS[name] for name in ("spawn-cold", "spawn-saa", "spawn-seed", "spawn-progress", "park")}
    return rows(_in_turn(effort, ways, _padded_task), _AHEAD_PAIRS, prefix="w3-ahead-")


def _in_turn(effort: Effort, ways: Mapping[str, Way], task: Callable[[int], Task]) -> dict[str, list[Lived]]:
    found: dict[str, list[Lived]] = {name: [] for name in ways}
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(),
        Fleet(slots=1) as fleet,
    ):
        for turn in range(effort.repeats):
            for name, way in ways.items():
                one = task(effort.rounds + _WARM_ROUNDS)
                found[name].append(train(fleet, way, one, Path(folder) / f"{name}-{turn}"))
    return found


#: Row -> (way, the way that it is compared with, bar on the ratio).
_PAIRS: Mapping[str, tuple[str, str, Bar | None]] = {
    "w3-spawn-saa": ("spawn-saa", "spawn-cold", Bar("ratio", 0.85)),
    "w3-spawn-seed": ("spawn-seed", "spawn-cold", None),
    "w3-spawn-progress": ("spawn-progress", "spawn-cold", None),
    "w3-zygote-saa": ("zygote-saa", "zygote-cold", None),
    "w3-spawn-saa-v-zygote": ("spawn-saa", "zygote-cold", None),
    "w3-park": ("park", "spawn-cold", None),
    "w3-park-v-zygote": ("park", "zygote-cold", None),
}


_AHEAD_PAIRS: Mapping[str, tuple[str, str, Bar | None]] = {
    "w3-ahead-saa": ("spawn-saa", "spawn-cold", Bar("ratio", 0.85)),
    "w3-ahead-seed": ("spawn-seed", "spawn-cold", None),
    "w3-ahead-progress": ("spawn-progress", "spawn-cold", None),
    "w3-ahead-park": ("park", "spawn-cold", None),
}


def rows(
    found: Mapping[str, Sequence[Lived]], pairs: Mapping[str, tuple[str, str, Bar | None]], prefix: str = "w3-"
) -> tuple[Row, ...]:
    """Return round times of each way against others', starts, and steps under an old version."""
    made = [
        Row(
            id=name,
            what=f"round time, {mine} ({_planned(found[mine])})",
            against=f"{theirs}, in turn",
            bar=bar,
            **pair_up([one.round_s for one in found[mine]], [one.round_s for one in found[theirs]]),
        )
        for name, (mine, theirs, bar) in pairs.items()
    ]
    for name, lived in found.items():
        if seconds := tuple(s for one in lived for s in one.start_s):
            n_ahead, n = sum(one.n_ahead for one in lived), len(seconds)
            what = f"{name}: start of a collector; {n_ahead} of {n} were commanded ahead of the parameters"
            made.append(Row(id=f"{prefix}start-{name}", what=what, samples=seconds))
            made.append(
                Row(id=f"{prefix}start-{name}-p95", what=f"{name}: start, p95", samples=(quantile(seconds, 0.95),))
            )
    all_of = [one for lived in found.values() for one in lived]
    made.append(
        Row(
            id=f"{prefix.replace('w3', 'w4')}old-steps",
            what=f"environment steps below the newest version, of {sum(one.n_steps for one in all_of)}, by every way",
            unit="steps",
            samples=(float(sum(one.n_old for one in all_of)),),
            bar=Bar("value", 0.0),
        )
    )
    return tuple(made)


def _planned(lived: Sequence[Lived]) -> str:
    """Say what was planned: ``planned: 18 keep, 16 cold``."""
    actions = Counter[str]()
    for one in lived:
        actions.update(one.actions)
    return "planned: " + ", ".join(f"{n} {action}" for action, n in actions.most_common())


def main(argv: Sequence[str]) -> int:
    """Measure and print the rows.

    Parameters
    ----------
    argv
        Words after ``drlnb bench warmup-live``.

    Returns
    -------
    int
        0 if the rows could be measured; 1 if not, or with ``--strict`` if a binding bar is missed.

    Raises
    ------
    ConfigError
        If a word of `argv` is wrong, or the JSON file cannot be written.
    """
    parser = BenchParser("warmup-live", "Train with collectors that come back in each way, in real processes.", GROUPS)
    parser.number("repeats", 3, least=1, help="trainings of each way")
    parser.number("rounds", 16, least=2, help="rounds of each that count")
    args = parser.parse(argv)
    report = Report(bench="warmup-live")
    go_through(report, GROUPS, chosen(args.rows, GROUPS), Effort(repeats=args.repeats, rounds=args.rounds), args.json)
    return report.exit_code(strict=args.strict)

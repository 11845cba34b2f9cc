"""``drlnb bench warmup-live``: what do starts ahead save in real processes, and do they ever act on old parameters?

One task trains again and again on one cluster, its collectors ended after each round (seed 000, claim 2): started by
the parameters' arrival or ahead of it, as new interpreters or forked; and beside them collectors that rest.  The ways
are measured in turn, so that a change of the machine's load hits all of them.
"""

import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drlnb.bench.groups import BenchParser, go_through
from drlnb.bench.report import Bar, Report, Row, pair_up, quantile
from drlnb.bench.stage import virtual_devices
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.task import Task
from drlnb.records import round as words
from drlnb.records import warmup
from drlnb.records.errors import ConfigError, TrainingFailed
from drlnb.records.journal import Journal, Stream

__all__ = ["GROUPS", "WAYS", "Effort", "Lived", "Way", "main", "old_steps", "rows", "starts", "train"]

#: Row group -> (module, function): called with the effort, returns rows.
GROUPS = {"starts": ("drlnb.bench.warmup_live", "starts")}
#: Rounds of a training that do not count: the planner's window has to fill, and everything is met for the first time.
_WARM_ROUNDS = 9
#: Longest training, in seconds.
_TRAIN_S = 600.0
#: What computes long enough for a start to fit into: 8 x 64 samples, sixteen passes through two layers of 256.
_SETTINGS = {
    "n_steps": 64,
    "batch_size": 64,
    "n_epochs": 16,
    "policy_kwargs": {"net_arch": [256, 256]},
}
_N_ENVS, _N_COLLECTORS = 8, 2
ENV = "CartPole-v1"


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


def train(fleet: Fleet, way: Way, n_rounds: int, out: Path) -> Lived:
    """Train the task once by one way and read its journal.

    Raises
    ------
    TrainingFailed
        If it does not end as done.
    """
    n_rounds += _WARM_ROUNDS
    task = Task(
        ENV,
        name="a",
        total_timesteps=n_rounds * _N_ENVS * int(_SETTINGS["n_steps"]),  # type: ignore[call-overload]
        n_envs=_N_ENVS,
        n_collectors=_N_COLLECTORS,
        **_SETTINGS,
    )
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
    """Train by every way in turn, again and again (W3, W4)."""
    found: dict[str, list[Lived]] = {name: [] for name in WAYS}
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(),
        Fleet(slots=1) as fleet,
    ):
        for turn in range(effort.repeats):
            for name, way in WAYS.items():
                found[name].append(train(fleet, way, effort.rounds, Path(folder) / f"{name}-{turn}"))
    return rows(found)


#: Row -> (way, the way that it is compared with, bar on the ratio).
_PAIRS = {
    "w3-spawn-saa": ("spawn-saa", "spawn-cold", Bar("ratio", 0.85)),
    "w3-spawn-seed": ("spawn-seed", "spawn-cold", None),
    "w3-spawn-progress": ("spawn-progress", "spawn-cold", None),
    "w3-zygote-saa": ("zygote-saa", "zygote-cold", None),
    "w3-spawn-saa-v-zygote": ("spawn-saa", "zygote-cold", None),
    "w3-park": ("park", "spawn-cold", None),
    "w3-park-v-zygote": ("park", "zygote-cold", None),
}


def rows(found: Mapping[str, Sequence[Lived]]) -> tuple[Row, ...]:
    """Return round times of each way against others', starts, and steps under an old version."""
    made = [
        Row(
            id=name,
            what=f"round time, {mine} ({_planned(found[mine])})",
            against=f"{theirs}, in turn",
            bar=bar,
            **pair_up([one.round_s for one in found[mine]], [one.round_s for one in found[theirs]]),
        )
        for name, (mine, theirs, bar) in _PAIRS.items()
    ]
    for name, lived in found.items():
        if seconds := tuple(s for one in lived for s in one.start_s):
            ahead, n = sum(one.n_ahead for one in lived), len(seconds)
            what = f"{name}: start of a collector; {ahead} of {n} were commanded ahead of the parameters"
            made.append(Row(id=f"w3-start-{name}", what=what, samples=seconds))
            made.append(Row(id=f"w3-start-{name}-p95", what=f"{name}: start, p95", samples=(quantile(seconds, 0.95),)))
    all_of = [one for lived in found.values() for one in lived]
    made.append(
        Row(
            id="w4-old-steps",
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
    parser = BenchParser("warmup-live", "Train with collectors that come back in each way, in real processes.")
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="trainings of each way (default 3)")
    parser.add_argument("--rounds", metavar="N", type=int, default=16, help="rounds of each that count (default 16)")
    args = parser.parse_args(list(argv))
    for name, least in (("repeats", 1), ("rounds", 2)):
        if getattr(args, name) < least:
            raise ConfigError(f"--{name} must be >= {least}, got {getattr(args, name)}")
    report = Report(bench="warmup-live")
    go_through(report, GROUPS, list(GROUPS), Effort(repeats=args.repeats, rounds=args.rounds), args.json)
    return report.exit_code(strict=args.strict)

"""Measure warm-up in real processes: what starts ahead save (W3), and steps under old parameters (W4).

One task trains again and again on one cluster, its collectors ended after each round (the leasing patent, claim 2):
started by the parameters' arrival or ahead of it, as new interpreters or forked; and beside them collectors that rest.
The ways are measured in turn, so that a change of the machine's load hits all of them.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.efforts import WarmupLive
from benchmarks.frame.journals import round_ends, round_stream
from benchmarks.frame.padded import LONG_GRADIENT_S
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up, quantile
from benchmarks.frame.stage import Arguments, open_stage, padded_task
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.columns import warmup
from drlnb.records.journal import Stream

__all__ = ["PAIRS", "WAYS", "Lived", "ahead", "live_rows", "old_steps", "read", "starts"]

#: Rounds of a training that do not count: the planner's window has to fill, and everything is met for the first time.
_WARM_ROUNDS = 9
#: Steps of each environment in a round of padded gradients: .24 s.
_AHEAD_STEPS = 8
#: How collectors come back for the next round -> planner, collector mode, start mode where it matters; in this order.
WAYS = {
    "spawn-cold": ("cold", "respawn", "spawn"),
    "spawn-saa": ("saa", "respawn", "spawn"),
    "spawn-patent": ("patent", "respawn", "spawn"),
    "zygote-cold": ("cold", "respawn", "zygote"),
    "zygote-saa": ("saa", "respawn", "zygote"),
    "park": ("saa", "park", ""),
}
_Pairs = Mapping[str, tuple[str, str]]
#: Row -> (way, the way that it is compared with); the first one's ratio has the bar.
PAIRS: _Pairs = {
    "w3-spawn-saa": ("spawn-saa", "spawn-cold"),
    "w3-spawn-patent": ("spawn-patent", "spawn-cold"),
    "w3-zygote-saa": ("zygote-saa", "zygote-cold"),
    "w3-spawn-saa-v-zygote": ("spawn-saa", "zygote-cold"),
    "w3-park": ("park", "spawn-cold"),
    "w3-park-v-zygote": ("park", "zygote-cold"),
}
#: Ways of the rounds that hide a start; each is compared with the first one.
_AHEAD_WAYS = ("spawn-cold", "spawn-saa", "spawn-patent", "park")
_AHEAD_PAIRS = {f"w3-ahead-{way.removeprefix('spawn-')}": (way, _AHEAD_WAYS[0]) for way in _AHEAD_WAYS[1:]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What one training's journal tells."""

    #: Seconds from one round's end to the next one's, of those that count.
    round_s: Sequence[float]
    #: Environment steps made, and those of them under an older version than the newest.
    n_steps: int
    n_old: int
    #: Seconds of starts, and how many were begun ahead of the parameters.
    start_s: Sequence[float]
    n_ahead: int
    #: What was planned for the collectors, by action.
    actions: Mapping[str, int]


def read(stream: Stream) -> Lived:
    """Return what a task's stream tells."""
    ends = round_ends(stream)
    n_steps, n_old = old_steps(stream)
    return Lived(
        round_s=[after - before for before, after in itertools.pairwise(ends[_WARM_ROUNDS - 1 :])],
        n_steps=n_steps,
        n_old=n_old,
        start_s=[ready.start_s for ready in stream.of(warmup.CollectorReady) if ready.round],
        n_ahead=_ahead(stream),
        actions=Counter(plan.action for plan in stream.of(warmup.WarmupPlanned)),
    )


def old_steps(stream: Stream) -> tuple[int, int]:
    """Return how many environment steps a task made, and how many of them below its newest version (W4).

    Counted from the version that each collector names with its experience, against the version that the task's master
    had accepted before that experience came; never from what the collector was given.
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


# ------------------------------------------------------------------ measure
def starts(effort: WarmupLive) -> tuple[Row, ...]:
    """Train rounds that are about as long as a start, by every way in turn, again and again (W3, W4).

    A round is 8 x 64 samples, sixteen passes through two layers of 256, by two collectors.
    """
    n_rounds = effort.rounds + _WARM_ROUNDS
    counts: Arguments = {"n_envs": 8, "n_collectors": 2, "total_timesteps": n_rounds * 8 * 64}
    settings: Arguments = {"n_steps": 64, "batch_size": 64, "n_epochs": 16}
    task = Task("CartPole-v1", name="a", policy_kwargs={"net_arch": [256, 256]}, **counts, **settings)
    return tuple(live_rows(_measure(task, WAYS, effort.repeats), PAIRS))


def ahead(effort: WarmupLive) -> tuple[Row, ...]:
    """Train rounds of .24 s of acting and 3 s of computing, both slept: the gradient takes several starts (W3, W4)."""
    task = padded_task("a", 0, effort.rounds + _WARM_ROUNDS, _AHEAD_STEPS, LONG_GRADIENT_S)
    return tuple(live_rows(_measure(task, _AHEAD_WAYS, effort.repeats), _AHEAD_PAIRS, "-ahead"))


def _measure(task: Task, names: Sequence[str] | Mapping[str, object], repeats: int) -> dict[str, list[Lived]]:
    with open_stage() as stage:
        turn = itertools.count()

        def measured(name: str) -> Callable[[], Lived]:
            planner, mode, start_mode = WAYS[name]
            settings = {"warmup.collector_mode": mode} | ({"warmup.start_mode": start_mode} if start_mode else {})
            planners = {"warmup": planner}

            def once() -> Lived:
                run = f"{name}-{next(turn)}"
                return read(round_stream(stage.train([task], run, planners=planners, settings=settings)))

            return once

        return in_turn(repeats, {name: measured(name) for name in names})


def live_rows(lived: Mapping[str, Sequence[Lived]], pairs: _Pairs, suffix: str = "") -> Iterator[Row]:
    """Return round times of each way against others', starts, and steps under an old version."""
    bar: Bar | None = Bar("ratio", 0.85)
    for name, (mine, theirs) in pairs.items():
        actions = sum((Counter(run.actions) for run in lived[mine]), Counter[str]())
        planned = ", ".join(f"{n} {action}" for action, n in actions.most_common())
        paired = pair_up([run.round_s for run in lived[mine]], [run.round_s for run in lived[theirs]])
        title, against = f"round time, {mine} (planned: {planned})", f"{theirs}, in turn"
        yield Row(name, title, against=against, bar=bar, **paired)
        bar = None
    for name, of in lived.items():
        if seconds := [s for run in of for s in run.start_s]:
            n_ahead, key = sum(run.n_ahead for run in of), f"w3{suffix}-start-{name}"
            title = f"{name}: start of a collector; {n_ahead} of {len(seconds)} were commanded ahead of the parameters"
            yield Row(key, title, seconds)
            yield Row(f"{key}-p95", f"{name}: start, p95", (quantile(seconds, 0.95),))
    every = [run for of in lived.values() for run in of]
    title = f"environment steps below the newest version, of {sum(run.n_steps for run in every)}, by every way"
    n_old = float(sum(run.n_old for run in every))
    yield Row(f"w4{suffix}-old-steps", title, (n_old,), "steps", bar=Bar("value", 0.0))

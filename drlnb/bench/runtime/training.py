"""Measure what the whole system adds to a training: control per round, wall time, time to the first step."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from drlnb.bench.benches import Runtime
from drlnb.bench.frame.processes import Trained, drlnb_train, train_all
from drlnb.bench.frame.rows import Bar, Row, in_turn, pair_up, quantile
from drlnb.bench.frame.stage import local_spec, open_stage
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.journal import Journal, Stream

__all__ = ["first_step", "overhead", "overhead_train", "round_hops"]

ENV = "CartPole-v1"
#: Rounds at the start that are not counted: pages are touched, caches fill.
_WARM_ROUNDS = 10
#: Steps of the run that ``overhead`` reads: about 80 rounds of 256.
_OVERHEAD_STEPS = 20_480
#: What ``first-step`` may take before it is given up, in seconds.
_FIRST_STEP_S = 120.0
#: Parts of a round's control, by the journal's times, in order.
_HOPS = {
    "collect": "parameters on the host -> last experience here, less the slowest collector's acting",
    "lease": "last experience here -> lease here (0 if it came before), less the time in the queue",
    "compute": "both here -> new parameters here, less the executor's own work",
    "publish": "new parameters here -> all hosts have them",
}


def _round_stream(journal: Journal) -> Stream:
    (stream,) = (stream for stream in journal.streams.values() if stream.header.machine == "round")
    return stream


# ------------------------------------------------------------------ control per round
def overhead(effort: Runtime) -> tuple[Row, ...]:
    """Measure a round's time that is neither acting, nor gradient, nor waiting for a slot; and where it goes."""
    streams = []
    for _ in range(effort.repeats):
        with open_stage() as stage:
            task = Task(ENV, total_timesteps=_OVERHEAD_STEPS, n_collectors=2)
            streams.append(_round_stream(stage.train([task], "overhead")))
    metrics = [row.metrics for stream in streams for row in stream.of(words.MetricsRecorded)[_WARM_ROUNDS:]]
    hops = [parts for stream in streams for parts in list(round_hops(stream))[_WARM_ROUNDS:]]
    paired = pair_up([row["round/control_s"] for row in metrics], [row["round/time_s"] for row in metrics])
    setting = f"control per round of {ENV}, 2 parked collectors, 1 virtual slot"
    return (
        Row("overhead", f"{setting}, p50", against="the whole round", bar=Bar("value", 0.010), **paired),
        Row("overhead-p90", f"{setting}, p90", (quantile(paired["samples"], 0.9),)),
        *(Row(f"overhead-{name}", words, [parts[name] for parts in hops]) for name, words in _HOPS.items()),
    )


def round_hops(stream: Stream) -> Iterator[dict[str, float]]:
    """Yield where the control time of each round went, in seconds, by the times of its events."""
    at = dict.fromkeys(("began", "arrived", "collect", "leased", "waited", "ready", "compute"), 0.0)
    for event, _ in stream.answers():
        if isinstance(event, words.ExperienceArrived):
            at |= {"arrived": event.t, "collect": max(at["collect"], event.collect_s)}
        elif isinstance(event, words.LeaseReceived):
            at |= {"leased": event.t, "waited": event.waited_s}
        elif isinstance(event, words.GradientComputed):
            at["compute"] += event.elapsed_s
        elif isinstance(event, words.ParametersReady):
            at |= {"ready": event.t, "compute": at["compute"] + event.elapsed_s}
        elif isinstance(event, HostCompleted):
            if at["arrived"] > at["began"] > 0:
                yield _parts(at, event.t)
            at = dict.fromkeys(at, 0.0) | {"began": event.t}


def _parts(at: Mapping[str, float], published_t: float) -> dict[str, float]:
    both_t = max(at["arrived"], at["leased"])
    return {
        "collect": at["arrived"] - at["began"] - at["collect"],
        "lease": max(0.0, both_t - at["arrived"] - at["waited"]),
        "compute": at["ready"] - both_t - at["compute"],
        "publish": published_t - at["ready"],
    }


# ------------------------------------------------------------------ wall time of a training
def overhead_train(effort: Runtime) -> tuple[Row, ...]:
    """Measure a task's wall time through the whole system against the same task in one process."""
    task = Task(ENV, total_timesteps=effort.steps, n_collectors=1)

    def whole_system() -> Trained:
        with open_stage() as stage:
            seconds = _wall_s(_round_stream(stage.train([task], "wall")))
            return Trained(seconds, process_s=stage.start_s + seconds)

    def alone() -> Trained:
        return train_all([{"spec": local_spec(task).to_plain()}])[0]

    times = in_turn(effort.repeats, {"mine": whole_system, "theirs": alone})
    paired = pair_up(*([trained.seconds for trained in times[way]] for way in ("mine", "theirs")))
    total = pair_up(*([trained.process_s for trained in times[way]] for way in ("mine", "theirs")))
    setting = f"{ENV}, {effort.steps} steps, 1 collector, 1 virtual slot"
    return (
        Row(
            "overhead-train",
            f"{setting}: task's start to the end of its last round",
            against="train_local of the same task in a fresh process, imports not counted",
            bar=Bar("ratio", 1.5),
            **paired,
        ),
        Row(
            "overhead-train-total",
            f"{setting}: the same with the cluster's start",
            against="the fresh process from its start to its end",
            **total,
        ),
    )


def _wall_s(stream: Stream) -> float:
    """Return the time from a task's start to the end of its last round, by its journal."""
    ends = [event.t for event, answer in stream.answers() if any(isinstance(r, words.MetricsRecorded) for r in answer)]
    return float(ends[-1] - stream.of(words.TaskOpened)[0].t)


# ------------------------------------------------------------------ time to the first step
def first_step(effort: Runtime) -> tuple[Row, ...]:
    """Measure how long a user waits for the first training step after the command."""
    samples = [_first_step() for _ in range(effort.repeats)]
    title = f"drlnb train {ENV} --gpus 1: command to the first round's metrics in the journal"
    return (Row("first-step", title, samples, bar=Bar("value", 30.0)),)


def _first_step() -> float:
    began = time.monotonic()
    with drlnb_train([ENV, "--gpus", "1", "--total-timesteps", "4096"]) as (process, out, _):
        while not _has_metrics(out):
            if process.poll() is not None or time.monotonic() > began + _FIRST_STEP_S:
                raise TimeoutError(f"drlnb train showed no step within {time.monotonic() - began:.0f} s")
            time.sleep(0.02)
        return time.monotonic() - began


def _has_metrics(out: Path) -> bool:
    return any(b'"MetricsRecorded"' in path.read_bytes() for path in (out / "journal").glob("task-*.jsonl"))

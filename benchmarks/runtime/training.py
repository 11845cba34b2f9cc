"""Measure what the whole system adds to a training: control per round, wall time, time to the first step."""

import time

from benchmarks.efforts import Runtime
from benchmarks.frame.journals import round_ends, round_stream
from benchmarks.frame.processes import drlnb_train, train_all
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.frame.stage import local_spec, open_stage
from drlnb.fleet.tasks.task import Task
from drlnb.records import round as words

__all__ = ["first_step", "overhead", "overhead_train"]

ENV = "CartPole-v1"
#: Rounds at the start that are not counted: pages are touched, caches fill.
_WARM_ROUNDS = 10
#: Steps of the run that ``overhead`` reads: about 80 rounds of 256.
_OVERHEAD_STEPS = 20_480
#: What ``first-step`` may take before it is given up, in seconds.
_FIRST_STEP_S = 120.0


# ------------------------------------------------------------------ control per round
def overhead(effort: Runtime) -> tuple[Row, ...]:
    """Measure a round's time that is neither acting, nor gradient, nor waiting for a slot."""
    metrics = []
    for _ in range(effort.repeats):
        with open_stage() as stage:
            task = Task(ENV, total_timesteps=_OVERHEAD_STEPS, n_collectors=2)
            stream = round_stream(stage.train([task], "overhead"))
            metrics += [row.metrics for row in stream.of(words.MetricsRecorded)[_WARM_ROUNDS:]]
    paired = pair_up([row["round/control_s"] for row in metrics], [row["round/time_s"] for row in metrics])
    setting = f"control per round of {ENV}, 2 parked collectors, 1 virtual slot"
    return (Row("overhead", f"{setting}, p50", against="the whole round", bar=Bar("value", 0.010), **paired),)


# ------------------------------------------------------------------ wall time of a training
def overhead_train(effort: Runtime) -> tuple[Row, ...]:
    """Measure a task's wall time through the whole system against the same task in one process."""
    task = Task(ENV, total_timesteps=effort.steps, n_collectors=1)

    def whole_system() -> float:
        with open_stage() as stage:
            stream = round_stream(stage.train([task], "wall"))
            return float(round_ends(stream)[-1] - stream.of(words.TaskOpened)[0].t)

    def alone() -> float:
        return train_all([{"spec": local_spec(task).to_plain()}])[0].seconds

    times = in_turn(effort.repeats, {"mine": whole_system, "theirs": alone})
    title = f"{ENV}, {effort.steps} steps, 1 collector, 1 virtual slot: task's start to the end of its last round"
    against = "train_local of the same task in a fresh process, imports not counted"
    paired = pair_up(times["mine"], times["theirs"])
    return (Row("overhead-train", title, against=against, bar=Bar("ratio", 1.5), **paired),)


# ------------------------------------------------------------------ time to the first step
def first_step(effort: Runtime) -> tuple[Row, ...]:
    """Measure how long a user waits for the first training step after the command."""
    samples = [_first_step() for _ in range(effort.repeats)]
    title = f"drlnb train {ENV} --gpus 1: command to the first round's metrics in the journal"
    return (Row("first-step", title, samples, bar=Bar("value", 30.0)),)


def _first_step() -> float:
    began = time.monotonic()
    with drlnb_train([ENV, "--gpus", "1", "--total-timesteps", "4096"]) as (process, out):
        while not any(b'"MetricsRecorded"' in path.read_bytes() for path in out.glob("journal/task-*.jsonl")):
            if process.poll() is not None or time.monotonic() > began + _FIRST_STEP_S:
                raise TimeoutError(f"drlnb train showed no step within {time.monotonic() - began:.0f} s")
            time.sleep(0.02)
        return time.monotonic() - began

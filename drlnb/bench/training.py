"""What does the whole system add to a training: control per round, wall time, time to the first step?"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from drlnb.bench.report import Bar, Row, pair_up, quantile
from drlnb.bench.runtime import Effort
from drlnb.bench.stage import Stage, open_stage, survivors, virtual_devices
from drlnb.records import round as words
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Stream, read_stream
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.resolve import resolve
from drlnb.runtime.client import install
from drlnb.runtime.ipc.start_modes import child_environment
from drlnb.runtime.protocol import task_stream

__all__ = ["cartpole", "first_step", "overhead", "overhead_train", "start_run", "train_on"]

ENV = "CartPole-v1"
#: Rounds at the start that are not counted: pages are touched, caches fill.
_WARM_ROUNDS = 10
#: Steps of the run that ``overhead`` reads: about 80 rounds of 256.
_OVERHEAD_STEPS = 20_480
#: Longest training, in seconds.
_TRAIN_S = 600.0
#: What ``first-step`` may take before it is given up, in seconds.
_FIRST_STEP_S = 120.0
#: Longest time from a task's last row to its last byte on disk, in seconds: the writer flushes each second.
_DISK_S = 10.0


# ------------------------------------------------------------------ a run on a stage
def cartpole(stage: Stage, *, n_collectors: int, steps: int) -> TaskSpec:
    """Return CartPole under its shipped settings."""
    found = resolve(ENV)
    return TaskSpec(
        name=ENV,
        env=ENV,
        total_timesteps=steps,
        n_envs=found.n_envs,
        n_collectors=n_collectors,
        hyperparameters=found.hyperparameters,
        origin=found.origin,
        **install.probe_env(stage.client, ENV),
    )


def start_run(stage: Stage, spec: TaskSpec, run: str) -> Path:
    """Start a run of one task; return its directory."""
    out = stage.folder / run
    out.mkdir()
    (out / "run.json").write_text("{}", encoding="utf-8")
    plain = {"run": run, "out": str(out), "tasks": [spec.to_plain()], "planners": {}, "settings": {}, "resume": False}
    install.create_run(stage.client, plain)
    install.submit_anchors(stage.client, run, [spec.name])
    return out


def train_on(stage: Stage, spec: TaskSpec, run: str) -> Stream:
    """Train one task to its end and return the journal of its only attempt.

    Raises
    ------
    TrainingFailed
        If it ends otherwise than done, or in more than one attempt.
    TimeoutError
        If it does not end in time.
    """
    out = start_run(stage, spec, run)
    deadline = time.monotonic() + _TRAIN_S
    since, end = 0, None
    while end is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{spec.name} has not ended within {_TRAIN_S:g} s")
        since, rows, _ = install.rows(stage.client, run, since, 5.0)
        end = next((row for row in rows if row["r"] == "EndTask"), None)
    if end["state"] != "done":
        raise TrainingFailed(f"{spec.name} is {end['state']}: {end['reason']}")
    return _whole(out / "journal" / f"{task_stream(spec.name, 1)}.jsonl")


def _whole(path: Path) -> Stream:
    """Read a stream once its end is on disk."""
    deadline = time.monotonic() + _DISK_S
    while True:
        stream = read_stream(path)
        if stream.of(words.EndTask):
            return stream
        if time.monotonic() > deadline:
            raise TrainingFailed(f"{path} has no EndTask {_DISK_S:g} s after the end: the task had several attempts")
        time.sleep(0.1)


# ------------------------------------------------------------------ control per round
def overhead(effort: Effort) -> tuple[Row, ...]:
    """Measure a round's time that is neither acting, nor gradient, nor waiting for a slot; and where it goes."""
    metrics: list[dict[str, float]] = []
    hops: dict[str, list[float]] = {}
    for _ in range(effort.repeats):
        with open_stage(1) as stage:
            stream = train_on(stage, cartpole(stage, n_collectors=2, steps=_OVERHEAD_STEPS), "overhead")
        metrics += [dict(row.metrics) for row in stream.of(words.MetricsRecorded)[_WARM_ROUNDS:]]
        for one in list(round_hops(stream))[_WARM_ROUNDS:]:
            for name, seconds in one.items():
                hops.setdefault(name, []).append(seconds)
    control = tuple(row["round/control_s"] for row in metrics)
    whole = tuple(row["round/time_s"] for row in metrics)
    what = f"control per round of {ENV}, 2 parked collectors, 1 virtual slot"
    return (
        Row(
            id="overhead",
            what=f"{what}, p50",
            samples=control,
            against="the whole round",
            baseline_samples=whole,
            pairs=tuple(c / w for c, w in zip(control, whole, strict=True)),
            bar=Bar("value", 0.010),
        ),
        Row(id="overhead-p90", what=f"{what}, p90", samples=(quantile(control, 0.9),)),
        *(Row(id=f"overhead-{name}", what=_HOPS[name], samples=tuple(seconds)) for name, seconds in hops.items()),
    )


#: Parts of a round's control, by the journal's times, in order.
_HOPS = {
    "collect": "parameters on the host -> last experience here, less the slowest collector's acting",
    "lease": "last experience here -> lease here (0 if it came before), less the time in the queue",
    "compute": "both here -> new parameters here, less the executor's own work",
    "publish": "new parameters here -> all hosts have them",
}


def round_hops(stream: Stream) -> Iterator[dict[str, float]]:
    """Yield where the control time of each round went, in seconds, by the times of its events."""
    times = _RoundTimes()
    for event, _ in stream.answers():
        if isinstance(event, words.ExperienceArrived):
            times.arrived_t, times.collect_s = event.t, max(times.collect_s, event.collect_s)
        elif isinstance(event, words.LeaseReceived):
            times.leased_t, times.waited_s = event.t, event.waited_s
        elif isinstance(event, words.GradientComputed):
            times.compute_s += event.elapsed_s
        elif isinstance(event, words.ParametersReady):
            times.ready_t, times.compute_s = event.t, times.compute_s + event.elapsed_s
        elif isinstance(event, HostCompleted):
            if times.arrived_t > times.began_t > 0:
                yield times.parts(event.t)
            times = _RoundTimes(began_t=event.t)


@dataclass(slots=True)
class _RoundTimes:
    began_t: float = 0.0
    arrived_t: float = 0.0
    collect_s: float = 0.0
    leased_t: float = 0.0
    waited_s: float = 0.0
    ready_t: float = 0.0
    compute_s: float = 0.0

    def parts(self, published_t: float) -> dict[str, float]:
        both_t = max(self.arrived_t, self.leased_t)
        return {
            "collect": self.arrived_t - self.began_t - self.collect_s,
            "lease": max(0.0, both_t - self.arrived_t - self.waited_s),
            "compute": self.ready_t - both_t - self.compute_s,
            "publish": published_t - self.ready_t,
        }


# ------------------------------------------------------------------ wall time of a training
def overhead_train(effort: Effort) -> tuple[Row, ...]:
    """Measure a task's wall time through the whole system against the same task in one process."""
    mine, theirs, mine_total, theirs_total = [], [], [], []
    for _ in range(effort.repeats):
        with open_stage(1) as stage:
            spec = cartpole(stage, n_collectors=1, steps=effort.steps)
            stream = train_on(stage, spec, "wall")
            mine_total.append([_started_s(stage) + _wall_s(stream)])
        mine.append([_wall_s(stream)])
        alone_s, total_s = train_alone(spec)
        theirs.append([alone_s])
        theirs_total.append([total_s])
    what = f"{ENV}, {effort.steps} steps, 1 collector, 1 virtual slot"
    return (
        Row(
            id="overhead-train",
            what=f"{what}: task's start to the end of its last round",
            against="train_local of the same task in a fresh process, imports not counted",
            bar=Bar("ratio", 1.5),
            **pair_up(mine, theirs),
        ),
        Row(
            id="overhead-train-total",
            what=f"{what}: the same with the cluster's start",
            against="the fresh process from its start to its end",
            **pair_up(mine_total, theirs_total),
        ),
    )


def _started_s(stage: Stage) -> float:
    """Return how long the cluster took until its slots were up."""
    return stage.ready_t - stage.began_t


def _wall_s(stream: Stream) -> float:
    """Return the time from a task's start to the end of its last round, by its journal."""
    began_t = stream.of(words.TaskOpened)[0].t
    ends = [event.t for event, answer in stream.answers() if any(isinstance(r, words.MetricsRecorded) for r in answer)]
    return float(ends[-1] - began_t)


#: The one process: reads a spec, trains, says how long that took.
_ALONE = """
import json, sys, time
import torch
from drlnb.records.spec import TaskSpec
from drlnb.rl.local.train import train_local
spec = TaskSpec.from_plain(json.loads(sys.stdin.read()))
began = time.perf_counter()
result = train_local(spec)
print(json.dumps({"seconds": time.perf_counter() - began, "n_timesteps": result.n_timesteps}))
"""


def train_alone(spec: TaskSpec) -> tuple[float, float]:
    """Train in one fresh process with an executor's environment; return (training's, process's) seconds.

    Raises
    ------
    TrainingFailed
        If the process fails.
    """
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _ALONE],
        input=json.dumps(spec.to_plain()).encode(),
        capture_output=True,
        env=child_environment(CUDA_VISIBLE_DEVICES=""),
        timeout=_TRAIN_S,
        check=False,
        start_new_session=True,  # Ctrl-C is ours to hear: run() kills the child then
    )
    total_s = time.monotonic() - began
    if done.returncode:
        raise TrainingFailed(f"the process alone exited with {done.returncode}: {_last_line(done.stderr)}")
    return float(json.loads(done.stdout)["seconds"]), total_s


# ------------------------------------------------------------------ time to the first step
def first_step(effort: Effort) -> tuple[Row, ...]:
    """Measure how long a person waits for the first training step after the command."""
    samples = tuple(_first_step() for _ in range(effort.repeats))
    return (
        Row(
            id="first-step",
            what=f"drlnb train {ENV} --gpus 1: command to the first round's metrics in the journal",
            samples=samples,
            bar=Bar("value", 30.0),
        ),
    )


def _first_step() -> float:
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        out = Path(folder) / "run"
        words_ = ["train", ENV, "--gpus", "1", "--total-timesteps", "4096", "--out", str(out)]
        with virtual_devices(), (Path(folder) / "log").open("wb") as log:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "drlnb.cli.main", *words_],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return _await_metrics(process, out, Path(folder) / "log") - began
        finally:
            end_family(process)


def _await_metrics(process: "subprocess.Popen[bytes]", out: Path, log: Path) -> float:
    deadline = time.monotonic() + _FIRST_STEP_S
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        for path in (out / "journal").glob("task-*.jsonl"):
            if b'"MetricsRecorded"' in path.read_bytes():
                return time.monotonic()
        if ended:
            raise TrainingFailed(f"drlnb train exited with {process.returncode}: {_last_line(log.read_bytes())}")
        time.sleep(0.02)
    raise TimeoutError(f"drlnb train showed no step within {_FIRST_STEP_S:g} s")


def end_family(process: "subprocess.Popen[bytes]") -> None:
    """End a process and everything that it started: a moment for its own way, then SIGKILL."""
    family: Sequence[Any] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20.0)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 15.0
    while survivors(list(family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in survivors(list(family)):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

"""Measure what a full and a broken CUDA device cost the tasks that share it."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

import torch

from benchmarks.efforts import Gpu
from benchmarks.frame.rows import Bar, Row, pair_up
from benchmarks.frame.stage import Arguments, Stage, open_stage, parameters
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import TrainingFailed

__all__ = ["broken", "full"]

#: Tasks whose models together need more than is left: 140 MB of parameters, moments and gradients each, and as much
#: again beside them while one computes.
_N_TASKS, _WIDTH, _LEFT_BYTES = 4, 2048, 400 << 20
#: A child that takes what is free but for so many bytes, says so, and keeps it until its input is closed.
_FILL = """
import sys, torch
free = torch.cuda.mem_get_info()[0]
taken = torch.empty(max(1, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")
print(flush=True)
sys.stdin.read()
"""


def _tasks(rounds: int) -> list[Task]:
    settings: Arguments = {
        "n_steps": 64,
        "batch_size": 64,
        "n_epochs": 2,
        "policy_kwargs": {"net_arch": [_WIDTH, _WIDTH]},
    }
    return [
        Task(
            "CartPole-v1",
            name=f"t{seed}",
            seed=seed,
            n_envs=2,
            total_timesteps=128 * rounds,
            **settings,
        )
        for seed in range(_N_TASKS)
    ]


@contextlib.contextmanager
def _filled() -> Iterator[None]:
    """Leave room for one model and its computing."""
    child = subprocess.Popen(
        [sys.executable, "-c", _FILL, str(_LEFT_BYTES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        if not child.stdout.readline():
            raise TrainingFailed("the device could not be filled")
        yield


def full(effort: Gpu) -> Iterator[Row]:
    """Train with room for all models, and for one: the same parameters, a little later."""
    rounds, n_same = 10, []
    took: dict[str, list[float]] = {"room": [], "tight": []}
    with open_stage(cuda=True) as stage:
        for turn in range(effort.repeats):
            for way, filled in (("room", contextlib.nullcontext), ("tight", _filled)):
                with filled():
                    began = time.perf_counter()
                    stage.train(_tasks(rounds), f"{way}{turn}")
                    took[way].append((time.perf_counter() - began) / rounds)
            ways = [[parameters(stage.folder / f"{way}{turn}", f"t{seed}") for seed in range(_N_TASKS)] for way in took]
            n_same.append(float(sum(a == b for a, b in zip(*ways, strict=True))))
    title = f"a round of {_N_TASKS} tasks, room left on the device for one model"
    yield Row("full", title, against="room for all", **pair_up(took["tight"], took["room"]))
    title = f"tasks of {_N_TASKS} with the same parameters, bit by bit, on a full device"
    yield Row("full-same", title, n_same, "tasks", bar=Bar("worst", at_least=float(_N_TASKS)))


def _break() -> float:
    """Look up what is not there: the kernel's assertion leaves this process no device."""
    return float(torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum())


def broken(effort: Gpu) -> Iterator[Row]:
    """Break the device under one function; measure until the next holder of the slot computes."""
    with open_stage(cuda=True) as stage:
        seconds = [_next_after_break(stage) for _ in range(effort.repeats)]
    yield Row("broken", "from the error of a function that broke the device until the slot computes again", seconds)


def _next_after_break(stage: Stage) -> float:
    with stage.fleet.lease(name="wrong") as lease:
        try:
            lease.run(_break)
        except RuntimeError:
            began = time.perf_counter()
        else:
            raise TrainingFailed("the kernel did not fail")
    with stage.fleet.lease(name="next", wait_s=120.0) as lease:
        if lease.run(lambda: float(torch.ones(2, device="cuda").sum())) != 2.0:
            raise TrainingFailed("the next function computed something else")
    return time.perf_counter() - began

"""Open a real cluster for the rows that need one: a fleet with virtual devices, gone when the row ends."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client

from benchmarks.frame.padded import ENV, GRADIENT_S, padded_policy
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.task import Task
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal
from drlnb.records.spec import RlWork
from drlnb.rl.envs.make import probe

__all__ = ["Arguments", "Stage", "local_spec", "open_stage", "padded_task", "parameters", "until", "virtual_devices"]

T = TypeVar("T")
#: Keyword arguments of :class:`Task`, hyper-parameters among them: of as many types as there are settings.
Arguments = dict[str, Any]
#: Longest wait for the executors' first start, and for a training, in seconds.
_SLOTS_S, _TRAIN_S = 60.0, 600.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One cluster."""

    fleet: Fleet
    #: Of the fleet's cluster, for what only the scheduler or a worker can be asked.
    client: Client
    #: For run directories; removed with the stage.
    folder: Path

    def train(
        self,
        tasks: Sequence[Task],
        name: str,
        *,
        planners: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Journal:
        """Train tasks to their end in a run directory of this name, and return the journal.

        Raises
        ------
        TrainingFailed
            If one of them ends otherwise than done.
        """
        out = self.folder / name
        run = self.fleet.train(list(tasks), out=out, planners=planners or {}, settings=settings or {})
        for name, task in run.wait(timeout_s=_TRAIN_S).items():
            if task.state != "done":
                raise TrainingFailed(f"task {name} is {task.state}: {task.failure}")
        return Journal.read(out)


@contextlib.contextmanager
def virtual_devices(*, cuda: bool = False) -> Iterator[None]:
    """Hide CUDA devices from processes started meanwhile, so that slots are virtual on every machine; or do not."""
    if cuda:
        yield
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@contextlib.contextmanager
def open_stage(n_workers: int = 1, *, slots: int = 1, cuda: bool = False) -> Iterator[Stage]:
    """Start a fleet of so many workers and slots, virtual or not, and wait until the slots are up."""
    with (
        tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder,
        virtual_devices(cuda=cuda),
        Fleet(slots=slots, n_workers=n_workers) as fleet,
        Client(fleet.address) as client,
    ):

        async def up() -> bool:
            return len([slot for slot in (await client.scheduler.drlnb_nodes())["slots"] if slot["up"]]) >= slots

        client.sync(until, up, timeout_s=_SLOTS_S, awaited="the slots' executors up")
        yield Stage(fleet, client, Path(folder))


async def until(ask: Callable[[], Awaitable[T | None]], *, timeout_s: float, awaited: str) -> T:
    """Ask again and again until the answer is true, and return it.

    Raises
    ------
    TimeoutError
        If it is not in time; the message names what was `awaited`.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := await ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{awaited}: not within {timeout_s:g} s")
        await asyncio.sleep(0.05)
    return answer


def parameters(out: Path, task: str) -> bytes:
    """Return a task's newest parameters, as the file holds them."""
    folder = out / "checkpoints" / task
    return (folder / (folder / "LATEST").read_text() / "model.safetensors").read_bytes()


def local_spec(task: Task) -> RlWork:
    """Return a task as a spec that a process can train without a cluster."""
    return RlWork.from_plain(task.spec.to_plain() | probe(task.spec.env))


def padded_task(name: str, seed: int, n_rounds: int, n_steps: int, gradient_s: float = GRADIENT_S) -> Task:
    """Return a padded task of one collector, one environment, and one gradient of all its steps per round."""
    settings: Arguments = {"n_steps": n_steps, "n_epochs": 1, "batch_size": n_steps, "reward_scale": 1.0}
    policy = partial(padded_policy, gradient_s=gradient_s)
    counts: Arguments = {"seed": seed, "total_timesteps": n_rounds * n_steps, "n_envs": 1, "n_collectors": 1}
    return Task(ENV, "gpf", name=name, policy=policy, **counts, **settings)

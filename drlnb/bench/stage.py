"""Where do the live rows play?  A real cluster in a supervisor of its own, with drlnb on it, gone when the row ends."""

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from distributed import Client

from drlnb.runtime.client.install import Pool, install
from drlnb.runtime.client.local_cluster import LocalHandle, start_local

__all__ = ["Stage", "in_loop", "open_stage", "survivors", "until", "virtual_devices"]

T = TypeVar("T")

#: Longest wait for the executors' first start, in seconds: they import torch.
_SLOTS_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One cluster."""

    handle: LocalHandle
    client: Client
    pool: Pool
    #: For run directories; removed with the stage.
    folder: Path
    #: When the start of the cluster began, on the monotonic clock.
    began_t: float
    #: When its slots were up.
    ready_t: float

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return self.handle.address


@contextlib.contextmanager
def virtual_devices() -> Iterator[None]:
    """Hide CUDA devices from processes started meanwhile, so that slots are virtual on every machine."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's client from logging that a scheduler is gone: here that is the purpose."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def open_stage(n_workers: int = 1, *, n_slots: int = 1, settings: Mapping[str, Any] | None = None) -> Iterator[Stage]:
    """Start a cluster with drlnb and wait until its slots are up; afterwards nothing of it is left.

    Parameters
    ----------
    n_workers, n_slots
        Dask workers, and virtual devices with one slot each.
    settings
        Of leasing; those not named keep their defaults.
    """
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as name:
        began_t = time.monotonic()
        with virtual_devices():
            handle = start_local(n_workers=n_workers, root=Path(name) / "cluster")
        try:
            with _quiet(), Client(handle.address) as client:
                pool = install(client, n_slots=n_slots, n_nodes=n_workers, settings=settings, own_cluster=True)
                in_loop(handle.address, lambda other: _slots_up(other, n_slots))
                times = {"began_t": began_t, "ready_t": time.monotonic()}
                yield Stage(handle=handle, client=client, pool=pool, folder=Path(name), **times)
        finally:
            handle.stop()


def in_loop(address: str, measure: Callable[[Client], Awaitable[T]]) -> T:
    """Run a coroutine function with an asynchronous client of a cluster; Ctrl-C cancels it."""

    async def go() -> T:
        async with Client(address, asynchronous=True) as client:
            return await measure(client)

    return asyncio.run(go())


async def until(ask: Callable[[], Awaitable[Any]], *, timeout_s: float, what: str, pause_s: float = 0.05) -> Any:
    """Ask again and again until the answer is true.

    Raises
    ------
    TimeoutError
        If it is not in time; the message says `what` was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := await ask()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(pause_s)
    return answer


async def _slots_up(client: Client, n_slots: int) -> None:
    async def ask() -> bool:
        found = await client.scheduler.drlnb_nodes()
        return len([slot for slot in found["slots"] if slot["up"]]) >= n_slots

    await until(ask, timeout_s=_SLOTS_S, what=f"{n_slots} executors up")


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return which of some processes live: the same process under its number, and not a zombie."""
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive

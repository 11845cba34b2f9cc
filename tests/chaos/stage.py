"""Open a cluster in a supervisor of its own with drlnb on it, without a fleet; nothing of it is left afterwards."""

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.frame.stage import virtual_devices
from drlnb.runtime.client.link import Link
from drlnb.runtime.client.local_cluster import LocalHandle, start_local

#: Longest wait for the executors' first start, in seconds: they import torch.
_SLOTS_S = 60.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One cluster."""

    handle: LocalHandle
    client: Client
    #: For run directories; removed with the stage.
    folder: Path


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
def open_stage(n_workers: int, *, n_slots: int, settings: Mapping[str, Any]) -> Iterator[Stage]:
    """Start a cluster with drlnb and these settings of leasing, and wait until its slots are up."""
    with tempfile.TemporaryDirectory(prefix="drlnb-chaos-", ignore_cleanup_errors=True) as name:
        with virtual_devices():
            handle = start_local(n_workers=n_workers, root=Path(name) / "cluster")
        try:
            with _quiet(), Client(handle.address) as client:
                Link(client).open_pool(n_slots, own_workers=n_workers, settings=settings)
                _wait_for_slots(client, n_slots)
                yield Stage(handle, client, Path(name))
        finally:
            handle.stop()


def _wait_for_slots(client: Client, n_slots: int) -> None:
    async def ask() -> Any:
        return await client.scheduler.drlnb_nodes()

    deadline = time.monotonic() + _SLOTS_S
    while sum(slot["up"] for slot in client.sync(ask)["slots"]) < n_slots:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{n_slots} executors up: not within {_SLOTS_S:g} s")
        time.sleep(0.05)

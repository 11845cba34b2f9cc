"""Publish versions as a trainer does, to actors that look for a newer one after each rollout: how old theirs are.

The experiment of SRL's parameter service: a version sent every p seconds, the mean of sent - applied at the readers.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.distribution.handover import actors
from benchmarks.efforts import Distribution
from benchmarks.frame.rows import Row, in_turn, pair_up
from drlnb.runtime.ipc.host_store import StoreView

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Semaphore

    from distributed import Client, Worker

__all__ = ["staleness"]

#: Workers, and actor processes of each.
_WORKERS, _ACTORS = 2, 4
#: Pause between two versions, time between two looks of an actor for a newer one, and time of a turn, in seconds.
_EVERY_S, _ROLLOUT_S, _TURN_S = 0.2, 0.8, 6.0
#: How often per rollout an actor notes how old its version is.
_LOOKS = 8
_TASK = "staleness"


def _act(up: "Semaphore", bell: "Semaphore", path: str, sent: "Synchronized[int]", done: "SimpleQueue[object]") -> None:
    view, behind = StoreView(path), list[int]()
    up.release()
    while not bell.acquire(timeout=_ROLLOUT_S / _LOOKS):
        if len(behind) % _LOOKS == 0:
            view.refresh()
        behind.append(sent.value - view.version)
    view.close()
    done.put(behind)


def _path(dask_worker: "Worker") -> str:
    from drlnb.runtime.distribution.relay import HostRelay

    return HostRelay.find_path(dask_worker, "", _TASK)


def _turn(client: "Client", n_bytes: int, confirm: str) -> tuple[float, float, float]:
    """Return mean and maximum of versions sent - applied over actors and time, and versions per second."""
    from drlnb.distribution import Publisher

    context, version = multiprocessing.get_context("spawn"), {"w": np.zeros(n_bytes, np.uint8)}
    sent, done = context.Value("q", 1), context.SimpleQueue()
    with Publisher(client, task=_TASK, confirm=confirm) as publisher:
        publisher.publish(version).result()
        with ExitStack() as stack:
            for path in client.run(_path).values():
                stack.enter_context(actors(_ACTORS, _act, path, sent, done))
            began = time.perf_counter()
            while time.perf_counter() < began + _TURN_S:
                next_s = time.perf_counter() + _EVERY_S
                sent.value += 1
                publisher.publish(version).result()
                time.sleep(max(0.0, next_s - time.perf_counter()))
            took_s = time.perf_counter() - began
    behind = np.concatenate([done.get() for _ in range(_WORKERS * _ACTORS)])
    return float(behind.mean()), float(behind.max()), (sent.value - 1) / took_s


def staleness(effort: Distribution) -> Iterator[Row]:
    """Compare versions that wait for actors with versions that wait for hosts."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=_WORKERS, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        turns = {level: partial(_turn, client, effort.n_bytes, level) for level in ("actors", "hosts")}
        took = in_turn(effort.repeats, turns)
    actors_of = f"{_WORKERS * _ACTORS} actors on {_WORKERS} workers, rollouts of {_ROLLOUT_S:g} s"
    title = f'{effort.model_mb:g} MB every {_EVERY_S:g} s, {actors_of}, confirm="actors"'
    parts = {"-mean": "versions sent - applied, mean", "-max": "versions sent - applied, largest", "-rate": "sent"}
    for i, (name, figure) in enumerate(parts.items()):
        paired = pair_up(*([turn[i] for turn in took[level]] for level in ("actors", "hosts")))
        unit = "versions/s" if name == "-rate" else "versions"
        yield Row(f"staleness{name}", f"{title}: {figure}", unit=unit, against='confirm="hosts"', **paired)

"""Clusters for jobs, functions for their members, and placements that are over when their test is."""

import contextlib
import os
import signal
import time
from pathlib import Path

import dask
import pytest
from distributed import Client, get_worker

from drlnb import placement
from drlnb.planning.replay import replay
from drlnb.runtime.placement.placing import Placing
from tests.runtime.live import ForeignCluster, wait_until

N_WORKERS = 4


# ---------------------------------------------------------------------- functions of members
def where(m):
    """Return where a member runs."""
    worker = get_worker()
    return m.rank, m.size, m.slot, worker.nanny, os.getpid(), sorted(worker.state.total_resources)


def count(m, n, log="", every=5):
    """Count to n in steps of 20 ms, and save every few steps; return the sum, which no loss may change."""
    step, total = m.load() or (0, 0)
    if log:
        with Path(log).open("a") as file:
            file.write(f"{m.attempt} {m.rank} {step}\n")
    while step < n and not m.should_stop():
        time.sleep(0.02)
        step, total = step + 1, total + step + 1
        if step % every == 0:
            m.save(step, (step, total))
    return total, m.attempt, m.resume_step


def until_stopped(m):
    """Run until it is to stop; return the seconds from the first look."""
    while not m.should_stop():
        time.sleep(0.01)


def ignores(m):
    if m.attempt == 1:
        time.sleep(300.0)
    return os.getpid()


# ---------------------------------------------------------------------- what is heard of a placement
def records(placing, *kinds):
    return placing.journal().streams["placement"].of(*kinds)


def heard(placing, kind, n=1, **wanted):
    """Wait for records of a class; return them."""

    def found():
        some = [each for each in records(placing, kind) if all(getattr(each, k) == v for k, v in wanted.items())]
        return some if len(some) >= n else None

    return wait_until(found, f"{n} {kind.__name__} {wanted}", 30.0)


def replays(placing):
    return replay(placing.journal().streams["placement"]).difference


def pid_of(placing, slot):
    """Return the process of a slot, one of the test's own."""
    worker = placing._placer.workers[slot]
    return placing._client.run(os.getpid, workers=[worker.address])[worker.address]


def kill(placing, slot):
    """Kill the worker of a slot."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid_of(placing, slot), signal.SIGKILL)


# ---------------------------------------------------------------------- clusters
class Places:
    """Places jobs on a cluster once all its workers are up; each placement ends with the test."""

    def __init__(self, client):
        self.client, self.opened = client, list[Placing]()

    def __call__(self, *jobs, hold_s=0.0, **more):
        wait_until(lambda: len(self.client.nthreads()) == N_WORKERS, "four workers")
        placing = placement.place(jobs, self.client, hold_s=hold_s, **more)
        self.opened.append(placing)
        wait_until(lambda: len(placing.slots) == N_WORKERS, "four slots")
        return placing

    def close(self):
        """Stop what is open, and close connections that the client keeps for later."""
        for placing in self.opened:
            placing.stop()

        async def collect():
            self.client.rpc.collect()

        self.client.sync(collect)


@contextlib.contextmanager
def four_workers(folder):
    """Start four workers with nannies; they have no names, as Dask's own command gives none to several."""
    foreign = ForeignCluster(folder, ())
    try:
        foreign.add_workers(N_WORKERS)
        # It would open connections of its own, now and then.
        quiet = {"distributed.client.scheduler-info-interval": "1h", "distributed.client.heartbeat": "1h"}
        with dask.config.set(quiet), Client(scheduler_file=str(foreign.file)) as client:
            client.wait_for_workers(N_WORKERS, 60)
            yield client
    finally:
        foreign.close()


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with four_workers(tmp_path_factory.mktemp("cluster")) as client:
        yield client


@pytest.fixture
def placing(client):
    """Return what places jobs on workers that no test kills."""
    places = Places(client)
    yield places
    places.close()


@pytest.fixture
def mortal(tmp_path):
    """Return what places jobs on workers that are this test's own."""
    with four_workers(tmp_path) as client:
        places = Places(client)
        yield places
        places.close()

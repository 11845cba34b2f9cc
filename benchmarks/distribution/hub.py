"""Run a rig in processes of its own: a scheduler at the hub, a learner and hosts around it.

Usage: ``python -m benchmarks.distribution.hub SPEC``; it answers requests on its standard input, a line of JSON
each, and everything ends when that is closed.
"""

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

import dask
from distributed import Scheduler, Worker

from benchmarks.distribution import learner, netns
from benchmarks.distribution.emulated import Emulated, install
from drlnb.runtime.ipc.lifeline import watch

__all__ = ["Spec", "main"]

#: The cluster of a rig writes nothing but its log, and measures nothing beside what is measured.
_CONFIG = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.active-memory-manager.start": False,  # it would drop what `scatter` has just copied
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Which network a rig has."""

    #: ``netns``: shaped links; ``loopback``: this machine's own, with emulated cards for versions if there is a rate.
    kind: str
    n_hosts: int
    rate_mbit: float

    @property
    def shaped(self) -> bool:
        """Whether its links are shaped."""
        return self.kind == "netns"

    def address(self, number: int) -> str:
        """Return the address of a host; 0 is the learner, -1 the scheduler."""
        if self.shaped:
            return netns.HUB if number < 0 else netns.host_address(number)
        return f"127.0.1.{number + 2}"


def main(words: list[str]) -> None:
    """Start the hosts, serve the scheduler, and end when standard input is closed."""
    spec = Spec(**json.loads(words[0]))
    # Answers go where this process was started from; whatever else is written goes to the log.
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    try:
        hosts = _start(spec, requests, answers)
        watch(requests)
        asyncio.run(_serve(spec, hosts))
    except (OSError, EOFError) as error:
        os.write(answers, json.dumps({"refused": str(error) or "a host has ended"}).encode() + b"\n")


def _start(spec: Spec, requests: int, answers: int) -> list[Connection]:
    """Start learner and hosts, each in its own namespace; they wait for the scheduler's address."""
    context, hosts, pids = get_context("fork"), list[Connection](), list[int]()
    if spec.shaped:
        netns.unshare_network()
    for number in range(spec.n_hosts + 1):
        ours, theirs = context.Pipe()
        process = context.Process(target=_host, args=(spec, number, theirs, requests, answers), daemon=True)
        process.start()
        theirs.close()
        ours.recv()
        assert process.pid is not None
        hosts.append(ours)
        pids.append(process.pid)
        # Kept open: the namespace outlives a host that is killed, so that its connections are closed as by its kernel.
        os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY)
    if spec.shaped:
        netns.connect(pids, spec.rate_mbit)
    return hosts


async def _serve(spec: Spec, hosts: list[Connection]) -> None:
    with dask.config.set(_CONFIG):
        async with Scheduler(host=spec.address(-1), port=0, dashboard=False) as scheduler:
            for host in hosts:
                host.send(scheduler.address)
            await scheduler.finished()


def _host(spec: Spec, number: int, hub: Connection, requests: int, answers: int) -> None:
    """Live as the learner, or as a host with one Dask worker."""
    if spec.shaped:
        netns.unshare_network()
    hub.send("here")
    scheduler = hub.recv()
    watch(requests)
    if spec.shaped:
        netns.join(number, spec.rate_mbit)
    elif spec.rate_mbit:
        rate = spec.rate_mbit * 125e3
        install(Emulated(egress_bytes_per_s=rate, ingress_bytes_per_s=rate))
    with dask.config.set(_CONFIG):
        if number:
            asyncio.run(_work(scheduler, spec.address(number), f"h{number - 1:02}"))
        else:
            learner.serve(scheduler, spec.n_hosts, os.getppid() if spec.shaped else 0, requests, answers)


async def _work(scheduler: str, address: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Worker(scheduler, host=address, name=name, nthreads=1, local_directory=folder) as worker:
            await worker.finished()


if __name__ == "__main__":
    main(sys.argv[1:])

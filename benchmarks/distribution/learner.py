"""Publish from inside a rig: carry out a bench's requests in the learner's process, whose card is shaped."""

import json
import os
import signal
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from distributed import Client, Worker, wait
from distributed.comm import get_address_host
from distributed.protocol import to_serialize

from benchmarks.distribution import netns
from drlnb.runtime.protocol import Payload, Plain

if TYPE_CHECKING:
    from drlnb.distribution import Publisher

__all__ = ["TASK", "Learner", "serve"]

#: Name of the task whose versions are published.
TASK = "bench"
#: Longest wait for hosts and versions, in seconds.
_HOSTS_S, _VERSION_S = 60.0, 300.0


@dataclass(slots=True, kw_only=True)
class Learner:
    """The requests that a learner carries out."""

    client: Client
    n_hosts: int
    #: The hub's process, where interfaces are counted; 0: nothing is counted.
    hub: int
    publisher: "Publisher | None" = None
    _random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def open(self, link: Plain | None) -> Plain:
        """Open a publisher, that plans with a link where its figures are given."""
        from drlnb.distribution import Link, Publisher  # here: hosts are forked before anybody needs it

        self.publisher = Publisher(self.client, task=TASK, link=Link(**link) if link is not None else None)
        return {}

    def publish(self, plan: str, n_bytes: int, *, check: bool = False, kill_after_s: float = 0.0) -> Plain:
        """Publish a version of random bytes, and return when and by how many bytes it reached the hosts.

        Parameters
        ----------
        plan
            Name of the planner.
        n_bytes
            Size of the version.
        check
            Read it back on every host that lives.
        kill_after_s
            Seconds after which a host is killed; 0: none is.
        """
        assert self.publisher is not None
        array, before_again = self._version(n_bytes), self._sent_again()
        before = self._counters()
        self.publisher.plan = plan
        publication = self.publisher.publish({"w": array})
        if kill_after_s:
            time.sleep(kill_after_s)
            self._kill()
        report = publication.result(timeout_s=_VERSION_S)
        moved = np.array(self._counters()) - before
        again = np.array(self._sent_again()) - before_again
        reply = {"publish_s": report.publish_s, "predicted_s": report.predicted_s, "failed": sorted(report.failed)}
        # (sent, received) of the learner, then of each host; and what of it was sent again.
        reply |= {"moved": moved.tolist(), "again": again.tolist()}
        reply["wrong"] = self._wrong(report.version, array) if check or kill_after_s else []
        return reply

    def scatter(self, n_bytes: int) -> Plain:
        """Copy an array to every host by Dask's own means."""
        array = self._version(n_bytes)
        began = time.perf_counter()
        future = self.client.scatter(array, broadcast=True, direct=True, hash=False)
        publish_s = time.perf_counter() - began
        (holders,) = self.client.who_has([future]).values()
        if len(holders) != self.n_hosts:
            raise RuntimeError(f"scatter reached {len(holders)} hosts of {self.n_hosts}")
        return {"publish_s": publish_s}

    def hop(self, n_bytes: int, kind: str) -> Plain:
        """Send bytes from one host to another, as ``memoryview`` or as ``bytes``; return how long that took."""
        first, second, *_ = sorted(self.client.nthreads())
        self.client.run(_take_payloads, workers=[second])
        return {"hop_s": self.client.run(_hop, second, n_bytes, kind, workers=[first])[first]}

    def _version(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self._random.bytes(n_bytes), dtype=np.uint8)

    def _counters(self) -> list[tuple[int, int]]:
        return netns.counters(self.hub, self.n_hosts + 1) if self.hub else []

    def _sent_again(self) -> list[int]:
        by_address = self.client.run(netns.sent_again) if self.hub else {}
        by_host = {get_address_host(address): n_bytes for address, n_bytes in by_address.items()}
        hosts = [by_host.get(netns.host_address(number), 0) for number in range(1, self.n_hosts + 1)]
        return [netns.sent_again(), *hosts]

    def _kill(self) -> None:
        """Kill a host."""
        first, *_ = self.client.nthreads()
        os.kill(self.client.run(os.getpid, workers=[first])[first], signal.SIGKILL)

    def _wrong(self, version: int, array: npt.NDArray[np.uint8]) -> list[str]:
        """Return the hosts whose readers do not see the version as it was sent."""
        expected = [version, zlib.crc32(array.data)]
        addresses = list(self.client.nthreads())
        held = [self.client.submit(_held, workers=[address], pure=False) for address in addresses]
        wait(held)
        return [
            address
            for address, future in zip(addresses, held, strict=True)
            if future.status != "finished" or future.result() != expected
        ]


def _held() -> list[int]:
    """Return version and checksum of what a reader of this host sees."""
    from drlnb.distribution import HostView

    with HostView.attach(task=TASK) as view, view.pinned() as version:
        return [version, zlib.crc32(view.arrays()["w"].data)]


# ------------------------------------------------------------------ one hop
async def _take_payloads(dask_worker: Worker) -> None:
    async def take(payload: Payload) -> int:
        return len(payload)

    dask_worker.handlers["bench_payload"] = take


async def _hop(address: str, n_bytes: int, kind: str, dask_worker: Worker) -> float:
    payload = bytes(n_bytes)
    send = dask_worker.rpc(address).bench_payload
    if await send(payload=to_serialize(memoryview(bytes(1)))) != 1:
        raise RuntimeError(f"{address} took nothing")
    began = time.perf_counter()
    await send(payload=to_serialize(memoryview(payload)) if kind == "memoryview" else payload)
    return time.perf_counter() - began


# ------------------------------------------------------------------ requests
def serve(scheduler: str, n_hosts: int, hub: int, requests: int, answers: int) -> None:
    """Carry out the requests that come, a line of JSON each, until there are no more."""
    with os.fdopen(requests) as lines, os.fdopen(answers, "w") as out, Client(scheduler) as client:
        client.wait_for_workers(n_hosts, timeout=_HOSTS_S)
        learner = Learner(client=client, n_hosts=n_hosts, hub=hub)
        operations: dict[str, Callable[..., Plain]] = {
            "ready": dict, "open": learner.open, "publish": learner.publish, "scatter": learner.scatter,
            "hop": learner.hop,
        }  # fmt: skip
        for line in lines:
            message = json.loads(line)
            try:
                reply = operations[message.pop("op")](**message)
            except (OSError, RuntimeError, ValueError, TimeoutError) as error:
                reply = {"refused": f"{type(error).__name__}: {error}"}
            out.write(json.dumps(reply) + "\n")
            out.flush()

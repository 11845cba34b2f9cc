"""Describe how a version travels: ranges of bytes, each along a route of messages.

Hosts are numbered 0..n-1; the learner is :data:`LEARNER`.  A route is a tree of messages that begins with one from the
learner; it is written as pairs (sender, receiver), each sender's in the order of its sending.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from drlnb.planning.distribution.changes import Ranges, spread
from drlnb.records.columns.distribution import LEARNER, Route

__all__ = ["LEARNER", "Plan", "Route", "Send"]


@dataclass(frozen=True, slots=True)
class Send:
    """One message that leaves the learner: bytes [start, stop), and the number of their route."""

    start: int
    stop: int
    route: int


@dataclass(frozen=True, kw_only=True)  # no slots: what follows from it is kept
class Plan:
    """How one version reaches every host.

    Parameters
    ----------
    n_hosts
        Number of hosts beside the learner.
    model_bytes
        Size of one version in bytes.
    routes
        Routes, as pairs (sender, receiver); the first pair of each is the learner's, the only one of it.
    sends
        Messages of the learner in the order of sending.
    n_in_flight
        Messages that a host may have sent without an answer, never more than one to the same host.
    predicted_s
        Seconds that the planner expects it to take; 0: it does not say.
    name
        Strategy with its numbers, as far as they count for so many hosts, such as ``relay:m=4``; empty: none of ours.
    """

    n_hosts: int
    model_bytes: int
    routes: tuple[Route, ...]
    sends: tuple[Send, ...]
    n_in_flight: int = 4
    predicted_s: float = 0.0
    name: str = field(default="", compare=False)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """Bytes that travel along each route; shape ``(len(routes),)``."""
        carried = [0] * len(self.routes)
        for send in self.sends:
            carried[send.route] += send.stop - send.start
        return tuple(carried)

    def egress_bytes(self) -> npt.NDArray[np.int64]:
        """Return the bytes that each host sends; shape ``(n_hosts + 1,)``, the learner's last."""
        return self._sums(0)

    def ingress_bytes(self) -> npt.NDArray[np.int64]:
        """Return the bytes that each host receives; shape ``(n_hosts + 1,)``, the learner's last."""
        return self._sums(1)

    def _sums(self, end: int) -> npt.NDArray[np.int64]:
        sums = np.zeros(self.n_hosts + 1, dtype=np.int64)
        for route, n_bytes in zip(self.routes, self.carried, strict=True):
            np.add.at(sums, np.asarray(route, dtype=np.int64).reshape(-1, 2)[:, end], n_bytes)
        return sums

    def placed(self, changed: Ranges) -> "Plan":
        """Return it with messages that name places in the version of which `changed` ranges travel; none: all of it."""
        if not changed:
            return self
        sends = spread(((send.start, send.stop, send.route) for send in self.sends), changed)
        return replace(self, sends=tuple([Send(*send) for send in sends]))

    def n_messages(self) -> int:
        """Return the number of messages, forwarded ones included."""
        return sum(len(self.routes[send.route]) for send in self.sends)

    def digest(self) -> str:
        """Return a short hash of the whole plan: equal plans have equal digests."""
        return sha256(repr((self.n_hosts, self.routes, self.sends, self.n_in_flight)).encode()).hexdigest()[:12]

    def check(self) -> None:
        """Check that each host gets each byte exactly once, from who has it.

        Raises
        ------
        ValueError
            If a host is unknown, misses a byte, gets one twice or forwards what it has not got; the message names it.
        """
        reached = [_reached(route, self.n_hosts) for route in self.routes]
        ranges: dict[int, list[tuple[int, int]]] = {host: [] for host in range(self.n_hosts)}
        for send in self.sends:
            if not 0 <= send.route < len(reached):
                raise ValueError(f"route must be in 0..{len(reached) - 1}, got {send.route}")
            for host in reached[send.route]:
                ranges[host].append((send.start, send.stop))
        for host, held in ranges.items():
            at = 0
            for start, stop in sorted(held):
                if start != at or stop <= start:
                    raise ValueError(f"host {host} must get byte {at} next, got [{start}, {stop})")
                at = stop
            if at != self.model_bytes:
                raise ValueError(f"host {host} must get {self.model_bytes} bytes, got {at}")
        if self.n_in_flight < 1:
            raise ValueError(f"n_in_flight must be >= 1, got {self.n_in_flight}")

    def messages(self) -> Iterator[tuple[Send, int, int]]:
        """Yield the send, the sender and the receiver of each message."""
        for send in self.sends:
            for sender, receiver in self.routes[send.route]:
                yield send, sender, receiver


def _reached(route: Route, n_hosts: int) -> list[int]:
    """Return the hosts of a route in their order, once it is a tree below the learner's one message.

    Raises
    ------
    ValueError
        If it is not.
    """
    reached: dict[int, None] = {}
    for sender, receiver in route:
        if not 0 <= receiver < n_hosts:
            raise ValueError(f"host must be in 0..{n_hosts - 1}, got {receiver}")
        if (sender != LEARNER) if not reached else (sender not in reached):
            has = "a route begins at the learner" if not reached else "it has not got that yet"
            raise ValueError(f"host {sender} cannot send to host {receiver}: {has}")
        if receiver in reached:
            raise ValueError(f"host {receiver} is on a route twice")
        reached[receiver] = None
    return list(reached)

"""Who sends which byte range to whom: routes, and what they cost in bytes and messages.

Hosts are numbered 0..n-1; the learner is none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

__all__ = ["Hop", "Plan", "Send", "cut", "star"]


@dataclass(frozen=True, slots=True)
class Hop:
    """A host that receives, and the hops that it forwards to, in order."""

    host: int
    children: tuple["Hop", ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """One message that leaves the learner: bytes [start, stop) and their whole route."""

    start: int
    stop: int
    first: Hop


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one version reaches every host.

    Parameters
    ----------
    n_hosts
        Number of hosts beside the learner.
    model_bytes
        Size of one version in bytes.
    sends
        Messages of the learner in the order of sending.
    """

    n_hosts: int
    model_bytes: int
    sends: tuple[Send, ...]

    def egress_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that each host sends; shape ``(n_hosts + 1,)``, row 0 is the learner."""
        sent = np.zeros(self.n_hosts + 1, dtype=np.int64)
        for send, sender, _, _ in self._messages():
            sent[sender + 1] += send.stop - send.start
        return sent

    def ingress_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that each host receives; shape ``(n_hosts + 1,)``, row 0 is the learner."""
        received = np.zeros(self.n_hosts + 1, dtype=np.int64)
        for send, _, hop, _ in self._messages():
            received[hop.host + 1] += send.stop - send.start
        return received

    def depth(self) -> int:
        """Return the most hops that a byte takes; 0 if there is no host."""
        return max((depth for _, _, _, depth in self._messages()), default=0)

    def n_messages(self) -> int:
        """Return the number of messages, forwarded ones included."""
        return sum(1 for _ in self._messages())

    def digest(self) -> str:
        """Return a short hash of the whole plan: equal plans have equal digests."""
        return sha256(repr(self).encode()).hexdigest()[:12]

    def check(self) -> None:
        """Check that each host gets each byte exactly once.

        Raises
        ------
        ValueError
            If a host is unknown, or misses a byte, or gets one twice; the message names it.
        """
        ranges: dict[int, list[tuple[int, int]]] = {host: [] for host in range(self.n_hosts)}
        for send, _, hop, _ in self._messages():
            if hop.host not in ranges:
                raise ValueError(f"host must be in 0..{self.n_hosts - 1}, got {hop.host}")
            ranges[hop.host].append((send.start, send.stop))
        for host, held in ranges.items():
            at = 0
            for start, stop in sorted(held):
                if start != at or stop <= start:
                    raise ValueError(f"host {host} must get byte {at} next, got [{start}, {stop})")
                at = stop
            if at != self.model_bytes:
                raise ValueError(f"host {host} must get {self.model_bytes} bytes, got {at}")

    def _messages(self) -> Iterator[tuple[Send, int, Hop, int]]:
        """Yield (send, sender, receiving hop, depth) of each message; the learner is sender -1."""
        for send in self.sends:
            ahead = [(-1, send.first, 1)]
            while ahead:
                sender, hop, depth = ahead.pop()
                yield send, sender, hop, depth
                ahead += [(hop.host, child, depth + 1) for child in hop.children]


def cut(total: int, m: int) -> tuple[tuple[int, int], ...]:
    """Cut `total` bytes into `m` ranges whose sizes differ by at most one, the larger ones first (seed 001's shards).

    Parameters
    ----------
    total
        Bytes to cut, at least 0.
    m
        Number of ranges, at least 1.

    Returns
    -------
    tuple of (int, int)
        Ranges [start, stop) in bytes; shape ``(m, 2)``, the last ones empty if ``m > total``.

    Raises
    ------
    ValueError
        If `total` < 0 or `m` < 1.

    Examples
    --------
    >>> cut(10, 3)
    ((0, 4), (4, 7), (7, 10))
    """
    if total < 0:
        raise ValueError(f"total must be >= 0 bytes, got {total}")
    if m < 1:
        raise ValueError(f"m must be >= 1 ranges, got {m}")
    size, longer = divmod(total, m)
    return tuple([(i * size + min(i, longer), (i + 1) * size + min(i + 1, longer)) for i in range(m)])


def star(n_hosts: int, model_bytes: int) -> Plan:
    """Plan one direct message of the whole version to each host, in order: what everybody does without a plan.

    Parameters
    ----------
    n_hosts
        Number of hosts beside the learner, at least 0.
    model_bytes
        Size of one version in bytes, at least 1.

    Raises
    ------
    ValueError
        If `n_hosts` < 0 or `model_bytes` < 1.
    """
    if n_hosts < 0:
        raise ValueError(f"n_hosts must be >= 0, got {n_hosts}")
    if model_bytes < 1:
        raise ValueError(f"model_bytes must be >= 1, got {model_bytes}")
    sends = tuple([Send(0, model_bytes, Hop(host)) for host in range(n_hosts)])
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, sends=sends)

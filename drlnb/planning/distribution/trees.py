"""Who sends which byte range to whom: routes of messages.

Hosts are numbered 0..n-1; the learner is none of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

__all__ = ["Hop", "Plan", "Send", "star"]


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

    def n_messages(self) -> int:
        """Return the number of messages, forwarded ones included."""
        return sum(1 for _ in self.messages())

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
        for send, _, hop in self.messages():
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

    def messages(self) -> Iterator[tuple[Send, int, Hop]]:
        """Yield the send, the sender and the receiving hop of each message; the learner is sender -1."""
        for send in self.sends:
            ahead = [(-1, send.first)]
            while ahead:
                sender, hop = ahead.pop()
                yield send, sender, hop
                ahead += [(hop.host, child) for child in hop.children]


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

"""Predict how long a plan takes on a link, and choose the best one, by closed forms.

Symbols: n hosts; m shards, trees or intermediate hosts; c chunks of each; L seconds of one version through one network
card; a one-way latency; o seconds of the event loop per message, at its sender and at its receiver, so twice where what
is received is forwarded.  A message costs the larger of its bytes and o.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from drlnb.records.settings import FLAG, NOT_NEGATIVE, SHARE, Declared, between, setting

__all__ = ["HEADER_FRAC", "PRESETS", "Cost", "Link", "Seconds", "bound_s"]

_Array = npt.NDArray[np.float64]
#: Payload of one Gbit/s Ethernet, headers taken off, in bytes per second.
_GBIT = 0.117e9
#: Bytes on the wire per byte of payload, beyond 1, where a rate counts headers: Ethernet, IP and TCP at 1,500 bytes.
HEADER_FRAC = 0.046
_RATE = between(1.0, 1e15, "a number of bytes per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(Declared):
    """The network between learner and hosts; each card sends and receives at the same time."""

    learner_bytes_per_s: float = setting(10 * _GBIT, _RATE)
    egress_bytes_per_s: float = setting(10 * _GBIT, _RATE)
    ingress_bytes_per_s: float = setting(10 * _GBIT, _RATE)
    #: One way, in seconds.
    latency_s: float = setting(300e-6, NOT_NEGATIVE)
    #: Time of the event loop that one message takes at its sender, and at its receiver, in seconds.
    overhead_s: float = setting(150e-6, NOT_NEGATIVE)
    #: Bytes of headers per byte, where the rates count them.
    header_frac: float = setting(0.0, SHARE)
    #: Learner and hosts are one machine, whose cores carry every byte of every plan: none is faster than direct sends.
    one_machine: bool = setting(False, FLAG)

    @classmethod
    def of(cls, bytes_per_s: float, **others: float) -> Self:
        """Return a link whose cards are all alike.

        Examples
        --------
        >>> Link.of(25e6, latency_s=0.0).egress_bytes_per_s
        25000000.0
        """
        cards = dict.fromkeys(("learner_bytes_per_s", "egress_bytes_per_s", "ingress_bytes_per_s"), bytes_per_s)
        return cls.from_mapping(cards | others)


#: Name -> a link of that kind of Ethernet, with the costs of messages in Python.
PRESETS = {f"{gbit}GbE": Link.of(gbit * _GBIT) for gbit in (1, 10, 25)}


@dataclass(frozen=True, slots=True)
class Cost:
    """A version on a link: what the closed forms are made of, in seconds."""

    n: int
    #: One version out of the learner's card, out of a host's, into a host's.
    learner: float
    egress: float
    ingress: float
    a: float
    o: float

    @classmethod
    def of(cls, n_hosts: int, model_bytes: int, link: Link) -> Self:
        """Return the terms for a number of hosts and a size."""
        wire = model_bytes * (1.0 + link.header_frac)
        return cls(
            n_hosts,
            wire / link.learner_bytes_per_s,
            wire / link.egress_bytes_per_s,
            wire / link.ingress_bytes_per_s,
            link.latency_s,
            link.overhead_s,
        )

    @property
    def first(self) -> float:
        """One version from the learner to a host."""
        return max(self.learner, self.ingress)

    @property
    def hop(self) -> float:
        """One version from a host to another one."""
        return max(self.egress, self.ingress)


#: Seconds for whole arrays of m and c.
Seconds = Callable[[Cost, _Array, _Array], _Array]


def bound_s(cost: Cost) -> float:
    """Return the time that no plan can beat, in seconds.

    Notes
    -----
    The last byte to leave the learner's card is at one host then; the number of those to which it has been sent doubles
    once per message at most.  The card of a host has to take a version, all cards together have to send n of them.  In
    either case the last message needs its latency.

    References
    ----------
    Mundinger, Weber and Weiss (arXiv cs/0606110): the three bounds by cards.
    """
    rate = 1.0 / cost.learner + cost.n / cost.egress
    doublings = math.ceil(math.log2(cost.n + 1))
    learner = max(cost.learner, cost.o) + max(0, doublings - 1) * cost.o
    return max(learner, cost.ingress, cost.n / rate) + cost.a


# ---------------------------------------------------------------------- closed forms
def star_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return max(n L, n o) + a."""
    return np.full(np.broadcast(m, c).shape, max(cost.n * max(cost.learner, cost.o), cost.ingress) + cost.a)


def tree_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return the time of trees in which k hosts get it from the learner, on c levels at most.

    Two levels take max(k L, k o) + ceil((n - k) / k) max(L, o) + 2 a; more d (k max(L, o) + a), with the least d for
    which k + k^2 + ... + k^d >= n, infinite where that is above c.
    """
    first, hop = max(cost.first, cost.o), max(cost.hop, cost.o)
    below = np.ceil((cost.n - m) / m)
    two = m * first + below * hop + (1 + (below > 0)) * cost.a
    levels, reach, width = np.zeros_like(m), np.zeros_like(m), np.ones_like(m)
    for _ in range(int(c.max()) if c.max() > 2 else 0):
        width = np.minimum(width * m, cost.n)
        levels += reach < cost.n
        reach += width
    more = np.where(reach < cost.n, np.inf, m * (first + (levels - 1) * hop) + levels * cost.a)
    seconds: _Array = np.where(c > 2, more, two)
    return seconds


def binomial_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return ceil(log2(n + 1)) (L + a)."""
    doublings = math.ceil(math.log2(cost.n + 1))
    return np.full(np.broadcast(m, c).shape, doublings * (max(cost.first, cost.hop, cost.o) + cost.a))


def chain_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return n (a + o + L / c) + (c - 1) max(L / c, 2 o); one host forwards nothing, there it is o."""
    others, loop = cost.n - 1, min(cost.n, 2) * cost.o
    slowest = max(cost.first, cost.hop if others else 0.0) / c
    once = cost.n * (cost.a + cost.o) + (cost.first + others * cost.hop) / c
    return once + (c - 1) * np.maximum(slowest, loop) + 0.0 * m


def relay_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return the time of shards through relays; whole shards overlap less than chunks of them.

    A relay sends n - 1 messages while m - 1 come from other relays: its loop has both.
    """
    others = cost.n - 1
    at_once = np.maximum(cost.learner, m * cost.o)
    passed_on = np.maximum(others * np.maximum(cost.egress / m, cost.o), (others > 0) * (others + m - 1) * cost.o)
    whole = np.maximum(at_once + passed_on + (1 + (others > 0)) * cost.a, cost.ingress + np.maximum(m * cost.o, cost.a))
    busiest = np.maximum.reduce([
        np.full(np.broadcast(m, c).shape, max(cost.learner, cost.ingress)),
        others * cost.egress / m + 0.0 * c,
        (others + m) * c * cost.o,
    ])
    chunked = busiest + others * np.maximum(cost.hop / (m * c), cost.o) + 2 * cost.a
    seconds: _Array = np.where(c > 1, chunked, whole)
    return seconds


def multitree_s(cost: Cost, m: _Array, c: _Array) -> _Array:
    """Return the time of chunks through m heaps of fan-out f = (n - 1) m / n and depth d = ceil(log_f n)."""
    fan_out = np.maximum((cost.n - 1) * m / cost.n, 1.0)
    levels = np.ones_like(fan_out)
    np.divide(np.log(cost.n), np.log(fan_out), out=levels, where=fan_out > 1.0)
    levels = np.clip(np.ceil(levels), 1, max(1, cost.n - 1))
    version = max(cost.first, cost.hop)
    busiest = np.maximum(version, (m + fan_out) * c * cost.o)
    steps = levels * fan_out + m
    seconds: _Array = busiest + steps * np.maximum(version / (m * c), cost.o) + (levels + 1) * (cost.a + cost.o)
    return seconds

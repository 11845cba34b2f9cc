"""Measure the network between a learner and its hosts: time per message, latency, bytes per second.

A message costs the loop of its sender time that is counted on the processor, so that latency has no part in it.  Rates
are those of messages as plans send them, after what a token bucket lets pass at once has been used up.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import psutil
from distributed.comm import get_address_host

from drlnb.runtime.link import Link

__all__ = ["WITHIN_S", "are_here", "measure", "rate"]

#: Longest time for all of it, and for the answer to a small message, in seconds.
WITHIN_S, _ANSWER_S = 2.0, 0.5
#: Round trips to each host, and the size of their messages in bytes.
_N_TRIPS, _SMALL_BYTES = 9, 1 << 10
#: What is sent first, what is sent at most, and what of it goes in one message, in bytes.
_FIRST_BYTES, _MOST_BYTES, _PIECE_BYTES = 64 << 10, 16 << 20, 4 << 20
#: What takes so long was long enough to be told from a burst, in seconds.
_LONG_S = 0.05


async def measure(link: Link, hosts: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, float]]:
    """Measure the network between a node and the first, the middle and the last of some hosts, within two seconds.

    Parameters
    ----------
    link
        Speaks for the node.
    hosts
        Host -> address of its agent, at least one; an empty address: it is not up.

    Returns
    -------
    hosts
        Those that took part: a host that does not answer does not.
    figures
        Field of :class:`~drlnb.planning.distribution.cost.Link` -> its value, of those that could be measured: rates of
        hosts need two of them.
    """
    names, live, figures = sorted(hosts), dict[str, str](), dict[str, float]()
    picked = {name: hosts[name] for name in (names[0], names[len(names) // 2], names[-1])}
    with contextlib.suppress(OSError):  # a time-out is one, too
        await asyncio.wait_for(_measure(link, picked, live, figures), WITHIN_S)
    if figures:
        figures["one_machine"] = are_here(hosts.values())
    return tuple(live), figures


def are_here(addresses: Iterable[str]) -> bool:
    """Return whether all addresses are those of this machine."""
    here = {each.address for of_one in psutil.net_if_addrs().values() for each in of_one}
    return {get_address_host(address) for address in addresses if address} <= here


async def _measure(link: Link, hosts: Mapping[str, str], live: dict[str, str], figures: dict[str, float]) -> None:
    """Fill in the hosts that answer, and the figures, as far as one comes."""
    trips: list[tuple[float, float]] = []
    for host, address in hosts.items():
        with contextlib.suppress(OSError):
            trips += await _trips(link, address) if address != link.address else ()
            live[host] = address
    if not trips:
        return
    trip_s, overhead_s = (median(each) for each in zip(*trips, strict=True))
    figures |= {"overhead_s": overhead_s, "latency_s": max(0.0, trip_s / 2 - overhead_s), "header_frac": 0.0}
    others = [address for address in live.values() if address != link.address]
    learner = await rate(link, others)
    figures |= {"learner_bytes_per_s": learner, "ingress_bytes_per_s": learner / len(others)}
    senders = list(live.values())
    ring = zip(senders, senders[1:] + senders[:1], strict=True) if len(senders) > 1 else ()
    replies = await asyncio.gather(*[
        link.call(sender, "drlnb_probe_rate", address=address, timeout_s=WITHIN_S) for sender, address in ring
    ])
    if rates := [reply["bytes_per_s"] for reply in replies if "bytes_per_s" in reply]:
        egress = median(rates)
        figures |= {"egress_bytes_per_s": egress, "ingress_bytes_per_s": max(egress, learner / len(others))}


async def _trips(link: Link, address: str) -> list[tuple[float, float]]:
    """Return the seconds of some round trips, and of the processor's time that each took here."""
    payload, trips, now = memoryview(os.urandom(_SMALL_BYTES)), [], asyncio.get_running_loop().time
    for _ in range(_N_TRIPS):
        began, began_cpu = now(), time.thread_time()
        await _send(link, address, payload, _SMALL_BYTES, _ANSWER_S)
        trips.append((now() - began, time.thread_time() - began_cpu))
    return trips[1:]  # the first one opens the connection


async def rate(link: Link, addresses: Sequence[str]) -> float:
    """Return the bytes per second that go from a node to some others at once.

    What is sent grows until it takes long enough.  The time in which a sender waits for answers is taken off, as far as
    no other receiver fills it.

    Parameters
    ----------
    link
        Speaks for the node.
    addresses
        Of the receivers.

    Raises
    ------
    ConnectionError
        If one of them does not answer.
    """
    trip_s = min(trip_s for trip_s, _ in await _trips(link, addresses[0]))
    n_bytes, now = _FIRST_BYTES, asyncio.get_running_loop().time
    payload = memoryview(os.urandom(_FIRST_BYTES) * (_PIECE_BYTES // _FIRST_BYTES))
    while True:
        began, sends = now(), [_send(link, address, payload, n_bytes, WITHIN_S) for address in addresses]
        for error in filter(None, await asyncio.gather(*sends, return_exceptions=True)):
            raise error
        took_s = now() - began
        if took_s >= _LONG_S or n_bytes >= _MOST_BYTES:
            idle_s = trip_s * -(-n_bytes // _PIECE_BYTES) / len(addresses)
            return len(addresses) * n_bytes / max(took_s - idle_s, took_s / 2)
        n_bytes *= 2


async def _send(link: Link, address: str, payload: memoryview, n_bytes: int, within_s: float) -> None:
    """Send some bytes, one message after another."""
    for start in range(0, n_bytes, _PIECE_BYTES):
        piece = payload[: min(_PIECE_BYTES, n_bytes - start)]
        reply = await link.call(address, "drlnb_probe", timeout_s=within_s, payload=piece)
        if reply.get("refused"):
            raise ConnectionError(reply["refused"])

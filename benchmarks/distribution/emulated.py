"""Emulate network cards where links cannot be shaped: each host's bytes leave and arrive through token buckets.

The sender keeps a message for as long as its card would take to send it, and sends along for how long it was kept.  The
receiver's card began to receive when the sender's began to send: it acknowledges once its own bucket has passed the
message, counted from then, so that a message that meets two idle cards is kept once, not twice.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.link import Link
from drlnb.runtime.protocol import RPC_TIMEOUT_S, Handler, Payload, Plain

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["Bucket", "Card", "CardLink", "Emulated", "install"]

#: The message that brings a range of a version.
_RANGE = "drlnb_chunk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Rates of every card, the learner's too, in bytes per second.

    Raises
    ------
    ValueError
        If a rate is not above 0.
    """

    egress_bytes_per_s: float
    ingress_bytes_per_s: float

    def __post_init__(self) -> None:
        for name in ("egress_bytes_per_s", "ingress_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")


@dataclass(slots=True)
class Bucket:
    """Passes one message after another, in the order in which they come."""

    #: When all messages so far have passed, in seconds.
    free_t: float = 0.0

    def take(self, t: float, seconds: float) -> tuple[float, float]:
        """Return when a message that comes at `t`, and takes so many seconds, begins to pass and when it has passed.

        Examples
        --------
        >>> bucket = Bucket()
        >>> bucket.take(0.0, 2.0), bucket.take(1.0, 2.0), bucket.take(9.0, 1.0)
        ((0.0, 2.0), (2.0, 4.0), (9.0, 10.0))
        """
        begun_t = max(self.free_t, t)
        self.free_t = begun_t + seconds
        return begun_t, self.free_t


class Card:
    """The card of one host.

    Parameters
    ----------
    rates
        Of every card.
    """

    def __init__(self, rates: Emulated) -> None:
        self._rates, self._egress, self._ingress = rates, Bucket(), Bucket()

    async def send(self, n_bytes: int) -> float:
        """Wait until a message has left; return for how many seconds it was kept."""
        now = asyncio.get_running_loop().time
        begun_t, done_t = self._egress.take(now(), n_bytes / self._rates.egress_bytes_per_s)
        await asyncio.sleep(done_t - now())
        return now() - begun_t

    async def receive(self, n_bytes: int, held_s: float) -> None:
        """Wait until a message that its sender kept for `held_s` seconds has arrived."""
        now = asyncio.get_running_loop().time
        _, done_t = self._ingress.take(now() - held_s, n_bytes / self._rates.ingress_bytes_per_s)
        await asyncio.sleep(done_t - now())


class CardLink(Link):
    """Speak for a node whose ranges of versions pass an emulated card; other messages are small.

    Parameters
    ----------
    worker
        The Dask worker.
    rates
        Of every card: those that it speaks with have one, too.
    """

    def __init__(self, worker: "Worker", *, rates: Emulated) -> None:
        super().__init__(worker)
        self._card = Card(rates)

    def serve(self, table: Mapping[str, Handler]) -> None:
        """Answer messages, and a range once it has passed the card."""
        super().serve({op: self._received(handler) if op == _RANGE else handler for op, handler in table.items()})

    def _received(self, handler: Handler) -> Handler:
        async def receive(held_s: float, payload: Payload = b"", **message: object) -> object:
            await self._card.receive(len(payload), held_s)
            return await handler(payload=payload, **message)

        return receive

    async def call(
        self,
        address: str,
        op: str,
        /,
        *,
        timeout_s: float | None = RPC_TIMEOUT_S,
        payload: Payload = b"",
        **message: object,
    ) -> Plain:
        """Call a handler of an agent, with a range once it has left the card."""
        if op == _RANGE:
            message["held_s"] = await self._card.send(len(payload))
        return await super().call(address, op, timeout_s=timeout_s, payload=payload, **message)


def install(rates: Emulated) -> None:
    """Have everybody who sends or receives versions in this process do so by an emulated card."""
    HostRelay.speaker = partial(CardLink, rates=rates)

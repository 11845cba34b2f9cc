"""Emulate network cards where links cannot be shaped: each host's bytes leave and arrive through token buckets.

The sender keeps a message for as long as its card would take to send it, and sends along for how long it was kept.  The
receiver's card began to receive when the sender's began to send: it acknowledges once its own bucket has passed the
message, counted from then, so that a message that meets two idle cards is kept once, not twice.
"""

import asyncio
from dataclasses import dataclass, field

from drlnb.runtime.protocol import Plain

__all__ = ["Bucket", "Card", "Emulated"]


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


@dataclass(slots=True)
class Card:
    """The emulated card of one host; it costs nothing as long as no message says which rates it has."""

    _egress: Bucket = field(default_factory=Bucket)
    _ingress: Bucket = field(default_factory=Bucket)

    async def send(self, n_bytes: int, cards: Plain) -> Plain:
        """Wait until a message has left; return what it says beside its bytes, for how long it was kept among it.

        Parameters
        ----------
        n_bytes
            Size of the message.
        cards
            Fields of :class:`Emulated`; empty: nothing is emulated.
        """
        if not cards:
            return {}
        now = asyncio.get_running_loop().time
        begun_t, done_t = self._egress.take(now(), n_bytes / cards["egress_bytes_per_s"])
        await asyncio.sleep(done_t - now())
        return {"cards": cards, "held_s": now() - begun_t}

    async def receive(self, n_bytes: int, cards: Plain, held_s: float) -> None:
        """Wait until a message that was kept for `held_s` seconds has arrived."""
        if cards:
            now = asyncio.get_running_loop().time
            _, done_t = self._ingress.take(now() - held_s, n_bytes / cards["ingress_bytes_per_s"])
            await asyncio.sleep(done_t - now())

"""Relate the broker's clock to one of ours, by round trips; nothing waits on it."""

import contextlib
from collections.abc import Awaitable, Callable

from drlnb.runtime.protocol import Plain

__all__ = ["ClockOffset", "relate"]

#: Round trips of which the shortest one counts: one that stood in a queue shows little.
_N_HELLOS = 5

#: Name of the broker's stream; what must be added to our seconds to have its own; half of the round trip, in seconds.
ClockOffset = tuple[str, float, float]


async def relate(hello: Callable[[], Awaitable[Plain]], now: Callable[[], float]) -> ClockOffset | None:
    """Return how the broker's clock stands to ours; None if it did not answer.

    Its answer was given between question and arrival: at the middle, give or take half of the round trip.

    Parameters
    ----------
    hello
        Asks the broker for its ``epoch`` and its clock ``t``, in seconds.
    now
        Our own clock, in seconds.
    """
    trips: list[ClockOffset] = []
    for _ in range(_N_HELLOS):
        with contextlib.suppress(OSError, TimeoutError):
            asked_t = now()
            reply = await hello()
            arrived_t = now()
            offset_s = float(reply["t"]) - (asked_t + arrived_t) / 2
            trips.append((f"broker-e{reply['epoch']}", offset_s, (arrived_t - asked_t) / 2))
    return min(trips, key=lambda trip: trip[2], default=None)

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
    best: ClockOffset | None = None
    for _ in range(_N_HELLOS):
        with contextlib.suppress(OSError, TimeoutError):
            asked_t = now()
            reply = await hello()
            arrived_t = now()
            error_s = (arrived_t - asked_t) / 2
            if best is None or error_s < best[2]:
                best = f"broker-e{reply['epoch']}", float(reply["t"]) - (asked_t + arrived_t) / 2, error_s
    return best

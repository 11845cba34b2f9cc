"""Estimate when the parameters of this round arrive from what has happened so far: progress beats history.

The task makes its next parameters itself, so it knows how many gradients are done.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Pace", "remaining_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Median durations of the regime's latest rounds, in seconds."""

    #: One gradient, and how many there are in a round.
    gradient_s: float
    n_gradients: int
    #: From the last gradient to the new parameters.
    finish_s: float
    #: From the new parameters to their arrival at the last host.
    publish_s: float
    #: From the first experience to the lease.
    lease_s: float
    #: Arrival of each worker's experience after the round's start.
    offset_s: tuple[float, ...]


def remaining_s(
    pace: Pace,
    *,
    n_done: int,
    since_round_s: float,
    awaited: Sequence[int] = (),
    since_first_s: float = 0.0,
    granted: bool = True,
    since_made_s: float | None = None,
) -> float:
    """Return the expected seconds until the parameters arrive.

    ``max(last arrival + c - t, (n - i) c) + finish + publish``, and what is expected of the wait for a lease before the
    grant, with medians for what is to come.

    Parameters
    ----------
    pace
        Medians of former rounds.
    n_done
        Gradients done, i.
    since_round_s
        Seconds since the round's start, t.
    awaited
        Workers whose experience has not arrived.
    since_first_s
        Seconds since the first experience arrived.
    granted
        Whether the lease is here.
    since_made_s
        Seconds since the new parameters were made; None: not yet.

    Examples
    --------
    >>> pace = Pace(gradient_s=0.5, n_gradients=2, finish_s=0.25, publish_s=0.25, lease_s=1.0, offset_s=(2, 3))
    >>> remaining_s(pace, n_done=1, since_round_s=3.0)
    1.0
    >>> remaining_s(pace, n_done=0, since_round_s=2.0, awaited=(1,), granted=False)
    3.0
    >>> remaining_s(pace, n_done=2, since_round_s=5.0, since_made_s=0.1)
    0.15
    """
    if since_made_s is not None:
        return max(0.0, pace.publish_s - since_made_s)
    work_s = max(0, pace.n_gradients - n_done) * pace.gradient_s
    if awaited:
        last_s = max(0.0, max(pace.offset_s[i] for i in awaited) - since_round_s)
        work_s = max(work_s, last_s + pace.gradient_s)
    lease_s = 0.0 if granted else max(0.0, pace.lease_s - since_first_s)
    return lease_s + work_s + pace.finish_s + pace.publish_s

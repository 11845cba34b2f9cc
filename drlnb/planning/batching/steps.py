"""Compute in closed form what one split takes, where the speeds of its members are known.

Simulators play splits by it, and planners are compared by what they would have taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drlnb.planning.batching.gather import CUT_WAIT_S, Gathering, chunk_s
from drlnb.planning.batching.split import Member

__all__ = ["Step", "play_split"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of one split; sequences stand beside its members, times count from its beginning."""

    #: Seconds until each one would have done its share; 0.0 without one.
    finish_s: tuple[float, ...]
    #: Seconds until each one can begin another share.
    free_s: tuple[float, ...]
    #: Units of each one that were used.
    used: tuple[int, ...]
    #: Those that were waited for, by their places, in the order of their answers.
    first: tuple[int, ...]
    #: Seconds until these had answered, and until the others' time was over (no more than all needed).
    reached_s: float
    closed_s: float
    #: Seconds of the split, with communication.
    duration_s: float
    #: Seconds that a member with a share, once it was free, waited for the close, on average.
    wait_s: float
    n_used: int
    n_lost: int


def play_split(
    sizes: Sequence[int],
    members: Sequence[Member],
    *,
    gathering: Gathering | None = None,
    planned_hz: Sequence[float] | None = None,
    predicted_s: float | None = None,
    comm_s: float = 0.0,
) -> Step:
    """Return what a split takes.

    Parameters
    ----------
    sizes
        Units of each member, at least one of them above 0.
    members
        Their true speeds and overheads; bounds are not looked at.
    gathering
        Whom the split waits for; None: all.
    planned_hz
        Speeds by which chunks were sized; None: the true ones.
    predicted_s
        Seconds that the split was planned to take, without communication; None: until the last one is done.
    comm_s
        Seconds of communication after the close.

    Examples
    --------
    >>> pair = [Member(id="a", speed_hz=10), Member(id="b", speed_hz=1)]
    >>> step = play_split([10, 10], pair, gathering=Gathering(quorum=0.5, late="drop"))
    >>> step.first, step.used, round(step.duration_s, 2)
    ((0,), (10, 0), 1.15)
    """
    gathering = gathering or Gathering()
    finish_s = tuple([
        each.overhead_s + n / each.speed_hz if n else 0.0 for n, each in zip(sizes, members, strict=True)
    ])
    shared = sorted([i for i, n in enumerate(sizes) if n], key=lambda i: (finish_s[i], i))
    last_s = finish_s[shared[-1]]
    planned_s = last_s if predicted_s is None else predicted_s
    first = tuple(shared[: gathering.needed(len(shared))])
    reached_s = finish_s[first[-1]]
    deadline_s = min(last_s, reached_s + gathering.grace_s(reached_s))
    used, free_s = list(sizes), list(finish_s)
    closed_s = deadline_s
    for i in shared[len(first) :]:
        if finish_s[i] <= deadline_s and gathering.steal:
            continue
        if finish_s[i] <= deadline_s:
            used[i] = sizes[i] if gathering.is_fresh(finish_s[i], planned_s) else 0
        elif gathering.late == "drop":
            used[i] = 0
        else:
            hz = members[i].speed_hz if planned_hz is None else planned_hz[i]
            used[i], free_s[i] = _cut(sizes[i], members[i], chunk=hz * chunk_s(planned_s), cut_s=deadline_s)
            if gathering.steal:
                closed_s = max(closed_s, free_s[i])
                continue
            if free_s[i] > deadline_s + CUT_WAIT_S or not gathering.is_fresh(free_s[i], planned_s):
                used[i] = 0
            closed_s = max(closed_s, min(free_s[i], deadline_s + CUT_WAIT_S))
    waits_s = [max(0.0, closed_s - free_s[i]) for i in shared]
    return Step(
        finish_s=finish_s,
        free_s=tuple(free_s),
        used=tuple(used),
        first=first,
        reached_s=reached_s,
        closed_s=closed_s,
        duration_s=closed_s + comm_s,
        wait_s=math.fsum(waits_s) / len(waits_s),
        n_used=sum(used),
        n_lost=sum(sizes) - sum(used),
    )


def _cut(n: int, member: Member, *, chunk: float, cut_s: float) -> tuple[int, float]:
    """Return the units that a member has done at the first end of a chunk from an instant on, and when that is."""
    size = max(1, int(chunk))
    begun = max(0.0, (cut_s - member.overhead_s) * member.speed_hz)
    done = min(n, size * math.ceil(begun / size))
    return done, max(cut_s, member.overhead_s + done / member.speed_hz)

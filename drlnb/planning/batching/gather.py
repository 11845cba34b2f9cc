"""Decide whom a split waits for: a number of members, and a time after which late ones are cut or dropped.

The split has what it needs once so many members have answered; the others are its targets.  From that instant on they
have a short time, the grace, to answer, too; then they are cut, so that they return what they have done, or dropped.
"""

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["CUT_WAIT_S", "Gathering", "Late", "chunk_s", "quorum_problem"]

#: What becomes of a member that is late.
Late = Literal["cut", "drop"]

#: The grace, as a fraction of the time until so many had answered as are needed (ours).
_GRACE_FRAC = 0.15
#: Seconds that a split waits for what members return that were cut.
CUT_WAIT_S = 0.02
#: A share is computed in chunks, since it is cut between two of them: no shorter than this many seconds, and no more
#: than so many in a share of the planned length.
_CHUNK_S, _CHUNKS = 0.02, 16
#: A late answer is too old after so many times the planned length, where no other age is set (ours).
_AGES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Whom a split waits for, and for how long."""

    #: Members to wait for: a fraction of those that have a share, or as an int a count of at least 2; 1.0: all.
    quorum: float = 1.0
    #: Seconds that the others have after these; None: 15 % of the time until then.
    deadline_s: float | None = None
    #: Seconds from which on a late answer is too old, by its member's clock; None: twice the planned length.
    max_age_s: float | None = None
    late: Late = "cut"

    def needed(self, n_live: int) -> int:
        """Return how many of the live members that have a share are waited for."""
        if isinstance(self.quorum, int):
            return min(self.quorum, n_live)
        # Rounded up, but not because 0.7 x 10 is a little more than 7 in floats.
        return max(1, math.ceil(self.quorum * n_live - 1e-9)) if n_live else 0

    def grace_s(self, reached_s: float) -> float:
        """Return the seconds that targets have, counted from the answer that made up the number.

        Parameters
        ----------
        reached_s
            Seconds from the beginning of the split to that answer.
        """
        return _GRACE_FRAC * reached_s if self.deadline_s is None else self.deadline_s

    def is_fresh(self, age_s: float, predicted_s: float) -> bool:
        """Return whether a late answer may be used: strictly younger than the threshold."""
        return age_s < (_AGES * predicted_s if self.max_age_s is None else self.max_age_s)


def chunk_s(predicted_s: float) -> float:
    """Return the seconds of a chunk of a share, at the planned speed, in a split of a planned length."""
    return max(_CHUNK_S, predicted_s / _CHUNKS)


def quorum_problem(quorum: object, n_members: int) -> str:
    """Return why that many of some members cannot be waited for; empty if they can.

    Examples
    --------
    >>> quorum_problem(0.75, 4), quorum_problem(3, 4)
    ('', '')
    >>> quorum_problem(1, 4)
    'quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 4, got 1'
    """
    is_count = isinstance(quorum, int) and not isinstance(quorum, bool)
    if is_count and (2 <= quorum <= n_members or quorum == n_members == 1):  # type: ignore[operator]  # it is an int
        return ""
    if isinstance(quorum, float) and 0 < quorum <= 1:
        return ""
    count = f", or a count from 2 to {n_members}" if n_members > 1 else ""
    return f"quorum must be a fraction above 0 and up to 1.0 (all){count}, got {quorum!r}"

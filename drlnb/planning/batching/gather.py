"""Decide whom a split waits for: a number of members, and a time after which late ones are cut or dropped.

The split has what it needs once so many members have answered; the others are its targets.  From that instant on they
have a short time, the grace, to answer, too; then they are cut, so that they return what they have done, or dropped.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, TypeVar

from drlnb.planning.codec import TRANSIENT
from drlnb.records.base import Facts
from drlnb.records.effect import NEXT_STEP
from drlnb.records.settings import SECONDS, Declared, Kind, choice, fitting, optional, setting

__all__ = ["CUT_WAIT_S", "Gather", "Gathering", "Late", "Part", "chunk_s", "idle_problems", "quorum_problem"]

T = TypeVar("T")

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


#: More members than any split has.
_MANY = 10**6


def _own(default: T, kind: Kind) -> T:
    """Declare a setting that is each task's own."""
    return setting(default, kind, owner="task", counts=NEXT_STEP, unfelt="no preview plays it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering(Declared):
    """Whom a split waits for, and for how long: the settings of a task's steps that several slots share."""

    ROOM: ClassVar[str] = "batching"

    #: Members to wait for: a fraction of those that have a share, or as an int a count of at least 2; 1.0: all.
    quorum: float = _own(
        1.0,
        fitting(
            "a fraction above 0 and up to 1.0 (all), or a count from 2 on",
            lambda value: not quorum_problem(value, _MANY),
        ),
    )
    #: Seconds that the others have after these; None: 15 % of the time until then.
    deadline_s: float | None = _own(None, optional(SECONDS))
    #: Seconds from which on a late answer is too old, by its member's clock; None: twice the planned length.
    max_age_s: float | None = _own(None, optional(SECONDS))
    late: str = _own("cut", choice("cut", "drop"))

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


def idle_problems(given: Facts, quorum: float, n_members: int = _MANY) -> list[str]:
    """Return which settings of those that come late would have no effect, since all of some members are waited for.

    Parameters
    ----------
    given
        Name of a setting of :class:`Gathering` -> what it shall be; a default asks for nothing.
    quorum
        The one that is, or will be, in force; a good one.
    n_members
        How many there can be, where that is known.

    Examples
    --------
    >>> idle_problems({"late": "drop", "max_age_s": None}, 0.75, 2)
    ['late has no effect: quorum = 0.75 waits for all 2 learners; set it so that it waits for fewer']
    >>> idle_problems({"late": "drop"}, 0.75), idle_problems({"deadline_s": 0.1}, 1.0)
    ([], ['deadline_s has no effect: quorum = 1.0 waits for all learners; set it so that it waits for fewer'])
    """
    if Gathering(quorum=quorum).needed(n_members) < n_members:
        return []
    who = "all learners" if n_members == _MANY else f"all {n_members} learners"
    return [
        f"{name} has no effect: quorum = {quorum} waits for {who}; set it so that it waits for fewer"
        for name, declared in Gathering.declared().items()
        if name != "quorum" and given.get(name, declared.default) != declared.default
    ]


@dataclass(frozen=True, slots=True)
class Part:
    """Units in a row, from `first` on, that one member computes, or has computed."""

    member: str
    first: int
    n: int


@dataclass(slots=True, kw_only=True)
class Gather:
    """The open split, and who still computes for one that is over."""

    gathering: Gathering = field(metadata=TRANSIENT)
    #: Number of the split, and its units; 0 before the first one.
    split: int = 0
    n_units: int = 0
    predicted_s: float = 0.0
    began_t: float = 0.0
    #: Member -> the share that it has not answered yet; of this split, and of those before.
    open: dict[str, Part] = field(default_factory=dict)
    late: dict[str, Part] = field(default_factory=dict)
    #: Who had a share of this split and is not lost: answered, or to answer.
    shared: list[str] = field(default_factory=list)
    #: Who answered first, as many as are needed, in the order of their answers.
    first: list[str] = field(default_factory=list)
    #: What is used, in the order of the answers.
    parts: list[Part] = field(default_factory=list)
    #: Reason -> units that are not used.
    lost: dict[str, int] = field(default_factory=dict)
    #: Units whose member was lost, for others to compute.
    left: list[Part] = field(default_factory=list)
    #: Time at which targets are late, once as many have answered as are needed; that of the last cut answer.
    deadline_t: float | None = None
    cut_t: float | None = None
    #: Why the split is over: ``all``, ``deadline``, ``cut``, ``nobody``; empty while it is open.
    cause: str = "none yet"

    @property
    def needed(self) -> int:
        """Members that are waited for, of those that are not lost."""
        return self.gathering.needed(len(self.shared))

    @property
    def targets(self) -> set[str]:
        """Members of the split that are not among the first ones."""
        return set(self.shared) - set(self.first)

    @property
    def is_whole(self) -> bool:
        """Whether all are waited for: then a lost member's units are computed by others, and none is left out."""
        return self.gathering.needed(_MANY) == _MANY

    @property
    def n_used(self) -> int:
        """Units that are used so far."""
        return sum(part.n for part in self.parts)

    def begin(self, sizes: Mapping[str, int], predicted_s: float, t: float) -> tuple[Part, ...]:
        """Begin a split; return the shares, of the members that are free.

        Raises
        ------
        ValueError
            If a split is open, a member has not answered a share of one before, or nobody has a share.
        """
        if not self.cause:
            raise ValueError(f"split {self.split} is open")
        if busy := [name for name, n in sizes.items() if n and name in self.late]:
            raise ValueError(f"{busy[0]} has not answered its last share")
        shares, at = [], 0
        for name, n in sizes.items():
            if n:
                shares.append(Part(name, at, n))
                at += n
        if not shares:
            raise ValueError("nobody has a share")
        self.split, self.n_units, self.predicted_s, self.began_t = self.split + 1, at, predicted_s, t
        self.open = {part.member: part for part in shares}
        self.shared, self.first, self.parts, self.lost, self.left = list(self.open), [], [], {}, []
        self.deadline_t = self.cut_t = None
        self.cause = ""
        return tuple(shares)

    def answered(self, split: int, member: str, first: int, n_done: int, age_s: float, t: float) -> bool:
        """Take an answer in; return whether its units are used.

        An answer that comes twice changes nothing, one to a split that is over only says that its member is free.
        """
        if split != self.split or self.cause:
            if (part := self.late.get(member)) and part.first == first:
                del self.late[member]
            return False
        part = self.open.get(member)
        if part is None or part.first != first:
            return False
        del self.open[member]
        refused = self._refused(age_s, t)
        n_used = 0 if refused else n_done
        if n_used:
            self.parts.append(Part(member, first, n_used))
        if n_used < part.n and self.is_whole:
            self.left.append(Part(member, first + n_used, part.n - n_used))
        else:
            self._lose(refused or "cut", part.n - n_used)
        if self.deadline_t is None:
            self.first.append(member)
        self._look(t)
        return not refused

    def _refused(self, age_s: float, t: float) -> str:
        """Return why an answer is not used; empty if it is: the first ones are, whatever their age."""
        if self.deadline_t is None:
            return ""
        if t > self.deadline_t + CUT_WAIT_S * (self.gathering.late == "cut"):
            return "late"
        return "" if self.gathering.is_fresh(age_s, self.predicted_s) else "too old"

    def member_lost(self, member: str, t: float) -> None:
        """Do without a member: what it has answered counts, what it has not is left to others, or lost."""
        self.late.pop(member, None)
        part = self.open.pop(member, None)
        if part is None:
            return
        self.shared.remove(member)
        if self.is_whole:
            self.left.append(part)
        else:
            self._lose("member lost", part.n)
        self._look(t)

    def hand_on(self, free: str) -> Part | None:
        """Give units that were left to a member that has no share now; None if there are none, or it is busy."""
        if self.cause or not self.left or free in self.open or free in self.late:
            return None
        part = self.left.pop(0)
        part = self.open[free] = Part(free, part.first, part.n)
        if free not in self.shared:
            self.shared.append(free)
        else:
            self.first.remove(free)  # it is waited for once more
        return part

    def nobody_left(self, t: float) -> None:
        """Give the split up: its members are gone, and nobody takes their place."""
        if not self.cause:
            self.parts, self.lost, self.left = [], {"nobody left": self.n_units}, []
            self._close("nobody")

    def deadline_passed(self, split: int, t: float) -> tuple[str, ...]:
        """Close the split, or return whom to cut; a deadline of another split, or an early one, changes nothing."""
        if split != self.split or self.cause or self.deadline_t is None or t < (self.cut_t or self.deadline_t):
            return ()
        if self.gathering.late == "cut" and self.cut_t is None:
            self.cut_t = self.deadline_t + CUT_WAIT_S
            return tuple(self.open)
        self._close("deadline" if self.cut_t is None else "cut")
        return ()

    def _look(self, t: float) -> None:
        """Set the deadline once enough have answered, close the split once all have."""
        if not self.open and not self.left and self.shared:
            self._close("all")
        elif self.deadline_t is None and not self.is_whole and 0 < self.needed <= len(self.first):
            self.deadline_t = t + self.gathering.grace_s(t - self.began_t)

    def _close(self, cause: str) -> None:
        for part in self.open.values():
            if cause != "nobody":
                self._lose("late", part.n)
        self.late, self.open = {**self.late, **self.open}, {}
        self.cause = cause

    def _lose(self, reason: str, n: int) -> None:
        if n:
            self.lost[reason] = self.lost.get(reason, 0) + n

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        ranges = sorted((part.first, part.first + part.n) for part in self.parts)
        waiting = sum(part.n for part in [*self.open.values(), *self.left])
        yield all(a[1] <= b[0] for a, b in pairwise(ranges)), "each unit is used once"
        yield self.n_used + sum(self.lost.values()) + waiting == self.n_units, "units are used, lost or waited for"
        yield not self.cause or not self.open, "who answers a split that is over is late"
        yield bool(self.cause) or bool(self.open or self.left or not self.shared), "a split is open while somebody is"
        yield self.open.keys().isdisjoint(self.late), "a busy member gets nothing"
        yield self.deadline_t is None or len(self.first) >= self.needed > 0, "no deadline before enough have answered"
        yield self.cut_t is None or self.deadline_t is not None, "nobody is cut before the deadline"
        yield self.cause != "all" or not self.is_whole or not self.lost, "where all are waited for no unit is lost"

"""Decide whom a split waits for: a number of members, and a time after which late ones are cut or dropped.

The split has what it needs once so many members have answered; the others are its targets.  From that instant on they
have a short time, the grace, to answer, too; then they are cut, so that they return what they have done, or dropped.
Where all are waited for, that may begin with the first answer: what members that are cut have not done is left, for all
to share anew, and no unit is lost ("steal").
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, TypeVar

from drlnb.records.effect import NEXT_STEP
from drlnb.records.settings import FLAG, NOT_NEGATIVE, Declared, Kind, choice, fitting, optional, setting

__all__ = [
    "CUT_WAIT_S",
    "MANY",
    "Gather",
    "Gathering",
    "Late",
    "Part",
    "chunk_s",
    "gathering_problem",
    "quorum_problem",
]

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
MANY = 10**6


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


def _own(default: T, kind: Kind) -> T:
    """Declare a setting that is each task's own."""
    return setting(default, kind, owner="task", counts=NEXT_STEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering(Declared):
    """Whom a split waits for, and for how long: the settings of a task's steps that several slots share."""

    ROOM: ClassVar[str] = "batching"

    #: Members to wait for: a fraction of those that have a share, or as an int a count of at least 2; 1.0: all.
    quorum: float | int = _own(
        1.0,
        fitting(
            "a fraction above 0 and up to 1.0 (all), or a count from 2 on",
            lambda value: not quorum_problem(value, MANY),
        ),
    )
    #: Seconds that the others have after these; None: 15 % of the time until then.
    deadline_s: float | None = _own(None, optional(NOT_NEGATIVE))
    #: Seconds from which on a late answer is too old, by its member's clock; None: twice the planned length.
    max_age_s: float | None = _own(None, optional(NOT_NEGATIVE))
    late: str = _own("cut", choice("cut", "drop"))
    #: Where all are waited for: what is not done a little after the first answer is shared anew.
    steal: bool = _own(False, FLAG)

    def needed(self, n_live: int) -> int:
        """Return how many of the live members that have a share must answer before the others' time runs."""
        if self.steal:
            return min(1, n_live)
        if isinstance(self.quorum, int):
            return min(self.quorum, n_live)
        # Rounded up, but not because 0.7 x 10 is a little more than 7 in floats.
        return max(1, math.ceil(self.quorum * n_live - 1e-9)) if n_live else 0

    @property
    def is_whole(self) -> bool:
        """Whether all are waited for, however many they are."""
        return self.steal or (not isinstance(self.quorum, int) and self.needed(MANY) == MANY)

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
        return age_s < self.oldest_s(predicted_s)

    def oldest_s(self, predicted_s: float) -> float:
        """Return the age from which on a late answer is too old."""
        return _AGES * (predicted_s or math.inf) if self.max_age_s is None else self.max_age_s


#: The default: all are waited for.
_ALL = Gathering()


def chunk_s(predicted_s: float) -> float:
    """Return the seconds of a chunk of a share, at the planned speed, in a split of a planned length."""
    return max(_CHUNK_S, predicted_s / _CHUNKS)


def gathering_problem(gathering: Gathering, n_members: int) -> str:
    """Return why the steps of some members cannot be gathered so; empty if they can.

    Examples
    --------
    >>> gathering_problem(Gathering(quorum=0.5, late="drop"), 2)
    ''
    >>> gathering_problem(Gathering(late="drop"), 2)
    'late has no effect while quorum is 1.0: all are waited for'
    >>> gathering_problem(Gathering(quorum=0.75, late="drop"), 2)
    'late has no effect while quorum is 0.75: all 2 are waited for'
    """
    if n_members == 1 and gathering != _ALL:
        return "nobody is waited for: one learner computes each step, or the shares of a round stay whole"
    if problem := quorum_problem(gathering.quorum, n_members):
        return problem
    if gathering.steal:
        others = [name for name in ("quorum", "max_age_s", "late") if getattr(gathering, name) != getattr(_ALL, name)]
        return f"steal leaves nothing out: {others[0]} must be {getattr(_ALL, others[0])} beside it" if others else ""
    without = [name for name in ("deadline_s", "max_age_s", "late") if getattr(gathering, name) != getattr(_ALL, name)]
    if without and gathering.needed(n_members) == n_members:
        who = "all" if gathering.is_whole else f"all {n_members}"
        return f"{without[0]} has no effect while quorum is {gathering.quorum}: {who} are waited for"
    return ""


@dataclass(frozen=True, slots=True)
class Part:
    """Units in a row, from `first` on, that one member computes, or has computed."""

    member: str
    first: int
    n: int


@dataclass(slots=True, kw_only=True)
class Gather:
    """The open split, and who still computes for one that is over."""

    gathering: Gathering = field(default_factory=Gathering)
    #: Number of the split, and its units; 0 before the first one.
    split: int = 0
    n_units: int = 0
    #: Seconds that it was planned to take; 0.0: not known.
    predicted_s: float = 0.0
    began_t: float = 0.0
    #: The member that makes the step of what the others send: it is cut where they are dropped, and waited for.
    lead: str = ""
    #: Member -> the share that it has not answered yet; of this split, and of those before.
    open: dict[str, Part] = field(default_factory=dict)
    late: dict[str, Part] = field(default_factory=dict)
    #: Who answered, and who did so first, as many as are needed, in the order of their answers.
    answers: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    #: What is used, in the order of the answers.
    parts: list[Part] = field(default_factory=list)
    #: What members that were cut have not done, for others to do.
    left: list[Part] = field(default_factory=list)
    #: Reason -> units that are not used.
    lost: dict[str, int] = field(default_factory=dict)
    #: Time at which targets are late, once as many have answered as are needed.
    deadline_t: float | None = None
    #: Some have been cut: the split waits a little for what they return.
    is_cut: bool = False
    #: Why the split is over: ``all``, ``deadline``, ``cut``, ``void``; empty while it is open.
    cause: str = "none yet"

    @property
    def needed(self) -> int:
        """Members that are waited for, of those that have a share."""
        return self.gathering.needed(len(self.open) + len(self.answers))

    @property
    def targets(self) -> tuple[str, ...]:
        """Members of the split that are not among the first ones, in the order of their shares."""
        return (*(name for name in self.answers if name not in self.first), *self.open)

    @property
    def n_used(self) -> int:
        """Units that are used so far."""
        return sum(part.n for part in self.parts)

    def begin(self, sizes: Mapping[str, int], predicted_s: float, t: float, lead: str = "") -> tuple[Part, ...]:
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
        self.lead = lead
        self.open = {part.member: part for part in shares}
        self.answers, self.first, self.parts, self.left, self.lost = [], [], [], [], {}
        self.deadline_t, self.is_cut = None, False
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
        self.answers.append(member)
        refused = self._refused(member, age_s, t)
        n_used = 0 if refused else n_done
        if n_used:
            self.parts.append(Part(member, first, n_used))
        if self.gathering.steal and n_used < part.n:
            self.left.append(Part(member, first + n_used, part.n - n_used))
        else:
            self._lose(refused or "cut", part.n - n_used)
        if self.deadline_t is None:
            self.first.append(member)
        self._look(t)
        return n_used > 0

    def _refused(self, member: str, age_s: float, t: float) -> str:
        """Return why an answer is not used; empty if it is: the first ones are, whatever their age."""
        if self.deadline_t is None or self.gathering.steal:
            return ""
        if t > self.deadline_t + CUT_WAIT_S * (self.gathering.late == "cut" or member == self.lead):
            return "late"
        return "" if self.gathering.is_fresh(age_s, self.predicted_s) else "too old"

    def deadline_passed(self, split: int, *, cut: bool = False) -> tuple[str, ...]:
        """Close the split, or return whom to cut.

        A deadline of another split changes nothing, nor does one that comes twice.

        Parameters
        ----------
        split
            Whose deadline it is.
        cut
            Whether it is that of those who were cut.
        """
        if split != self.split or self.cause or self.deadline_t is None or cut != self.is_cut:
            return ()
        if cut and self.gathering.steal:
            return ()  # they stop at their next chunk, and are waited for
        late = tuple(name for name in self.open if self.gathering.late == "cut" or name == self.lead)
        if late and not cut:
            self.is_cut = True
            return late
        self._close("cut" if cut else "deadline")
        return ()

    def void(self) -> None:
        """Give up what is open: its members are gone, or their work counts no more."""
        self.open, self.late, self.parts, self.lost, self.cause = {}, {}, [], {}, "void"
        self.left = []

    def _look(self, t: float) -> None:
        """Close the split once all have answered, set the deadline once as many have as are needed."""
        if not self.open:
            self._close("all")
        elif self.deadline_t is None and self.needed <= len(self.first):
            self.deadline_t = t + self.gathering.grace_s(t - self.began_t)

    def _close(self, cause: str) -> None:
        for part in self.open.values():
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
        whole = self.n_used + sum(self.lost.values()) + waiting == self.n_units
        yield all(a[1] <= b[0] for a, b in pairwise(ranges)), "each unit is used once"
        yield self.cause == "void" or whole, "units are used, lost or waited for"
        yield not self.cause or not self.open, "who answers a split that is over is late"
        yield bool(self.cause) or bool(self.open), "a split is open while somebody is"
        yield self.open.keys().isdisjoint(self.late), "a busy member gets nothing"
        yield self.deadline_t is None or len(self.first) >= self.needed > 0, "no deadline before enough have answered"
        yield not self.is_cut or self.deadline_t is not None, "nobody is cut before the deadline"
        yield (
            self.cause != "all" or not self.gathering.is_whole or not self.lost,
            "where all are waited for none is lost",
        )

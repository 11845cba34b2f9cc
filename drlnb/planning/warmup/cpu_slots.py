"""Queue the collectors of a node for its CPU slots: first come, first served.

A collector holds a CPU slot from its wake, or from the start of its process for a round, until its experience is sent
(modes ``park`` and ``respawn``), or on from there (``keep``).  A holder acts, or it is idle in one of two ways:

* *ahead*: it has its slot before the parameters of its round are here.  Whoever can act takes an idle slot like this
  when none is free, and its holder is in the queue again, at its old place.  Else it would wait for parameters that
  others of its task must act for first: with one slot, for ever.
* *kept*: it goes on holding after it has sent.  If all slots are kept and somebody who can act waits, the latest
  keeper gives way; so at least one slot changes hands, however many want to keep theirs.

So who can act waits only while others act or keep, and is served in the order of asking.
"""

from collections.abc import Callable
from dataclasses import dataclass

from drlnb.records.settings import fitting, is_whole

__all__ = ["AUTO", "CPU_SLOTS", "CPU_SLOTS_KEY", "CpuSlots", "Place", "Who", "cpu_share"]

#: A collector: (run, task, number).
Who = tuple[str, str, int]

#: Setting of the pool: CPU slots of each node.
CPU_SLOTS_KEY = "agent.collector_slots"
#: As many as :func:`cpu_share` says.
AUTO = "auto"
#: More would not be a limit any more.
_MOST = 1024

#: Its values.
CPU_SLOTS = fitting(
    f"{AUTO!r} or a whole number in 1..{_MOST}", lambda value: value == AUTO or is_whole(value, 1, _MOST)
)

_WAITS, _AHEAD, _ACTS, _KEPT = "waits", "ahead", "acts", "kept"


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """What one collector has: a place in the queue, or a slot."""

    who: Who
    attempt: int
    #: Round that it is for.
    round: int
    #: Its number in the order of asking; a slot that is taken back leaves it.
    number: int
    #: Its parameters are here (or its process is to be started now).
    can_act: bool
    #: ``waits``, or how it holds a slot: ``acts``, ``ahead``, ``kept``.
    state: str = _WAITS

    @property
    def holds(self) -> bool:
        """Whether it has a slot."""
        return self.state != _WAITS

    @property
    def acts(self) -> bool:
        """Whether it has a slot and uses it."""
        return self.state == _ACTS


class CpuSlots:
    """The CPU slots of one node.

    Parameters
    ----------
    n_slots
        How many, at least 1.

    Raises
    ------
    ValueError
        If `n_slots` is not such a number.

    Examples
    --------
    >>> slots = CpuSlots(1)
    >>> first = slots.claim(("r", "a", 0), attempt=1, round=7)
    >>> second = slots.claim(("r", "b", 0), attempt=1, round=3)
    >>> first.state, second.state
    ('acts', 'waits')
    >>> slots.sent(first)
    False
    >>> second.state
    'acts'
    """

    def __init__(self, n_slots: int) -> None:
        self.places: dict[Who, Place] = {}
        self._n_slots = _checked(n_slots)
        self._next = 0
        #: Collector -> attempt and round that it has sent last.
        self._sent: dict[Who, tuple[int, int]] = {}
        self._lent: list[Place] = []

    @property
    def n_slots(self) -> int:
        """Slots that are lent."""
        return self._n_slots

    @property
    def n_held(self) -> int:
        """Slots that somebody has; above `n_slots` only until those who act have sent, after a cut."""
        return sum(place.holds for place in self.places.values())

    @property
    def n_waiting(self) -> int:
        """Collectors in the queue."""
        return len(self.places) - self.n_held

    def take_lent(self) -> tuple[Place, ...]:
        """Return who was given a slot since the last call, in order; some may have lost it meanwhile."""
        lent, self._lent = tuple(self._lent), []
        return lent

    def claim(self, who: Who, *, attempt: int, round: int, acts: bool = True) -> Place | None:
        """Ask for a slot; the same again changes nothing.

        Parameters
        ----------
        who
            The collector.
        attempt
            Of its task; a higher one replaces what a lower one had.
        round
            Round that it is for.
        acts
            Whether it can act as soon as it has the slot; else it asks ahead of its parameters.

        Returns
        -------
        Place or None
            Where it stands now.  None if it is too late: a later attempt has asked, or it has sent that round.
        """
        place = self.places.get(who)
        if place is not None and attempt != place.attempt:
            if attempt < place.attempt:
                return None
            self._remove(place)
            place = None
        if place is None:
            if not acts and (attempt, round) <= self._sent.get(who, (0, 0)):
                return None
            place = self.places[who] = Place(who=who, attempt=attempt, round=round, number=self._next, can_act=acts)
            self._next += 1
        elif acts:
            place.round, place.can_act = max(round, place.round), True
            if place.holds:
                place.state = _ACTS
        self._lend()
        return place

    def rest(self, place: Place) -> None:
        """Hold a slot ahead: the process is up, its parameters are not here yet."""
        if self._is_there(place) and place.acts:
            place.state, place.can_act = _AHEAD, False
            self._lend()

    def sent(self, place: Place, *, keeps: bool = False) -> bool:
        """Free the slot of a collector that has sent, unless it `keeps` it; return whether it does."""
        if not self._is_there(place) or not place.acts:
            return False
        self._sent[place.who] = (place.attempt, place.round)
        place.can_act = False
        if keeps and not (self._n_kept >= self._n_slots - 1 and self._somebody_can_act):
            place.state = _KEPT
        else:
            self._remove(place)
        self._lend()
        return self._is_there(place)

    def leave_idle(self, who: Who) -> None:
        """Remove a collector's place or idle slot; one that acts keeps it."""
        place = self.places.get(who)
        if place is not None and not place.acts and not (place.state == _WAITS and place.can_act):
            self._remove(place)
            self._lend()

    def leave(self, who: Who) -> None:
        """Remove whatever a collector has: its process has ended."""
        self._sent.pop(who, None)
        if (place := self.places.get(who)) is not None:
            self._remove(place)
            self._lend()

    def leave_all(self, meant: Callable[[Who, int], bool]) -> tuple[Who, ...]:
        """Remove whatever those have for whose (name, attempt) `meant` holds; return them."""
        gone = tuple(who for who, place in self.places.items() if meant(who, place.attempt))
        for who in gone:
            self.leave(who)
        return gone

    def resize(self, n_slots: int) -> None:
        """Lend another number; who acts goes on, idle slots above it are taken back now.

        Raises
        ------
        ValueError
            If `n_slots` is not a whole number >= 1.
        """
        self._n_slots = _checked(n_slots)
        self._lend()

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        acting = sum(place.acts for place in self.places.values())
        _assert(self.n_held <= max(self._n_slots, acting), f"{self.n_held} of {self._n_slots} slots are held")
        _assert(all(place.can_act for place in self.places.values() if place.acts), "who acts can act")
        ahead = any(place.state == _AHEAD for place in self.places.values())
        stuck = self.n_held < self._n_slots or ahead or self._n_kept >= self._n_slots
        _assert(not (stuck and self._somebody_can_act), "somebody who could act waits beside a slot that it may have")
        _assert(not (self.n_held < self._n_slots and self.n_waiting), "somebody waits beside a free slot")

    # ------------------------------------------------------------------ rules
    @property
    def _n_kept(self) -> int:
        return sum(place.state == _KEPT for place in self.places.values())

    @property
    def _somebody_can_act(self) -> bool:
        return any(place.can_act and not place.holds for place in self.places.values())

    def _is_there(self, place: Place) -> bool:
        return self.places.get(place.who) is place

    def _remove(self, place: Place) -> None:
        del self.places[place.who]
        place.state = _WAITS

    def _lend(self) -> None:
        """Give out what there is: first to those who can act, then ahead; each in the order of asking."""
        while self.n_held > self._n_slots and self._take_back(keepers=True):
            pass  # there were more slots once
        waiting = sorted((p for p in self.places.values() if not p.holds), key=lambda p: p.number)
        for place in waiting:
            if place.can_act and self._make_room():
                place.state = _ACTS
                self._lent.append(place)
        for place in waiting:
            if not place.holds and self.n_held < self._n_slots:
                place.state = _AHEAD
                self._lent.append(place)

    def _make_room(self) -> bool:
        """Return whether a slot is free for somebody who can act; an idle one is taken back for it."""
        while self.n_held >= self._n_slots:
            if not self._take_back(keepers=self._n_kept >= self._n_slots):
                return False
        return True

    def _take_back(self, *, keepers: bool) -> bool:
        """Free the latest idle slot, of those who keep one only if `keepers`; return whether there is one."""
        ahead = [place for place in self.places.values() if place.state == _AHEAD]
        kept = [place for place in self.places.values() if place.state == _KEPT]
        if ahead:
            max(ahead, key=lambda p: p.number).state = _WAITS
        elif kept and keepers:
            self._remove(max(kept, key=lambda p: p.number))
        else:
            return False
        return True


def cpu_share(n_cpus: int, n_agents: int) -> int:
    """Return how many CPU slots one of a host's node agents lends: ``max(1, n_cpus // n_agents)``.

    Examples
    --------
    >>> cpu_share(8, 2), cpu_share(2, 3)
    (4, 1)
    """
    return max(1, n_cpus // max(1, n_agents))


def _checked(n_slots: int) -> int:
    if not is_whole(n_slots, 1, _MOST):
        raise ValueError(f"n_slots must be a whole number in 1..{_MOST}, got {n_slots!r}")
    return n_slots


def _assert(holds: bool, invariant: str) -> None:
    if not holds:
        raise AssertionError(invariant)

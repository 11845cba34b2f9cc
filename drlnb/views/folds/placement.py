"""Fold the plans of placement: which slots each task's gang had, why it got others, and what failures cost it."""

import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from drlnb.records.columns import leasing
from drlnb.records.columns import placement as words
from drlnb.records.common import SettingChanged
from drlnb.records.ids import Fence
from drlnb.views.folds.entries import folds
from drlnb.views.folds.grow import Spans, begin_span, end_span

__all__ = ["Held", "PlacementFold", "Plan"]

#: Plans, and gangs, that are kept, at most: the newest ones.
_MOST = 1024


class Plan(NamedTuple):
    """A plan with its moment, on the clock of its stream."""

    stream: str
    t: float
    #: What came before it, in words: a failure, a slot that was added, a start.
    cause: str
    of: words.PlacementPlanned


@dataclass(slots=True, kw_only=True)
class Held:
    """A gang's slots from one plan to the next, in seconds on the clock of its stream."""

    stream: str
    task: str
    number: int
    slots: tuple[str, ...]
    start: float
    stop: float = math.nan
    #: Seconds before its end whose work was lost: of the lease that a failure has ended.
    lost_s: float = 0.0
    fate: str = "goes on"


@folds("stream")
class PlacementFold:
    """Plans and gangs of every pool's stream of a run."""

    def __init__(self) -> None:
        self.plans: deque[Plan] = deque(maxlen=_MOST)
        self.gangs: deque[Held] = deque(maxlen=_MOST)
        #: Task -> why it has fewer slots than it wants; until its next plan.
        self.postponed: dict[str, str] = {}
        #: (Stream, task) -> the gang that goes on.
        self._now: dict[tuple[str, str], Held] = {}
        #: Stream -> leases that go on: fence -> (task, slots, since).
        self._leases: dict[str, dict[Fence, tuple[str, tuple[str, ...], float]]] = {}
        #: (Stream, slot) -> when it was lent to nobody, by a user's wish or since executors died on it.
        self.closed: defaultdict[tuple[str, str], Spans] = defaultdict(list)
        self._cause = ""

    def lent(self, stream: str) -> dict[str, str]:
        """Return the task that has a lease of each slot now, by one pool's word."""
        leases = self._leases.get(stream, {}).values()
        return {slot: task for task, slots, _ in leases for slot in slots}

    # -- what comes before a plan
    def _asked(self, stream: str, event: words.PlacementAsked, t: float) -> None:
        self._cause = "asked" if event.attempt == 1 else f"attempt {event.attempt}"

    def _added(self, stream: str, event: leasing.SlotAdded, t: float) -> None:
        self._cause = f"{event.slot} added"

    def _set(self, stream: str, event: SettingChanged, t: float) -> None:
        self._cause = f"{event.key}: {event.value}"
        if event.key == "slot.undrain":
            end_span(self.closed[stream, str(event.value)], t)

    def _closed(self, stream: str, decision: leasing.SlotClosed, t: float) -> None:
        begin_span(self.closed[stream, decision.slot], t)

    def _freed(self, stream: str, decision: leasing.SlotFreed, t: float) -> None:
        end_span(self.closed[stream, decision.slot], t)

    def _failed(self, stream: str, event: leasing.SlotFailed, t: float) -> None:
        self._cause = f"{event.slot} failed: {event.reason}"
        self._break(stream, t, lambda slot: slot == event.slot)

    def _lost(self, stream: str, event: words.NodeLost, t: float) -> None:
        self._cause = f"{event.node} lost: {event.reason}"
        self._break(stream, t, lambda slot: slot.partition("/")[0] == event.node)

    def _break(self, stream: str, t: float, is_gone: Callable[[str], bool]) -> None:
        """End the gangs of a slot that is gone, and what was computed in their leases of it."""
        leases = self._leases.get(stream, {}).values()
        for (of, task), gang in list(self._now.items()):
            if of == stream and any(map(is_gone, gang.slots)):
                mine = [t - since for who, slots, since in leases if who == task and any(map(is_gone, slots))]
                self._end(of, task, t, "failed", max(mine, default=0.0))

    # -- plans
    def _planned(self, stream: str, decision: words.PlacementPlanned, t: float) -> None:
        self.plans.append(Plan(stream, t, self._cause, decision))
        self.postponed.pop(decision.task, None)
        now = self._now.get((stream, decision.task))
        if now is not None and now.slots == decision.slots:
            return
        self._end(stream, decision.task, t, "moved")
        if decision.slots:
            gang = Held(stream=stream, task=decision.task, number=decision.gang_version, slots=decision.slots, start=t)
            self._now[stream, decision.task] = gang
            self.gangs.append(gang)

    def _postponed(self, stream: str, decision: words.PlacementPostponed, t: float) -> None:
        self.postponed[decision.task] = decision.reason

    def _stopped(self, stream: str, event: words.TaskStopped, t: float) -> None:
        self._end(stream, event.task, t, "done" if event.reason == "done" else "stopped")
        self.postponed.pop(event.task, None)

    def _end(self, stream: str, task: str, t: float, fate: str, lost_s: float = 0.0) -> None:
        if gang := self._now.pop((stream, task), None):
            gang.stop, gang.fate, gang.lost_s = t, fate, lost_s

    # -- leases, whose work a failure costs
    def _granted(self, stream: str, lease: leasing.LeaseGranted, t: float) -> None:
        self._leases.setdefault(stream, {})[lease.fence] = (lease.task, lease.slots, t)

    def _returned(self, stream: str, lease: leasing.LeaseReleased | leasing.LeaseExpired, t: float) -> None:
        self._leases.get(stream, {}).pop(lease.fence, None)

"""How full was the pool, event by event?  Waiting requests, lent slots, utilisation and expired leases; pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drlnb.records.base import Event, Record
from drlnb.records.columns import leasing, placement
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream

__all__ = ["pool_rows"]


def pool_rows(stream: Stream) -> Iterator[dict[str, Any]]:
    """Yield a row for each event after which the pool is another one.

    ``t_s`` (the stream's clock), ``queue_len`` (requests that wait), ``lent`` and ``slots`` (slots that are lent, and
    that there are), ``utilisation`` (seconds computed in the leases that have ended / slot-seconds since the first
    grant; None before it), ``expired`` (leases so far whose holder was silent).  All of the pool is counted, whosever
    it is.

    Parameters
    ----------
    stream
        Of a pool.
    """
    state = _Pool()
    table = (stream.header.snapshot or {}).get("table", {})
    state.begin(table)
    told: tuple[Any, ...] = ()
    for event, answer in stream.answers():
        state.pass_to(event.t)
        for record in (event, *answer):
            state.hear(record)
        now = (len(state.waiting), len(state.held), len(state.slots), state.computed_s, state.expired)
        if now != told:
            told = now
            yield {
                "t_s": event.t,
                "queue_len": len(state.waiting),
                "lent": sum(len(slots) for slots in state.held.values()),
                "slots": len(state.slots),
                "utilisation": state.computed_s / state.slot_s if state.slot_s > 0 else None,
                "expired": state.expired,
            }


@dataclass(slots=True)
class _Pool:
    """The pool as its stream tells it."""

    #: Slot -> its node.
    slots: dict[str, str] = field(default_factory=dict)
    #: Requests without an answer.
    waiting: set[str] = field(default_factory=set)
    #: Fence -> slots of the lease.
    held: dict[Fence, tuple[str, ...]] = field(default_factory=dict)
    t: float = 0.0
    #: Whether there was a grant: slot-seconds count from the first one on.
    granted: bool = False
    slot_s: float = 0.0
    computed_s: float = 0.0
    expired: int = 0

    def begin(self, table: dict[str, Any]) -> None:
        """Take over what the pool was as the stream began."""
        self.t = float(table.get("t", 0.0))
        self.slots = {slot["name"]: slot.get("node", "") for slot in table.get("slots", ()) if _is_there(slot)}
        by_id = {lease["request_id"]: lease for lease in table.get("open", ())}
        self.waiting = set(table.get("waiting", ()))
        for request in table.get("live", ()):
            lease = by_id[request]
            self.held[Fence(epoch=table["epoch"], token=lease["token"])] = tuple(lease["slots"])
        self.granted = bool(self.held)

    def pass_to(self, t: float) -> None:
        """Let time pass."""
        if self.granted:
            self.slot_s += len(self.slots) * (t - self.t)
        self.t = t

    def hear(self, record: Record) -> None:
        """Take in a record."""
        if isinstance(record, leasing.LeaseGranted):
            self.granted = True
            self.held[record.fence] = record.slots
        elif isinstance(record, leasing.SendGrant):  # also once more, to who asks again
            self.waiting.discard(record.request_id)
        elif isinstance(record, leasing.LeaseReleased | leasing.LeaseExpired):
            self.held.pop(record.fence, None)
            self.expired += isinstance(record, leasing.LeaseExpired)
            self.computed_s += record.computed_s if isinstance(record, leasing.LeaseReleased) else 0.0
        elif isinstance(record, leasing.RequestRefused):
            self.waiting.discard(record.subject)
        elif isinstance(record, Event):
            self._happened(record)

    def _happened(self, event: Event) -> None:
        if isinstance(event, leasing.SlotRequested):
            self.waiting.add(event.request_id)
        elif isinstance(event, leasing.RequestCancelled):
            self.waiting.discard(event.request_id)
        elif isinstance(event, leasing.SlotAdded):
            self.slots[event.slot] = event.node
        elif isinstance(event, leasing.SlotFailed):
            self.slots.pop(event.slot, None)
        elif isinstance(event, placement.NodeLost):
            self.slots = {slot: node for slot, node in self.slots.items() if node != event.node}


def _is_there(slot: dict[str, Any]) -> bool:
    return bool(slot.get("state") != "failed")

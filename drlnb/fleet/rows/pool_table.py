"""Tabulate how full the pool was, event by event: waiting requests, lent slots, utilisation, expired leases; pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drlnb.records.columns import leasing, placement
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream
from drlnb.views.folds.entries import Handlers

__all__ = ["pool_rows"]


def pool_rows(stream: Stream) -> Iterator[dict[str, object]]:
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
    state = _Pool.begun((stream.header.snapshot or {}).get("table", {}))
    former: tuple[float, ...] = ()
    for event, answer in stream.answers():
        if state.granted:
            state.slot_s += len(state.slots) * (event.t - state.t)
        state.t = event.t
        for record in (event, *answer):
            handler = _HANDLERS.get(type(record))
            if handler is not None:
                handler(state, record)
        now = (len(state.waiting), len(state.held), len(state.slots), state.computed_s, state.expired)
        if now != former:
            former = now
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
    """The pool as of one event of its stream."""

    t: float
    #: Slot -> its node.
    slots: dict[str, str]
    #: Requests without an answer.
    waiting: set[str]
    #: Fence -> slots of the lease.
    held: dict[Fence, tuple[str, ...]] = field(default_factory=dict)
    #: Whether there was a grant: slot-seconds count from the first one on.
    granted: bool = False
    slot_s: float = 0.0
    computed_s: float = 0.0
    expired: int = 0

    @classmethod
    def begun(cls, table: Mapping[str, Any]) -> "_Pool":
        """Return the pool as its stream begins with a snapshot's lease table."""
        leases = table.get("open", {}).values()
        held = {
            Fence(epoch=table["epoch"], token=lease["token"]): tuple(lease["slots"])
            for lease in leases
            if lease["state"] == "granted"
        }
        return cls(
            t=float(table.get("t", 0.0)),
            slots={name: slot["node"] for name, slot in table.get("slots", {}).items() if slot["state"] != "failed"},
            waiting={lease["request_id"] for lease in leases if lease["state"] == "pending"},
            held=held,
            granted=bool(held),
        )

    def lend(self, decision: leasing.LeaseGranted) -> None:
        self.granted = True
        self.held[decision.fence] = decision.slots

    def release(self, decision: leasing.LeaseReleased) -> None:
        self.held.pop(decision.fence, None)
        self.computed_s += decision.computed_s

    def expire(self, decision: leasing.LeaseExpired) -> None:
        self.held.pop(decision.fence, None)
        self.expired += 1

    def ask(self, event: leasing.SlotRequested) -> None:
        self.waiting.add(event.request_id)

    def answer(self, record: leasing.SendGrant | leasing.RequestCancelled) -> None:
        self.waiting.discard(record.request_id)  # a grant also once more, to who asks again

    def refuse(self, decision: leasing.RequestRefused) -> None:
        self.waiting.discard(decision.subject)

    def add(self, event: leasing.SlotAdded) -> None:
        self.slots[event.slot] = event.node

    def lose(self, event: leasing.SlotFailed) -> None:
        self.slots.pop(event.slot, None)

    def lose_node(self, event: placement.NodeLost) -> None:
        self.slots = {slot: node for slot, node in self.slots.items() if node != event.node}


_HANDLERS: Handlers = {
    leasing.LeaseGranted: _Pool.lend,
    leasing.LeaseReleased: _Pool.release,
    leasing.LeaseExpired: _Pool.expire,
    leasing.SlotRequested: _Pool.ask,
    leasing.RequestCancelled: _Pool.answer,
    leasing.SendGrant: _Pool.answer,
    leasing.RequestRefused: _Pool.refuse,
    leasing.SlotAdded: _Pool.add,
    leasing.SlotFailed: _Pool.lose,
    placement.NodeLost: _Pool.lose_node,
}

"""Who waits in which order, and which free slot comes first?

Every operation is O(log n) or better, amortised: the table answers inside a hook that must not block.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["FifoQueue", "FreeSlots", "Ranking"]

Name = TypeVar("Name", int, str)

#: Dead heap entries that are always tolerated; below this, rebuilding costs more than it frees.
_SLACK = 16


class Ranking(Generic[Name]):
    """Names by a number, smallest first, equal numbers by name; a number may change.

    Dead entries stay in the heap until they surface or outnumber the live ones.
    """

    def __init__(self) -> None:
        self._key: dict[Name, float] = {}
        self._heap: list[tuple[float, Name]] = []

    def __contains__(self, name: Name) -> bool:
        return name in self._key

    def __len__(self) -> int:
        return len(self._key)

    def put(self, name: Name, key: float) -> None:
        """Enter a name, or change its number."""
        self._key[name] = key
        heappush(self._heap, (key, name))
        if len(self._heap) > 2 * len(self._key) + _SLACK:
            self._heap = [(number, each) for each, number in self._key.items()]
            heapify(self._heap)

    def drop(self, name: Name) -> None:
        """Take a name out, if it is there."""
        self._key.pop(name, None)

    def first(self) -> tuple[float, Name] | None:
        """Return the smallest number and its name, or None if nothing is there."""
        heap = self._heap
        while heap and self._key.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


class FreeSlots:
    """The free slots: the requester's node first, else the least recently used (ties by name)."""

    def __init__(self) -> None:
        self._all: Ranking[str] = Ranking()
        self._on: dict[str, Ranking[str]] = {}

    def __contains__(self, slot: str) -> bool:
        return slot in self._all

    def __len__(self) -> int:
        return len(self._all)

    def put(self, slot: str, node: str, used_t: float) -> None:
        """Enter a free slot of a node, last used at `used_t` seconds."""
        self._all.put(slot, used_t)
        self._on.setdefault(node, Ranking()).put(slot, used_t)

    def drop(self, slot: str, node: str) -> None:
        """Take a slot out, if it is there."""
        self._all.drop(slot)
        if node in self._on:
            self._on[node].drop(slot)

    def best(self, node: str) -> str | None:
        """Return the slot that a requester on `node` should get, or None if no slot is free."""
        near = self._on.get(node)
        found = (near.first() if near is not None else None) or self._all.first()
        return None if found is None else found[1]


class FifoQueue:
    """Request ids in the order of their arrival.  Priorities, gangs and quanta will be other queues with this face."""

    def __init__(self) -> None:
        # OrderedDict, not dict: taking the first of a dict again and again rescans its emptied front.
        self._order: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._order

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def put(self, request_id: str) -> None:
        """Enter a request at the end."""
        self._order[request_id] = None

    def drop(self, request_id: str) -> None:
        """Take a request out, if it is there."""
        self._order.pop(request_id, None)

    def first(self) -> str | None:
        """Return the request that is next, or None if nobody waits."""
        return next(iter(self._order), None)

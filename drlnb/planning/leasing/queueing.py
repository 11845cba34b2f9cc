"""Order the requests that wait.

Every operation is O(log n) or better, amortised: the table answers inside a hook that must not block.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Kind", "Ranking", "Waiting"]

Key = TypeVar("Key", float, tuple[float, int])
Name = TypeVar("Name", int, str)

#: Dead heap entries that are always tolerated; below this, rebuilding costs more than it frees.
_SLACK = 16


class Ranking(Generic[Key, Name]):
    """Names by a key, smallest first, equal keys by name; a key may change.

    Dead entries stay in the heap until they surface or outnumber the live ones.
    """

    def __init__(self) -> None:
        self._key: dict[Name, Key] = {}
        self._heap: list[tuple[Key, Name]] = []

    def __contains__(self, name: Name) -> bool:
        return name in self._key

    def __len__(self) -> int:
        return len(self._key)

    def put(self, name: Name, key: Key) -> None:
        """Enter a name, or change its key."""
        self._key[name] = key
        heappush(self._heap, (key, name))
        if len(self._heap) > 2 * len(self._key) + _SLACK:
            self._heap = [(each, name) for name, each in self._key.items()]
            heapify(self._heap)

    def drop(self, name: Name) -> None:
        """Remove a name, if it is there."""
        self._key.pop(name, None)

    def first(self) -> tuple[Key, Name] | None:
        """Return the smallest key and its name, or None if nothing is there."""
        heap = self._heap
        while heap and self._key.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


#: The set of slots that may serve a request, and how many it wants.
Kind = tuple[tuple[str, ...], int]


class Waiting:
    """The requests that wait, by rank, equal ones by arrival.

    Requests of one kind (the same allowed slots, the same number) fit or do not fit together, so that the first that
    fits is found among the firsts of the kinds: O(kinds + log n).
    """

    def __init__(self) -> None:
        self._kinds: dict[Kind, Ranking[tuple[float, int], str]] = {}
        #: Request -> its kind, its rank and the number of its arrival.
        self._at: dict[str, tuple[Kind, tuple[float, int]]] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._at

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._at, key=lambda request_id: self._at[request_id][1]))

    def __len__(self) -> int:
        return len(self._at)

    @property
    def kinds(self) -> Sequence[Kind]:
        """The kinds of the requests that wait."""
        return tuple(self._kinds)

    def n(self, allowed: tuple[str, ...], n_slots: int) -> int:
        """Return how many requests of a kind wait."""
        return len(self._kinds.get((allowed, n_slots), ()))

    def put(self, request_id: str, kind: Kind, rank: float, number: int) -> None:
        """Enter a request, or move it to another rank; `number` is that of its arrival."""
        self._at[request_id] = kind, (rank, number)
        self._kinds.setdefault(kind, Ranking()).put(request_id, (rank, number))

    def drop(self, request_id: str) -> None:
        """Remove a request, if it is there."""
        if request_id in self._at:
            kind, _ = self._at.pop(request_id)
            self._kinds[kind].drop(request_id)
            if not self._kinds[kind]:
                del self._kinds[kind]

    def heads(self, wanted: Callable[[Kind], bool]) -> list[str]:
        """Return the first request of each kind that is wanted, in their order."""
        heads = [ranking.first() for kind, ranking in self._kinds.items() if wanted(kind)]
        return [request_id for _, request_id in sorted(head for head in heads if head is not None)]

    def first(self, fits: Callable[[Kind], bool]) -> str | None:
        """Return the first request whose kind fits, or None if there is none."""
        return next(iter(self.heads(fits)), None)

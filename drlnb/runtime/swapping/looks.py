"""Look at some bytes of a storage as it is parted with: what is written past the counters of tensors is seen there."""

from collections.abc import Mapping

import torch

from drlnb.runtime.swapping.saved import Saved, is_own
from drlnb.runtime.swapping.tiers.base import Held, Meter, flat

__all__ = ["Looks", "look"]

#: Bytes of a storage that are looked at.
_SEEN_BYTES = 1 << 10


def look(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return some bytes of a storage, from all over it."""
    whole = flat(storage)
    return whole[:: max(len(whole) // _SEEN_BYTES, 1) | 1].clone()


class Looks:
    """Looks at the last contents of storages, of those that somebody asks for.

    Parameters
    ----------
    saved
        Number of a storage -> its entry, where autograd saves it.
    """

    def __init__(self, saved: Mapping[int, Saved]) -> None:
        self._saved, self._uncounted = saved, Meter()
        self._last: dict[int, torch.Tensor | None] = {}
        self._others: dict[int, Held] = {}  # what nobody saves, as long as somebody else has it

    def clear(self) -> None:
        """Forget a step."""
        self._last.clear()
        self._others.clear()

    def ask(self, number: int, storage: torch.UntypedStorage | None = None) -> None:
        """Ask for a storage by its number; where it is given, whether autograd saves it or not."""
        self._last.setdefault(number)
        if storage is not None and number not in self._saved:
            self._others[number] = Held(self._uncounted, storage)

    def parting(self, saved: Saved) -> None:
        """Look at a storage that nobody else has any more, before it goes."""
        if saved.held is not None and saved.number in self._last:
            self._last[saved.number] = look(saved.held.storage)

    def part(self) -> None:
        """Look at what nobody has any more, and nobody saves."""
        for number, held in [*self._others.items()]:
            own = is_own(held)
            if own:
                self._last[number] = look(held.storage)
            if own or number in self._saved:
                del self._others[number]

    def last(self, number: int) -> torch.Tensor | None:
        """Return a look at what a storage holds, or has held when the last one parted with it; None: nobody knows."""
        saved = self._saved.get(number)
        held = self._others.get(number) if saved is None else saved.held
        return look(held.storage) if held is not None else self._last.get(number)

"""Make work take longer than it does, by sleeping after it: an emulated slow member."""

import time
from collections.abc import Callable
from typing import Self

from drlnb.runtime.protocol import Plain

__all__ = ["Padding"]

#: Longest sleep between two looks whether it shall go on, in seconds.
_LOOK_S = 0.05


class Padding:
    """Measures work from one rest to the next, and sleeps in each rest until it has taken so many times as long.

    Parameters
    ----------
    factor
        So many times; 1.0: nobody sleeps.
    look
        Called while it sleeps, now and then; what it raises passes.
    """

    def __init__(self, factor: float, look: Callable[[], object]) -> None:
        self._factor, self._look = factor, look
        self.begin()

    @classmethod
    def of(cls, header: Plain, look: Callable[[], object]) -> Self:
        """Return that of a frame; members of a gang see to it in each minibatch instead."""
        return cls(1.0 if header.get("members") else header.get("slowed", 1.0), look)

    def begin(self) -> None:
        """Leave out what was done since the last rest: it was no work."""
        self._since_t = time.perf_counter()

    def rest(self) -> float:
        """Sleep; return the seconds of the work with its sleep."""
        began_t = self._since_t
        until_t = began_t + self._factor * (time.perf_counter() - began_t)
        while (left_s := until_t - time.perf_counter()) > 0:
            time.sleep(min(left_s, _LOOK_S))
            self._look()
        self.begin()
        return self._since_t - began_t

    def between(self, _done: int, _total: int) -> None:
        """Rest, and look, between two steps of so many."""
        self.rest()
        self._look()

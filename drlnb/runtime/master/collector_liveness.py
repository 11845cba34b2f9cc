"""Which losses of collectors are news to a master, and which must it find out by itself?

A node tells the loss of a process to the master that started it.  That may come late, twice, or never: the connection
breaks while both nodes live, and the answer of a collector that has finished is lost with it.  So whoever has asked a
collector in vain waits a while for the loss to be told, and then counts the collector as lost.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.runtime.master.master import Master

__all__ = ["Losses"]

#: Time that a node has to tell why a collector did not answer, in seconds: it reaps the process first (up to 3 s).
_TOLD_S = 5.0


class Losses:
    """What one master knows of the lives of its collectors' processes.

    Parameters
    ----------
    master
        Whose.
    """

    def __init__(self, master: "Master") -> None:
        self._master = master
        #: Collector -> number of its newest process, and of the newest one that counts as lost.
        self._newest: Counter[int] = Counter()
        self._lost: Counter[int] = Counter()
        #: Collector -> how often it was asked to act.
        self._asked: Counter[int] = Counter()

    def begins(self, collector: int) -> int:
        """Return the number of a process of a collector that is started now."""
        self._newest[collector] += 1
        return self._newest[collector]

    def is_news(self, collector: int, number: int) -> bool:
        """Note the loss of a process; false if it counts as lost already, or another one was started after it."""
        if number <= self._lost[collector] or number < self._newest[collector]:
            return False
        self._lost[collector] = number
        return True

    def asks(self, collector: int) -> tuple[int, int]:
        """Note that a collector is asked to act; return the question, for :meth:`unanswered`."""
        self._asked[collector] += 1
        return self._asked[collector], self._newest[collector]

    async def unanswered(
        self,
        collector: int,
        node: str,
        question: tuple[int, int],
        waits: Callable[[], bool],
        *,
        reason: str,
        detail: str = "",
    ) -> None:
        """Count a collector that did not answer as lost, unless its node tells so first.

        Parameters
        ----------
        collector, node, question
            Which, where, and what it was asked, as :meth:`asks` named it.
        waits
            Whether the machine waits for an answer of this collector.
        reason, detail
            Why there is none.
        """
        await asyncio.sleep(_TOLD_S)
        asked, number = question
        if self._asked[collector] == asked and waits():
            self._master.collector_lost(collector=collector, node=node, reason=reason, detail=detail, number=number)

"""Sort the losses of collectors that are reported to a master: old ones, new ones, and those that nobody reports.

A node reports the loss of a process to the master that started it.  That may come late, twice, or never: the connection
breaks while both nodes live, and the answer of a collector that has finished is lost with it.  So whoever has asked a
collector in vain waits a while for the report, and then feeds the missing answer to the machine, which judges it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from drlnb.records.base import Record
from drlnb.records.columns import warmup

__all__ = ["Losses"]

#: Time that a node has to report why a collector did not answer, in seconds: it reaps the process first (up to 3 s).
_REPORT_S = 5.0


class Losses:
    """What one master knows of the lives of its collectors' processes.

    Parameters
    ----------
    feed_for
        Feeds an event to the master's machine and returns the records of a class that it answers.
    """

    def __init__(self, feed_for: Callable[..., Sequence[Record]]) -> None:
        self._feed_for = feed_for
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
        """Count a process as lost; false if it counts as lost already, or another one was started after it."""
        if number <= self._lost[collector] or number < self._newest[collector]:
            return False
        self._lost[collector] = number
        return True

    def asks(self, collector: int) -> tuple[int, int]:
        """Count that a collector is asked to act; return the question, for :meth:`unanswered`."""
        self._asked[collector] += 1
        return self._asked[collector], self._newest[collector]

    async def unanswered(self, question: tuple[int, int], *, collector: int, **fields: object) -> None:
        """Report that a collector did not answer, unless its node reports its loss first.

        Parameters
        ----------
        question
            What it was asked, as :meth:`asks` named it.
        collector, fields
            Those of the event.
        """
        await asyncio.sleep(_REPORT_S)
        asked, number = question
        if self._asked[collector] != asked or number <= self._lost[collector]:
            return
        planned, unanswered = warmup.CollectorRestartPlanned, warmup.CollectorUnanswered
        if self._feed_for(planned, unanswered, collector=collector, **fields):  # the machine waited for it
            self._lost[collector] = number

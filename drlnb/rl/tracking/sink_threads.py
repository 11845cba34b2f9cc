"""Hand scalars to sinks that may be slow, hang or break, while training goes on.

Each sink has a thread and a queue of its own.  A sink that raises is closed and left alone, and what happened is kept
as one line; one that is too slow loses scalars, which is counted; one that hangs is left behind at the end.
"""

import queue
import threading
from collections.abc import Mapping, Sequence

from drlnb.records.base import Facts
from drlnb.rl.tracking.sinks import RunFacts, Sink, numbers

__all__ = ["Feed"]

#: Rows that wait for one sink: hours of rounds.
_MOST = 20_000
#: Seconds that the end of a run waits for sinks: a server that does not answer must not keep a notebook.
_CLOSE_S = 10.0

_Row = tuple[str, int, Mapping[str, float]]


class _Worker(threading.Thread):
    def __init__(self, sink: Sink, facts: RunFacts) -> None:
        super().__init__(name=f"drlnb-sink-{type(sink).__name__}", daemon=True)
        self._sink, self._facts = sink, facts
        self._title, self._queue = type(sink).__name__, queue.Queue[_Row | None](_MOST)
        self._n_lost = 0
        #: What went wrong, in one line; empty while all is well.
        self.failure = ""

    def run(self) -> None:
        """Write what comes until None comes."""
        step = 0
        try:
            self._sink.open(self._facts)
            while (row := self._queue.get()) is not None:
                step = row[1]
                self._sink.scalars(*row)
        except Exception as error:  # noqa: BLE001 - foreign code: reported as one line, and training goes on
            self._fail(f"failed at step {step}", error)
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail("could not be closed", error)

    def _fail(self, problem: str, error: Exception | None = None) -> None:
        """Keep the first failure alone."""
        if error is not None:
            first = (str(error).strip().splitlines() or [""])[0]
            problem = f"{problem} ({type(error).__name__}: {first}); training goes on"
        self.failure = self.failure or f"{self._title} {problem}"

    def put(self, row: _Row) -> None:
        if self.failure or not self.is_alive():
            return
        try:
            self._queue.put_nowait(row)
        except queue.Full:
            self._n_lost += 1

    def finish(self, timeout_s: float) -> None:
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            self._fail("hangs")
        self.join(timeout_s)
        if self.is_alive():
            self._fail(f"did not finish within {timeout_s:g} s and was left behind")
        elif self._n_lost:
            self._fail(f"was too slow: {self._n_lost} rows of scalars were lost")


class Feed:
    """Sinks with their threads.

    Parameters
    ----------
    sinks
        Opened at once, each in its thread.
    facts
        Of the run.
    """

    def __init__(self, sinks: Sequence[Sink], facts: RunFacts) -> None:
        self._workers = [_Worker(sink, facts) for sink in sinks]
        for worker in self._workers:
            worker.start()
        #: Newest step of each task and kind of row.
        self._steps: dict[tuple[str, str], int] = {}

    @property
    def failures(self) -> tuple[str, ...]:
        """One line per sink that does not write (all of) what it was given."""
        return tuple(worker.failure for worker in self._workers if worker.failure)

    def put(self, task: str, step: int, metrics: Facts, kind: str = "round") -> None:
        """Hand scalars to all sinks; returns at once.

        Parameters
        ----------
        task
            One of the run's tasks.
        step
            Environment steps so far.  Rounds that are made again after a failure repeat steps: they are dropped.
        metrics
            What is no number is dropped.
        kind
            Rows of different kinds may share a step: a round and its evaluation.
        """
        if step <= self._steps.get((task, kind), -1):
            return
        self._steps[task, kind] = step
        row = (task, step, numbers(metrics))
        for worker in self._workers:
            worker.put(row)

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Wait until the sinks have written what they have, and end them; those that hang are left behind.

        Parameters
        ----------
        timeout_s
            Longest wait, in seconds, for each sink.
        """
        for worker in self._workers:
            worker.finish(timeout_s)

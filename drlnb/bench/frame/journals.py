"""Read from a run's journal when leases ended, and how many rounds per second its tasks did while all were at work."""

from collections.abc import Iterator, Sequence

from drlnb.records.columns.leasing import LeaseGranted, LeaseReleased
from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal

__all__ = ["leases", "rate"]


def leases(journal: Journal) -> Iterator[tuple[float, int, LeaseReleased]]:
    """Yield (end on the pool's clock, its task's round, how it ended) of every lease that was given back."""
    for stream in journal.streams.values():
        if stream.header.machine == "pool":
            rounds = {grant.fence: grant.round for grant in stream.of(LeaseGranted)}
            for event, answer in stream.answers():
                for record in answer:
                    if isinstance(record, LeaseReleased):
                        yield event.t, rounds.get(record.fence, 0), record


def rate(ends: Sequence[Sequence[float]], since: float = 0.0) -> tuple[float, int]:
    """Return rounds per second over all tasks, and how many were counted, while every task was at work.

    Parameters
    ----------
    ends
        Seconds at which each task's rounds ended; shape ``(n_tasks, n_rounds)``, ragged.
    since
        Nothing before this second counts.

    Raises
    ------
    TrainingFailed
        If some task ended fewer than two rounds while all were at work.

    Examples
    --------
    >>> rate([[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5]])
    (2.0, 4)
    """
    counted = [[t for t in times if t >= since] for times in ends]
    fewest = min(map(len, counted), default=0)
    if fewest < 2:
        raise TrainingFailed(f"a task ended {fewest} rounds in the time: give it more")
    first, last = max(times[0] for times in counted), min(times[-1] for times in counted)
    if last <= first:
        raise TrainingFailed("the tasks were never all at work: give them more time")
    n_rounds = sum(first < t <= last for times in counted for t in times)
    return n_rounds / (last - first), n_rounds

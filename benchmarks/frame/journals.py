"""Read from a run's journal when leases ended, and rounds, and how many of them per second there were."""

from collections.abc import Sequence

from drlnb.records.errors import TrainingFailed
from drlnb.records.journal import Journal, Stream
from drlnb.records.round import MetricsRecorded
from drlnb.sim.leases import Lease, leases

__all__ = ["pool_leases", "rate", "round_ends", "round_stream"]


def pool_leases(journal: Journal) -> list[Lease]:
    """Return the leases of a run's pool that have ended, in the order of their ends."""
    return [lease for stream in journal.streams.values() for lease in leases(stream)]


def round_stream(journal: Journal) -> Stream:
    """Return the stream of the only task of a run."""
    (stream,) = (stream for stream in journal.streams.values() if stream.header.machine == "round")
    return stream


def round_ends(stream: Stream) -> list[float]:
    """Return when a task's rounds ended, in seconds."""
    return [t for t, _ in stream.timed(MetricsRecorded)]


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

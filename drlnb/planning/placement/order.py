"""Order the jobs that wait, and choose those that a planner is shown."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from drlnb.planning.placement.cluster import JobView
from drlnb.records.errors import ConfigError, nearest

__all__ = ["BACKFILLS", "ORDERS", "job_window", "order_of", "unreserved"]

#: Whether any later job that fits may start, or one that does not delay the next of the queue.
BACKFILLS = ("greedy", "reserve")

#: Jobs of a window: the first ones of the queue that fit, and the largest ones that do.
_HEADS, _LARGEST = 4, 4


def _fifo(jobs: Sequence[JobView]) -> list[JobView]:
    return list(jobs)


def _largest(jobs: Sequence[JobView]) -> list[JobView]:
    return sorted(jobs, key=_area)


def _area(job: JobView) -> float:
    """Return the slot seconds of a job, below 0: the largest sorts first."""
    return -job.n_slots * job.work_s


#: Name -> the order in which jobs of a queue are placed.
ORDERS: dict[str, Callable[[Sequence[JobView]], list[JobView]]] = {"fifo": _fifo, "largest": _largest}


def order_of(name: str) -> Callable[[Sequence[JobView]], list[JobView]]:
    """Return an order by its name: ``fifo``, or ``largest`` number of slots times seconds first.

    Raises
    ------
    ConfigError
        If there is none of this name.
    """
    if name not in ORDERS:
        raise ConfigError(f"order must be one of {', '.join(ORDERS)}, got {name!r}{nearest(name, ORDERS)}")
    return ORDERS[name]


def job_window(fitting: Sequence[JobView]) -> tuple[JobView, ...]:
    """Return the jobs that a planner which chooses jobs is shown: heads of the queue, then the largest of the others.

    Heads alone could not express that the largest job goes first.

    Parameters
    ----------
    fitting
        Jobs of the queue that fit into the free slots, in the queue's order.
    """
    heads = list(fitting[:_HEADS])
    return (*heads, *sorted(fitting[_HEADS:], key=_area)[:_LARGEST])


def unreserved(
    queue: Sequence[JobView],
    n_free: int,
    t: float,
    ends: Iterable[tuple[float, int]],
    most_s: Callable[[JobView], float],
) -> Iterator[JobView]:
    """Yield the jobs that may start now without delaying the first one, as far as nothing fails (``reserve``).

    Parameters
    ----------
    queue
        All jobs that wait, in their order; at least one.
    n_free
        Slots that are free.
    t
        Now, in seconds.
    ends
        When other slots will be free, and how many, in any order.
    most_s
        Returns the seconds that a job takes on the worst slots.
    """
    head, *others = queue
    n_then, starts_s = n_free, t
    for ends_s, n in sorted(ends):
        if n_then >= head.n_slots:
            break
        n_then, starts_s = n_then + n, ends_s
    if head.n_slots <= n_free:
        yield head
    for job in others:
        in_time = t + most_s(job) <= starts_s
        if job.n_slots <= n_free and (in_time or job.n_slots <= n_then - head.n_slots):
            yield job

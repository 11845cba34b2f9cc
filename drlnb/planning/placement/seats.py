"""Bound how many executors share one device, and name how the tasks of a slot are kept (ours, leasing 4.10)."""

from drlnb.records.settings import choice, count

__all__ = ["ISOLATION", "ISOLATIONS", "MAX_SEATS", "SEATS", "virtual_limit"]

#: How the tasks of a slot are kept: in one process that serves them all, or in one each.
ISOLATIONS = ("shared", "process")
#: Most seats of a device: each one costs a context of its own (0.25-0.7 GiB on CUDA).
MAX_SEATS = 4


#: Seats of each device, as a user gives them; and how the tasks of a slot are kept.
SEATS, ISOLATION = count(1, MAX_SEATS), choice(*ISOLATIONS)


def virtual_limit(n_cpus: int, n_devices: int) -> tuple[int, str]:
    """Return the most seats of each virtual device of a machine, and why no more.

    Parameters
    ----------
    n_cpus
        Cores of the machine that its devices share.
    n_devices
        Virtual devices on it.

    Examples
    --------
    >>> virtual_limit(2, 1)
    (2, '2 CPU cores')
    >>> virtual_limit(2, 2)
    (1, '2 CPU cores for 2 devices')
    """
    share = max(1, n_cpus // n_devices)
    if share >= MAX_SEATS:
        return MAX_SEATS, f"at most {MAX_SEATS} seats"
    return share, f"{n_cpus} CPU core{'s' * (n_cpus > 1)}" + (f" for {n_devices} devices" if n_devices > 1 else "")

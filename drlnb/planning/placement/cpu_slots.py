"""Name the pool's setting of how many collectors act at the same time on a node, and its default."""

from drlnb.records.settings import fitting, is_whole

__all__ = ["AUTO", "CPU_SLOTS", "CPU_SLOTS_KEY", "cpu_share"]

#: Setting of the pool: CPU slots of each node.
CPU_SLOTS_KEY = "agent.collector_slots"
#: As many as :func:`cpu_share` says.
AUTO = "auto"
#: More would not be a limit any more.
_MOST = 1024

#: Its values.
CPU_SLOTS = fitting(
    f"{AUTO!r} or a whole number in 1..{_MOST}", lambda value: value == AUTO or is_whole(value, 1, _MOST)
)


def cpu_share(n_cpus: int, n_agents: int) -> int:
    """Return how many CPU slots one of a host's node agents lends: ``max(1, n_cpus // n_agents)``.

    Examples
    --------
    >>> cpu_share(8, 2), cpu_share(2, 3)
    (4, 1)
    """
    return max(1, n_cpus // max(1, n_agents))

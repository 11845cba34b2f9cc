"""Break a slot on purpose, to see what becomes of the gang that has it: only of a cluster that this process started."""

import contextlib

import psutil

from drlnb.fleet.cluster.pool import Pool
from drlnb.records.errors import ConfigError

__all__ = ["NOT_OWN", "break_slot"]

#: Why no slot can be broken.
NOT_OWN = "only slots of a cluster that this process has started can be broken"


def break_slot(pool: Pool | None, slot: str) -> None:
    """Kill what computes on a slot; it fails, and is back once another process is up.

    Parameters
    ----------
    pool
        Of a run's fleet; None: it has none here.
    slot
        Name of the slot.

    Raises
    ------
    ConfigError
        If the cluster is not this process's own, or nothing is up on the slot.
    """
    if pool is None or pool.handle is None:
        raise ConfigError(NOT_OWN)
    n_killed = 0
    for process in psutil.Process(pool.handle.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if " ".join(process.cmdline()).split()[:3] == ["drlnb", "executor", slot]:
                process.kill()
                n_killed += 1
    if not n_killed:
        raise ConfigError(f"nothing is up on slot {slot} now")

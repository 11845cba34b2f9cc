"""How does a run go on that was stopped or interrupted?  On a fleet of the kind that it had."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drlnb.fleet.cluster.existing import check
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.training import Training
from drlnb.runtime.files.run_directory import RunDir

__all__ = ["resume"]


def resume(
    out: str | Path,
    client: Any = None,
    *,
    n_workers: int | None = None,
    slots: int | str | Sequence[str] = "auto",
    seats: int | str | None = None,
    isolation: str | None = None,
) -> Training:
    """Go on with a run that was stopped or interrupted, from its last checkpoints.

    Parameters
    ----------
    out
        Its directory.
    client, n_workers, slots, seats, isolation
        As of :class:`Fleet`; a local cluster has by default what the run had.

    Returns
    -------
    Training
        Close its ``fleet`` when it has ended; otherwise that happens when this process ends.

    Raises
    ------
    ConfigError
        If no run is there, or it is finished.
    RunLocked
        If it is going on already.
    """
    spec = RunDir(out).read_spec()
    check(out, spec, "resume")
    pool = {} if client is not None else spec.get("pool", {})
    if slots == "auto":
        slots = pool.get("slots") or pool.get("n_slots", "auto")
    if seats is None:
        seats = pool.get("seats", 1)
    if isolation is None:
        isolation = pool.get("isolation", "shared")
    workers = n_workers or pool.get("n_workers")
    return Fleet(client, n_workers=workers, slots=slots, seats=seats, isolation=isolation).go_on(out)

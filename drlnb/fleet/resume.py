"""Go on with a run that was stopped or interrupted, on a fleet of the kind that it had."""

from collections.abc import Sequence
from pathlib import Path

from drlnb.fleet.cluster.existing import check
from drlnb.fleet.cluster.pool import Client
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.plain import Plain, Row
from drlnb.fleet.tasks.run_spec import RunSpec
from drlnb.fleet.training import Training
from drlnb.runtime.files.run_directory import RunDir

__all__ = ["as_before", "resume"]


def resume(
    out: str | Path,
    client: Client = None,
    *,
    n_workers: int | None = None,
    slots: int | str | Sequence[str] | None = None,
    seats: int | None = None,
    isolation: str | None = None,
) -> Training:
    """Go on with a run that was stopped or interrupted, from its last checkpoints.

    Parameters
    ----------
    out
        Its directory.
    client, n_workers, slots, seats, isolation
        As of :class:`Fleet`; None: of a local cluster what the run had.

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
    asked = {"n_workers": n_workers, "slots": slots, "seats": seats, "isolation": isolation}
    return Fleet(client, **as_before(out, client, asked)).go_on(out)


def as_before(out: str | Path, client: Client, asked: Plain) -> Row:
    """Return the arguments of the fleet that shall go on with a run: what was not asked for is as the run had it.

    Parameters
    ----------
    out
        The run's directory; what forbids to go on is raised before any cluster is started.
    client
        As of :class:`Fleet`; a cluster that is there has what it has.
    asked
        ``n_workers``, ``slots``, ``seats`` and ``isolation``.
    """
    spec = RunSpec.read(RunDir(out))
    check(out, spec, "resume")
    had = {} if client is not None else spec.pool
    before = {
        "n_workers": had.get("n_workers"),
        "slots": had.get("slots") or had.get("n_slots", "auto"),
        "seats": had.get("seats", 1),
        "isolation": had.get("isolation", "shared"),
    }
    return {key: value if asked[key] is None else asked[key] for key, value in before.items()}

"""Which fleet does a model learn on if nobody names one, and how does its run begin there?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drlnb.fleet.fleet import Fleet, _own
from drlnb.fleet.launch import launch
from drlnb.fleet.training import Training
from drlnb.rl.checkpoints.trained import Trained

__all__ = ["begin", "current_fleet"]


def current_fleet() -> Fleet:
    """Return the fleet of this process whose own cluster is up, else a new one (on Dask's current client, if any)."""
    found = _own.get("fleet")
    return found if found is not None and not found.closed else Fleet()


def begin(fleet: Fleet, spec: Mapping[str, Any], out: Path, on_existing: str, start: Mapping[str, Trained]) -> Training:
    """Start the run of a complete spec on a fleet.

    Parameters
    ----------
    fleet
        Where.
    spec
        As of :func:`drlnb.fleet.launch.run_spec`, with its settings.
    out, on_existing
        As of :meth:`Fleet.train`.
    start
        Task -> state that it goes on from, if the run is new.

    Raises
    ------
    ConfigError, EnvError, RunLocked, SpecMismatch
        As :meth:`Fleet.train`.
    """
    whole = {**spec, "pool": fleet.shape}
    return fleet._started(launch(fleet._link, whole, out, on_existing, fleet=fleet, start=start))

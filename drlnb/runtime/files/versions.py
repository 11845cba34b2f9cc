"""Read the versions that run here; travels by value to processes that may lack drlnb, so it imports nothing of it."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

__all__ = ["MISSING", "problem", "versions"]

#: Version of a package that is not installed.
MISSING = "missing"
#: Packages whose versions go into ``run.json``; read from their metadata, so that none of them is imported.
_PACKAGES = ("drlnb", "torch", "gymnasium", "numpy", "dask", "distributed", "cloudpickle", "msgpack")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter; ``"missing"`` for one that is not installed."""
    return {"python": platform.python_version(), **{package: _version(package) for package in _PACKAGES}}


def problem(theirs: Mapping[str, str], mine: Mapping[str, str], *, computes: bool = True) -> str:
    """Return why a process with their versions cannot work with one of mine; empty if it can.

    Parameters
    ----------
    theirs, mine
        As :func:`versions` returns them.
    computes
        Whether its children train.
    """
    if theirs["drlnb"] == MISSING:
        return f"has no drlnb; install it there with: pip install drlnb=={mine['drlnb']}"
    shown = [f"drlnb {each['drlnb']} on Python {each['python'].rpartition('.')[0]}" for each in (theirs, mine)]
    if shown[0] != shown[1]:
        return f"has {shown[0]}, this client {shown[1]}"
    return "lacks torch or gymnasium" if computes and MISSING in (theirs["torch"], theirs["gymnasium"]) else ""

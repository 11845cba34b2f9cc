"""Read the versions that run here; travels by value to processes that may lack drlnb, so it imports nothing of it."""

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["MISSING", "versions"]

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

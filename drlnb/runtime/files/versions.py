"""Read the versions that run here, and compare them with those of another process."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from drlnb.records.errors import InputError

__all__ = ["VersionError", "drlnb_version", "mismatch", "versions"]

#: Packages whose versions go into ``run.json``; read from their metadata, so that none of them is imported.
_PACKAGES = ("drlnb", "torch", "gymnasium", "numpy", "dask", "distributed", "cloudpickle", "msgpack")

#: Another version of these changes results, not messages: a warning is enough.
_WARN = ("torch", "gymnasium", "numpy")


class VersionError(InputError, RuntimeError):
    """Two processes have versions that do not fit; the message names both sides."""


def drlnb_version() -> str:
    """Return the version of drlnb that is installed here, ``"missing"`` for a bare source tree."""
    return _version("drlnb")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter; ``"missing"`` for one that is not installed."""
    return {"python": platform.python_version(), **{package: _version(package) for package in _PACKAGES}}


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def mismatch(ours: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Compare two answers of :func:`versions`.

    Parameters
    ----------
    ours, theirs
        Package -> version; a package that one side does not name is not compared.

    Returns
    -------
    tuple of list of str
        What forbids to work together (Python's minor version, drlnb), and what only changes results.

    Examples
    --------
    >>> mismatch({"python": "3.11.9", "torch": "2.13.0"}, {"python": "3.12.1", "torch": "2.12.0"})
    (['python 3.11 here, 3.12 there'], ['torch 2.13.0 here, 2.12.0 there'])
    """
    errors: list[str] = []
    warnings: list[str] = []
    if "python" in theirs and _minor(ours["python"]) != _minor(theirs["python"]):
        errors.append(f"python {_minor(ours['python'])} here, {_minor(theirs['python'])} there")
    for package in ("drlnb", *_WARN):
        mine, other = ours.get(package), theirs.get(package)
        if mine and other and mine != other:
            (warnings if package in _WARN else errors).append(f"{package} {mine} here, {other} there")
    return errors, warnings

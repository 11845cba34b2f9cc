"""Is drlnb importable where we are about to put plugins?  Travels by value, imports nothing of drlnb.

A plugin whose package is missing on a worker stays registered and kills every later worker at its start, so this looks
first.
"""

from typing import Any

__all__ = ["look"]


def look() -> dict[str, Any]:
    """Return Python's version and the installed versions of what a node needs; ``None`` = missing."""
    import importlib.metadata as metadata
    import sys

    found: dict[str, Any] = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name in ("drlnb", "torch", "gymnasium", "numpy", "distributed"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found

"""Look whether drlnb is importable where plugins are about to be put; travels by value, imports nothing of drlnb.

A plugin whose package is missing on a worker stays registered and kills every later worker at its start, so this looks
first.
"""

__all__ = ["look"]


def look() -> dict[str, str | None]:
    """Return Python's version and the installed versions of what a node needs; ``None`` = missing."""
    import importlib.metadata as metadata
    import sys

    versions: dict[str, str | None] = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    for name in ("drlnb", "torch", "gymnasium", "numpy", "distributed"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions

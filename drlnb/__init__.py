"""Train many deep-RL tasks at once on a few GPUs, from a notebook, on a Dask cluster.

Public names load on first use, so that importing :mod:`drlnb` in a headless worker costs nothing.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from drlnb.rl.register import register_environments

if TYPE_CHECKING:
    from drlnb.fleet.fleet import Fleet, resume
    from drlnb.fleet.task import Task
    from drlnb.fleet.training import Training

__all__ = ["Fleet", "Task", "Training", "__version__", "resume"]

#: Public name -> the module that defines it.
_HOMES = {
    "Fleet": "drlnb.fleet.fleet",
    "Task": "drlnb.fleet.task",
    "Training": "drlnb.fleet.training",
    "resume": "drlnb.fleet.fleet",
}

try:
    __version__ = version("drlnb")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

register_environments()


def __getattr__(name: str) -> Any:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))

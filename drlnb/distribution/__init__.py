"""Distribute the parameters of any torch module to the processes of a Dask cluster (the distribution patent).

Public names load on first use: an actor that reads needs neither Dask nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.distribution.host_view import HostView, store_path
    from drlnb.distribution.publication import Publication, PublishReport
    from drlnb.distribution.publisher import Publisher
    from drlnb.planning.distribution import Link

__all__ = ["HostView", "Link", "Publication", "PublishReport", "Publisher", "store_path"]

_HOMES = {
    "HostView": "drlnb.distribution.host_view",
    "Link": "drlnb.planning.distribution",
    "Publication": "drlnb.distribution.publication",
    "PublishReport": "drlnb.distribution.publication",
    "Publisher": "drlnb.distribution.publisher",
    "store_path": "drlnb.distribution.host_view",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.distribution' has no attribute {name!r}")

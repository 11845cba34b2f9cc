"""Distribute the parameters of any torch module to the processes of a Dask cluster (seed 001)."""

from drlnb.distribution.host_view import HostView, store_path
from drlnb.distribution.publication import Publication, PublishReport
from drlnb.distribution.publisher import Publisher
from drlnb.planning.distribution import Link
from drlnb.runtime.distribution.emulated import Emulated

__all__ = ["Emulated", "HostView", "Link", "Publication", "PublishReport", "Publisher", "store_path"]

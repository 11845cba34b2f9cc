"""Place gangs of jobs on slots that fail: on a Dask cluster, or in a simulator (the placement patent).

Names load on first use: what is computed by hand needs neither Dask nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.planning.placement.closed_form import expected_completion_s
    from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick
    from drlnb.runtime.placement.member import Member
    from drlnb.runtime.placement.placing import Job, Placing, place

__all__ = [
    "Cluster",
    "ClusterView",
    "Job",
    "JobView",
    "Member",
    "Pick",
    "Placing",
    "expected_completion_s",
    "place",
]

_HOMES = {
    "Cluster": "drlnb.planning.placement.cluster",
    "ClusterView": "drlnb.planning.placement.cluster",
    "Job": "drlnb.runtime.placement.placing",
    "JobView": "drlnb.planning.placement.cluster",
    "Member": "drlnb.runtime.placement.member",
    "Pick": "drlnb.planning.placement.cluster",
    "Placing": "drlnb.runtime.placement.placing",
    "expected_completion_s": "drlnb.planning.placement.closed_form",
    "place": "drlnb.runtime.placement.placing",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drlnb.placement' has no attribute {name!r}")

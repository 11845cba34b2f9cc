"""Place gangs of jobs on slots that fail: on a Dask cluster, or in a simulator (the placement patent).

Names load on first use: what is computed by hand needs neither Dask nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drlnb.placement.training import train
    from drlnb.planning.placement.closed_form import expected_completion_s
    from drlnb.planning.placement.cluster import Cluster, ClusterView, JobView, Pick
    from drlnb.runtime.placement.member import Member
    from drlnb.runtime.placement.placing import Job, Placing, place
    from drlnb.sim.placement import FaultModel, load_trace, simulate

__all__ = [
    "Cluster", "ClusterView", "FaultModel", "Job", "JobView", "Member", "Pick", "Placing", "expected_completion_s",
    "load_trace", "place", "simulate", "train",
]  # fmt: skip

_HOMES = {
    "drlnb.placement.training": ("train",),
    "drlnb.planning.placement.closed_form": ("expected_completion_s",),
    "drlnb.planning.placement.cluster": ("Cluster", "ClusterView", "JobView", "Pick"),
    "drlnb.runtime.placement.member": ("Member",),
    "drlnb.runtime.placement.placing": ("Job", "Placing", "place"),
    "drlnb.sim.placement": ("FaultModel", "load_trace", "simulate"),
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'drlnb.placement' has no attribute {name!r}")

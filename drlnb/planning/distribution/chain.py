"""Send a version along a chain: the learner to the first host, each host to the next one."""

from drlnb.planning.distribution.planner import DistributionView
from drlnb.planning.distribution.trees import Hop, Plan, Send

__all__ = ["Chain"]


class Chain:
    """Host i forwards the whole version to host i + 1: the learner sends one message, the last host waits longest."""

    name = "chain"

    def plan(self, view: DistributionView) -> Plan:
        """Return one message whose route passes all hosts in their order."""
        route: tuple[Hop, ...] = ()
        for host in reversed(range(len(view.hosts))):
            route = (Hop(host, route),)
        sends = tuple([Send(0, view.model_bytes, first) for first in route])
        return Plan(n_hosts=len(view.hosts), model_bytes=view.model_bytes, sends=sends)

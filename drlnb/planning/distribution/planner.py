"""Which plan brings a version to these hosts, and which commands carry it out?"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from drlnb.planning.distribution.trees import Hop, Plan, star
from drlnb.records.columns.distribution import SendChunk

__all__ = ["DistributionPlanner", "Star", "commands", "distribution_planner"]


class DistributionPlanner(Protocol):
    """Something that plans who sends what to whom."""

    name: ClassVar[str]

    def plan(self, hosts: Sequence[str], model_bytes: int) -> Plan:
        """Return the plan for one version; host i of the plan is ``hosts[i]``."""
        ...


class Star:
    """The learner sends the whole version to each host itself."""

    name: ClassVar[str] = "star"

    def plan(self, hosts: Sequence[str], model_bytes: int) -> Plan:
        """Return one direct message per host, in the order of `hosts`.

        Raises
        ------
        ValueError
            If `model_bytes` < 1.
        """
        return star(len(hosts), model_bytes)


_PLANNERS: Mapping[str, type[DistributionPlanner]] = {Star.name: Star}


def distribution_planner(name: str) -> DistributionPlanner:
    """Return the distribution planner of a name.

    Raises
    ------
    ValueError
        If there is none; the message lists the names.
    """
    if name not in _PLANNERS:
        raise ValueError(f"distribution must be one of {', '.join(_PLANNERS)}, got {name!r}")
    return _PLANNERS[name]()


def commands(plan: Plan, hosts: Sequence[str], version: int) -> tuple[SendChunk, ...]:
    """Turn a plan into commands for the learner, in the order of sending.

    Parameters
    ----------
    plan
        The plan.
    hosts
        Name of each host of the plan; shape ``(plan.n_hosts,)``.
    version
        The version that travels.

    Raises
    ------
    ValueError
        If the number of names is not that of the plan's hosts.
    """
    if len(hosts) != plan.n_hosts:
        raise ValueError(f"hosts must be {plan.n_hosts} names, got {len(hosts)}")
    return tuple([
        SendChunk(
            version=version,
            start=send.start,
            stop=send.stop,
            host=hosts[send.first.host],
            children=_route(send.first.children, hosts),
        )
        for send in plan.sends
    ])


def _route(children: tuple[Hop, ...], hosts: Sequence[str]) -> tuple[Any, ...]:
    """Return hops as nested ``(host, children)`` pairs."""
    return tuple([(hosts[hop.host], _route(hop.children, hosts)) for hop in children])

"""Plan which way a version takes to the hosts; `star` sends it to each of them directly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drlnb.planning.distribution.trees import Hop, Plan, Send, star
from drlnb.planning.registry import Answer, PlannerKind
from drlnb.records.columns.distribution import Route, SendChunk

__all__ = ["DISTRIBUTION", "DistributionView", "Star", "below", "commands"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionView:
    """One version and the hosts that must get it; host i of a plan is ``hosts[i]``."""

    version: int
    hosts: tuple[str, ...]
    model_bytes: int


class Star:
    """The learner sends the whole version to each host itself."""

    name = "star"

    def plan(self, view: DistributionView) -> Plan:
        """Return one direct message per host, in their order."""
        return star(len(view.hosts), view.model_bytes)


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


def below(children: Route) -> Iterator[str]:
    """Yield the hosts of nested ``(host, children)`` pairs, each before those that it forwards to."""
    for host, further in children:
        yield host
        yield from below(further)


def _route(children: tuple[Hop, ...], hosts: Sequence[str]) -> Route:
    """Return hops as nested ``(host, children)`` pairs."""
    return tuple([(hosts[hop.host], _route(hop.children, hosts)) for hop in children])


def _problem(view: DistributionView, plan: object) -> str:
    """Return why a plan does not fit to its view; empty if it does."""
    if not isinstance(plan, Plan):
        return f"a plan must be a Plan of sends, got {plan!r}"
    if (plan.n_hosts, plan.model_bytes) != (len(view.hosts), view.model_bytes):
        wanted = f"{len(view.hosts)} hosts and {view.model_bytes} bytes"
        return f"the plan must be of {wanted}, got {plan.n_hosts} hosts and {plan.model_bytes} bytes"
    try:
        plan.check()
    except ValueError as error:
        return str(error)
    return ""


def _recorded(view: DistributionView, answer: Answer) -> Plan | None:
    """Return the plan that a journal's commands carry out."""
    numbers = {host: i for i, host in enumerate(view.hosts)}
    sends = [
        Send(chunk.start, chunk.stop, Hop(numbers[chunk.host], _hops(chunk.children, numbers)))
        for chunk in answer.all(SendChunk)
    ]
    if not sends:
        return None
    return Plan(n_hosts=len(view.hosts), model_bytes=view.model_bytes, sends=tuple(sends))


def _hops(children: Route, numbers: dict[str, int]) -> tuple[Hop, ...]:
    """Return nested ``(host, children)`` pairs as hops."""
    return tuple([Hop(numbers[host], _hops(below, numbers)) for host, below in children])


#: The decision how a version reaches the hosts.
DISTRIBUTION: PlannerKind[DistributionView, Plan] = PlannerKind(
    "distribution", "star", problem=_problem, recorded=_recorded
)

"""Describe a cluster of slots and the jobs that wait for it, as a planner of gangs sees them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from drlnb.planning.placement.closed_form import best_checkpoint_s, n_checkpoints

__all__ = ["Cluster", "ClusterView", "JobView", "Pick", "SlotState", "Terms", "attempt_s"]

#: ``stopping``: its job is over, but something of it may still run there; ``masked``: kept out of use.
SlotState = Literal["free", "busy", "stopping", "failed", "masked"]
#: More nodes than these beyond the least cost a gang nothing more.
_MOST_EXTRA_NODES = 4


@dataclass(frozen=True)
class Cluster:
    """Slots, and the node of each one.

    Parameters
    ----------
    node_of
        Number of the node of each slot; shape ``(n_slots,)``.

    Examples
    --------
    >>> Cluster.uniform(n_nodes=2, slots_per_node=2).node_of
    (0, 0, 1, 1)
    """

    node_of: tuple[int, ...]

    @classmethod
    def uniform(cls, n_nodes: int, slots_per_node: int) -> "Cluster":
        """Return a cluster whose nodes all have the same number of slots."""
        return cls(tuple([node for node in range(n_nodes) for _ in range(slots_per_node)]))

    @property
    def n_slots(self) -> int:
        """Number of slots, whatever their state."""
        return len(self.node_of)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Slots of each node, the largest first."""
        return tuple(sorted((self.node_of.count(node) for node in set(self.node_of)), reverse=True))

    def least_nodes(self, n_slots: int) -> int:
        """Return the fewest nodes that hold so many slots; all of them if none do."""
        n_nodes = 0
        for size in self.sizes:
            if n_slots <= 0:
                break
            n_nodes, n_slots = n_nodes + 1, n_slots - size
        return n_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What time a job loses to failures, checkpoints and distance; the same for all jobs of a cluster."""

    #: Seconds of work between two checkpoints; None: none are made.
    checkpoint_s: float | None = 3600.0
    #: Seconds that one takes.
    checkpoint_cost_s: float = 10.0
    #: Seconds that every start but the first takes before work goes on.
    restart_s: float = 600.0
    #: Share by which a gang is slower for each node beyond the fewest that could hold it.
    locality_frac: float = 0.0
    #: Each gang makes checkpoints as often as costs it least, whatever `checkpoint_s` is: :meth:`of` says how often.
    young: bool = False

    def of(self, rate_hz: float) -> "Terms":
        """Return the terms of a gang whose slots fail so often together: with its own checkpoints, if each has them."""
        if not self.young:
            return self
        checkpoint_s = best_checkpoint_s(self.checkpoint_cost_s, rate_hz)
        return replace(self, checkpoint_s=checkpoint_s if checkpoint_s < math.inf else None, young=False)

    def slowdown(self, n_nodes: int, n_least: int) -> float:
        """Return how many times as long a gang takes on so many nodes as on the fewest."""
        return 1.0 + self.locality_frac * min(_MOST_EXTRA_NODES, n_nodes - n_least)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job that waits."""

    job: str
    #: Slots that it needs at once.
    n_slots: int
    #: What is left of its work, in seconds on the fewest nodes and without a failure.
    work_s: float
    #: It has run before: work goes on after a restart.
    started: bool = False
    #: Slots that it still holds; the plan adds to them.
    kept: tuple[int, ...] = ()


def attempt_s(terms: Terms, job: JobView, slowdown: float) -> float:
    """Return the seconds that a job takes from a start to its end, if nothing fails.

    Examples
    --------
    >>> attempt_s(Terms(checkpoint_s=3600.0), JobView(job="a", n_slots=1, work_s=7200.0, started=True), 1.5)
    11410.0
    """
    restart_s = terms.restart_s if job.started else 0.0
    return restart_s + slowdown * job.work_s + terms.checkpoint_cost_s * n_checkpoints(job.work_s, terms.checkpoint_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as it is while jobs wait; sequences have shape ``(n_slots,)``."""

    cluster: Cluster
    state: tuple[SlotState, ...]
    #: Failures per second that each slot is expected to have.
    rate_hz: tuple[float, ...]
    #: Jobs to choose from, the next of the queue first; each one fits into the free slots.
    window: tuple[JobView, ...]
    terms: Terms = field(default_factory=Terms)
    #: Seconds since the beginning.
    t: float = 0.0
    #: Gangs on more than one node that compute on each node; shape ``(n_nodes,)``, empty: not counted.
    n_wide: tuple[int, ...] = ()
    #: Seconds until each slot is expected to be free, failures of its last 24 hours and 30 days, and seconds since it
    #: came back; empty unless the planner says that it looks at them.
    busy_for_s: tuple[float, ...] = ()
    n_failures_24h: tuple[int, ...] = ()
    n_failures_30d: tuple[int, ...] = ()
    up_for_s: tuple[float, ...] = ()
    #: What the journal calls each slot; empty where there is none.
    names: tuple[str, ...] = ()

    def free(self) -> list[int]:
        """Return the slots that may be used, in their order."""
        return [slot for slot, state in enumerate(self.state) if state == "free"]

    def slowdown(self, slots: Iterable[int], n_slots: int) -> float:
        """Return how many times as long a gang takes on these slots as on the fewest nodes."""
        node_of = self.cluster.node_of
        return self.terms.slowdown(len({node_of[slot] for slot in slots}), self.cluster.least_nodes(n_slots))


@dataclass(frozen=True, slots=True)
class Pick:
    """A job of the window, and all slots of its gang; the first one leads."""

    job: str
    slots: tuple[int, ...]
    #: Slot -> probability with which a network would have chosen it when it was last asked about it, as pairs; empty:
    #: no network was asked.
    chances: tuple[tuple[int, float], ...] = field(default=(), compare=False)

"""Plan which way a version takes to the hosts: one construction with its numbers, or the best by the cost model."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from drlnb.planning.distribution.changes import Ranges, gathered
from drlnb.planning.distribution.cost import PRESETS, Cost, Link
from drlnb.planning.distribution.plans import Plan, Send
from drlnb.planning.distribution.trees import STRATEGIES, star
from drlnb.planning.registry import Answer, FailedBefore, PlannerKind
from drlnb.records.columns.distribution import DistributionPlanned, SendParameters, VersionFailed

__all__ = ["DISTRIBUTION", "DistributionView", "Forecast", "best", "command", "forecast", "kind_of"]

#: Sizes of a chunk that planners keep to where they can: Dask copies smaller frames together, and the loop of a host
#: stands still while it copies a larger one.
CHUNK_BYTES = (128 << 10, 4 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionView:
    """One version and the hosts that must get it; host i of a plan is ``hosts[i]``."""

    version: int
    hosts: tuple[str, ...]
    #: Bytes that travel: all of the version, or those of :attr:`changed`, as if they lay one after the other.
    model_bytes: int
    #: Number of changes of the hosts so far.
    epoch: int = 0
    #: The network, as measured, or as a kind of Ethernet has it.
    link: Link = PRESETS["10GbE"]
    #: Kind of plan, as of :func:`kind_of`, that was tried -> how many times the closed form versions took by it.
    took: Mapping[str, float] = field(default_factory=dict)
    #: Version that all of the hosts hold, and the ranges of bytes in which this one differs from it; 0 and none: all
    #: of it travels.
    base: int = 0
    changed: Ranges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the closed form says of a strategy with its numbers."""

    strategy: str
    m: int
    c: int
    publish_s: float

    def __str__(self) -> str:
        numbers = {"m": self.m, "c": self.c}
        params = STRATEGIES[self.strategy].params.items()
        said = ",".join(f"{name}={numbers[number]}" for name, (number, default) in params if numbers[number] != default)
        return f"{self.strategy}:{said}" if said else self.strategy


@lru_cache(maxsize=256)
def forecast(
    name: str,
    n_hosts: int,
    model_bytes: int,
    link: Link,
    m: int = 0,
    c: int = 0,
    chunk_bytes: tuple[int, int] | None = None,
) -> Forecast:
    """Predict a strategy's time, at the best numbers where they are left open.

    Parameters
    ----------
    name
        One of :data:`STRATEGIES`.
    n_hosts, model_bytes
        Hosts beside the learner, at least 1, and bytes of one version.
    link
        The network.
    m, c
        Relays, trees or intermediate hosts, and chunks of each shard; 0: the best.
    chunk_bytes
        Least and greatest size of a chunk, where the open numbers allow it; None: any.

    References
    ----------
    The distribution patent, paragraphs 69, 83, 107: each scheme is compared at its own best number.
    """
    strategy = STRATEGIES[name]
    ms = np.array([min(m, n_hosts)] if m else list(strategy.m(n_hosts)), dtype=np.float64)[:, None]
    cs = np.array([c] if c else strategy.c, dtype=np.float64)[None, :]
    seconds = strategy.seconds(Cost.of(n_hosts, model_bytes, link), ms, cs)
    if chunk_bytes is not None:
        # A tree's k and levels cut nothing.
        chunk = model_bytes / ((ms if "m" in strategy.params else 1.0) * (cs if "c" in strategy.params else 1.0))
        chunk = np.broadcast_to(chunk, seconds.shape)
        fits = (chunk >= chunk_bytes[0]) & (chunk <= chunk_bytes[1])
        seconds = np.where(fits, seconds, np.inf) if fits.any() else seconds
    row, column = np.unravel_index(np.argmin(seconds), seconds.shape)
    return Forecast(strategy=name, m=int(ms[row, 0]), c=int(cs[0, column]), publish_s=float(seconds[row, column]))


def kind_of(name: str) -> str:
    """Return the kind of a plan, of which each is corrected on its own: its strategy, whole shards apart from chunks.

    Examples
    --------
    >>> kind_of("relay:m=4"), kind_of("chain:c=16"), kind_of("chain:c=1")
    ('relay', 'chain in chunks', 'chain')
    """
    strategy, _, numbers = name.partition(":")
    chunks = [word for word in numbers.split(",") if word.startswith("c=") and word != "c=1"]
    return f"{strategy} in chunks" if chunks else strategy


def best(n_hosts: int, model_bytes: int, link: Link, took: Mapping[str, float] | None = None) -> Forecast:
    """Return the fastest of all strategies, in chunks that hosts take well.

    What kinds of plans really took corrects their closed forms; a kind that was not tried is taken at its word.
    """
    strategies = ("star",) if link.one_machine else tuple(STRATEGIES)
    numbers = [(name, c) for name in strategies for c in ((0, 1) if took and len(STRATEGIES[name].c) > 1 else (0,))]
    said = [forecast(name, n_hosts, model_bytes, link, c=c, chunk_bytes=CHUNK_BYTES) for name, c in numbers]
    return min(said, key=lambda each: each.publish_s * (took or {}).get(kind_of(str(each)), 1.0))


@lru_cache(maxsize=64)
def made(said: Forecast, n_hosts: int, model_bytes: int, epoch: int) -> Plan:
    """Return the plan of a forecast; the same one as long as the hosts do not change."""
    plan = STRATEGIES[said.strategy].make(n_hosts, model_bytes, said.m, said.c, epoch)
    return replace(plan, predicted_s=round(said.publish_s, 6), name=str(said))


class Auto:
    """Takes the strategy that the cost model, corrected by what versions took, expects to be the fastest."""

    name = "auto"
    #: Whether it is worth while to measure the network for it.
    uses_link = True

    def plan(self, view: DistributionView) -> Plan:
        """Return the best strategy's plan."""
        n = len(view.hosts)
        if not n:
            return star(0, view.model_bytes)
        return made(self._forecast(view), n, view.model_bytes, view.epoch)

    def _forecast(self, view: DistributionView) -> Forecast:
        return best(len(view.hosts), view.model_bytes, view.link, view.took)


class Fixed(Auto):
    """Keeps to one strategy; numbers that are left open are those that the cost model expects to be the fastest."""

    def __init__(self, strategy: str, **numbers: int) -> None:
        for name, value in numbers.items():
            if value < 0:
                raise ValueError(f"{name} must be >= 1, or 0 for the best, got {value}")
        self.name, self.uses_link = strategy, strategy != "star"
        self._numbers = {STRATEGIES[strategy].params[name][0]: value for name, value in numbers.items()}
        if strategy == "tree" and self._numbers["c"] == 1:
            raise ValueError("levels must be >= 2: with one level, use star")
        if strategy == "multitree" and self._numbers["m"] == 1:
            raise ValueError("m must be >= 2: with one tree, use chain")

    def _forecast(self, view: DistributionView) -> Forecast:
        n_bytes, numbers = view.model_bytes, self._numbers
        return forecast(
            self.name.partition(":")[0], len(view.hosts), n_bytes, view.link, **numbers, chunk_bytes=CHUNK_BYTES
        )


def command(plan: Plan, view: DistributionView, deadline_s: float, confirm_s: float = 0.0) -> SendParameters:
    """Return the command to the learner that carries out a plan; it names places in the version."""
    placed = plan.placed(view.changed)
    return SendParameters(
        version=view.version,
        source="",
        hosts=view.hosts,
        routes=plan.routes,
        sends=tuple([(send.start, send.stop, send.route) for send in placed.sends]),
        n_in_flight=plan.n_in_flight,
        deadline_s=deadline_s,
        confirm_s=confirm_s,
        base=view.base,
        changed=view.changed,
    )


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
    """Return the plan that a journal holds."""
    planned, sent = answer.next(DistributionPlanned), answer.next(SendParameters)
    if planned is None or sent is None:
        if failed := answer.next(VersionFailed):
            raise FailedBefore(failed.reason)
        return None
    return Plan(
        n_hosts=len(view.hosts),
        model_bytes=view.model_bytes,
        routes=sent.routes,
        sends=tuple([Send(*send) for send in (gathered(sent.sends, sent.changed) if sent.changed else sent.sends)]),
        n_in_flight=sent.n_in_flight,
        predicted_s=planned.predicted_s,
        name=planned.plan,
    )


#: The decision how a version reaches the hosts.
DISTRIBUTION: PlannerKind[DistributionView, Plan] = PlannerKind(
    "distribution", "auto", problem=_problem, recorded=_recorded, traits={"uses_link": True}
)
DISTRIBUTION.register("auto", Auto)
for _name, _strategy in STRATEGIES.items():
    _defaults = {key: value for key, (_, value) in _strategy.params.items()}
    DISTRIBUTION.register(_name, partial(Fixed, _name), _defaults)

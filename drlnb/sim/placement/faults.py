"""Draw how often slots fail, and when: a path of faults is there before any planner is asked."""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from drlnb.planning.placement.cluster import Cluster
from drlnb.records.errors import ConfigError
from drlnb.records.settings import Declared, between, optional, setting

__all__ = ["FaultModel", "FaultPath"]

_DAY_S = 86_400.0
#: Key of the generator of rates; those of paths have the number of a slot there, or so much more than that of a node.
_RATES, _NODES = 2**64 - 1, 2**63
#: Outages of a slot that are drawn at first; later twice as many.
_FIRST_BLOCK = 4


class FaultPath:
    """When each slot fails and when it is back.

    Each slot has its own stream, which goes on as far as it is looked at: who looks, when and how far changes nothing.

    Parameters
    ----------
    outages
        Of each slot the seconds at which it fails and is back, in their order; once they end it never fails again.
    rate_hz
        Failures per second of each slot, as planners are told; shape ``(n_slots,)``.
    mttr_s
        Mean seconds of an outage.
    """

    def __init__(
        self,
        outages: Sequence[Iterable[tuple[float, float]]],
        rate_hz: Sequence[float] | None = None,
        mttr_s: float = 0.0,
    ) -> None:
        self._coming = [iter(some) for some in outages]
        self._known: list[list[tuple[float, float]]] = [[] for _ in self._coming]
        self.rate_hz = tuple(rate_hz) if rate_hz is not None else (0.0,) * len(outages)
        self.mttr_s = mttr_s

    def outage(self, slot: int, k: int) -> tuple[float, float]:
        """Return when a slot fails for the k-th time, from 0, and when it is back; infinite where it does not."""
        known = self._known[slot]
        while len(known) <= k:
            known.append(next(self._coming[slot], (math.inf, math.inf)))
        return known[k]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultModel(Declared):
    """How often slots fail, and how long they stay away; busy or not."""

    #: Mean days between failures of a slot.  337: published failures of jobs on a cluster for research (Kokolis et
    #: al., arXiv 2410.21680); 20 is 17 times as often.
    mtbf_days: float = setting(337.0, between(1e-3, 1e6))
    #: Standard deviation of the logarithm of a slot's rate, of its own and of its node's; the mean rate stays.
    spread: float = setting(0.9, between(0, 3))
    node_spread: float = setting(0.45, between(0, 3))
    #: Share of the slots that fail so many times as often, at least one; 0: none.  The mean rate rises.
    lemons: float = setting(0.0, between(0, 1))
    lemon_factor: float = setting(30.0, between(1, 1e4))
    #: Mean seconds until a slot is back.
    mttr_s: float = setting(7200.0, between(0, 1e9))
    #: Shape of the distribution (Weibull) of the time from a repair to the next failure.  Below 1, such as 0.7, slots
    #: that have just been mended fail most; 1: a failure has no memory.  The mean rate stays.
    weibull_shape: float = setting(1.0, between(0.2, 10))
    #: Mean days between outages of a node, each of all its slots; None: there are none.
    node_mtbf_days: float | None = setting(None, optional(between(1e-3, 1e6)))

    def rates(self, cluster: Cluster, *, seed: int = 0) -> tuple[float, ...]:
        """Draw the failures per second of each slot.

        Parameters
        ----------
        cluster
            Where the slots are.
        seed
            The same seed gives the same rates; another share of lemons leaves all other slots as they were.
        """
        rng = _generator(seed, _RATES)
        logs = [self.spread * z - self.spread**2 / 2 for z in rng.standard_normal(cluster.n_slots).tolist()]
        nodes = sorted(set(cluster.node_of))
        drawn = rng.standard_normal(len(nodes)).tolist()
        of_node = {node: self.node_spread * z - self.node_spread**2 / 2 for node, z in zip(nodes, drawn, strict=True)}
        n_lemons = max(1, round(self.lemons * cluster.n_slots)) if self.lemons else 0
        lemons = set(rng.permutation(cluster.n_slots)[:n_lemons].tolist())
        base = 1.0 / (self.mtbf_days * _DAY_S)
        return tuple(
            base * math.exp(log + of_node[node]) * (self.lemon_factor if slot in lemons else 1.0)
            for slot, (log, node) in enumerate(zip(logs, cluster.node_of, strict=True))
        )

    def path(self, rates: Sequence[float], *, seed: int = 0, cluster: Cluster | None = None) -> FaultPath:
        """Return when slots of such rates fail.

        Parameters
        ----------
        rates
            Failures per second of each slot, but for outages of its node; shape ``(n_slots,)``.
        seed
            The same seed gives each slot the same stream, whatever becomes of the others.
        cluster
            Where the slots are, which outages of nodes ask for.

        Raises
        ------
        ConfigError
            If nodes have outages, and where the slots are is not told.
        """
        own = [self._outages(rate, seed, slot) for slot, rate in enumerate(rates)]
        if self.node_mtbf_days is None:
            return FaultPath(own, rates, self.mttr_s)
        if cluster is None or cluster.n_slots != len(rates):
            raise ConfigError(f"node_mtbf_days needs path(rates, cluster=...) with the cluster of {len(rates)} slots")
        node_hz = 1.0 / (self.node_mtbf_days * _DAY_S)
        nodes = [self._outages(node_hz, seed, _NODES + node) for node in cluster.node_of]
        return FaultPath(list(map(_either, own, nodes)), [rate + node_hz for rate in rates], self.mttr_s)

    def _outages(self, rate_hz: float, seed: int, stream: int) -> Iterator[tuple[float, float]]:
        """Yield the outages of a slot or node without end, none of one that never fails.

        Nobody saw the last repair before the beginning: the first failure is expected as at any other moment.
        """
        rng, t, n = _generator(seed, stream), 0.0, _FIRST_BLOCK
        power = 1.0 / self.weibull_shape
        scale_hz = rate_hz * math.gamma(1.0 + power)
        pairs = [[rng.standard_gamma(power), rng.standard_exponential()]]
        while rate_hz:
            for up, down in pairs:
                fails = t + up**power / scale_hz
                t = fails + down * self.mttr_s
                yield fails, t
            pairs = rng.standard_exponential((n, 2)).tolist()
            n *= 2


def _either(*outages: Iterator[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield when any of several is away, what overlaps as one outage."""
    fails, back = math.inf, -math.inf
    for start, end in heapq.merge(*outages):
        if start > back:
            if fails < math.inf:
                yield fails, back
            fails = start
        back = max(back, end)
    if fails < math.inf:
        yield fails, back


def _generator(seed: int, stream: int) -> np.random.Generator:
    """Return the generator of a stream; ConfigError if the seed is none."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed must be a whole number in 0..{2**63 - 1}, got {seed!r}")
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)))

"""Draw how long things take in a simulated run.

Every duration of a task comes from generators keyed by (seed, task), and those of one round are drawn together, round
by round, whatever the order of events: so every planner that is compared on a seed sees the same workload.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from drlnb.records.columns.warmup import StartCollector
from drlnb.records.settings import NOT_NEGATIVE, Declared, choice, setting

__all__ = ["SHAPES", "Costs", "Durations", "RoundCosts", "Workload"]

#: Shapes of a duration's distribution; ``exponential`` is for comparison with queueing theory.
SHAPES = ("lognormal", "exponential")
#: Digits that a duration keeps: microseconds, so that journals stay small.
_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs(Declared):
    """Means and spread of the durations of one task, in seconds; the defaults give a duty of about 0.2."""

    #: Acting for one round, per collector.
    collect_s: float = setting(4.0, NOT_NEGATIVE)
    #: Gradients of one round's whole batch; each collector's share costs its part.
    compute_s: float = setting(1.0, NOT_NEGATIVE)
    #: Making the new parameters once all batches are in.
    finish_s: float = setting(0.02, NOT_NEGATIVE)
    #: Latency of one message with parameters to one host.
    publish_s: float = setting(0.01, NOT_NEGATIVE)
    #: Starting a collector (a forked process; a cold one takes 1.4 s).
    start_s: float = setting(0.04, NOT_NEGATIVE)
    #: One small message.
    rpc_s: float = setting(0.001, NOT_NEGATIVE)
    #: Making a slot ready for a task that was not the last one on it: its parameters, its gradients so far.
    switch_s: float = setting(0.0, NOT_NEGATIVE)
    #: Copying the state that a checkpoint needs.
    gather_s: float = setting(0.002, NOT_NEGATIVE)
    #: Writing a checkpoint.
    write_s: float = setting(0.05, NOT_NEGATIVE)
    #: One episode of the final evaluation.
    episode_s: float = setting(0.02, NOT_NEGATIVE)
    #: Coefficient of variation of acting, dimensionless.
    collect_cv: float = setting(0.2, NOT_NEGATIVE)
    #: Coefficient of variation of everything else, dimensionless.
    service_cv: float = setting(0.05, NOT_NEGATIVE)
    #: One of :data:`SHAPES`; ``exponential`` ignores both coefficients.
    shape: str = setting("lognormal", choice(*SHAPES))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """Durations of one round of one task, in seconds."""

    #: By collector; shape ``(n_collectors,)``.
    collect_s: tuple[float, ...]
    #: By collector; shape ``(n_collectors,)``.
    stage_s: tuple[float, ...]
    finish_s: float
    publish_s: float
    rpc_s: float
    #: What the gradients themselves take of `stage_s`; shape ``(n_collectors,)``, empty: all of it.
    compute_s: tuple[float, ...] = ()


class Durations(Protocol):
    """How long things take in one task's rounds."""

    @property
    def costs(self) -> Costs:
        """What does not differ from round to round."""

    def round(self, k: int) -> RoundCosts:
        """Return the durations of round `k`; 0 makes the initial parameters."""

    def start_s(self, command: StartCollector) -> float:
        """Return how long a start takes that was commanded, in seconds."""


class Workload:
    """The durations of one task.

    Parameters
    ----------
    costs
        Means and spread.
    seed
        Seed of the run, at least 0.
    task
        Index of the task in the run, at least 0.
    n_collectors
        Collectors of the task; a task without any has one batch.
    """

    def __init__(self, costs: Costs, *, seed: int, task: int, n_collectors: int) -> None:
        self.costs = costs
        self._n = max(1, n_collectors)
        self._rounds: list[RoundCosts] = []
        self._round_rng = np.random.default_rng([seed, task, 0])
        self._start_rng = np.random.default_rng([seed, task, 1])

    def round(self, k: int) -> RoundCosts:
        """Return the durations of round `k` (0 makes the initial parameters)."""
        while len(self._rounds) <= k:
            self._rounds.append(self._draw())
        return self._rounds[k]

    def start_s(self, command: StartCollector) -> float:
        """Return how long the next start of a collector takes, whichever it is, in seconds."""
        return self._draws(self._start_rng, (self.costs.start_s,), self.costs.service_cv)[0]

    def _draw(self) -> RoundCosts:
        costs, n = self.costs, self._n
        collect_s = self._draws(self._round_rng, (costs.collect_s,) * n, costs.collect_cv)
        means = (costs.compute_s / n,) * n + (costs.finish_s, costs.publish_s, costs.rpc_s)
        rest = self._draws(self._round_rng, means, costs.service_cv)
        return RoundCosts(
            collect_s=collect_s, stage_s=rest[:n], finish_s=rest[n], publish_s=rest[n + 1], rpc_s=rest[n + 2]
        )

    def _draws(self, rng: np.random.Generator, means: tuple[float, ...], cv: float) -> tuple[float, ...]:
        if self.costs.shape == "exponential":
            factors = rng.standard_exponential(len(means))
        else:
            # A lognormal of mean 1: the variance of its logarithm is log(1 + cv^2).
            variance = math.log1p(cv * cv)
            factors = np.exp(math.sqrt(variance) * rng.standard_normal(len(means)) - 0.5 * variance)
        drawn: list[float] = np.round(factors * np.asarray(means), _DIGITS).tolist()
        return tuple(drawn)

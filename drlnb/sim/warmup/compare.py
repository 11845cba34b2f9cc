"""Simulate rounds of one task whose collectors are stopped and started on the virtual clock, under any planner.

The workload draws durations and carries out commands; the machine of :mod:`drlnb.planning.warmup` decides.  Durations
come from generators keyed by (seed, round) and (seed, collector, round), so every planner sees the same ones.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from drlnb.planning.warmup import WarmupMachine, WarmupSettings
from drlnb.records.columns.distribution import HostCompleted
from drlnb.records.columns.warmup import (
    CollectorReady,
    RevokeStart,
    StartCollector,
    StopCollector,
)
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream
from drlnb.records.round import (
    ExperienceArrived,
    GradientComputed,
    LeaseReceived,
    ParametersReady,
    PlacementReceived,
    StopAsked,
)
from drlnb.records.settings import ANYTHING, SECONDS, SHARE, Declared, choice, count, setting
from drlnb.sim.driver import Clock, Hosted

__all__ = ["SHAPES", "STARTS", "Outcome", "WarmupWorkload", "simulate_warmup"]

#: ``jitter``: rounds differ a little; ``outliers``: some take three times as long, too; ``shifts``: and in every other
#: hundred all take half as long again.
SHAPES = ("jitter", "outliers", "shifts")
#: Start mode -> median and 95 % quantile of a start in seconds, as measured on 2 cores.
STARTS: Mapping[str, tuple[float, float]] = {"spawn": (1.36, 2.49), "zygote": (0.038, 0.052)}

_OUTLIER_FRAC, _OUTLIER_FACTOR = 0.05, 3.0
_SHIFT_ROUNDS, _SHIFT_FACTOR = 100, 1.5
#: Shares of the gap: gradients, then making the parameters, then their way to the host.
_GRADIENTS_FRAC, _FINISH_FRAC, _PUBLISH_FRAC = 0.88, 0.07, 0.05
#: Longest 95 % quantile of a start, in seconds.
_MOST_S = 1e6
#: z of a 95 % quantile.
_Z95 = 1.6448536269514722
#: Shortest gradient, relative to the mean one: jitter must not turn time round.
_SHORTEST_FRAC = 0.02
#: Share of rounds, at the beginning, that do not count.
_DISCARD_FRAC = 0.1
#: A wait that is none: half of what event times keep.
_IN_TIME_S = 5e-7
_NODE = "n0"
_FENCE = Fence(epoch=1, token=1)

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)  # no slots: what is drawn is kept
class WarmupWorkload(Declared):
    """Durations of one task's rounds and starts."""

    n_workers: int = setting(8, count(1, 256))
    n_rounds: int = setting(400, count(10, 100_000))
    #: Mean seconds from sending to the next parameters, where the shape does not lengthen it.
    gap_s: float = setting(6.0, SECONDS)
    #: Standard deviation of the gap, relative to its mean.
    jitter_frac: float = setting(0.1, SHARE)
    #: One of :data:`SHAPES`.
    shape: str = setting("jitter", choice(*SHAPES))
    #: One of :data:`STARTS`.
    start_mode: str = setting("spawn", choice(*STARTS))
    #: 95 % quantile of a start in seconds; None: that of the mode.
    start_p95_s: float | None = setting(None, ANYTHING)
    #: Acting for one round; all collectors send together.
    collect_s: float = setting(2.0, SECONDS)
    seed: int = setting(0, count(0, 2**31))

    @classmethod
    def together(cls, values: Mapping[str, Any], wrong: Collection[str]) -> list[str]:
        """Return what is wrong with the starts."""
        median_s = 0.0 if "start_mode" in wrong else STARTS[values["start_mode"]][0]
        p95_s = values["start_p95_s"]
        if p95_s is None or median_s < p95_s <= _MOST_S:
            return []
        return [f"start_p95_s must be above the median {median_s:g} s, and at most {_MOST_S:g} s, got {p95_s}"]

    @cached_property
    def factors(self) -> _Array:
        """What each round is lengthened by, dimensionless; shape ``(n_rounds,)``."""
        rng = np.random.default_rng([self.seed, 0])
        outliers = np.where(rng.random(self.n_rounds) < _OUTLIER_FRAC, _OUTLIER_FACTOR, 1.0)
        if self.shape == "jitter":
            return np.ones(self.n_rounds)
        odd = (np.arange(self.n_rounds) // _SHIFT_ROUNDS) % 2 == 1
        return outliers * np.where(odd & (self.shape == "shifts"), _SHIFT_FACTOR, 1.0)

    @cached_property
    def gradients_s(self) -> _Array:
        """Duration of each gradient in seconds, independent; shape ``(n_rounds, n_workers)``.

        Their sum has all the jitter of the gap: the worst case for who predicts from progress.
        """
        share = _GRADIENTS_FRAC / self.n_workers
        return self._drawn(1, share, self.jitter_frac / math.sqrt(self.n_workers), self.n_workers)

    @cached_property
    def finishes_s(self) -> _Array:
        """From the last gradient to the new parameters in seconds; shape ``(n_rounds,)``."""
        return self._drawn(3, _FINISH_FRAC, _FINISH_FRAC * self.jitter_frac, 1)[:, 0]

    @cached_property
    def publishes_s(self) -> _Array:
        """From the new parameters to their arrival in seconds; shape ``(n_rounds,)``."""
        return self._drawn(4, _PUBLISH_FRAC, _PUBLISH_FRAC * self.jitter_frac, 1)[:, 0]

    def _drawn(self, stream: int, mean_frac: float, spread_frac: float, n: int) -> _Array:
        """Return normal durations with this mean and spread relative to the gap, cut at a fiftieth of the mean."""
        noise = np.random.default_rng([self.seed, stream]).standard_normal((self.n_rounds, n))
        fracs = np.maximum(mean_frac + spread_frac * noise, _SHORTEST_FRAC * mean_frac)
        drawn: _Array = self.gap_s * fracs * self.factors[:, None]
        return drawn

    @cached_property
    def starts_s(self) -> _Array:
        """Duration of each start in seconds, lognormal; shape ``(n_rounds, n_workers)``."""
        median_s, p95_s = STARTS[self.start_mode]
        spread = math.log((self.start_p95_s or p95_s) / median_s) / _Z95
        rng = np.random.default_rng([self.seed, 2])
        drawn: _Array = median_s * np.exp(spread * rng.standard_normal((self.n_rounds, self.n_workers)))
        return drawn

    @cached_property
    def gaps_s(self) -> _Array:
        """From sending to the next parameters in seconds; shape ``(n_rounds,)``."""
        total: _Array = self.gradients_s.sum(axis=1) + self.finishes_s + self.publishes_s
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the starts of a run came to, the first tenth of its rounds left out; times in seconds."""

    planner: str
    seed: int
    rho: float
    #: Mean time from the parameters' arrival until the last collector was ready.
    wait_s: float
    #: Mean time that a collector was ready, or not stopped, while it had nothing to do.
    idle_s: float
    #: Rounds that began without waiting.
    hit_frac: float
    n_rounds: int
    stream: Stream = field(repr=False)

    @property
    def cost_s(self) -> float:
        """``rho wait + idle``: seconds of one idle collector."""
        return self.rho * self.wait_s + self.idle_s


class _Task:
    """Collectors that act, end and start, and a slot that makes parameters, around one machine."""

    def __init__(self, workload: WarmupWorkload, settings: WarmupSettings, *, validate: bool) -> None:
        self.clock = Clock()
        self.workload = workload
        n = workload.n_workers
        config = {
            "task": "sim",
            "env_shares": [[i] for i in range(n)],
            "settings": asdict(settings),
            "can_respawn": True,
        }
        self.host = Hosted(
            self.clock,
            WarmupMachine(config),
            kind="warmup",
            config=config,
            stream="warmup-sim",
            effects={
                StopCollector: self._stop,
                StartCollector: self._set_start,
                RevokeStart: self._revoke,
            },
            validate=validate,
        )
        self.round = 0
        #: Since when each collector has had nothing to do, or None; whether it is up.
        self.free_t: list[float | None] = [None] * n
        self.up = [True] * n
        #: Number of each collector's latest start, so that a replaced one does not happen; rounds started for.
        self.timer = [0] * n
        self.started = [0] * n
        self.n_starting = 0
        #: When the next parameters came, until everybody is there.
        self.arrival_t: float | None = None
        self.wait_s: list[float] = []
        self.idle_s: list[float] = []
        self._idle_s = 0.0

    def open(self) -> None:
        """Begin with every process up and the first parameters there."""
        n = self.workload.n_workers
        self.host.feed(PlacementReceived, collector_nodes=(_NODE,) * n)
        for i in range(n):
            self.host.feed(CollectorReady, collector=i, node=_NODE, start_s=0.0, n_starting=n, start_mode="first")
        self.host.feed(HostCompleted, host=_NODE, version=1, n_bytes=1, publish_s=0.0)
        self._act()

    # ------------------------------------------------------------------ a round
    def _act(self) -> None:
        self.round += 1
        self.clock.after(self.workload.collect_s, self._send)

    def _send(self) -> None:
        """Send all experience, and begin to compute."""
        for i in range(self.workload.n_workers):
            self.free_t[i] = self.clock.now
            self.host.feed(
                ExperienceArrived, collector=i, round=self.round, attempt=1, version=self.round, n_samples=256,
                n_bytes=10_240, key=f"{self.round}/{i}", collect_s=self.workload.collect_s, episodes=(),
            )  # fmt: skip
        self.host.feed(LeaseReceived, request_id=f"r{self.round}", fence=_FENCE, slots=("n0/cpu0",), waited_s=0.0)
        self._compute(0)

    def _compute(self, i: int) -> None:
        k, work = self.round - 1, self.workload
        if i == work.n_workers:
            self.clock.after(float(work.finishes_s[k]), self._make)
            return
        self.clock.after(float(work.gradients_s[k, i]), self._computed, i)

    def _computed(self, i: int) -> None:
        elapsed_s = round(float(self.workload.gradients_s[self.round - 1, i]), 6)
        self.host.feed(GradientComputed, collector=i, round=self.round, fence=_FENCE, slot="s", elapsed_s=elapsed_s)
        self._compute(i + 1)

    def _make(self) -> None:
        self.host.feed(
            ParametersReady, round=self.round, fence=_FENCE, elapsed_s=0.0, n_bytes=40_000, key="k", metrics={}
        )
        self.clock.after(float(self.workload.publishes_s[self.round - 1]), self._arrive)

    def _arrive(self) -> None:
        """Bring the next parameters to the host: who is up has been idle, whom nobody started is started now."""
        self.arrival_t = self.clock.now
        self._idle_s = sum(
            self.clock.now - t for t, up in zip(self.free_t, self.up, strict=True) if up and t is not None
        )
        self.host.feed(HostCompleted, host=_NODE, version=self.round + 1, n_bytes=1, publish_s=0.0)
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next round once everybody is there."""
        if not all(self.up) or self.arrival_t is None:
            return
        self.wait_s.append(self.clock.now - self.arrival_t)
        self.idle_s.append(self._idle_s / self.workload.n_workers)
        self.arrival_t = None
        if self.round < self.workload.n_rounds:
            self._act()
        else:
            self.host.feed(StopAsked, reason="all rounds made")

    # ------------------------------------------------------------------ processes
    def _stop(self, command: StopCollector) -> None:
        self.up[command.collector] = False
        self.free_t[command.collector] = None

    def _set_start(self, command: StartCollector) -> None:
        i = command.collector
        if self.started[i] >= command.round:
            return  # it has been started for this round
        self.timer[i] += 1
        self.clock.after(command.after_s, self._start, i, command.round, self.timer[i])

    def _start(self, i: int, round_: int, number: int) -> None:
        if self.timer[i] != number or self.started[i] >= round_:
            return  # another time was set, or it was taken back
        self.started[i] = round_
        self.n_starting += 1
        start_s = float(self.workload.starts_s[round_ - 2, i])
        self.clock.after(start_s, self._ready, i, number, start_s, self.n_starting)

    def _ready(self, i: int, number: int, start_s: float, n_starting: int) -> None:
        self.n_starting -= 1
        if self.timer[i] != number:
            return
        self.up[i], self.free_t[i] = True, self.clock.now
        self.host.feed(
            CollectorReady, collector=i, node=_NODE, start_s=round(start_s, 6), n_starting=n_starting,
            start_mode=self.workload.start_mode, round=self.started[i],
        )  # fmt: skip
        self._go_on()

    def _revoke(self, command: RevokeStart) -> None:
        self.timer[command.collector] += 1


def simulate_warmup(
    workload: WarmupWorkload,
    planner: str = "saa",
    *,
    settings: Mapping[str, Any] | None = None,
    validate: bool = False,
) -> Outcome:
    """Run one task's rounds under a warm-up planner.

    Parameters
    ----------
    workload
        Durations.
    planner
        Name of a planner of :data:`~drlnb.planning.warmup.WARMUP`.
    settings
        Other warm-up settings; collectors end after each round unless a mode is given.
    validate
        Check the machine's invariants after each event.

    Returns
    -------
    Outcome
        Waits and idle times, measured apart from the machine.

    Raises
    ------
    ConfigError
        If a setting is wrong; the message lists all of it.
    """
    given = {"collector_mode": "respawn", **(settings or {}), "planner": planner, "start_mode": workload.start_mode}
    checked = WarmupSettings.from_mapping(given)
    task = _Task(workload, checked, validate=validate)
    task.open()
    task.clock.run()
    first = int(_DISCARD_FRAC * workload.n_rounds)
    waits, idles = task.wait_s[first:], task.idle_s[first:]
    return Outcome(
        planner=planner,
        seed=workload.seed,
        rho=checked.rho,
        wait_s=math.fsum(waits) / len(waits),
        idle_s=math.fsum(idles) / len(idles),
        hit_frac=sum(wait < _IN_TIME_S for wait in waits) / len(waits),
        n_rounds=len(waits),
        stream=task.host.stream,
    )

"""Play the splits of a gang under any planner, in lock step with a trace of its members' speeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

import numpy as np
import numpy.typing as npt

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.batching import BATCHING, BatchPlan, BatchReport, BatchView, Member, plan_split
from drlnb.planning.batching.gather import Gathering, gathering_problem, quorum_problem
from drlnb.planning.batching.steps import Step, play_split
from drlnb.planning.registry import AnyPlanner
from drlnb.records.errors import ConfigError
from drlnb.records.settings import ANYTHING, between, count, setting
from drlnb.sim.batching.gradients import gradient_scalars

__all__ = ["CLAIRVOYANT", "Gang", "Outcome", "Played", "Trace", "play_splits", "simulate_batching"]

#: Name of the planner that knows the speeds of a split before it, as a simulator alone can.
CLAIRVOYANT = "clairvoyant"
_MOST_UNITS = 1_000_000


class Trace(Protocol):
    """How fast each member is in each split."""

    @property
    def speeds(self) -> Sequence[float]:
        """Samples per second of each member that nothing slows."""

    @property
    def speeds_hz(self) -> npt.NDArray[np.float64]:
        """Samples per second in each split, shape ``(n_splits, n_members)``."""

    @property
    def seed(self) -> int:
        """What it was drawn with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang(Gathering):
    """What a gang does in each split: how many samples, and whom it waits for, as the steps of a task have it."""

    n_units: int = setting(512, count(1, _MOST_UNITS))
    #: Judged with the members, whose number is known then.
    quorum: float | int = setting(1.0, ANYTHING)
    #: Seconds of a share beside its samples, and of a split's messages.
    overhead_s: float = setting(0.010, between(0, 1e6))
    comm_s: float = setting(0.020, between(0, 1e6))
    #: Samples whose gradient has as much noise as signal, for planners that look at gradients.
    noise_scale: float = setting(512.0, between(0, 1e9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the splits of a trace came to under a planner."""

    planner: str
    seed: int
    #: Mean and median seconds of a split, with its messages.
    split_s: float
    median_s: float
    #: Samples used per second.
    samples_hz: float
    #: Share of the samples that were planned and not used.
    lost_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One split; sequences stand beside its members."""

    planner: str
    #: With the speeds that they had.
    members: Sequence[Member]
    plan: BatchPlan
    #: Seconds that it was planned to take, messages apart.
    predicted_s: float
    step: Step
    #: It shares what the one before has left of the same step.
    goes_on: bool = False


class _Clairvoyant:
    """Splits by the speeds that members are about to have."""

    name = CLAIRVOYANT

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def plan(self, view: BatchView) -> BatchPlan:
        """Return the best whole shares of the split that comes."""
        members = _with_speeds(view.members, self._trace, view.round)
        sizes = tuple(n for _, n in plan_split(view.n_units, members).sizes)
        return BatchPlan(sizes=sizes, speeds_hz=tuple(each.speed_hz for each in members))


def simulate_batching(trace: Trace, planner: str | AnyPlanner, gang: Gang | None = None) -> Outcome:
    """Play all splits of a trace, and return what they came to.

    Parameters
    ----------
    trace, planner, gang
        As of :func:`play_splits`.

    Raises
    ------
    ConfigError
        If so many members cannot be waited for.
    """
    gang, name, total_s, n_used, durations_s = gang or Gang(), "", 0.0, 0, list[float]()
    for each in play_splits(trace, planner, gang):
        name = each.planner
        if each.goes_on:
            durations_s[-1] += each.step.duration_s
        else:
            durations_s.append(each.step.duration_s)
        total_s, n_used = total_s + each.step.duration_s, n_used + each.step.n_used
    return Outcome(
        planner=name,
        seed=trace.seed,
        split_s=total_s / len(durations_s),
        median_s=median(durations_s),
        samples_hz=n_used / total_s,
        lost_frac=1.0 - n_used / (gang.n_units * len(durations_s)),
    )


def play_splits(trace: Trace, planner: str | AnyPlanner, gang: Gang | None = None) -> Iterator[Played]:
    """Yield all splits of a trace.

    A member that is cut begins its next share when its chunk ends; one that is dropped has none before it is done.
    Planners see the true speed of every share, late or not, once the split is over.

    Parameters
    ----------
    trace
        Speeds of the members, which begin with a probe: planners know what each one makes unslowed.
    planner
        A planner, or the name of one of :data:`~drlnb.planning.batching.BATCHING`, or :data:`CLAIRVOYANT`.
    gang
        Samples of each split and whom it waits for; None: the defaults.

    Raises
    ------
    ConfigError
        If so many members cannot be waited for.
    """
    gang = gang or Gang()
    if problem := quorum_problem(gang.quorum, len(trace.speeds)) or (
        gathering_problem(gang, len(trace.speeds)) if gang.steal else ""
    ):
        raise ConfigError(problem)
    asked = planner
    if isinstance(asked, str):
        asked = _Clairvoyant(trace) if asked == CLAIRVOYANT else BATCHING.build(asked)
    whole = [Member(id=str(i), speed_hz=hz, overhead_s=gang.overhead_s) for i, hz in enumerate(trace.speeds)]
    # What a probe says of each member alone, nobody else being there.
    memory = BATCHING.observe(asked, None, _report(-1, (gang.n_units,) * len(whole), whole, 0.0, gang))
    #: Seconds of each member's last share that are left when a split begins.
    busy_s = [0.0] * len(whole)
    for split in range(len(trace.speeds_hz)):
        left, goes_on = gang.n_units, False
        while left:
            members = [each for each in whole if gang.late == "cut" or not busy_s[int(each.id)]]
            view = BatchView(round=split, role="update", n_units=left, members=tuple(members), memory=memory)
            plan = BATCHING.ask(asked, view)
            true = _with_speeds(members, trace, split)
            begun = [replace(each, overhead_s=each.overhead_s + busy_s[int(each.id)]) for each in true]
            played = _play(asked.name, plan, members, begun, gang, goes_on=goes_on)
            step = played.step
            busy_s = [max(0.0, left_s - step.duration_s) for left_s in busy_s]
            for each, free_s in zip(members, step.free_s, strict=True):
                busy_s[int(each.id)] = max(0.0, free_s - step.duration_s)
            # Of what is left of a batch is often too little for all: who had none of it was not idle.
            told = [i for i, n in enumerate(plan.sizes) if n or not goes_on]
            sizes, shared = [plan.sizes[i] for i in told], [true[i] for i in told]
            report = _report(split, sizes, shared, step.duration_s, gang)
            used, ages_s = [step.used[i] for i in told], [step.free_s[i] for i in told]
            gradients = gradient_scalars(used, ages_s, gang.noise_scale)
            memory = BATCHING.observe(asked, memory, replace(report, **gradients))
            yield played
            left, goes_on = step.n_lost if gang.steal else 0, True


def _with_speeds(members: Sequence[Member], trace: Trace, split: int) -> list[Member]:
    """Return members with the speeds that they have in a split."""
    speeds = trace.speeds_hz[split]
    return [replace(each, speed_hz=float(speeds[int(each.id)])) for each in members]


def _play(
    name: str, plan: BatchPlan, known: Sequence[Member], true: Sequence[Member], gang: Gang, *, goes_on: bool
) -> Played:
    """Return a planned split, played; gradients are brought together once per step."""
    planned_hz = plan.speeds_hz or [each.speed_hz for each in known]
    shares = zip(plan.sizes, planned_hz, known, strict=True)
    predicted_s = max(each.overhead_s + n / hz for n, hz, each in shares if n)
    step = play_split(
        plan.sizes,
        true,
        gathering=gang,
        planned_hz=planned_hz,
        predicted_s=predicted_s,
        comm_s=0.0 if goes_on else gang.comm_s,
    )
    return Played(planner=name, members=true, plan=plan, predicted_s=predicted_s, step=step, goes_on=goes_on)


def _report(split: int, sizes: Sequence[int], true: Sequence[Member], duration_s: float, gang: Gang) -> BatchReport:
    """Return what a planner learns from: how long each share took, or would have taken to its end."""
    worked = [n / each.speed_hz if n else None for n, each in zip(sizes, true, strict=True)]
    return BatchReport(
        round=split,
        members=tuple([each.id for each in true]),
        sizes=tuple(sizes),
        n_done=tuple(sizes),
        compute_s=tuple(worked),
        elapsed_s=tuple([None if s is None else s + gang.overhead_s for s in worked]),
        duration_s=duration_s,
    )

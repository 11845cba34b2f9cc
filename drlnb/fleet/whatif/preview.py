"""Compute what would come of a change, by playing the run's own durations and events once more.

Leasing in a closed loop: every later wait depends on every earlier one, so whole tasks run on the virtual clock.
Warm-up in an open loop: the events of the run are decided again, and starts are held against the recorded gaps.
Swapping by the cost model: the recorded step is planned again.
"""

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from drlnb.fleet.plain import Row
from drlnb.fleet.whatif import swapping
from drlnb.fleet.whatif.previewable import (
    OF_STARTS,
    OF_STEPS,
    changed,
    refuse_unknown,
    refuse_value,
    rules_now,
    why_unfelt,
)
from drlnb.planning.settings import setting_problem
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.journal import Journal
from drlnb.records.units import said_bytes, said_s
from drlnb.sim.recorded.play import (
    Load,
    load_of,
    newest_attempts,
    pools_of,
    recorded_tasks,
    simulate_recorded,
    slots_of,
)
from drlnb.sim.recorded.starts import PlannedRound, RecordedStarts
from drlnb.sim.recorded.task import FEWEST
from drlnb.views.folds.fold import fold_of
from drlnb.views.folds.swapping import SwapFold
from drlnb.views.swapping.measured import typical

__all__ = ["LoadPreview", "Preview", "StartsPreview", "StepsPreview", "preview"]

#: Rounds of all tasks that one simulation plays at most (about a second of this machine's time), and rounds of the
#: slowest task that it plays at least.
_ROUNDS, _FEWEST = 600, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a change would come to, beside what was recorded; nothing has been changed."""

    key: str
    value: object
    #: None: all tasks.
    task: str | None

    def rows(self) -> list[Row]:
        """Return the figures as rows of a table: recorded, now and then."""
        raise NotImplementedError

    def _if(self) -> str:
        whom = f" for {self.task}" if self.task else ""
        return f"if {self.key} were {self.value!r}{whom}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoadPreview(Preview):
    """What a change of leasing would come to.

    `now` and `then` are simulated with the durations that the journal holds, under the settings at its end and after
    the change, so their ratio is what the change does; :attr:`calibration_frac` tells how far simulation and record
    differ as things are (and so also what was changed in the time that was recorded).
    """

    recorded: Load
    now: Load
    then: Load

    @property
    def speedup(self) -> float:
        """Rounds of all tasks per second, after / before."""
        return self.then.rounds_per_s / self.now.rounds_per_s

    @property
    def calibration_frac(self) -> Mapping[str, float]:
        """Relative error of the simulation as things are: ``round_s`` (mean over tasks), ``wait_s``, ``held_frac``."""

        def means(load: Load) -> tuple[float, ...]:
            return fmean(load.round_s.values()), fmean(load.wait_s.values()), load.held_frac

        pairs = zip(("round_s", "wait_s", "held_frac"), means(self.now), means(self.recorded), strict=True)
        return {name: now / recorded - 1.0 if recorded else math.nan for name, now, recorded in pairs}

    def rows(self) -> list[Row]:
        """Return one row per task: its mean round and wait for a slot in seconds, recorded, now and then."""
        loads = {"recorded": self.recorded, "now": self.now, "then": self.then}
        figures = [(figure, when) for figure in ("round_s", "wait_s") for when in loads]
        return [
            {"task": name} | {f"{figure} {when}": getattr(loads[when], figure)[name] for figure, when in figures}
            for name in sorted(self.now.round_s)
        ]

    def __repr__(self) -> str:
        text = (
            f"{self._if()}: {self.speedup:.2f} x the rounds per second, "
            f"slots held {self.now.held_frac:.0%} -> {self.then.held_frac:.0%} (simulated on "
            f"{self.recorded.window_s:.3g} s of this run; as things are, its rounds come out "
            f"{self.calibration_frac['round_s']:+.0%})"
        )
        lines = [
            f"  {row['task']}: round {row['round_s now']:.3g} -> {row['round_s then']:.3g} s, "
            f"of which waiting {row['wait_s now']:.3g} -> {row['wait_s then']:.3g} s"
            for row in self.rows()
        ]
        return "\n".join([text, *lines])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StartsPreview(Preview):
    """What a change of warm-up would come to: the recorded events, decided again before and after the change.

    Times are in seconds, means over the rounds of a task whose outcome is known before and after.  Gaps stay as they
    were recorded, whatever other starts would have made of them.
    """

    #: Task -> its rounds.
    now: Mapping[str, tuple[PlannedRound, ...]]
    then: Mapping[str, tuple[PlannedRound, ...]]
    #: The same with what a user changed in the run counting from when it was changed.
    as_was: Mapping[str, tuple[PlannedRound, ...]]
    #: Task -> round -> wait and idle time that were measured.
    recorded: Mapping[str, Mapping[int, tuple[float, float]]]

    @property
    def wait_s(self) -> Mapping[str, tuple[float, float]]:
        """Mean wait of a round for its last collector, by task: before, after."""
        return {name: self._means(name, "wait_s") for name in self.now}

    @property
    def idle_s(self) -> Mapping[str, tuple[float, float]]:
        """Mean time per round that a collector is ready too early, by task: before, after."""
        return {name: self._means(name, "idle_s") for name in self.now}

    @property
    def calibration_s(self) -> Mapping[str, tuple[float, float]]:
        """By how many seconds wait and idle time, decided again as things were, miss what was measured; by task.

        NaN where nothing was measured, because nothing was started between rounds.
        """

        def error(name: str, place: int, figure: str) -> float:
            measured = self.recorded[name]
            known = [was for was in self.as_was[name] if was.round in measured and was.wait_s is not None]
            return _mean(getattr(was, figure) - measured[was.round][place] for was in known)

        return {name: (error(name, 0, "wait_s"), error(name, 1, "idle_s")) for name in self.now}

    def rows(self) -> list[Row]:
        """Return one row per task and round: what was planned and is, and what that comes to, in seconds."""
        table = []
        for name in sorted(self.now):
            for now, then in zip(self.now[name], self.then[name], strict=True):
                measured = self.recorded[name].get(now.round, (None, None))
                row: Row = {"task": name, "round": now.round}
                for column in ("action", "start_after_s", "lead_s", "reason"):
                    row |= {f"{column} now": getattr(now, column), f"{column} then": getattr(then, column)}
                for place, figure in enumerate(("wait_s", "idle_s")):
                    row |= {f"{figure} recorded": measured[place]}
                    row |= {f"{figure} now": getattr(now, figure), f"{figure} then": getattr(then, figure)}
                table.append(row)
        return table

    def __repr__(self) -> str:
        n = sum(len(rounds) for rounds in self.now.values())
        lines = [f"{self._if()} ({n} recorded rounds decided again; their gaps stay as they were):"]
        for name in sorted(self.now):
            (wait, wait_then), (idle, idle_then) = self.wait_s[name], self.idle_s[name]
            miss = self.calibration_s[name][0]
            as_is = "" if math.isnan(miss) else f"; as things were, waits come out {said_s(miss, 2)} off"
            lines.append(
                f"  {name}: rounds wait {said_s(wait)} -> {said_s(wait_then)} for their last collector, collectors "
                f"idle {said_s(idle)} -> {said_s(idle_then)}{as_is}"
            )
            now, then = self.now[name][-1], self.then[name][-1]
            lines.append(f"    round {then.round}: {_choice(now)} -> {_choice(then)}: {then.reason}")
        return "\n".join(lines)

    def _means(self, name: str, figure: str) -> tuple[float, float]:
        pairs = zip(self.now[name], self.then[name], strict=True)
        known = [pair for pair in pairs if all(planned.wait_s is not None for planned in pair)]
        return _mean(getattr(now, figure) for now, _ in known), _mean(getattr(then, figure) for _, then in known)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepsPreview(Preview):
    """What a change of swapping would come to: the recorded gradient step, planned again by the cost model."""

    #: Task -> the plan in force and the planner's plan after the change, each with its predicted step and peak.
    now: Mapping[str, swapping.Explained]
    then: Mapping[str, swapping.Explained]
    #: Task -> relative error of the predicted seconds beside those that were measured; NaN where none were.
    calibration_frac: Mapping[str, float]

    def rows(self) -> list[Row]:
        """Return one row per task: seconds and peak bytes of a step, and whether they fit, now and then."""
        return [
            {
                "task": name,
                "step_s now": now.numbers["step"],
                "step_s then": then.numbers["step"],
                "peak_bytes now": now.peak_bytes,
                "peak_bytes then": then.peak_bytes,
                "fits then": then.fits,
            }
            for name, now, then in ((name, self.now[name], self.then[name]) for name in sorted(self.now))
        ]

    def __repr__(self) -> str:
        lines = [f"{self._if()} (computed from the recorded step):"]
        for row in self.rows():
            miss = self.calibration_frac[row["task"]]
            as_is = "" if math.isnan(miss) else f"; as things are, steps come out {miss:+.0%}"
            lines.append(
                f"  {row['task']}: a step {said_s(row['step_s now'])} -> {said_s(row['step_s then'])}, its peak "
                f"{said_bytes(row['peak_bytes now'])} -> {said_bytes(row['peak_bytes then'])}"
                f"{'' if row['fits then'] else ', which does not fit'}{as_is}"
            )
            lines.append(f"    {self.then[row['task']].sentence}")
        return "\n".join(lines)


def _mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    listed = list(values)
    return fmean(listed) if listed else math.nan


def _choice(planned: PlannedRound) -> str:
    if planned.start_after_s is None:
        return planned.action
    return f"{planned.action} {said_s(planned.start_after_s)} after sending"


def preview(
    journal: Journal, key: str, value: object, task: str | None = None, *, tasks: Collection[str], run: str = ""
) -> Preview:
    """Try a change out on the durations of a run.

    Parameters
    ----------
    journal
        The run's journal so far.
    key, value
        The setting, one of :data:`~drlnb.fleet.whatif.previewable.PREVIEWED`, and its new value.
    task
        Whose; None: of all.  A setting of the pool has none.
    tasks
        The tasks that share the pool, at least one.
    run
        Id of the run, which its tasks' names in the pool begin with; empty: they are their own.

    Returns
    -------
    Preview
        A :class:`LoadPreview`, for ``warmup.NAME`` a :class:`StartsPreview`, for ``swapping.NAME`` a
        :class:`StepsPreview`; what it says of now is what the settings that are in force at the end of the journal
        give.

    Raises
    ------
    ConfigError
        If the key is unknown or cannot be felt where nothing fails, the value wrong, or too little has been recorded
        yet: rounds, starts of the kind that the change asks for, or a gradient step.
    """
    refuse_unknown(key, task, tasks)
    if key in OF_STEPS:
        return _preview_steps(journal, key, value, task, [task] if task else sorted(tasks))
    if key in OF_STARTS:
        return _preview_starts(journal, key, value, task, [task] if task else sorted(tasks))
    pools = pools_of(journal)
    if not pools:
        raise ConfigError("the journal of the pool is missing: nothing can be tried out")
    meant = [task] if task else sorted(tasks)
    refuse_value(key, value)
    with _tried(key):
        recorded = load_of(pools, tasks, max(1, slots_of(pools[-1])))
        played = recorded_tasks(journal, recorded.rounds)
        now = rules_now(journal, pools[-1], {f"{run}/{name}" if run else name: name for name in tasks})
        then = changed(now, key, value, meant)
        if reason := why_unfelt(key, now, played, meant):
            raise ConfigError(f"{key} cannot be tried out: {reason}")
        until_s = min(recorded.window_s, _ROUNDS / recorded.rounds_per_s)
        until_s = max(until_s, _FEWEST * max(recorded.round_s.values()))
        before = simulate_recorded(played, now, until_s=until_s)
    try:
        after = simulate_recorded(played, then, until_s=until_s)
    except ValueError:
        raise ConfigError(
            f"{key} cannot be tried out: with {value!r} a task would end fewer than {FEWEST} rounds in {until_s:.3g} s"
        ) from None
    return LoadPreview(key=key, value=value, task=task, recorded=recorded, now=before, then=after)


@contextlib.contextmanager
def _tried(key: str) -> Iterator[None]:
    """Turn what forbids a trial into a ConfigError that names the key."""
    try:
        yield
    except ConfigError:
        raise
    except (InvalidTransition, ValueError) as error:
        raise ConfigError(f"{key} cannot be tried out: {str(error).splitlines()[0]}") from None


def _preview_steps(journal: Journal, key: str, value: object, task: str | None, meant: Collection[str]) -> StepsPreview:
    fold, now, then, missed = fold_of(journal), {}, {}, {}
    known = [name for name in meant if name in fold.swappings and fold.swappings[name].profile is not None]
    for name in known or meant:
        of = fold.swappings.get(name, SwapFold())
        case = swapping.task_case(name, of)  # refuses what was not profiled
        other = case.having(key, value)
        now[name] = swapping.explain(case, swapping.in_force(case, of))
        then[name] = swapping.explain(other, other.plan())
        missed[name] = 1.0 / typical(of)[2] - 1.0
    return StepsPreview(key=key, value=value, task=task, now=now, then=then, calibration_frac=missed)


def _preview_starts(
    journal: Journal, key: str, value: object, task: str | None, meant: Collection[str]
) -> StartsPreview:
    now, then, as_was, recorded = {}, {}, {}, {}
    with _tried(key):
        for name, stream in newest_attempts(journal, meant).items():
            able = bool(stream.header.config.get("can_respawn"))
            starts = RecordedStarts(stream)
            in_force = {f"warmup.{name}": was for name, was in stream.header.config.get("warmup", {}).items()}
            in_force |= {event.key: event.value for event in starts.changes}
            if problem := setting_problem(key, value, in_force=in_force, can_snapshot=able):
                raise ConfigError(problem)
            as_was[name], then[name] = starts.decided(), starts.decided(key, value, settled=True)
            now[name] = starts.decided(settled=True) if starts.changes else as_was[name]
            if not now[name]:
                raise ValueError(f"no round of {name} has been sent yet: let it train on")
            recorded[name] = {k: (rest.wait_s, rest.idle_s) for k, rest in starts.measured.items()}
    return StartsPreview(key=key, value=value, task=task, now=now, then=then, as_was=as_was, recorded=recorded)

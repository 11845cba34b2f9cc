"""Compute what would come of a change, by playing the run's own durations and events once more.

Leasing and warm-up in a closed loop: every later wait depends on every earlier one, so whole tasks run on the virtual
clock.  Swapping by the cost model: the recorded step is planned again.  Batching in an open loop: the recorded splits.
"""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from drlnb.fleet.plain import Row
from drlnb.fleet.whatif import batching, swapping
from drlnb.fleet.whatif.previewable import (
    OF_SPLITS,
    OF_STARTS,
    OF_STEPS,
    changed,
    refuse_unknown,
    refuse_value,
    rules_now,
    why_unfelt,
)
from drlnb.planning.settings import setting_problem
from drlnb.records.columns.batching import MemberSlowed
from drlnb.records.errors import ConfigError, InvalidTransition
from drlnb.records.journal import Journal
from drlnb.records.units import said_bytes, said_s
from drlnb.sim.batching.play import Outcome
from drlnb.sim.recorded.play import (
    Load,
    load_of,
    newest_attempts,
    pools_of,
    recorded_tasks,
    simulate_recorded,
    slots_of,
    starts_of,
)
from drlnb.sim.recorded.task import FEWEST
from drlnb.views.folds.fold import fold_of
from drlnb.views.folds.swapping import SwapFold
from drlnb.views.swapping.measured import typical

__all__ = ["LoadPreview", "Preview", "SplitsPreview", "StepsPreview", "preview"]

#: Rounds of all tasks that one simulation plays at most (about a second of this machine's time), and rounds of the
#: slowest task that it plays at least.
_ROUNDS, _FEWEST = 600, 8
#: Of a task whose collectors are not started.
_NOTHING = (None, None)
#: Where starts are planned from former rounds, so many: the first few have none.
_FEWEST_OF_STARTS = 40


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
    """What a change of leasing or of warm-up would come to.

    `now` and `then` are simulated with the durations that the journal holds, under the settings at its end and after
    the change, so their ratio is what the change does; :attr:`calibration_frac` tells how far simulation and record
    differ as things are (and so also what was changed in the time that was recorded).
    """

    recorded: Load
    now: Load
    then: Load
    #: Whether a member was slowed down on purpose in what was recorded.
    emulated: bool = False

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
        """Return one row per task, in seconds, recorded, now and then: its mean round, and wait for a slot.

        With them how long a round waits for its last collector, and a collector is ready too early; None where nothing
        is started.
        """
        loads = {"recorded": self.recorded, "now": self.now, "then": self.then}
        table = []
        for name in sorted(self.now.round_s):
            row: Row = {"task": name}
            for figure in ("round_s", "wait_s"):
                row |= {f"{figure} {when}": getattr(load, figure)[name] for when, load in loads.items()}
            for place, figure in enumerate(("late_s", "early_s")):
                row |= {f"{figure} {when}": load.starts.get(name, _NOTHING)[place] for when, load in loads.items()}
            table.append(row)
        return table

    def __repr__(self) -> str:
        text = (
            f"{self._if()}: {self.speedup:.2f} x the rounds per second, "
            f"slots held {self.now.held_frac:.0%} -> {self.then.held_frac:.0%} (simulated on "
            f"{self.recorded.window_s:.3g} s of this run{' with emulated slow members' if self.emulated else ''}; "
            "as things are, its rounds come out "
            f"{self.calibration_frac['round_s']:+.0%})"
        )
        lines = [
            f"  {row['task']}: round {row['round_s now']:.3g} -> {row['round_s then']:.3g} s, "
            f"of which waiting {row['wait_s now']:.3g} -> {row['wait_s then']:.3g} s" + _of_starts(row)
            for row in self.rows()
        ]
        return "\n".join([text, *lines])


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SplitsPreview(Preview):
    """What a change of batching would come to: the splits that were recorded, played with the speeds of their members.

    Open loop: what comes after a step is not played, and the batch is as large as it was.
    """

    #: Task -> its splits under the settings in force, and after the change.
    now: Mapping[str, Outcome]
    then: Mapping[str, Outcome]
    #: Task -> the speeds that they were played with; relative error of the seconds of a split as things are.
    recorded: Mapping[str, batching.Recorded]
    calibration_frac: Mapping[str, float]

    def rows(self) -> list[Row]:
        """Return one row per task: seconds of a split, samples per second and the share not used, now and then."""
        outcomes = {"now": self.now, "then": self.then}
        return [
            {"task": name}
            | {
                f"{figure} {when}": getattr(outcome[name], figure)
                for figure in ("split_s", "samples_hz", "lost_frac")
                for when, outcome in outcomes.items()
            }
            for name in sorted(self.now)
        ]

    def __repr__(self) -> str:
        lines = [f"{self._if()} (simulated):"]
        for row in self.rows():
            name = row["task"]
            lines.append(
                f"  {name}: a split {said_s(row['split_s now'])} -> {said_s(row['split_s then'])}, "
                f"{row['samples_hz now']:.3g} -> {row['samples_hz then']:.3g} units/s, "
                f"not used {row['lost_frac now']:.1%} -> {row['lost_frac then']:.1%}; {self.recorded[name].said}; "
                f"as things are, splits come out {self.calibration_frac[name]:+.0%}"
            )
        return "\n".join(lines)


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
        A :class:`LoadPreview`, for ``swapping.NAME`` a :class:`StepsPreview`, for ``batching.NAME`` a
        :class:`SplitsPreview`; what it says of now is what the settings that are in force at the end of the journal
        give.

    Raises
    ------
    ConfigError
        If the key is unknown or cannot be felt where nothing fails, the value wrong, or too little has been recorded
        yet: rounds, starts of the kind that the change asks for, a gradient step, or splits.
    """
    refuse_unknown(key, task, tasks)
    if key in OF_STEPS:
        return _preview_steps(journal, key, value, task, [task] if task else sorted(tasks))
    if key in OF_SPLITS:
        return _preview_splits(journal, key, value, task, [task] if task else sorted(tasks))
    pools = pools_of(journal)
    if not pools:
        raise ConfigError("the journal of the pool is missing: nothing can be tried out")
    meant = [task] if task else sorted(tasks)
    if key not in OF_STARTS:  # those are judged beside others of the same task
        refuse_value(key, value)
    with _tried(key):
        recorded = load_of(pools, tasks, max(1, slots_of(pools[-1])))
        recorded = replace(recorded, starts=starts_of(newest_attempts(journal, tasks), recorded.rounds))
        played = recorded_tasks(journal, recorded.rounds)
        now = rules_now(journal, pools[-1], {f"{run}/{name}" if run else name: name for name in tasks})
        then = changed(now, key, value, meant)
        if reason := why_unfelt(key, value, now, played, meant):
            raise ConfigError(f"{key} cannot be tried out: {reason}")
        until_s = min(recorded.window_s, _ROUNDS / recorded.rounds_per_s)
        fewest = _FEWEST_OF_STARTS if key in OF_STARTS else _FEWEST
        until_s = max(until_s, fewest * max(recorded.round_s.values()))
        before = simulate_recorded(played, now, until_s=until_s)
    try:
        after = simulate_recorded(played, then, until_s=until_s)
    except ValueError:
        raise ConfigError(
            f"{key} cannot be tried out: with {value!r} a task would end fewer than {FEWEST} rounds in {until_s:.3g} s"
        ) from None
    emulated = bool(journal.of(MemberSlowed))
    return LoadPreview(key=key, value=value, task=task, recorded=recorded, now=before, then=after, emulated=emulated)


def _of_starts(row: Row) -> str:
    """Return in words what starts come to; empty where nothing is started."""
    late, early = ([row[f"{figure} {when}"] for when in ("now", "then")] for figure in ("late_s", "early_s"))
    if None in late:
        return ""
    waits, idles = (" -> ".join(map(said_s, each)) for each in (late, early))
    return f"; its last collector is waited for {waits}, collectors idle {idles}"


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


def _preview_splits(
    journal: Journal, key: str, value: object, task: str | None, meant: Collection[str]
) -> SplitsPreview:
    fold, now, then, trace = fold_of(journal), {}, {}, {}
    shared = [name for name in meant if name in fold.batchings and "update" in fold.batchings[name].shared]
    if not shared:
        raise ConfigError(f"{key} cannot be tried out: one learner made all steps so far, so nothing was split")
    for name in shared:
        of = fold.batchings[name]
        newest, n_learners = of.roles["update"].newest, len(of.roles["update"].members)
        if key != "batching.planner" and newest and not newest.number:
            raise ConfigError(f"{key} cannot be tried out: a round's gradient is made of all shares, nobody is late")
        if problem := setting_problem(key, value, in_force=of.settings, n_learners=n_learners):
            raise ConfigError(problem)
        try:
            trace[name], now[name] = batching.tried(of, of.settings)
            _, then[name] = batching.tried(of, {**of.settings, key: value})
        except ValueError as error:
            raise ConfigError(f"{key} cannot be tried out: {error}") from None
    missed = {name: now[name].split_s / trace[name].split_s - 1.0 for name in shared}
    return SplitsPreview(key=key, value=value, task=task, now=now, then=then, recorded=trace, calibration_frac=missed)

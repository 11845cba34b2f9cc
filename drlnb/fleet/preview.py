"""What would come of a change before it is made?  The run's own durations, played once more on the virtual clock."""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from drlnb.fleet.planners import planner_names
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.sim.recorded import Load, load_of, pools_of, recorded_tasks, simulate_recorded, slots_of

__all__ = ["PREVIEWED", "Preview", "preview"]

#: Rounds of all tasks that one simulation plays at most: about a second of this machine's time.
_ROUNDS = 600
#: Rounds of the slowest task that it plays at least.
_FEWEST = 8
#: Keys whose change is tried out: closed loop, since every later wait depends on every earlier one.
PREVIEWED = (
    "leasing.hold",
    "slots",
    *(f"leasing.{field.name}" for field in fields(LeasingSettings) if field.name != "hold"),
)
#: (what holds now, key, value, tasks that are meant) -> what holds then.
_Change = Callable[[Mapping[str, Any], str, Any, Collection[str]], dict[str, Any]]
#: Most slots that are tried out.
_MOST_SLOTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a change would come to, beside what was recorded; nothing has been changed.

    `now` and `then` are simulated with the durations that the journal holds, before and after the change, so their
    ratio is what the change does; :attr:`calibration_frac` tells how far simulation and record differ as things are.
    """

    key: str
    value: Any
    #: None: all tasks.
    task: str | None
    recorded: Load
    now: Load
    then: Load

    @property
    def speedup(self) -> float:
        """Rounds of all tasks per second, after / before."""
        return self.then.rounds_per_s / self.now.rounds_per_s

    @property
    def round_ratio(self) -> Mapping[str, float]:
        """Mean round of each task, after / before."""
        return {name: self.then.round_s[name] / self.now.round_s[name] for name in self.now.round_s}

    @property
    def calibration_frac(self) -> Mapping[str, float]:
        """Relative error of the simulation as things are: ``round_s`` (mean over tasks), ``wait_s``, ``held_frac``."""

        def error(simulated: float, recorded: float) -> float:
            return simulated / recorded - 1.0 if recorded else float("nan")

        def mean(of: Mapping[str, float]) -> float:
            return fmean(of.values())

        return {
            "round_s": error(mean(self.now.round_s), mean(self.recorded.round_s)),
            "wait_s": error(mean(self.now.wait_s), mean(self.recorded.wait_s)),
            "held_frac": error(self.now.held_frac, self.recorded.held_frac),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per task: its mean round and wait for a slot in seconds, recorded, now and then."""
        return [
            {
                "task": name,
                "round_s recorded": self.recorded.round_s[name],
                "round_s now": self.now.round_s[name],
                "round_s then": self.then.round_s[name],
                "wait_s recorded": self.recorded.wait_s[name],
                "wait_s now": self.now.wait_s[name],
                "wait_s then": self.then.wait_s[name],
            }
            for name in sorted(self.now.round_s)
        ]

    def __repr__(self) -> str:
        whom = f" for {self.task}" if self.task else ""
        text = (
            f"if {self.key} were {self.value!r}{whom}: {self.speedup:.2f} x the rounds per second, "
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


def preview(journal: Journal, key: str, value: Any, task: str | None = None, *, tasks: Collection[str]) -> Preview:
    """Try a change out on the durations of a run.

    Parameters
    ----------
    journal
        The run's journal so far.
    key, value
        The setting, one of :data:`PREVIEWED`, and its new value.
    task
        Whose; None: of all.  A setting of the pool has none.
    tasks
        The tasks that share the pool, at least one.

    Raises
    ------
    ConfigError
        If the key is unknown, the value wrong, or too little has been recorded yet.
    """
    _refuse_unknown(key, task, tasks)
    pools = pools_of(journal)
    if not pools:
        raise ConfigError("the journal of the pool is missing: nothing can be tried out")
    now: dict[str, Any] = {
        "n_slots": slots_of(pools[-1]),
        "settings": dict(pools[-1].header.config["settings"]),
        "planners": {},
    }
    change = _CHANGES.get(key, _pool_setting)
    then = now | change(now, key, value, [task] if task else list(tasks))
    try:
        recorded = load_of(pools, tasks, max(1, now["n_slots"]))
        played = recorded_tasks(journal, recorded.rounds)
        until_s = min(recorded.window_s, _ROUNDS / recorded.rounds_per_s)
        until_s = max(until_s, _FEWEST * max(recorded.round_s.values()))
        before, after = (
            simulate_recorded(
                played,
                n_slots=one["n_slots"],
                settings=LeasingSettings.from_mapping(one["settings"]),
                planners=one["planners"],
                until_s=until_s,
            )
            for one in (now, then)
        )
    except ValueError as error:
        raise ConfigError(f"{key} cannot be tried out: {error}") from None
    return Preview(key=key, value=value, task=task, recorded=recorded, now=before, then=after)


def _refuse_unknown(key: str, task: str | None, tasks: Collection[str]) -> None:
    if key not in PREVIEWED:
        near = difflib.get_close_matches(key, PREVIEWED, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{key!r} cannot be tried out{hint}; what can: {', '.join(PREVIEWED)}")
    if task is not None and task not in tasks:
        raise ConfigError(f"no task {task!r} in this run; its tasks are {', '.join(sorted(tasks))}")
    if task is not None and key != "leasing.hold":
        raise ConfigError(f"{key} belongs to the pool, not to a task: leave task out")


def _hold(now: Mapping[str, Any], key: str, value: Any, meant: Collection[str]) -> dict[str, Any]:
    del now, key
    planner_names({"hold": value})
    return {"planners": {name: {"hold": str(value)} for name in meant}}


def _slots(now: Mapping[str, Any], key: str, value: Any, meant: Collection[str]) -> dict[str, Any]:
    del now, meant
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_SLOTS:
        raise ConfigError(f"{key} must be a whole number from 1 to {_MOST_SLOTS}, got {value!r}")
    return {"n_slots": value}


def _pool_setting(now: Mapping[str, Any], key: str, value: Any, meant: Collection[str]) -> dict[str, Any]:
    del meant
    settings = {**now["settings"], key.removeprefix("leasing."): value}
    LeasingSettings.from_mapping(settings)
    return {"settings": settings}


_CHANGES: Mapping[str, _Change] = {"leasing.hold": _hold, "slots": _slots}

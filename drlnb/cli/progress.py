"""Show a running training in a terminal, and in a file that is read later."""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from drlnb.fleet.plain import Plain
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import settings_of
from drlnb.sim.report import table_lines
from drlnb.views.drawing.words import duration
from drlnb.views.folds.status import TaskStatus

__all__ = ["Live", "leases_line", "settings_lines", "status_line", "summary_lines"]

#: Seconds between two plain reports where lines cannot be rewritten.
_PLAIN_S = 5.0


def _number(value: float | None, form: str = ".1f") -> str:
    return "-" if value is None else format(value, form)


def status_line(task: TaskStatus, width: int = 0) -> str:
    """Return one task's line; `width` = columns for the name."""
    share = min(1.0, task.n_timesteps / task.total_timesteps)
    steps = f"{task.n_timesteps:,}/{task.total_timesteps:,}"
    why = f" (last: {task.last_loss})" if task.last_loss else ""
    restarts = f", {task.n_restarts} restarts{why}" if task.n_restarts else ""
    eta = "" if task.ended else f"  ETA {duration(task.eta_s):>11}"
    told = f"  return {_number(task.ep_rew_mean):>8}" if task.env else f"  loss {_number(task.loss, '.4g'):>10}"
    return f"{task.name:<{width}}  {share:4.0%} {steps:>19}{told}{eta}  {task.doing}{restarts}"


class Live:
    """One line per task: rewritten in place on a terminal, else printed every few seconds.

    Parameters
    ----------
    stream
        Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._n_drawn = 0
        self._shown: dict[str, str] = {}
        self._due = 0.0

    def show(self, tasks: Mapping[str, TaskStatus]) -> None:
        """Draw the present state."""
        width = max(len(name) for name in tasks)
        if self._in_place:
            self._redraw([status_line(task, width) for task in tasks.values()])
            return
        now = time.monotonic()
        due = now >= self._due
        for name, task in tasks.items():
            if (due and not task.ended) or (task.ended and self._shown.get(name) != task.state):
                self._shown[name] = task.state
                self._stream.write(status_line(task, width) + "\n")
        if due:
            self._due = now + _PLAIN_S
        self._stream.flush()

    def write(self, text: str) -> None:
        """Write a line above the tasks' ones."""
        if self._n_drawn:
            self._stream.write(f"\x1b[{self._n_drawn}A\x1b[J")
            self._n_drawn = 0
        self._stream.write(text + "\n")
        self._stream.flush()

    def _redraw(self, lines: Sequence[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        if len(lines) > rows - 2:
            lines = [*lines[: rows - 3], f"... and {len(lines) - rows + 3} more"]
        up = f"\x1b[{self._n_drawn}A" if self._n_drawn else ""
        self._stream.write(up + "".join(f"\r\x1b[2K{line[: columns - 1]}\n" for line in lines))
        self._stream.flush()
        self._n_drawn = len(lines)


def settings_lines(specs: Sequence[RlWork], defaults: Mapping[str, object]) -> list[str]:
    """Return which settings each task uses, and what differs from Stable-Baselines3's; seeds of one task share a line.

    Parameters
    ----------
    specs
        The tasks.
    defaults
        The algorithm's settings where nothing was tuned or given.
    """
    groups: dict[str, list[RlWork]] = {}
    for spec in specs:
        plain = {key: value for key, value in spec.to_plain().items() if key not in {"name", "seed", "group"}}
        groups.setdefault(repr(plain), []).append(spec)
    lines = []
    for group in groups.values():
        first = group[0]
        changed = {key: value for key, value in first.hyperparameters.items() if defaults.get(key) != value}
        names = ", ".join(spec.name for spec in group)
        seeds = ", ".join(str(spec.seed) for spec in group)
        learners = f"{first.n_learners} learners, " if first.n_learners > 1 else ""
        lines += [
            f"{names}: {first.origin}",
            f"    {first.total_timesteps:,} steps, {first.n_envs} environments, {first.n_collectors} collectors, "
            f"{learners}seed {seeds}",
            "    differs from Stable-Baselines3's defaults: "
            + (", ".join(f"{key}={value}" for key, value in changed.items()) or "nothing"),
            *(
                ["    wrappers: " + ", ".join(str(each["name"]) for each in first.env_wrappers)]
                if first.env_wrappers
                else []
            ),
            *(f"    {remark}" for remark in settings_of(first).remarks(first.n_envs)),
        ]
    return lines


#: Heads of the summary's columns, and what they show; the first two stand at the left.
_COLUMNS: Mapping[str, Callable[[Plain, str], str]] = {
    "task": lambda row, state: str(row["name"]),
    "state": lambda row, state: state,
    "steps": lambda row, state: f"{row['timesteps']:,}",
    "return": lambda row, state: _number(row.get("ep_rew_mean")),
    "eval return": lambda row, state: _number(row.get("eval_mean_reward")),
    "loss": lambda row, state: _number(row.get("loss"), ".4g"),
    "time": lambda row, state: duration(row["seconds"]),
    "steps/s": lambda row, state: _number(row["steps_per_s"], ",.0f"),
    "restarts": lambda row, state: str(row["restarts"]),
}


def summary_lines(summary: Plain, tasks: Mapping[str, TaskStatus]) -> list[str]:
    """Return the summary: an empty line, a table of the tasks, and a line about the slots."""
    losses = ["loss" in row for row in summary["tasks"]]
    nowhere = {"loss"} if not any(losses) else {"return", "eval return"} if all(losses) else set()
    columns = {head: cell for head, cell in _COLUMNS.items() if head not in nowhere}
    rows = [{head: cell(row, tasks[row["name"]].state) for head, cell in columns.items()} for row in summary["tasks"]]
    return ["", *table_lines(rows, n_left=2), leases_line(summary["leases"])]


def leases_line(leases: Plain) -> str:
    """Return the summary of the slots in one line."""
    if leases["grants"] is None:
        return "slots: nothing is said of them, since some rows of the journal were missed here"
    share = {key: _number(leases[key], ".0%") for key in ("utilisation", "expected_utilisation", "bound", "held")}
    times = {key: _number(leases[key], ".2f") for key in ("inflation", "expected_inflation")}
    return (
        f"slots: {leases['grants']} leases (hold planner {leases['hold_planner'] or '-'}), "
        f"computing {share['utilisation']} of the time (expected {share['expected_utilisation']}, bound "
        f"{share['bound']}), held {share['held']}, rounds {times['inflation']} x as long as without waiting for a slot "
        f"(expected {times['expected_inflation']} x)"
    )

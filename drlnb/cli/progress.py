"""How does a running training look in a terminal, and in a file that somebody reads later?"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from drlnb.fleet.rows.task_status import TaskStatus
from drlnb.rl.algorithms.registry import settings_of

__all__ = ["Live", "leases_line", "settings_lines", "span", "status_line", "table"]

#: Seconds between two plain reports where lines cannot be rewritten.
_PLAIN_S = 5.0


def span(seconds: float | None) -> str:
    """Return a duration for a person.

    Examples
    --------
    >>> span(None), span(8.4), span(75), span(7300)
    ('-', '8s', '1m 15s', '2h 01m')
    """
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def status_line(task: TaskStatus, width: int = 0) -> str:
    """Return one task's line; `width` = columns for the name."""
    share = min(1.0, task.n_timesteps / task.total_timesteps)
    steps = f"{task.n_timesteps:,}/{task.total_timesteps:,}"
    restarts = f", {task.n_restarts} restarts" if task.n_restarts else ""
    eta = "" if task.ended else f"  ETA {span(task.eta_s):>7}"
    line = f"{task.name:<{width}}  {share:4.0%} {steps:>19}  return {_number(task.ep_rew_mean):>8}{eta}  {task.doing}"
    return line + restarts


class Live:
    """One line per task: rewritten in place on a terminal, else said every few seconds.

    Parameters
    ----------
    stream
        Where to.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_place = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._n_drawn = 0
        self._said: dict[str, str] = {}
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
            if (due and not task.ended) or (task.ended and self._said.get(name) != task.state):
                self._said[name] = task.state
                self._stream.write(status_line(task, width) + "\n")
        if due:
            self._due = now + _PLAIN_S
        self._stream.flush()

    def say(self, text: str) -> None:
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


def settings_lines(specs: Sequence[Any], defaults: Mapping[str, Any]) -> list[str]:
    """Say which settings each task uses, and what differs from Stable-Baselines3's; seeds of one task share a line.

    Parameters
    ----------
    specs
        The tasks.
    defaults
        The algorithm's settings where nothing was tuned or given.
    """
    groups: dict[str, list[Any]] = {}
    for spec in specs:
        plain = {key: value for key, value in spec.to_plain().items() if key not in {"name", "seed", "group"}}
        groups.setdefault(repr(plain), []).append(spec)
    lines = []
    for group in groups.values():
        first = group[0]
        changed = {key: value for key, value in first.hyperparameters.items() if defaults.get(key) != value}
        names = ", ".join(spec.name for spec in group)
        seeds = ", ".join(str(spec.seed) for spec in group)
        lines += [
            f"{names}: {first.origin}",
            f"    {first.total_timesteps:,} steps, {first.n_envs} environments, {first.n_collectors} collectors, "
            f"seed {seeds}",
            "    differs from Stable-Baselines3's defaults: "
            + (", ".join(f"{key}={value}" for key, value in changed.items()) or "nothing"),
            *(f"    {remark}" for remark in settings_of(first).remarks(first.n_envs)),
        ]
    return lines


def table(summary: Mapping[str, Any], tasks: Mapping[str, TaskStatus]) -> list[str]:
    """Return the summary table's lines."""
    head = ("task", "state", "steps", "return", "eval return", "time", "steps/s", "restarts")
    rows = [head, *(_cells(row, tasks[row["name"]].state) for row in summary["tasks"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _cells(row: Mapping[str, Any], state: str) -> tuple[str, ...]:
    return (
        row["name"],
        state,
        f"{row['timesteps']:,}",
        _number(row["ep_rew_mean"]),
        _number(row["eval_mean_reward"]),
        span(row["seconds"]),
        "-" if row["steps_per_s"] is None else f"{row['steps_per_s']:,.0f}",
        str(row["restarts"]),
    )


def leases_line(leases: Mapping[str, Any]) -> str:
    """Return the summary of the slots in one line."""

    def percent(key: str) -> str:
        return "-" if leases[key] is None else f"{leases[key]:.0%}"

    def times(key: str) -> str:
        return "-" if leases[key] is None else f"{leases[key]:.2f}"

    return (
        f"slots: {leases['grants']} leases (hold planner {leases['hold_planner'] or '-'}), "
        f"computing {percent('utilisation')} of the time (expected {percent('expected_utilisation')}, bound "
        f"{percent('bound')}), held {percent('held')}, "
        f"rounds {times('inflation')} x as long as without waiting for a slot (expected "
        f"{times('expected_inflation')} x)"
    )

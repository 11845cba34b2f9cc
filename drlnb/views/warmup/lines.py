"""Every rest of a task's collectors on one clock: the attempts' columns as arrays, and what each rest was made of."""

from dataclasses import fields

import numpy as np

from drlnb.records.columns.warmup import WarmupPlanned, WarmupRegimeEnded
from drlnb.views.drawing.payload import Array, Floats, Plain
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.warmup import Rest, WarmupFold

__all__ = ["WarmupLine", "line_to_draw", "tasks_with_starts"]

#: Columns of a rest that are points in time.
_TIMES = ("began", "sent", "planned", "ready", "arrival")
#: Columns of a rest that are texts.
_TEXTS = ("action", "planner", "reason")


def tasks_with_starts(fold: Fold) -> tuple[str, ...]:
    """Return the tasks whose collectors were ended between rounds, in the order of all tasks."""
    return tuple(
        name
        for name in fold.task_names()
        if any(rest.ended for attempt in fold.warmups.get(name, {}).values() for rest in attempt.rests)
    )


class WarmupLine:
    """One task's warm-up, with every time in seconds since the run's first event."""

    def __init__(self, fold: Fold, task: str) -> None:
        self.fold = fold
        self.task = task
        self.attempts: tuple[WarmupFold, ...] = tuple(
            attempt for _, attempt in sorted(fold.warmups.get(task, {}).items())
        )
        rests = [(rest, fold.offset_s(attempt.stream)) for attempt in self.attempts for rest in attempt.rests]
        #: Columns of the rests, of all attempts; ``action``, ``planner`` and ``reason`` as texts.
        self.rests: dict[str, Array] = {
            name: np.array(
                [getattr(rest, name) + shift if name in _TIMES else getattr(rest, name) for rest, shift in rests],
                dtype=object if name in _TEXTS else np.float64,
            )
            for name in (each.name for each in fields(Rest))
        }

    def __len__(self) -> int:
        return len(self["round"])

    def __getitem__(self, name: str) -> Array:
        return self.rests[name]

    @property
    def until(self) -> float:
        """Until when the task was heard of: now, or its last event if it has ended, whatever others do since."""
        task = self.fold.tasks.get(self.task)
        if task is None or not task.latest.ended:
            return self.fold.now_s
        return self.fold.latest(task.latest.stream) + self.fold.offset_s(task.latest.stream)

    @property
    def newest_reason(self) -> str:
        """The reason of the newest choice, empty before the first."""
        return str(self["reason"][-1]) if len(self) else ""

    @property
    def settings(self) -> Plain:
        """Settings of warm-up as far as the journal names them; the newest."""
        return self.attempts[-1].settings if self.attempts else {}

    @property
    def weighed(self) -> WarmupPlanned | None:
        """The newest plan that has weighed something."""
        return next((attempt.weighed for attempt in reversed(self.attempts) if attempt.weighed is not None), None)

    @property
    def filtered(self) -> WarmupPlanned | None:
        """The newest plan whose filter of the history was asked."""
        return next((attempt.filtered for attempt in reversed(self.attempts) if attempt.filtered is not None), None)

    @property
    def cuts(self) -> tuple[WarmupRegimeEnded, ...]:
        """Ends of regimes, oldest first."""
        return tuple(cut for attempt in self.attempts for cut in attempt.cuts)

    def measured(self, name: str) -> Floats:
        """Return ``wait`` or ``idle`` of what the starts for each round came to, in seconds."""
        return np.array(
            [getattr(each, f"{name}_s") for attempt in self.attempts for each in attempt.measured], dtype=np.float64
        )

    def gaps(self) -> tuple[Floats, Floats]:
        """Return the rounds and their mean seconds from sending to the next parameters, over the collectors."""
        gap = self["arrival"] - self["sent"]
        known = np.isfinite(gap)
        rounds, at = np.unique(self["round"][known], return_inverse=True)
        return rounds, np.bincount(at, weights=gap[known]) / np.bincount(at)

    def rounds_s(self) -> tuple[Floats, Floats]:
        """Return the rounds and their whole seconds: from their own parameters' arrival to that of the next."""
        number, seconds = [np.zeros(0)], [np.zeros(0)]
        for attempt in self.attempts:
            version, t = np.array(attempt.versions, dtype=np.float64).reshape(-1, 2).T
            follows = np.flatnonzero(np.diff(version) == 1)
            number.append(version[follows])
            seconds.append(t[follows + 1] - t[follows])
        return np.concatenate(number), np.concatenate(seconds)


def line_to_draw(fold: Fold, task: str | None) -> WarmupLine:
    """Return the task asked for, None: the first whose collectors were ended between rounds.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    known = fold.task_names()
    if task is not None and task not in known:
        raise ValueError(f"task must be one of {', '.join(known) or 'none yet'}, got {task!r}")
    return WarmupLine(fold, task or next(iter(tasks_with_starts(fold)), ""))

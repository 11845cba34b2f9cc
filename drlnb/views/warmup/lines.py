"""Every rest of a task's collectors on one clock: the attempts' columns as arrays, and what each rest was made of."""

import math

import numpy as np

from drlnb.records.columns.warmup import WarmupPlanned, WarmupRegimeEnded
from drlnb.views.drawing import words
from drlnb.views.drawing.payload import Floats, Plain
from drlnb.views.folds.fold import Fold
from drlnb.views.folds.warmup import REST, WarmupFold

__all__ = ["WarmupLine", "line_to_draw", "tasks_with_starts"]

#: Columns of a rest that are points in time.
_TIMES = ("began", "sent", "planned", "ready", "arrival")
#: Two times that differ by less are one.
_SAME_S = 2e-6


def tasks_with_starts(fold: Fold) -> tuple[str, ...]:
    """Return the tasks whose collectors were ended or parked between rounds, in the order of all tasks."""
    return tuple(
        name
        for name in fold.task_names()
        if any((starts.rests["ended"] > 0).any() for starts in fold.warmups.get(name, {}).values())
    )


class WarmupLine:
    """One task's warm-up, with every time in seconds since the run's first event."""

    def __init__(self, fold: Fold, task: str) -> None:
        self.fold = fold
        self.task = task
        self.attempts: tuple[WarmupFold, ...] = tuple(
            attempt for _, attempt in sorted(fold.warmups.get(task, {}).items())
        )
        self._rests = {name: self._column(name) for name in REST}

    def _column(self, name: str) -> Floats:
        shifts = [self.fold.offset_s(attempt.stream) if name in _TIMES else 0.0 for attempt in self.attempts]
        parts = [attempt.rests[name] + shift for attempt, shift in zip(self.attempts, shifts, strict=True)]
        return np.concatenate([np.zeros(0), *parts])

    def __len__(self) -> int:
        return len(self["round"])

    def __getitem__(self, name: str) -> Floats:
        return self._rests[name]

    def texts(self, name: str) -> list[str]:
        """Return ``action``, ``planner`` or ``reason`` of every rest."""
        texts = []
        for attempt in self.attempts:
            known = tuple(attempt.texts)
            texts += [known[int(i)] for i in attempt.rests[name]]
        return texts

    @property
    def newest_reason(self) -> str:
        """The reason of the newest choice, empty before the first."""
        reasons = self.texts("reason")
        return reasons[-1] if reasons else ""

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
    def newsvendor(self) -> tuple[float, float] | None:
        """The newest lead that would be best if the arrival were known: its quantile of the starts, and seconds."""
        return next((attempt.newsvendor for attempt in reversed(self.attempts) if attempt.newsvendor is not None), None)

    @property
    def cuts(self) -> tuple[WarmupRegimeEnded, ...]:
        """Ends of regimes, oldest first."""
        return tuple(cut for attempt in self.attempts for cut in attempt.cuts)

    def measured(self, name: str) -> Floats:
        """Return ``round``, ``wait`` or ``idle`` of what the starts for each round came to, in seconds."""
        return np.concatenate([np.zeros(0), *(attempt.measured[name] for attempt in self.attempts)])

    # -- what a rest was made of -------------------------------------------------------------------------------------
    @property
    def begun(self) -> Floats:
        """When each process began to start, as far as that is known: ready less what the start took."""
        return self["ready"] - self["start_s"]

    @property
    def wanted(self) -> Floats:
        """When each start was planned for, by the latest plan: sending + planned delay."""
        return self["sent"] + self["after"]

    def causes(self) -> list[str]:
        """Return, in words, what started each collector; empty while nothing has, or where nothing had to."""
        causes = []
        planned, arrival, after = self["planned"], self["arrival"], self["after"]
        for i in range(len(self)):
            if math.isnan(planned[i]):
                causes.append("")
            elif planned[i] >= arrival[i] - _SAME_S:
                late = "sooner than the planned time" if after[i] >= 0 else "no time was planned"
                causes.append(f"the parameters' arrival: {late}")
            else:
                times = int(self["revised"][i])
                moved = f", moved {words.plural(times, 'time')} by progress" if times else ""
                causes.append(f"its planned time{moved}")
        return causes

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
            version, t = attempt.versions["version"], attempt.versions["t"]
            follows = np.flatnonzero(np.diff(version) == 1)
            number.append(version[follows])
            seconds.append(t[follows + 1] - t[follows])
        return np.concatenate(number), np.concatenate(seconds)


def line_to_draw(fold: Fold, task: str | None) -> WarmupLine:
    """Return the task asked for, None: the first whose collectors were ended or parked between rounds.

    Raises
    ------
    ValueError
        If there is no such task.
    """
    known = fold.task_names()
    if task is not None and task not in known:
        raise ValueError(f"task must be one of {', '.join(known) or 'none yet'}, got {task!r}")
    return WarmupLine(fold, task or next(iter(tasks_with_starts(fold)), ""))

"""Mark in every picture of a run when a setting was changed, and from when on it counts.

Over time a mark stands where the change was made.  Over rounds, or steps, it stands where the change counts: what
counts from the next round on stands between the two rounds.
"""

from collections.abc import Sequence

import numpy as np

from drlnb.records.common import SettingChanged
from drlnb.records.effect import NEXT_ROUND
from drlnb.views.drawing import theme
from drlnb.views.drawing.payload import Array, Content
from drlnb.views.folds.fold import Fold

__all__ = ["in_rounds", "in_steps", "in_time"]

#: Newest changes that are marked: more labels could not be read.
_MARKS = 40

#: Seconds since the run's first event, the change, task or None.
_Change = tuple[float, SettingChanged, str | None]


def in_time(fold: Fold, low: float = 0.0) -> list[Content]:
    """Return the marks of a picture over seconds since the run's first event, from a second on, oldest first."""
    return _plain(fold, [(t, change) for change in _changes(fold) if (t := change[0]) >= low])


def in_rounds(fold: Fold, task: str) -> list[Content]:
    """Return the marks of a picture over a task's rounds: its own changes and the pool's."""
    ends, numbers, _ = _rounds(fold, task)
    placed = []
    for change in _changes(fold):
        if change[2] not in {None, task}:
            continue
        # A change that comes after the last finished round is made in the next one.
        at = int(np.searchsorted(ends, change[0], side="right"))
        present = numbers[at] if at < len(numbers) else (numbers[-1] + 1 if len(numbers) else 1.0)
        placed.append((float(present) + (0.5 if change[1].counts == NEXT_ROUND else 0.0), change))
    return _plain(fold, placed)


def in_steps(fold: Fold) -> list[Content]:
    """Return the marks of a picture over environment steps: each task's own changes, at its own steps.

    The pool's changes have no place there: at one moment each task has made other steps.
    """
    placed = []
    for change in _changes(fold):
        if change[2] in fold.tasks:
            ends, _, steps = _rounds(fold, str(change[2]))
            if not len(ends):
                continue
            at = int(np.searchsorted(ends, change[0], side="right"))
            at -= change[1].counts != NEXT_ROUND  # what counts at once counts after the round that was finished then
            placed.append((float(steps[min(at, len(steps) - 1)]) if at >= 0 else 0.0, change))
    return _plain(fold, placed)


def _changes(fold: Fold) -> list[_Change]:
    changes: list[_Change] = [
        (t + fold.offset_s(stream), event, None if event.task is None else fold.pool.short(event.task))
        for stream, t, event in fold.pool.settings
        if event.key != "placement.planner"  # the task's own journal has it, too
    ]
    for name, task in sorted(fold.tasks.items()):
        for attempt in task.in_order:
            shift = fold.offset_s(attempt.stream)
            changes += [(t + shift, event, name) for t, event in attempt.settings]
    return sorted(changes, key=lambda change: (change[0], change[1].key))[-_MARKS:]


def _rounds(fold: Fold, task: str) -> tuple[Array, Array, Array]:
    """Return end, number and environment steps of a task's finished rounds, in order of time."""
    parts = [
        np.stack([of.rounds["t"] + fold.offset_s(of.stream), of.rounds["round"], of.rounds["n_timesteps"]])
        for of in (fold.tasks[task].in_order if task in fold.tasks else ())
    ]
    columns = np.concatenate([np.zeros((3, 0)), *parts], axis=1)
    ends, numbers, steps = columns[:, np.argsort(columns[0], kind="stable")]
    return ends, numbers, steps


def _plain(fold: Fold, placed: Sequence[tuple[float, _Change]]) -> list[Content]:
    letters = {style.name: style.letter for style in theme.task_styles(fold)}
    marks = []
    for at, (_, event, task) in placed:
        label = f"{letters.get(task or '', '')} {event.key.rpartition('.')[2]}: {event.value}".strip()
        marks.append({"t": at, "label": label, "said": f"{label}, {event.counts}", "task": task or ""})
    return marks

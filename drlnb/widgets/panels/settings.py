"""Check a panel's settings: wrong ones are refused with the nearest name and all that there are."""

import difflib
from collections.abc import Callable, Iterable, Mapping

from drlnb.fleet.training import Training
from drlnb.records.errors import InputError
from drlnb.records.settings import fitting, is_number, optional
from drlnb.views.drawing.payload import Content
from drlnb.views.folds.fold import Fold

__all__ = [
    "Checks",
    "UnknownSetting",
    "checked",
    "held",
    "nearest",
    "seconds",
    "text",
]

#: Setting -> what returns its value, or raises ConfigError.
Checks = Mapping[str, Callable[[str, object], object]]

#: Most letters of a text.
_LONGEST = 1000


class UnknownSetting(InputError, TypeError):
    """A panel was asked for a setting that it does not have."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about a wrong word: the nearest right one, and all of them.

    Examples
    --------
    >>> nearest("leases", ["fleet", "leasing"])
    '; did you mean leasing? There are fleet, leasing'
    """
    names = list(known)
    near = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    return (f"; did you mean {near[0]}? There are " if near else "; there are ") + (", ".join(names) or "none")


def checked(panel: str, checks: Checks, settings: Mapping[str, object]) -> Content:
    """Return the settings with their values checked.

    Raises
    ------
    UnknownSetting
        If the panel has no such setting.
    ConfigError
        If a value is wrong.
    """
    for name in settings:
        if name not in checks:
            raise UnknownSetting(f"panel {panel} has no setting {name!r}{nearest(name, checks)}")
    return {name: checks[name](name, value) for name, value in settings.items()}


def held(run: Training | None, fold: Fold, decision: str, key: str, task: str | None) -> str:
    """Return the planner that a task has now, or that all tasks have; empty where they differ or none is known.

    That is the last one that was set, else the one that the task (or its run) began with.

    Parameters
    ----------
    run, fold
        The run, and its columns.
    decision, key
        As ``hold``, and the key of the setting that changes it.
    task
        Name of the task; None: all of the run.
    """
    if run is None:
        return ""
    found = set[str]()
    for name in (task,) if task else run.specs:
        latest = fold.tasks[name].latest if name in fold.tasks else None
        begun = (latest.config.get("planners") or {}) if latest else {}
        changes = [str(event.value) for _, event in latest.settings if event.key == key] if latest else []
        found.add([str(begun.get(decision, run.planners.get(decision, ""))), *changes][-1])
    return found.pop() if len(found) == 1 else ""


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and "\n" not in value


#: Check a span of time above 0, None for all of it.
seconds = optional(fitting("a number > 0 s", lambda value: is_number(value) and value > 0)).read
#: Check a text of one line.
text = fitting(f"a text of one line, at most {_LONGEST} letters", _is_line).read

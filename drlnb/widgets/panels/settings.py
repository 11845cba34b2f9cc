"""Check a panel's settings: wrong ones are refused with the nearest name and all that there are."""

from collections.abc import Callable, Mapping

from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, InputError, nearest
from drlnb.records.settings import fitting, is_number, optional
from drlnb.views.drawing.payload import Content, Plain
from drlnb.views.folds.fold import Fold

__all__ = [
    "TEXT",
    "Checks",
    "Steering",
    "UnknownSetting",
    "checked",
    "held",
    "seconds",
    "text",
]

#: Setting -> what returns its value, or raises ConfigError.
Checks = Mapping[str, Callable[[str, object], object]]

#: Most letters of a text.
_LONGEST = 1000


class UnknownSetting(InputError, TypeError):
    """A panel was asked for a setting that it does not have."""


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
            hint = f"{nearest(name, checks)}; there are {', '.join(checks) or 'none'}"
            raise UnknownSetting(f"panel {panel} has no setting {name!r}{hint}")
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


class Steering:
    """What is changed of the run that a panel shows.

    Parameters
    ----------
    run
        Returns the run; None before there is one.
    """

    def __init__(self, run: Callable[[], Training | None]) -> None:
        self._run = run
        #: Name of the task that is meant; None: all, or the first of which there is anything to see.
        self.task: str | None = None
        #: Lines of Python for what was applied here, oldest first.
        self.applied: list[str] = []

    @property
    def off(self) -> str:
        """Why nothing of the run can be changed; empty while something can."""
        run = self._run()
        return "there is no run yet" if run is None else run.watch.refusal

    def check(self, args: Plain) -> None:
        """Refuse where nothing can be changed."""
        if self.off:
            raise ConfigError(f"{self.off}: nothing can be changed")

    def change(self, key: str, value: object, task: str | None) -> None:
        """Change a setting of the run, of one task or of all, and keep the line that does it."""
        run = self._run()
        if run is not None:
            run.set(key, value, task=task)
        line = f'run.set("{key}", {value!r}' + (f", task={task!r})" if task else ")")
        self.applied = [*self.applied, line]

    def slow_down(self, member: str, factor: float, n_rounds: int, task: str | None) -> None:
        """Have a member of the run take longer, and keep the line that does it."""
        if (run := self._run()) is not None:
            run.slow_down(member, factor, n_rounds, task)
        more = f", task={task!r}" if task else ""
        self.applied = [*self.applied, f"run.slow_down({member!r}, {factor:g}, {n_rounds}{more})"]


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and "\n" not in value


#: Check a span of time above 0, None for all of it.
seconds = optional(fitting("a number > 0 s", lambda value: is_number(value) and value > 0)).read
#: A text of one line.
TEXT = fitting(f"a text of one line, at most {_LONGEST} letters", _is_line)
#: Check one.
text = TEXT.read

"""Show who holds which slot, who waits, and which rule decides: the lease panel."""

import time
from collections.abc import Sequence
from typing import ClassVar

import ipywidgets

from drlnb.fleet.tasks.planners import CHOICES
from drlnb.records.errors import ConfigError
from drlnb.records.settings import choice
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import styled
from drlnb.widgets.panels.frame import Content, Plain, button, row
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Leasing"]

_HOLDS = CHOICES["leasing.hold"]
_ALL = "all tasks"
#: Seconds between two looks at what theory says: means over the whole run, which move slowly.
_THEORY_S = 2.0

#: Spans that the window can show, in words.
_WINDOWS = {"30 s": 30.0, "2 min": 120.0, "10 min": 600.0, "all": None}


class _Hold:
    """The hold planner that a panel shows: the one in force, or one that was chosen and is not in force yet."""

    def __init__(self, content: Content) -> None:
        self._content = content
        #: The task that is meant; what was chosen for it, None: nothing.
        self.task = _ALL
        self.wish: str | None = None
        #: What was in force when the wish was applied; None: it was not.
        self.before: str | None = None

    @property
    def in_force(self) -> str | None:
        """What holds for the task now, or for all tasks if it is the same for all."""
        task = None if self.task == _ALL else self.task
        found = settings.held(self._content.run, self._content.fold, "hold", "leasing.hold", task)
        return found if found in _HOLDS else None

    @property
    def shown(self) -> str | None:
        """What the field shows."""
        return self.in_force if self.wish is None else self.wish

    def choose(self, hold: object) -> None:
        """Keep what was chosen until it is applied."""
        self.wish, self.before = (None if hold == self.in_force else str(hold)), None

    def choose_task(self, name: object) -> None:
        """Show what holds for another task."""
        self.task = str(name)

    def settle(self) -> None:
        """Drop the wish once it is in force."""
        if self.in_force == self.wish or self.before not in {None, self.in_force or ""}:
            self.wish = self.before = None

    def asked(self, args: Args) -> tuple[str, str | None]:
        """Return (planner, task or None), from the message or the fields."""
        task = str(args.get("task") or self.task)
        return str(args.get("hold") or self.shown), None if task == _ALL else task


class Leasing(Content):
    """The lease Gantt of a live run, and its hold planner."""

    NAME = "leasing"
    MODULE = "timeline"
    #: ``window_s``: only the latest so many seconds, None for all of it.
    CHECKS: ClassVar[settings.Checks] = {"window_s": settings.seconds}
    #: What theory said last, of which columns and when.
    _theory: tuple[Fold, float, gantt.Theory] | None = None
    #: Lines of Python for what was applied here, oldest first.
    applied: Sequence[str] = ()

    def draw(self, name: str = "") -> View:
        """Return the Gantt; the numbers beside theory anew every two seconds, and where nothing comes after."""
        now_s, fold = time.monotonic(), self.fold
        over = self.run is None or self.run.ended
        if over or self._theory is None or self._theory[0] is not fold or now_s - self._theory[1] > _THEORY_S:
            self._theory = (fold, now_s, gantt.beside_theory(fold))
        return gantt.gantt(fold, window_s=self.panel.settings.get("window_s"), theory=self._theory[2])

    def controls(self) -> list[ipywidgets.Widget]:
        """Make window, hold planner and task; Apply is the shell's button."""
        names = list(self.run.specs) if self.run is not None else []
        own = self.hold = _Hold(self)
        window = ipywidgets.Dropdown(description="window", options=list(self._spans()), value=self._label())
        hold = ipywidgets.Dropdown(description="hold", options=_HOLDS, value=own.shown)
        task = ipywidgets.Dropdown(description="for", options=[_ALL, *names], value=_ALL)
        known = self.panel.fields.add
        known("window", window, value=self._label, choose=self._choose_window)
        known("hold", hold, value=lambda: own.shown, choose=own.choose, waits=lambda: own.wish is not None)
        known("task", task, value=lambda: own.task, choose=own.choose_task)
        self._window, self._hold, self._task = window, hold, task
        apply = Command(label="change the hold planner", run=self._apply, check=self._can_apply)
        self.panel.commands.add("apply", apply)
        return [row(styled(window, "window"), styled(hold, "hold"), styled(task, "task"))]

    def facts(self) -> Plain:
        """Return the Apply button."""
        return {"buttons": [button("apply", "Apply hold", reason=self._off())]}

    def _off(self) -> str:
        """Return why nothing can be changed; empty while something can."""
        return "there is no run yet" if self.run is None else self.run.watch.refusal

    # ------------------------------------------------------------------ window
    def _spans(self) -> dict[str, float | None]:
        """Return label -> seconds: labels are the options, since a dropdown takes the value None for nothing chosen."""
        span = self.panel.settings.get("window_s")
        own = {} if span in _WINDOWS.values() else {f"{span:g} s": span}
        return {**own, **_WINDOWS}

    def _label(self) -> str:
        return next(label for label, span in self._spans().items() if span == self.panel.settings.get("window_s"))

    def _choose_window(self, label: object) -> None:
        self.panel.set(window_s=self._spans()[str(label)])

    def changed(self, new: Args) -> None:
        """Offer the window that code has chosen."""
        self.panel.fields.later(self._window, "options", list(self._spans()))

    # ------------------------------------------------------------------ hold
    def folded(self) -> None:
        """Follow what is in force."""
        self.hold.settle()

    def _can_apply(self, args: Args) -> None:
        hold, task = self.hold.asked(args)
        choice(*_HOLDS).read("hold", hold)
        if self._off():
            raise ConfigError(f"{self._off()}: nothing can be changed")
        if task is not None and self.run is not None:
            choice(*self.run.specs).read("task", task)

    def _apply(self, args: Args) -> str:
        hold, task = self.hold.asked(args)
        if self.run is not None:
            self.run.set("leasing.hold", hold, task=task)
        line = f'run.set("leasing.hold", {hold!r}' + (f", task={task!r})" if task else ")")
        self.applied, self.hold.before = [*self.applied, line], self.hold.in_force or ""
        return f"hold: {hold} for {task or 'all tasks'}, from the next round on"

    def code(self) -> str:
        """Return the line that gives this panel, and those that did what was applied."""
        return "\n".join([super().code(), *self.applied])

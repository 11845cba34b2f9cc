"""Show who holds which slot, who waits, and which rule decides: the lease panel."""

import time
from collections.abc import Sequence
from typing import ClassVar

import ipywidgets

from drlnb.fleet.tasks.planners import CHOICES
from drlnb.fleet.training import Training
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Content, Plain, button, row, styled
from drlnb.widgets.transport.commands import Args, Command
from drlnb.widgets.transport.story import FOLDS

__all__ = ["Leasing"]

_HOLDS = CHOICES["leasing.hold"]
_ALL = "all tasks"
#: Seconds between two looks at what theory says: means over the whole run, which move slowly.
_THEORY_S = 2.0

#: Spans that the window can show, in words.
_WINDOWS = {"30 s": 30.0, "2 min": 120.0, "10 min": 600.0, "all": None}


class Leasing(Content):
    """The lease Gantt of a live run, and its hold planner."""

    NAME = "leasing"
    MODULE = "timeline"
    #: ``window_s``: only the latest so many seconds, None for all of it.
    CHECKS: ClassVar[settings.Checks] = {"window_s": settings.seconds}
    #: What theory said last, of which columns and when.
    _theory: tuple[Fold, float, gantt.Theory] | None = None
    #: Changes of settings that the dropdown has followed.
    _n_followed = 0
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
        hold = self.run.planners.get("hold") if self.run is not None else None
        self._window = ipywidgets.Dropdown(description="window", options=list(self._spans()), value=self._label())
        self._hold = ipywidgets.Dropdown(
            description="hold", options=_HOLDS, value=hold if hold in _HOLDS else _HOLDS[0]
        )
        self._task = ipywidgets.Dropdown(description="for", options=[_ALL, *names], value=_ALL)
        self._task.observe(self._task_chosen, "value")
        self._window.observe(self._window_chosen, "value")
        apply = Command(label="change the hold planner", run=self._apply, check=self._can_apply)
        self.panel.commands.add("apply", apply)
        return [row(styled(self._window, "window"), styled(self._hold, "hold"), styled(self._task, "task"))]

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

    def _window_chosen(self, change: Args) -> None:
        with self.panel.messages.guard("choose the window"):
            self.panel.settings = {**self.panel.settings, "window_s": self._spans()[change["new"]]}
            self.panel.touch()

    def changed(self, new: Args) -> None:
        """Show the window that code has chosen."""
        if "window_s" in new:
            self.panel.later(self._window, "options", list(self._spans()))
            self.panel.later(self._window, "value", self._label())

    # ------------------------------------------------------------------ hold
    def _wish(self, args: Args) -> tuple[str, str | None]:
        """Return (planner, task or None), from the message or the controls."""
        task = str(args.get("task") or self._task.value)
        return str(args.get("hold") or self._hold.value), None if task == _ALL else task

    def _can_apply(self, args: Args) -> None:
        hold, task = self._wish(args)
        settings.choice(*_HOLDS)("hold", hold)
        if self._off():
            raise settings.WrongSetting(f"{self._off()}: nothing can be changed")
        if task is not None and self.run is not None:
            settings.choice(*self.run.specs)("task", task)

    def _apply(self, args: Args) -> str:
        hold, task = self._wish(args)
        if isinstance(self.run, Training):  # a recording has refused by now
            self.run.set("leasing.hold", hold, task=task)
        line = f'run.set("leasing.hold", {hold!r}' + (f", task={task!r})" if task else ")")
        self.applied = [*self.applied, line]
        return f"hold: {hold} for {task or 'all tasks'}, from the next round on"

    def folded(self) -> None:
        """Show the hold planner that code, or somebody else, has set: a change in the journal, not a wish of ours."""
        n = sum(len(attempt.settings) for task in self.fold.tasks.values() for attempt in task.attempts.values())
        if n != self._n_followed:
            self._n_followed = n
            self._show_hold(self._task.value)

    def _task_chosen(self, change: Args) -> None:
        with self.panel.messages.guard("choose the task"), FOLDS:
            self._show_hold(change["new"])

    def _show_hold(self, task: str) -> None:
        """Show what holds for a task now, or for all tasks if it is the same for all."""
        specs = self.run.specs if self.run is not None else ()
        begun = self.run.planners.get("hold", "") if self.run is not None else ""
        held = {_held(self.fold, name, begun) for name in (specs if task == _ALL else (task,))}
        if len(held) == 1 and held <= set(_HOLDS):
            self.panel.later(self._hold, "value", held.pop())

    def code(self) -> str:
        """Return the line that gives this panel, and those that did what was applied."""
        return "\n".join([super().code(), *self.applied])


def _held(fold: Fold, name: str, begun: str) -> str:
    """Return a task's hold planner: the last one that was set, else the one that it (or its run) began with."""
    task = fold.tasks.get(name)
    if task is None:
        return begun
    begun = str((task.latest.config.get("planners") or {}).get("hold", begun))
    changes = reversed(task.latest.settings)
    return next((str(event.value) for _, event in changes if event.key == "leasing.hold"), begun)

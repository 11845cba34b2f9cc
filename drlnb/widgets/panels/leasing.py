"""Who holds which slot now, who waits, and which rule decides it?  The lease panel."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.tasks.planners import CHOICES
from drlnb.views.drawing.view import View
from drlnb.views.leasing import gantt
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Panel, button
from drlnb.widgets.transport.commands import Args, Command
from drlnb.widgets.transport.story import FOLDS

__all__ = ["LeasingPanel"]

_HOLDS = CHOICES["leasing.hold"]
_ALL = "all tasks"
#: Seconds between two looks at what theory says: means over the whole run, which move slowly.
_THEORY_S = 2.0

#: Spans that the window can show, in words.
_WINDOWS = {"30 s": 30.0, "2 min": 120.0, "10 min": 600.0, "all": None}


class LeasingPanel(Panel):
    """The lease Gantt of a live run, and its hold planner.

    Parameters
    ----------
    training
        The run.
    **settings
        ``window_s``: only the latest so many seconds, None for all of it.
    """

    NAME = "leasing"
    CHECKS: ClassVar[settings.Checks] = {"window_s": settings.seconds}

    def pictured(self) -> Sequence[str]:
        """One timeline."""
        return ("timeline",)

    def draw(self, index: int) -> View:
        """Return the Gantt."""
        del index
        return gantt.gantt(self._fold, window_s=self.settings.get("window_s"), theory=self._beside_theory())

    #: What theory says, as it was told last, of which columns and when.
    _theory: tuple[Any, float, gantt.Numbers] | None = None

    def _beside_theory(self) -> gantt.Numbers:
        """Return the numbers beside theory, anew every two seconds, and at once where nothing comes after."""
        now_s = time.monotonic()
        over = self.training is None or self.training.ended
        if over or self._theory is None or self._theory[0] is not self._fold or now_s - self._theory[1] > _THEORY_S:
            self._theory = (self._fold, now_s, gantt.beside_theory(self._fold))
        return self._theory[2]

    def make_controls(self) -> list[ipywidgets.Widget]:
        """Window, hold planner and task; Apply is the shell's button."""
        names = list(self.training.specs) if self.training is not None else []
        planners = self.training.planners if self.training is not None else {}
        hold = planners.get("hold")
        self._window = ipywidgets.Dropdown(description="window", options=list(self._spans()), value=self._label())
        self._hold = ipywidgets.Dropdown(
            description="hold", options=_HOLDS, value=hold if hold in _HOLDS else _HOLDS[0]
        )
        self._task = ipywidgets.Dropdown(description="for", options=[_ALL, *names], value=_ALL)
        for name, widget in (("window", self._window), ("hold", self._hold), ("task", self._task)):
            widget.layout.width = "200px"
            widget.style.description_width = "initial"
            widget.add_class(f"drlnb-t-{name}")
        self._task.observe(self._task_chosen, "value")
        self._window.observe(self._window_chosen, "value")
        self.commands.add("apply", Command(what="change the hold planner", run=self._apply, check=self._can_apply))
        return [
            ipywidgets.HBox(
                [self._window, self._hold, self._task], layout={"flex_flow": "row wrap", "grid_gap": "0 12px"}
            )
        ]

    def facts(self) -> dict[str, Any]:
        """Return the Apply button."""
        return {"buttons": [button("apply", "Apply hold", reason=self._off())]}

    def _off(self) -> str:
        """Say why nothing can be changed; empty while something can."""
        return "there is no run yet" if self.training is None else self.training.watch.refusal

    # ------------------------------------------------------------------ window
    def _span(self) -> float | None:
        return self.settings.get("window_s")

    def _spans(self) -> dict[str, float | None]:
        """Return label -> seconds: labels are the options, since a dropdown takes the value None for nothing chosen."""
        span = self._span()
        own = {} if span in _WINDOWS.values() else {f"{span:g} s": span}
        return {**own, **_WINDOWS}

    def _label(self) -> str:
        return next(label for label, span in self._spans().items() if span == self._span())

    def _window_chosen(self, change: Mapping[str, Any]) -> None:
        with self.messages.guard("choose the window"):
            self.settings = {**self.settings, "window_s": self._spans()[change["new"]]}
            self.touch()

    def changed(self, new: Mapping[str, Any]) -> None:
        """Show the window that code has chosen."""
        if "window_s" in new:
            self.later(self._window, "options", list(self._spans()))
            self.later(self._window, "value", self._label())

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
        if task is not None:
            settings.choice(*self.training.specs)("task", task)

    def _apply(self, args: Args) -> str:
        hold, task = self._wish(args)
        training: Any = self.training  # a recording has refused by now
        training.set("leasing.hold", hold, task=task)
        said = f'run.set("leasing.hold", {hold!r}' + (f", task={task!r})" if task else ")")
        self.applied = [*self.applied, said]
        return f"hold: {hold} for {task or 'all tasks'}, from the next round on"

    #: Changes of settings that the dropdown has followed.
    _n_followed = 0

    def folded(self) -> None:
        """Show the hold planner that code, or somebody else, has set: a change in the journal, not a wish of ours."""
        n = sum(len(one.settings) for task in self._fold.tasks.values() for one in task.attempts.values())
        if n != self._n_followed:
            self._n_followed = n
            self._show_hold(self._task.value)

    def _task_chosen(self, change: Mapping[str, Any]) -> None:
        with self.messages.guard("choose the task"), FOLDS:
            self._show_hold(change["new"])

    def _show_hold(self, task: str) -> None:
        """Have the pump show what holds for a task now, or for all tasks if it is the same for all."""
        specs = self.training.specs if self.training is not None else ()
        held = {self._held(name) for name in (specs if task == _ALL else (task,))}
        if len(held) == 1 and held <= set(_HOLDS):
            self.later(self._hold, "value", held.pop())

    def _held(self, name: str) -> str:
        """Return a task's hold planner: the last one that was set, else the one that it began with."""
        begun = self.training.planners.get("hold", "") if self.training is not None else ""
        task = self._fold.tasks.get(name)
        if task is None or task.latest is None:
            return begun
        begun = (task.latest.config.get("planners") or {}).get("hold", begun)
        return next(
            (str(event.value) for _, event in reversed(task.latest.settings) if event.key == "leasing.hold"), begun
        )

    #: Lines of Python for what was applied here, oldest first.
    applied: Sequence[str] = ()

    def code(self) -> str:
        """Return the line that gives this panel, and those that did what was applied."""
        return "\n".join([super().code(), *self.applied])

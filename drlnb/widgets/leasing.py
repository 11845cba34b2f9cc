"""Who holds which slot now, who waits, and which rule decides it?  The lease panel."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.planners import CHOICES
from drlnb.views import leasing
from drlnb.views.view import View
from drlnb.widgets import settings
from drlnb.widgets.commands import Args, Command
from drlnb.widgets.frame import Panel, button

__all__ = ["LeasingPanel"]

_HOLDS = CHOICES["leasing.hold"]
_ALL = "all tasks"

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
        return leasing.gantt(self._fold, window_s=self.settings.get("window_s"))

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
            widget.add_class(f"drlnb-t-{name}")
        self._window.observe(self._window_chosen, "value")
        self.commands.add("apply", Command(what="change the hold planner", run=self._apply, check=self._can_apply))
        return [ipywidgets.HBox([self._window, self._hold, self._task], layout={"flex_flow": "row wrap"})]

    def facts(self) -> dict[str, Any]:
        """Return the Apply button."""
        over = self.training is None or self.training.ended
        return {"buttons": [button("apply", "Apply hold", not over, reason="the run has ended" if over else "")]}

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
        if self.training is None or self.training.ended:
            raise settings.WrongSetting("the run has ended: nothing is left to change")
        if task is not None:
            settings.choice(*self.training.specs)("task", task)

    def _apply(self, args: Args) -> str:
        hold, task = self._wish(args)
        assert self.training is not None
        self.training.set("leasing.hold", hold, task=task)
        said = f'run.set("leasing.hold", {hold!r}' + (f", task={task!r})" if task else ")")
        self.applied = [*self.applied, said]
        return f"hold: {hold} for {task or 'all tasks'}, from the next round on"

    #: Lines of Python for what was applied here, oldest first.
    applied: Sequence[str] = ()

    def code(self) -> str:
        """Return the line that gives this panel, and those that did what was applied."""
        return "\n".join([super().code(), *self.applied])

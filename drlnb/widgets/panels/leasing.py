"""Show who holds which slot, who waits, and which rule decides: the lease panel."""

import time
from collections.abc import Mapping
from typing import ClassVar

import ipywidgets

from drlnb.fleet.tasks.planners import CHOICES
from drlnb.records.settings import choice
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.views.leasing import gantt
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import ALL, Values, row
from drlnb.widgets.panels.frame import Content, Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Leasing"]

_HOLDS = CHOICES["leasing.hold"]
#: Seconds between two looks at what theory says: means over the whole run, which move slowly.
_THEORY_S = 2.0

#: Spans that the window can show, in words.
_WINDOWS = {"30 s": 30.0, "2 min": 120.0, "10 min": 600.0, "all": None}


class _Hold(Values):
    """What the fields show: the hold planner in force, or one that was chosen and is not in force yet; the window."""

    KEYS: ClassVar[Mapping[str, str]] = {"hold": "leasing.hold"}

    def in_force(self, name: str) -> str | None:
        """Return the planner that the task has now, or that all tasks have if it is the same for all."""
        panel, task = self.panel, self.panel.steering.task
        found = settings.held(panel.training, panel.reader.fold, "hold", "leasing.hold", task)
        return found if found in _HOLDS else None

    def shown(self, name: str) -> object:
        """Return the window, the planner, or the task that is meant."""
        if name != "window":
            return super().shown(name)
        return next(label for label, span in self.spans().items() if span == self.panel.settings.get("window_s"))

    def choose(self, name: str, value: object) -> None:
        """Show another window, or what holds for another task; keep a planner until it is applied."""
        if name == "window":
            self.panel.set(window_s=self.spans()[str(value)])
        else:
            super().choose(name, value)

    def spans(self) -> dict[str, float | None]:
        """Return label -> seconds: labels are the options, since a dropdown takes the value None for nothing chosen."""
        span = self.panel.settings.get("window_s")
        own = {} if span in _WINDOWS.values() else {f"{span:g} s": span}
        return {**own, **_WINDOWS}


class Leasing(Content):
    """The lease Gantt of a live run, and its hold planner."""

    NAME = "leasing"
    MODULE = "timeline"
    #: ``window_s``: only the latest so many seconds, None for all of it; ``hold`` takes effect once it is applied.
    CHECKS: ClassVar[settings.Checks] = {"window_s": settings.seconds, "hold": choice(*_HOLDS).read}
    #: What theory said last, of which columns and when.
    _theory: tuple[Fold, float, gantt.Theory] | None = None

    def draw(self, name: str = "") -> View:
        """Return the Gantt; the numbers beside theory anew every two seconds, and where nothing comes after."""
        now_s, fold = time.monotonic(), self.fold
        over = self.run is None or self.run.ended
        if over or self._theory is None or self._theory[0] is not fold or now_s - self._theory[1] > _THEORY_S:
            self._theory = (fold, now_s, gantt.beside_theory(fold))
        live = not over if self.run is not None and self.run.watch.live else None
        return gantt.gantt(fold, window_s=self.panel.settings.get("window_s"), theory=self._theory[2], live=live)

    def controls(self) -> list[ipywidgets.Widget]:
        """Make window, hold planner and task; Apply is the shell's button."""
        names = list(self.run.specs) if self.run is not None else []
        self.panel.fields.values = self.hold = _Hold(self.panel)
        add, kind = self.panel.fields.add, ipywidgets.Dropdown
        fields = [
            add("window", kind, "window", options=list(self.hold.spans())),
            add("hold", kind, "hold", options=_HOLDS),
            add("task", kind, "for", options=[ALL, *names]),
        ]
        apply = Command(label="change the hold planner", run=self.hold.applied.apply, check=self.panel.steering.check)
        self.panel.commands.add("apply", apply)
        return [row(*fields)]

    def facts(self) -> Plain:
        """Return the Apply button."""
        return {"buttons": [button("apply", "Apply hold", reason=self.panel.steering.off)]}

    def changed(self, new: Args) -> None:
        """Offer the window that code has chosen."""
        self.panel.fields.later(self.panel.fields["window"].field, "options", list(self.hold.spans()))

    def folded(self) -> None:
        """Follow what is in force."""
        self.hold.applied.settle()

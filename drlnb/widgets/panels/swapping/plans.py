"""Make plans of swapping beside the hub, which has other panels to visit, and show the parameters of their planner."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import ipywidgets

from drlnb.fleet.whatif.swapping import Case, extremes, parameters, turned
from drlnb.records.errors import ConfigError
from drlnb.records.units import said_bytes
from drlnb.widgets.panels.frame import Panel
from drlnb.widgets.transport.commands import Args, Command, Commands
from drlnb.widgets.transport.live import live

__all__ = ["LABELS", "Knobs", "Planned", "Plans", "Reach"]


class Planned(Protocol):
    """What is planned."""

    panel: Panel

    @property
    def key(self) -> object:
        """What plans depend on, as something to compare."""

    def value(self, name: str) -> Any:
        """Return a setting as it is now."""

    def explained(self) -> object:
        """Return the plan and what it costs; ConfigError if there is none."""

    def case(self) -> Case:
        """Return the step that is planned; ConfigError if there is none."""


class Plans:
    """The newest plan of a panel.

    Parameters
    ----------
    of
        What is planned.
    """

    def __init__(self, of: Planned) -> None:
        self._of = of
        #: Of what there is a plan, and that plan; and of what one was asked for last, with a number.
        self._known: tuple[object, Any] = (None, "planning ...")
        self._asked: tuple[object, int] = (None, 0)
        #: A thread of its own: a click does not wait for a search either.
        self._commands = Commands(of.panel.messages)
        self._commands.add("plan", Command(label="plan", run=self._make))

    @property
    def stale(self) -> bool:
        """Whether the newest plan is one of former settings."""
        return self._known[0] != self._of.key

    def current(self) -> Any:
        """Return the plan of what is set now, made here if need be; a text: why there is none."""
        key = self._of.key
        if self._known[0] != key:
            try:
                said = self._of.explained()
            except ConfigError as error:
                said = str(error)
            self._known = (key, said)
        return self._known[1]

    def newest(self) -> Any:
        """Return the plan, where a hub draws a former one while the new one is made."""
        if not live.running:
            return self.current()
        key = self._of.key
        if not self.stale:
            self._asked = (None, self._asked[1])
        elif key != self._asked[0]:
            self._asked = (key, self._asked[1] + 1)
            self._commands.receive({"id": self._asked[1], "name": "plan"}, lambda reply: None)
        return self._known[1]

    def _make(self, args: Args) -> None:
        self.current()
        self._of.panel.touch()

    def close(self) -> None:
        """Wait for the plan that is being made."""
        self._commands.join()


#: Parameter of a planner -> its label and width.
LABELS: Mapping[str, tuple[str, str]] = {
    "w": ("time \N{LEFT RIGHT ARROW} memory", "390px"),
    "epsilon": ("epsilon", "140px"),
    "alpha": ("alpha", "140px"),
    "gamma": ("gamma", "140px"),
    "n_trials": ("trials", "140px"),
}


class Knobs:
    """Controls of what the planner takes; to move one is to write it into the planner's name.

    Parameters
    ----------
    of
        Has the setting ``planner``.
    """

    def __init__(self, of: Planned) -> None:
        self._of = of
        #: Parameter -> its value, or the last one that it had.
        self._values: dict[str, object] = dict.fromkeys(LABELS, 0.0)
        #: What stands in the panel for each; shown as long as the planner takes it.
        self.boxes: dict[str, ipywidgets.Widget] = {}

    def make(self) -> list[ipywidgets.Widget]:
        """Make the controls."""
        for name, (label, width) in LABELS.items():
            kind = ipywidgets.FloatSlider if name == "w" else ipywidgets.FloatText
            more: dict[str, object] = {"step": 1 if name == "n_trials" else 0.05}
            more |= {"min": 0.0, "max": 1.0, "continuous_update": False} if name == "w" else {}
            self.boxes[name] = self._of.panel.fields.add(name, kind, label, width, **more)
            self.boxes[name].layout.display = "none"
        self.follow()
        return list(self.boxes.values())

    def value(self, name: str) -> object:
        """Return a parameter as it is; of one that the planner does not take, as it was."""
        self._values |= parameters(self._of.value("planner"))
        return self._values[name]

    def follow(self) -> None:
        """Show the parameters that the planner takes."""
        known = parameters(self._of.value("planner"))
        for name, box in self.boxes.items():
            self._of.panel.fields.later(box.layout, "display", None if name in known else "none")

    def turn(self, name: str, value: object) -> None:
        """Write a parameter into the planner's name."""
        number = float(str(value))
        whole = name == "n_trials" and number.is_integer()
        self._of.panel.set(planner=turned(self._of.value("planner"), name, int(number) if whole else number))


class Reach:
    """How far the budget's slider goes: from what one sample needs to what keeping all needs.

    Parameters
    ----------
    of
        What is planned; has the setting ``budget_mib``.
    slider
        Its values are powers of two of a MiB.
    """

    def __init__(self, of: Planned, slider: ipywidgets.FloatLogSlider) -> None:
        self._of, self._slider = of, slider
        self._known: tuple[object, Case | None, tuple[int, int]] = (None, None, (0, 0))
        self._ends = (float(slider.min), float(slider.max))

    def _found(self) -> tuple[object, Case | None, tuple[int, int]]:
        """Return of what the step is, the step (None: there is none), and the bytes of its extremes."""
        key = self._of.key
        if key != self._known[0]:
            try:
                case = self._of.case()
                self._known = (key, case._replace(memory_budget_bytes=None), extremes(case))
            except ConfigError:
                self._known = (key, None, (0, 0))
        return self._known

    @property
    def step(self) -> Case | None:
        """The step without its budget; None: there is none."""
        return self._found()[1]

    def follow(self) -> list[str]:
        """Have the slider reach as far, and the budget in force in any case; return it in words, if there is a step."""
        _, case, (least, most) = self._found()
        mib, step = self._of.value("budget_mib"), self._slider.step
        low, high = self._ends if case is None else (math.log2(n_bytes / 2**20) for n_bytes in (least, most))
        ends = (
            math.floor(min(low, math.log2(mib)) / step) * step,
            math.ceil(max(high, math.log2(mib)) / step) * step,
        )
        if ends != self._ends:
            self._ends = ends
            # At no moment is the value outside, neither here nor in the page, which would send back what it is cut to.
            for name, value in (("max", 64.0), ("min", -64.0), ("value", mib), ("min", ends[0]), ("max", ends[1])):
                self._of.panel.fields.later(self._slider, name, value)
        return [f"budget: {said_bytes(least)} hold one sample, {said_bytes(most)} keep all"] if case else []

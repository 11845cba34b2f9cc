"""Keep a field true: it shows the value in force, and what its user chooses is taken or refused in words.

The one rule of every field of every panel.  A choice is given to :attr:`Control.choose` at once; refused, the value
in force comes back, and the reason stands in the panel until something else is chosen.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial

import ipywidgets

from drlnb.records.errors import InputError
from drlnb.widgets.transport.commands import Args
from drlnb.widgets.transport.messages import MessageArea, sentence_of

__all__ = ["Control", "Fields", "slider", "styled"]

#: Class of a field whose value is chosen and not in force.
_CHOSEN = "drlnb-chosen"


class Control:
    """One value, and the fields that show it.

    Parameters
    ----------
    owner
        The fields of its panel.
    name
        Name of the value.
    *fields
        The widgets, each with a trait ``value``.
    value
        Returns the value to show: the one in force, or one that was chosen and waits to be applied.
    choose
        Takes what a user has chosen; raises InputError with the reason where it cannot be.
    waits
        Whether the value was chosen and is not in force yet: the field is marked then.
    """

    def __init__(
        self,
        owner: "Fields",
        name: str,
        *fields: ipywidgets.Widget,
        value: Callable[[], object],
        choose: Callable[[object], object],
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._owner, self.name, self._fields = owner, name, fields
        self._value, self._choose, self._waits = value, choose, waits
        #: Held while a choice is looked at and while fields are written: they happen in different threads.
        self._lock = threading.RLock()
        #: What the fields show, as far as this process knows; a front end may be ahead of it.
        self._shown = [field.value for field in fields]
        for i, field in enumerate(fields):
            field.observe(lambda change, i=i: self._moved(i, change), "value")

    @property
    def label(self) -> str:
        """What stands beside its first field."""
        return str(self._fields[0].description)

    @property
    def waits(self) -> bool:
        """Whether its value was chosen and is not in force."""
        return self._waits()

    def _moved(self, i: int, change: Args) -> None:
        """Accept or refuse what was chosen; within the callback."""
        with self._lock:
            self._shown[i] = change["new"]
            if self._owner.writer == threading.get_ident():
                return
            with self._owner.messages.guard(f"read {self.name}"):
                try:
                    self._choose(change["new"])
                except InputError as error:
                    self._owner.refusals = {**self._owner.refusals, self.name: sentence_of(error)}
                else:
                    self._owner.refusals = {}
                self._owner.changed()

    def show(self) -> None:
        """Write the value in force into the fields, unless they show it; called by the pump alone.

        What is not known to differ is not written: a field may hold letters that this process has not heard of.
        """
        with self._lock:
            value = self._value()
            for shown, field in zip(list(self._shown), self._fields, strict=True):
                if shown != value:
                    field.value = value
                (field.add_class if self._waits() else field.remove_class)(_CHOSEN)


class Fields:
    """All fields of a panel, and whatever else of its widgets waits for the pump.

    Parameters
    ----------
    messages
        Where failures are told.
    apply
        Sets a setting of the panel; raises InputError with the reason where it cannot be.
    setting
        Returns a setting of the panel.
    changed
        Called after each choice.
    """

    def __init__(
        self,
        messages: MessageArea,
        apply: Callable[[str, object], object],
        setting: Callable[[str], object],
        changed: Callable[[], None],
    ) -> None:
        self.messages, self.changed = messages, changed
        self._apply, self._setting = apply, setting
        self._known: dict[str, Control] = {}
        #: Name of a field -> why its last choice was refused.
        self.refusals: Mapping[str, str] = {}
        #: Thread that writes traits now, None: none does; what it brings about is nobody's choice.
        self.writer: int | None = None
        #: Trait writes that wait for the pump: (widget, name, value).
        self._writes: list[tuple[ipywidgets.Widget, str, object]] = []

    def __getitem__(self, name: str) -> Control:
        return self._known[name]

    def add(
        self,
        name: str,
        *fields: ipywidgets.Widget,
        value: Callable[[], object] | None = None,
        choose: Callable[[object], object] | None = None,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        """Have fields show a value by the rule; without more words it is the panel's setting of that name."""
        known, take = value or partial(self._setting, name), choose or partial(self._apply, name)
        self._known[name] = Control(self, name, *fields, value=known, choose=take, waits=waits)

    def later(self, widget: ipywidgets.Widget, name: str, value: object) -> None:
        """Leave a trait that is no value of a user to the pump."""
        self._writes.append((widget, name, value))

    def facts(self) -> dict[str, object]:
        """Return what the shell says of them: what was refused, what is chosen and not in force."""
        waiting = [control.label for control in self._known.values() if control.waits]
        return {"refused": "; ".join(self.refusals.values()), "waits": waiting}

    def write(self) -> None:
        """Write the traits that wait, then every value that its fields do not show; called by the pump alone."""
        writes, self._writes, self.writer = self._writes, [], threading.get_ident()
        try:
            for widget, name, value in writes:
                setattr(widget, name, value)
            for name, control in self._known.items():
                with self.messages.guard(f"show {name}"):
                    control.show()
        finally:
            self.writer = None


def slider(name: str, label: str, track: ipywidgets.Widget, width: str = "300px") -> ipywidgets.HBox:
    """Return a slider with a field for its exact value beside it.

    A slider's own readout takes what is beyond its ends for the end, without a word; a field hands it on to be refused.

    Parameters
    ----------
    name
        Class of the pair.
    label
        What stands beside them.
    track
        The slider.
    """
    track.description, track.readout, track.style.description_width = label, False, "initial"
    track.layout.flex, track.layout.width, track.layout.min_width = "1 1 190px", "auto", "0"
    track.layout.flex_flow, track.layout.height = "row wrap", "auto"  # with little room its label has a line of its own
    box = ipywidgets.FloatText(value=track.value, layout={"width": "84px", "flex": "0 0 auto"})
    pair = ipywidgets.HBox([track, box], layout={"width": width, "flex_flow": "row wrap"})
    pair.layout.max_width, pair.layout.margin = "calc(100% - 4px)", "0 2px"
    pair.add_class(f"drlnb-t-{name}")
    return pair


def styled(field: ipywidgets.Widget, name: str, width: str = "200px") -> ipywidgets.Widget:
    """Return a control with its class and width; its label is as wide as its word, so that none is cut."""
    field.layout.width, field.layout.max_width = width, "calc(100% - 4px)"  # its margins
    field.style.description_width = "initial"
    if hasattr(field, "readout"):  # a slider, see above
        field.layout.flex_flow, field.layout.height = "row wrap", "auto"
    field.add_class(f"drlnb-t-{name}")
    return field

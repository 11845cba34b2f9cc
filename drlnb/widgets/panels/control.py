"""Keep a field true: it shows the value in force, and what its user chooses is taken or refused in words.

The one rule of every field of every panel.  A choice is given to :meth:`Values.choose` at once; refused, the value
in force comes back, and the reason stands in the panel until something else is chosen.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import ipywidgets

from drlnb.planning.settings import SETTINGS
from drlnb.records.errors import InputError
from drlnb.widgets.transport.commands import Args
from drlnb.widgets.transport.messages import MessageArea, sentence_of

if TYPE_CHECKING:
    from drlnb.widgets.panels.frame import Panel

__all__ = ["ALL", "Applied", "Control", "Fields", "Values", "row", "side_by_side"]

#: What a field of tasks shows where all are meant.
ALL = "all tasks"
#: Class of a field whose value is chosen and not in force.
_CHOSEN = "drlnb-chosen"


class Values:
    """What the fields of a panel show by their names: its settings, and the task that is meant.

    Those that are settings of a run show what is in force, or what was chosen and waits to be applied.

    Parameters
    ----------
    panel
        Of which they are.
    """

    #: Field -> key of the setting of the run that it is of.
    KEYS: ClassVar[Mapping[str, str]] = {}

    def __init__(self, panel: "Panel") -> None:
        self.panel = panel
        self.applied = Applied(self)

    def in_force(self, name: str) -> Any:
        """Return a setting as it is where nobody has chosen anything."""
        return self.panel.settings[name]

    def value(self, name: str) -> Any:
        """Return a setting as it was chosen, else as it is in force."""
        return self.panel.settings[name] if name in self.panel.settings else self.in_force(name)

    @property
    def wish(self) -> dict[str, object]:
        """What was chosen and is not in force: key of the setting -> value."""
        given = self.panel.settings
        named = {name: key for name, key in self.KEYS.items() if name in given}
        return {key: given[name] for name, key in named.items() if given[name] != self.in_force(name)}

    def shown(self, name: str) -> object:
        """Return the value to show: the one in force, or one that was chosen and waits to be applied."""
        return (self.panel.steering.task or ALL) if name == "task" else self.value(name)

    def choose(self, name: str, value: object) -> None:
        """Accept what a user has chosen; raises InputError with the reason where it cannot be."""
        if name == "task":
            self.panel.steering.task = None if value == ALL else str(value)
        else:
            self.panel.set(**{name: value})

    def waits(self, name: str) -> bool:
        """Return whether the value was chosen and is not in force yet: the field is marked then."""
        return self.KEYS.get(name) in self.wish


class Applied:
    """What was chosen of a run's settings, and was applied.

    Parameters
    ----------
    values
        The fields' values.
    """

    def __init__(self, values: Values) -> None:
        self._values = values
        #: What was in force when something else was applied: field -> value.
        self._before: dict[str, object] = {}

    def apply(self, args: Args) -> str:
        """Change the run as was chosen: the task that is meant, or all where a setting is the pool's."""
        values, wish, steering = self._values, self._values.wish, self._values.panel.steering
        self._before = {name: values.in_force(name) for name, key in values.KEYS.items() if key in wish}
        for key, value in wish.items():
            steering.change(key, value, steering.task if SETTINGS[key].owner == "task" else None)
        return f"changed, {SETTINGS[next(iter(wish))].counts}" if wish else "nothing was moved"

    def settle(self) -> None:
        """Choose no more what was applied, as soon as something else is in force than before."""
        panel, before = self._values.panel, self._before
        gone = {name for name, value in before.items() if self._values.in_force(name) != value}
        self._before = {name: value for name, value in before.items() if name not in gone}
        if gone:
            panel.settings = {name: value for name, value in panel.settings.items() if name not in gone}


class Control:
    """One value, and the fields that show it.

    Parameters
    ----------
    owner
        The fields of its panel.
    name
        Name of the value.
    box
        What stands in the panel.
    fields
        The widgets in it, each with a trait ``value``.
    """

    def __init__(self, owner: "Fields", name: str, box: ipywidgets.Widget, fields: Sequence[ipywidgets.Widget]) -> None:
        self._owner, self.name, self.box, self._fields = owner, name, box, fields
        #: Held while a choice is looked at and while fields are written: they happen in different threads.
        self._lock = threading.RLock()
        #: What the fields show, as far as this process knows; a front end may be ahead of it.
        self._shown = [field.value for field in fields]
        for i, field in enumerate(fields):
            field.observe(lambda change, i=i: self._moved(i, change), "value")

    @property
    def field(self) -> ipywidgets.Widget:
        """Its first field."""
        return self._fields[0]

    def _moved(self, i: int, change: Args) -> None:
        """Accept or refuse what was chosen; within the callback."""
        with self._lock:
            self._shown[i] = change["new"]
            if self._owner.writer == threading.get_ident():
                return
            self._owner.choose(self.name, lambda: change["new"])

    def show(self) -> None:
        """Write the value in force into the fields, unless they show it; called by the pump alone.

        What is not known to differ is not written: a field may hold letters that this process has not heard of.
        """
        with self._lock:
            value, waits = self._owner.values.shown(self.name), self._owner.values.waits(self.name)
            for shown, field in zip(list(self._shown), self._fields, strict=True):
                if shown != value:
                    field.value = value
                (field.add_class if waits else field.remove_class)(_CHOSEN)


class Fields:
    """All fields of a panel, and whatever else of its widgets waits for the pump.

    Parameters
    ----------
    messages
        Where failures are told.
    values
        What they show; a panel may put others in their place.
    changed
        Called after each choice.
    """

    def __init__(self, messages: MessageArea, values: Values, changed: Callable[[], None]) -> None:
        self.messages, self.values, self.changed = messages, values, changed
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
        self, name: str, kind: type[ipywidgets.Widget], label: str, width: str = "200px", **traits: object
    ) -> ipywidgets.Widget:
        """Make a field that shows a value by the rule; return what stands in the panel.

        A slider has a box for its exact value beside it: its own readout takes what is beyond its ends for the end,
        without a word; a field hands it on to be refused.

        Parameters
        ----------
        name
            Name of the value, and of the field's class in the page.
        kind, label, width, traits
            Class of the field, what stands beside it, its width, and what else the class takes.
        """
        box = field = kind(description=label, value=self.values.shown(name), **traits)
        field.style.description_width, parts = "initial", [field]  # as wide as its word, so that none is cut
        if hasattr(field, "readout"):
            field.layout.flex_flow, field.layout.height = "row wrap", "auto"  # with little room its label has a line
        if hasattr(field, "readout") and hasattr(field, "min"):  # of numbers, not of choices
            field.readout = False
            field.layout.flex, field.layout.width, field.layout.min_width = "1 1 190px", "auto", "0"
            parts.append(ipywidgets.FloatText(value=field.value, layout={"width": "84px", "flex": "0 0 auto"}))
            box = ipywidgets.HBox(parts, layout={"flex_flow": "row wrap", "margin": "0 2px"})
        box.layout.width, box.layout.max_width = width, "calc(100% - 4px)"  # its margins
        box.add_class(f"drlnb-t-{name}")
        self._known[name] = Control(self, name, box, parts)
        return box

    def choose(self, name: str, value: Callable[[], object]) -> None:
        """Accept or refuse what was chosen for a field; InputError of `value` is a refusal, too."""
        with self.messages.guard(f"read {name}"):
            try:
                self.values.choose(name, value())
            except InputError as error:
                self.refusals = {**self.refusals, name: sentence_of(error)}
            else:
                self.refusals = {}
            self.changed()

    def later(self, widget: ipywidgets.Widget, name: str, value: object) -> None:
        """Leave a trait that is no value of a user to the pump."""
        self._writes.append((widget, name, value))

    def facts(self) -> dict[str, object]:
        """Return what the shell says of them: what was refused, what is chosen and not in force."""
        waiting = [str(control.field.description) for name, control in self._known.items() if self.values.waits(name)]
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


def row(*fields: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return controls side by side, in as many lines as they need."""
    return ipywidgets.HBox(list(fields), layout={"flex_flow": "row wrap", "grid_gap": "0 12px"})


def side_by_side(*pictures: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return pictures of equal width beside each other, or one below the other where there is little room."""
    for widget in pictures:
        widget.layout.flex, widget.layout.min_width = "1 1 380px", "0"
    return row(*pictures)

"""Show on which slots a run's gangs are and why; change the planner, take slots out, and break one on purpose."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import ipywidgets

from drlnb.fleet.cluster.breaking import NOT_OWN, break_slot
from drlnb.fleet.cluster.pool import Pool
from drlnb.planning.settings import SETTINGS
from drlnb.views.drawing.view import View
from drlnb.views.placement import measured
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row, side_by_side
from drlnb.widgets.panels.frame import Content, Plain, button
from drlnb.widgets.panels.placement.parts import on_click, opened, tabs_of
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Placing"]

#: Field -> key of the setting that it shows: all that are declared.
_KEYS = {key.partition(".")[2]: key for key in SETTINGS if key.startswith("placement.")}
#: Button -> key of the setting that takes a slot.
_SLOT_KEYS = {"drain": "slot.drain", "undrain": "slot.undrain"}
_TABS = {"why": "Why here?", "choice": "Slots to choose from", "plans": "Plans"}


class _Chosen(Values):
    """What the fields show: what is in force for a task, or what was chosen and is not; a slot."""

    KEYS = _KEYS
    CHECKS: ClassVar[settings.Checks] = {name: SETTINGS[key].kind.read for name, key in _KEYS.items()}
    #: Slot that the buttons are for; empty: the first one.
    slot = ""

    @property
    def slots(self) -> list[str]:
        """The pool's slots."""
        return sorted(self.panel.reader.fold.pool.slots)

    def in_force(self, name: str) -> object:
        """Return what a setting is now, as far as the journal says."""
        fold, key = self.panel.reader.fold, _KEYS[name]
        if name == "planner":
            task = self.panel.steering.task
            plans = (plan.of for plan in reversed(fold.placement.plans) if fold.pool.short(plan.of.task) == task)
            begun = next((plan.planner for plan in plans), SETTINGS[key].default)
            return settings.held(self.panel.training, fold, "placement", key, task) or begun
        known = [event.value for _, _, event in fold.pool.settings if event.key == key]
        return known[-1] if known else SETTINGS[key].default

    def shown(self, name: str) -> object:
        """Return what a field shows: texts, where a setting is no choice among few."""
        if name == "slot":
            return self.slot if self.slot in self.slots else next(iter(self.slots), None)
        value = self.panel.steering.task if name == "task" else self.value(name)
        return value if name == "task" or SETTINGS[_KEYS[name]].kind.values else str(value).lower()

    def choose(self, name: str, value: object) -> None:
        """Mean another slot; or as of all fields."""
        if name == "slot":
            self.slot = str(value or "")
        else:
            super().choose(name, value)


class Placing(Content):
    """Slots, gangs and plans of a run.

    Its settings: those of placement, which take effect once they are applied.
    """

    NAME = "placement"
    MODULE = "timeline"
    MORE: ClassVar[Mapping[str, str]] = {"gantt": "timeline", "why": "table", "choice": "timeline", "plans": "table"}
    CHECKS: ClassVar[settings.Checks] = _Chosen.CHECKS
    chosen: _Chosen
    tabs: ipywidgets.Tab

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them board and Gantt side by side, plans and their reasons in tabs."""
        panel, few = self.panel, ipywidgets.Dropdown
        panel.fields.values = self.chosen = _Chosen(panel)
        names = list(self.run.specs) if self.run is not None else []
        panel.steering.task = next(iter(names), None)
        fields = [panel.fields.add("task", few, "task", "190px", options=names)]
        for name, key in _KEYS.items():
            values = SETTINGS[key].kind.values
            kind, more = (ipywidgets.Combobox, {"options": values}) if values else (ipywidgets.Text, {})
            label = name.replace("_frac", "").replace("_", " ")
            fields.append(panel.fields.add(name, kind, label, "200px", continuous_update=False, **more))
        fields.append(panel.fields.add("slot", few, "slot", "200px", options=self.chosen.slots))
        panel.commands.add(
            "apply", Command(label="change placement", run=self.chosen.applied.apply, check=panel.steering.check)
        )
        for name in _SLOT_KEYS:
            take = Command(label=f"{name} slot", run=partial(self._take, name), check=panel.steering.check)
            panel.commands.add(name, take)
        panel.commands.add("break", Command(label="break slot", run=self._break, check=panel.steering.check))
        on_click(panel, "", self._clicked)
        pictures = {name: of.widget for name, of in panel.pictures.items()}
        self.tabs = tabs_of(panel, _TABS, pictures)
        return [row(*fields), side_by_side(pictures[""], pictures["gantt"]), self.tabs]

    def draw(self, name: str = "") -> View:
        """Return the slots as they are now, or one of the other pictures."""
        if of_task := {"why": measured.why, "choice": measured.choice}.get(name):
            return of_task(self.fold, self.panel.steering.task)
        return {"": measured.board, "gantt": measured.gantt, "plans": measured.plans}[name](self.fold)

    def facts(self) -> Plain:
        """Return the buttons, and why the task is where it is."""
        off, slot = self.panel.steering.off, str(self.chosen.shown("slot") or "")
        none = "" if slot else "there is no slot yet"
        unbreakable = off or none or ("" if self._pool and self._pool.handle else NOT_OWN)
        return {
            "buttons": [
                button("apply", "Apply", reason=off or ("" if self.chosen.wish else "nothing was moved")),
                button("drain", f"Drain {slot}", reason=off or none, confirm=f"Lend {slot} no more?"),
                button("undrain", f"Undrain {slot}", reason=off or none),
                button("break", f"Break {slot}", reason=unbreakable, confirm=f"Kill what computes on {slot}?"),
            ],
            "notes": list(dict.fromkeys([self.panel.view("why").sentence, *self._postponed(), *self._of_tab()])),
        }

    @property
    def _pool(self) -> Pool | None:
        return None if self.run is None or self.run.fleet is None else self.run.fleet.pool

    def _of_tab(self) -> list[str]:
        view = self.panel.view(opened(self.tabs, _TABS))
        return [view.sentence, *view.notes]

    def _postponed(self) -> list[str]:
        return [f"{self.fold.pool.short(task)}: {why}" for task, why in self.fold.placement.postponed.items()]

    def folded(self) -> None:
        """Offer the slots that there are, and drop what was applied once something else is in force."""
        field = self.panel.fields["slot"].field
        if list(field.options) != self.chosen.slots:
            self.panel.fields.later(field, "options", self.chosen.slots)
        self.chosen.applied.settle()

    # ------------------------------------------------------------------ commands
    def _clicked(self, cell: Mapping[str, str]) -> None:
        """Mean the slot of a cell, and the first task whose gang has it."""
        self.panel.fields.choose("slot", lambda: cell["slot"])
        task = cell["whose"].partition(", ")[0]
        if self.run is not None and task in self.run.specs:
            self.panel.fields.choose("task", lambda: task)

    def _take(self, name: str, args: Args) -> str:
        slot = self.chosen.shown("slot")
        self.panel.steering.change(_SLOT_KEYS[name], slot, None)
        return f"{slot} is lent {'no more' if name == 'drain' else 'again'}"

    def _break(self, args: Args) -> str:
        slot = str(self.chosen.shown("slot"))
        break_slot(self._pool, slot)
        return f"what computed on {slot} was killed"

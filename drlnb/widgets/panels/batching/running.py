"""Show how a run's work is split among learners or collectors, and change planner and gathering while it trains."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.whatif import batching as whatif
from drlnb.planning.settings import SETTINGS
from drlnb.records.settings import choice
from drlnb.views.batching import compared, measured
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.batching.splits import Splits, text
from drlnb.widgets.panels.control import Values
from drlnb.widgets.panels.frame import Plain, button
from drlnb.widgets.transport.commands import Args, Command
from drlnb.widgets.transport.story import FOLDS

__all__ = ["Batching"]

#: Field -> key of the setting that it shows: all that are declared.
_KEYS = {key.partition(".")[2]: key for key in SETTINGS if key.startswith("batching.")}
_LABELS = {"planner": "learners' planner", "collect": "collectors' planner", "deadline_s": "deadline, s"}
#: Who is shown -> the splits of theirs, and the field of their planner.
_ROLES = {"learners": ("update", "planner"), "collectors": ("collect", "collect")}


class _Running(Values):
    """What the fields show: what is in force for a task, or what was chosen and is not."""

    @property
    def shown_splits(self) -> measured.Shown:
        """The splits that are drawn."""
        role = _ROLES[self.panel.settings["of"]][0] if "of" in self.panel.settings else None
        return measured.Shown(self.panel.reader.fold, self.panel.steering.task, role)

    def in_force(self, name: str) -> Any:
        """Return what a setting of the task is now."""
        _, of = measured.newest(self.panel.reader.fold, self.panel.steering.task)
        return of.settings.get(_KEYS[name], SETTINGS[_KEYS[name]].default)

    def value(self, name: str) -> Any:
        """Return what a field says."""
        if name == "of":
            return measured.ROLES[self.shown_splits.role]
        return self.panel.settings.get(name, self.in_force(name))

    def shown(self, name: str) -> object:
        """Return what a field shows: texts, where a setting is no choice among few."""
        if name == "task":
            return super().shown(name)
        value = self.value(name)
        return value if name == "of" or SETTINGS[_KEYS[name]].kind.values else str(value).lower()

    def waits(self, name: str) -> bool:
        """Return whether a setting is not in force."""
        return _KEYS.get(name) in self.wish

    @property
    def wish(self) -> dict[str, Any]:
        """What the fields say and is not in force: key of the setting -> value."""
        given = self.panel.settings
        return {key: given[name] for name, key in _KEYS.items() if name in given and given[name] != self.in_force(name)}

    def tried(self) -> tuple[whatif.Recorded, whatif.Gang, str]:
        """Return the recorded speeds, whom the fields say that splits wait for, and the planner; or ConfigError."""
        with FOLDS:
            trace, gang = whatif.recorded(self.shown_splits.splits)
        known = {name: self.value(name) for name in ("quorum", "late", "deadline_s") if name in _KEYS}
        return trace, whatif.gathered(gang, **known), str(self.value(_ROLES[self.value("of")][1]))


class Batching(Splits):
    """Splits as measured, and what other planners would make of the speeds that were measured.

    Its settings: ``of`` (learners or collectors), and those of the task, which can be tried out before they are
    applied.
    """

    CHECKS: ClassVar[settings.Checks] = {
        "of": choice(*_ROLES).read,
        **{name: SETTINGS[key].kind.read for name, key in _KEYS.items()},
    }
    running: _Running
    #: What was in force when something else was applied: field -> value.
    _before: Mapping[str, object] = MappingProxyType({})

    def fields(self) -> list[ipywidgets.Widget]:
        """Make the choice of the task and of its members, and a field for each setting."""
        names = list(self.run.specs) if self.run is not None else []
        self.panel.steering.task = next(iter(names), None)
        self.panel.fields.values = self.running = _Running(self.panel)
        add = self.panel.fields.add
        fields = [
            add("task", ipywidgets.Dropdown, "task", "190px", options=names),
            add("of", ipywidgets.Dropdown, "show", "170px", options=list(_ROLES)),
        ]
        for name, key in _KEYS.items():
            label, kind = _LABELS.get(name, name.replace("_", " ")), SETTINGS[key].kind
            if kind.values:
                fields.append(
                    add(name, ipywidgets.Combobox, label, "270px", options=kind.values, continuous_update=False)
                )
            else:
                fields.append(text(add, name, label, "170px"))
        return fields

    def commands(self) -> dict[str, Command]:
        """Return the commands of the buttons."""
        return {
            "apply": Command(label="change batching", run=self._apply, check=self.panel.steering.check),
            "compare": Command(label="compare planners", run=self._compare),
        }

    @property
    def key(self) -> object:
        """What the comparison depends on, as something to compare: of a run it is of what was recorded then."""
        return self.panel.steering.task, self.running.value("of"), repr(self.running.wish)

    @property
    def splits(self) -> Fold | str:
        """The run's columns."""
        return self.fold

    def draw(self, name: str = "") -> View:
        """Return the newest splits on a line of time, or one of the other pictures."""
        if name == "planners":
            return super().draw(name)
        of = self.running.shown_splits
        return self.drawn(name, self.fold, of.task or None, of.role)

    def compared(self) -> View:
        """Return what the recorded splits would come to under each planner, and how far that is from what they took."""
        trace, gang, planner = self.running.tried()
        came = whatif.compare(trace, gang)
        now = self.running.in_force(_ROLES[self.running.value("of")][1])
        mine = next((each for each in came if each.planner == now), None)
        said = f"the speeds of {len(trace.speeds_hz)} recorded splits, played under each planner"
        miss = f"; {now}, which is in force, comes out {mine.split_s / trace.split_s - 1:+.0%}" if mine else ""
        return compared.planners(came, planner, [said + miss])

    def facts(self) -> Plain:
        """Return the buttons, and where the numbers come from."""
        reason = self.panel.steering.off or ("" if self.running.wish else "nothing was moved")
        buttons = [button("apply", "Apply", reason=reason), button("compare", "Compare planners")]
        notes = [*self.old]
        if self._came[1] is not None:
            notes = [f"{self._came[1].sentence} (simulated)", *self._came[1].notes, *notes]
        return {"buttons": buttons, "notes": notes}

    # ------------------------------------------------------------------ what is in force
    def _apply(self, args: Args) -> str:
        wish = self.running.wish
        self._before = {name: self.running.in_force(name) for name, key in _KEYS.items() if key in wish}
        for key, value in wish.items():
            self.panel.steering.change(key, value, self.panel.steering.task)
        return f"changed, {SETTINGS[next(iter(wish))].counts}" if wish else "nothing was moved"

    def folded(self) -> None:
        """Drop what was applied as soon as something else is in force than before."""
        gone = {name for name, value in self._before.items() if self.running.in_force(name) != value}
        if gone:
            self.panel.settings = {name: value for name, value in self.panel.settings.items() if name not in gone}
            self._before = {name: value for name, value in self._before.items() if name not in gone}

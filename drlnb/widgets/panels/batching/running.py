"""Show how a run's work is split among learners or collectors, and change planner and gathering while it trains."""

from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.steering import ROUNDS, TIMES
from drlnb.fleet.whatif import batching as whatif
from drlnb.planning.settings import SETTINGS
from drlnb.records.settings import FLAG, Setting, choice
from drlnb.views.batching import compared, measured
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.batching.splits import Case, Splits, slow_button, slowing
from drlnb.widgets.panels.frame import button
from drlnb.widgets.transport.commands import Args, Command
from drlnb.widgets.transport.story import FOLDS

__all__ = ["Batching"]

#: Field -> key of the setting that it shows: all that are declared.
_KEYS = {key.partition(".")[2]: key for key in SETTINGS if key.startswith("batching.")}
#: So many times as long takes a member that is slowed down, and in so many rounds, if nothing else is said.
_SLOWING = {"times": 2.0, "n_slow": 20}
_GATHERING = ("quorum", "late", "deadline_s", "max_age_s", "steal")
_LABELS = {
    "planner": "learners' planner",
    "collect": "collectors' planner",
    "deadline_s": "deadline, s",
    "max_age_s": "max age, s",
}
#: Who is shown -> the splits of theirs, and the field of their planner.
_ROLES = {"learners": ("update", "planner"), "collectors": ("collect", "collect")}


class _Running(Case):
    """What the fields show: what is in force for a task, or what was chosen and is not."""

    KEYS = _KEYS
    CHECKS: ClassVar[settings.Checks] = {
        "of": choice(*_ROLES).read,
        **{name: SETTINGS[key].kind.read for name, key in _KEYS.items()},
        "slow": settings.text,
        "times": TIMES.read,
        "n_slow": ROUNDS.read,
    }

    @property
    def of(self) -> measured.Shown:
        """The splits that are drawn."""
        role = _ROLES[self.panel.settings["of"]][0] if "of" in self.panel.settings else None
        return measured.Shown(self.panel.reader.fold, self.panel.steering.task, role)

    @property
    def whom(self) -> tuple[str | None, str | None]:  # type: ignore[override]  # it follows the fields
        """Task, and learners or collectors, that are drawn."""
        of = self.of
        return of.task or None, of.role

    def in_force(self, name: str) -> object:
        """Return what a setting of the task is now."""
        if name in _SLOWING:
            return _SLOWING[name]
        _, of = measured.newest(self.panel.reader.fold, self.panel.steering.task)
        return of.settings.get(_KEYS[name], SETTINGS[_KEYS[name]].default)

    def value(self, name: str) -> Any:
        """Return what a field says."""
        if name == "of":
            return measured.ROLES[self.of.role]
        if name == "slow":
            members, chosen = self.of.splits.members, self.panel.settings.get(name)
            return chosen if chosen in members else next(reversed(members), None)
        return super().value(name)

    def shown(self, name: str) -> object:
        """Return what a field shows: texts, where a setting is no choice among few."""
        if name == "task":
            return self.panel.steering.task
        value = self.value(name)
        return value if name not in _KEYS or SETTINGS[_KEYS[name]].kind.values else str(value).lower()

    @property
    def key(self) -> object:
        """What a comparison depends on, as something to compare: it is of what was recorded then."""
        return self.panel.steering.task, self.value("of"), repr(self.wish)

    @property
    def planner(self) -> str:
        """Name of the planner that the fields say."""
        return str(self.value(_ROLES[measured.ROLES[self.of.role]][1]))

    @property
    def splits(self) -> Fold | str:
        """The run's columns."""
        return self.panel.reader.fold

    def tried(self, *, as_it_is: bool = False) -> tuple[whatif.Recorded, whatif.Gang]:
        """Return the speeds that were recorded, and whom splits wait for: as the fields say, or as it is in force.

        Raises
        ------
        ConfigError
            If too little has been recorded, or the fields do not fit together.
        """
        with FOLDS:
            trace, gang = whatif.recorded(self.of.splits)
        said = self.in_force if as_it_is else self.value
        return trace, whatif.gathered(gang, **{name: said(name) for name in _GATHERING if name in _KEYS})

    def compared(self) -> View:
        """Return what the recorded splits would come to under each planner, and how far that is from what they took."""
        trace, gang = self.tried()
        now = self.in_force(_ROLES[measured.ROLES[self.of.role]][1])
        said = f"{trace.said}, played under each planner"
        if now in whatif.COMPARED:
            mine = whatif.compare(*self.tried(as_it_is=True), (now, whatif.COMPARED[-1]))[0]
            said += f"; as things are, {now} comes out {mine.split_s / trace.split_s - 1:+.0%}"
        return compared.planners(whatif.compare(trace, gang), self.planner, [said])


class Batching(Splits):
    """Splits as measured, and what other planners would make of the speeds that were measured.

    Its settings: ``of`` (learners or collectors), those of the task, which can be tried out before they are applied,
    and ``slow``, ``times`` and ``n_slow``: the member that the button slows down.
    """

    CHECKS: ClassVar[settings.Checks] = _Running.CHECKS
    SOURCE = _Running
    SPAN = "rounds"
    case: _Running

    def fields(self) -> list[ipywidgets.Widget]:
        """Make the choice of the task and of its members, and a field for each setting."""
        names = list(self.run.specs) if self.run is not None else []
        self.panel.steering.task = next(iter(names), None)
        add = self.panel.fields.add
        fields = [
            add("task", ipywidgets.Dropdown, "task", "190px", options=names),
            add("of", ipywidgets.Dropdown, "show", "170px", options=list(_ROLES)),
        ]
        for name, key in _KEYS.items():
            kind, width, more = _field(SETTINGS[key])
            fields.append(add(name, kind, _LABELS.get(name, name.replace("_", " ")), width, **more))
        return [*fields, *slowing(self, ipywidgets.Dropdown, options=list(self.case.of.splits.members))]

    def commands(self) -> dict[str, Command]:
        """Return the commands of the buttons."""
        apply = Command(label="change batching", run=self.case.applied.apply, check=self.panel.steering.check)
        slow = Command(label="slow a member", run=self._slow_down, check=self.panel.steering.check)
        return {"apply": apply, "slow": slow, "compare": super().commands()["compare"]}

    def facts(self) -> dict[str, object]:
        """Return the buttons, and what came of comparing."""
        compare, notes = self.comparing()
        off, member = self.panel.steering.off, self.case.value("slow")
        apply = button("apply", "Apply", reason=off or ("" if self.case.wish else "nothing was moved"))
        nobody = "" if member else "nobody has had a share yet"
        whom = f"{self.case.value('of')[:-1]} {member or ''}".rstrip()
        return {"buttons": [apply, slow_button(self, whom, off or nobody), compare], "notes": notes}

    # ------------------------------------------------------------------ what is in force
    def folded(self) -> None:
        """Drop what was applied as soon as something else is in force than before; offer members that are new."""
        self.case.applied.settle()
        self.changed({})

    def changed(self, new: Args) -> None:
        """Offer the members that are shown now."""
        field = self.panel.fields["slow"].field
        with FOLDS:
            members = list(self.case.of.splits.members)
        if list(field.options) != members:
            self.panel.fields.later(field, "options", members)

    # ------------------------------------------------------------------ a slow member
    def _slow_down(self, args: object) -> str:
        of = self.case
        member, times, n = of.value("slow"), of.value("times"), of.value("n_slow")
        self.panel.steering.slow_down(member, times, n, of.whom[0])
        return f"{member} takes {times:g} x as long in {n} rounds, from the next one on (emulated)"


def _field(of: Setting) -> tuple[type[ipywidgets.Widget], str, dict[str, object]]:
    """Return the class of a setting's field, its width, and what else that takes: a choice where it has few values."""
    values = of.kind.values
    if of.decision:  # a planner may have parameters behind its name
        return ipywidgets.Combobox, "270px", {"options": values, "continuous_update": False}
    if values == FLAG.values:
        return ipywidgets.Checkbox, "110px", {"indent": False}
    if values:
        return ipywidgets.Dropdown, "170px", {"options": values}
    return ipywidgets.Text, "170px", {"continuous_update": False}

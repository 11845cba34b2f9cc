"""Try out planners of shares on simulated members: contention, a quorum, a member that is slowed down on purpose."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import ipywidgets

from drlnb.fleet.whatif import batching as whatif
from drlnb.planning.batching.gather import quorum_problem
from drlnb.records.errors import ConfigError
from drlnb.records.settings import Declared, Kind, between, choice, count, optional, parse_text, setting
from drlnb.views.batching import compared, measured
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row, side_by_side
from drlnb.widgets.panels.frame import Content, button
from drlnb.widgets.transport.commands import Command

__all__ = ["Case", "Splits", "Tried", "slow_button", "slowing"]

_OF_TRACE = whatif.Contention.declared()
_OF_GANG = whatif.Gang.declared()
_MOST_MEMBERS = 64
#: The member that the button slows down.
_SLOW = 3
_TABS = {"shares": "Newest split", "speeds": "Speeds", "ledger": "Not used", "planners": "Planners"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Declared):
    """Settings of the panel; they begin with eight unequal members and bursts of contention."""

    planner: str = setting("jump-reset", choice(*whatif.COMPARED))
    family: str = setting("memoryless", choice(*whatif.FAMILIES))
    speeds: tuple[float, ...] = setting(whatif.MIXED, _OF_TRACE["speeds"].kind)
    n_units: int = setting(512, _OF_GANG["n_units"].kind)
    quorum: float = setting(1.0, Kind(lambda name, value: quorum_problem(value, _MOST_MEMBERS)))
    late: str = setting("cut", _OF_GANG["late"].kind)
    deadline_s: float | None = setting(None, _OF_GANG["deadline_s"].kind)
    steal: bool = setting(False, _OF_GANG["steal"].kind)
    n_splits: int = setting(100, count(10, 1000))
    #: Number of the member that is slowed down, None: nobody is; so many times, in so many splits at half time.
    slow: int | None = setting(None, optional(count(0, _MOST_MEMBERS - 1)))
    times: float = setting(2.0, between(1, 1000))
    n_slow: int = setting(20, count(1, 1000))


class Case(Values):
    """The fields of the panel, and what they try out."""

    CHECKS: ClassVar[settings.Checks] = {name: known.kind.read for name, known in Tried.declared().items()}
    #: Task, and learners or collectors, that are drawn.
    whom: tuple[str | None, str | None] = (None, None)
    #: What was played, of which settings.
    _played: tuple[object, Fold | str] = (None, "")

    def in_force(self, name: str) -> object:
        """Return what a setting begins with."""
        return Tried.declared()[name].default

    def shown(self, name: str) -> object:
        """Return a setting as its field shows it."""
        value = self.value(name)
        if isinstance(value, tuple):
            return ", ".join(f"{each:g}" for each in value)
        return str(value).lower() if name in {"quorum", "deadline_s", "slow"} else value

    def choose(self, name: str, value: object) -> None:
        """Accept what a user has chosen."""
        if name == "speeds":
            value = tuple([parse_text(each) for each in str(value).split(",")])
        super().choose(name, value)

    @property
    def key(self) -> object:
        """What pictures depend on, as something to compare."""
        return repr([self.value(name) for name in Tried.declared()])

    @property
    def planner(self) -> str:
        """Name of the planner that sizes the shares."""
        return str(self.value("planner"))

    @property
    def splits(self) -> Fold | str:
        """Columns of the splits that are shown; a text: why there are none."""
        if self._played[0] != self.key:
            try:
                came: Fold | str = fold_of(whatif.play(*self.tried(), self.planner))
            except (ConfigError, ValueError) as error:
                came = str(error)
            self._played = self.key, came
        return self._played[1]

    def tried(self) -> tuple[whatif.Trace, whatif.Gang]:
        """Return the speeds that are drawn, and whom splits wait for; ConfigError if the fields do not fit together."""
        last, slow, n = len(self.value("speeds")) - 1, self.value("slow"), self.value("n_splits")
        if slow is not None and slow > last:
            raise ConfigError(f"slow must be from 0 to {last}, or none, got {slow}")
        planted = [] if slow is None else [whatif.Slowed(slow, self.value("times"), n // 2, self.value("n_slow"))]
        given = {name: self.value(name) for name in ("family", "speeds", "n_splits")}
        gang = {name: self.value(name) for name in ("n_units", "quorum", "late", "deadline_s", "steal")}
        return whatif.Contention(**given, planted=tuple(planted)), whatif.Gang(**gang)

    def compared(self) -> View:
        """Return what a split comes to under each planner."""
        return compared.planners(whatif.compare(*self.tried()), self.planner)


def slowing(of: "Splits", kind: type[ipywidgets.Widget], **traits: object) -> list[ipywidgets.Widget]:
    """Make the fields of a member that is slowed down on purpose; its own is of this kind."""
    add = of.panel.fields.add
    return [
        add("slow", kind, "slow member", "190px", **traits),
        add("times", ipywidgets.FloatText, "x", "90px"),
        add("n_slow", ipywidgets.IntText, f"for {of.SPAN}", "130px"),
    ]


def slow_button(of: "Splits", member: str, reason: str = "") -> object:
    """Return the button that slows a member down, as the fields say."""
    times, n = of.case.value("times"), of.case.value("n_slow")
    return button("slow", f"Slow {member} x{times:g} for {n} {of.SPAN}", reason=reason)


class Splits(Content):
    """Splits among simulated members under a planner, and the other planners beside it.

    Its settings: those of :class:`Tried`.
    """

    NAME = "batching"
    MODULE = "timeline"
    MORE: ClassVar[Mapping[str, str]] = {
        "sizes": "chart",
        **dict.fromkeys(("shares", "speeds"), "timeline"),
        **dict.fromkeys(("ledger", "planners"), "table"),
    }
    CHECKS: ClassVar[settings.Checks] = Case.CHECKS
    SOURCE: ClassVar[type[Case]] = Case
    #: What a member is slowed down for.
    SPAN: ClassVar[str] = "splits"
    case: Case
    #: What planners came to, of which settings.
    came: tuple[object, View | None] = (None, None)

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them two pictures side by side, the others in tabs."""
        self.panel.fields.values = self.case = self.SOURCE(self.panel)
        for name, run in self.commands().items():
            self.panel.commands.add(name, run)
        fields, pictures = self.fields(), {name: of.widget for name, of in self.panel.pictures.items()}
        return [
            row(*fields),
            side_by_side(pictures[""], pictures["sizes"]),
            ipywidgets.Tab([pictures[name] for name in _TABS], titles=[*_TABS.values()]),
        ]

    def fields(self) -> list[ipywidgets.Widget]:
        """Make the fields."""
        add, few = self.panel.fields.add, ipywidgets.Dropdown
        line = partial(add, kind=ipywidgets.Text, continuous_update=False)
        return [
            add("planner", few, "planner", options=whatif.COMPARED),
            add("family", few, "contention", options=whatif.FAMILIES),
            line("speeds", label="samples/s", width="370px"),
            add("n_units", ipywidgets.IntText, "batch, samples", "170px"),
            line("quorum", label="quorum", width="120px"),
            add("late", few, "late members", "170px", options=("cut", "drop")),
            line("deadline_s", label="deadline, s", width="150px"),
            add("steal", ipywidgets.Checkbox, "steal", "110px", indent=False),
            *slowing(self, ipywidgets.Text, continuous_update=False),
        ]

    def commands(self) -> dict[str, Command]:
        """Return the commands of the buttons."""
        return {
            "slow": Command(label="slow a member", run=lambda args: self._slow(_SLOW)),
            "reset": Command(label="reset", run=lambda args: self._slow(None)),
            "compare": Command(label="compare planners", run=self._compare),
        }

    def _slow(self, member: int | None) -> str:
        self.panel.set(slow=member)
        return "nobody is slowed down" if member is None else f"member {member} is slowed down"

    def _compare(self, args: object) -> str:
        key = self.case.key
        self.came = key, self.case.compared()
        self.panel.touch()
        return "compared"

    def draw(self, name: str = "") -> View:
        """Return the newest splits on a line of time, or one of the other pictures."""
        if name == "planners":
            return self.came[1] or nothing("batching.planners", "table", "nothing yet: press Compare planners")
        of = self.case.splits
        if isinstance(of, str):
            return nothing(f"batching.{name or 'splits'}", self.MORE.get(name, self.MODULE), of)
        if name in {"", "shares"}:
            return measured.shares(of, 1 if name else measured.LATEST, *self.case.whom)
        draw = {"sizes": measured.sizes, "speeds": measured.speeds, "ledger": measured.ledger}[name]
        return draw(of, *self.case.whom)

    def facts(self) -> dict[str, object]:
        """Return the buttons."""
        compare, notes = self.comparing()
        buttons = [slow_button(self, f"member {_SLOW}"), button("reset", "Reset"), compare]
        return {"buttons": buttons, "notes": notes, "origin": "simulated"}

    def comparing(self) -> tuple[object, list[str]]:
        """Return the button that compares, and what came of it in words."""
        key, came = self.came
        notes = [f"{came.sentence} (simulated)", *came.notes] if came else []
        notes += ["compared under former settings: press again"] if came and key != self.case.key else []
        return button("compare", "Compare planners"), notes

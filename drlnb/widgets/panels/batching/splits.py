"""Try out planners of shares on simulated members: contention, a quorum, a member that is slowed down on purpose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.whatif import batching as whatif
from drlnb.planning.batching.gather import quorum_problem
from drlnb.records.errors import ConfigError
from drlnb.records.settings import ANYTHING, Declared, between, choice, count, optional, setting
from drlnb.views.batching import compared, measured
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold, fold_of
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row
from drlnb.widgets.panels.frame import Content, Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Splits", "Tried", "text"]

_OF_TRACE = whatif.Contention.declared()
_OF_GANG = whatif.Gang.declared()
_TABS = {"shares": "Newest split", "speeds": "Speeds", "ledger": "Not used", "planners": "Planners"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Declared):
    """Settings of the panel; they begin with eight unequal members and bursts of contention."""

    planner: str = setting("jump-reset", choice(*whatif.COMPARED))
    family: str = setting("memoryless", choice(*whatif.FAMILIES))
    speeds: tuple[float, ...] = setting(whatif.MIXED, _OF_TRACE["speeds"].kind)
    n_units: int = setting(512, _OF_GANG["n_units"].kind)
    quorum: float = setting(1.0, ANYTHING)
    late: str = setting("cut", _OF_GANG["late"].kind)
    deadline_s: float | None = setting(None, _OF_GANG["deadline_s"].kind)
    n_splits: int = setting(100, count(10, 1000))
    seed: int = setting(0, _OF_TRACE["seed"].kind)
    #: Number of the member that is slowed down, None: nobody is; so many times, in so many splits at half time.
    slow: int | None = setting(None, optional(count(0, 63)))
    times: float = setting(2.0, between(1, 1000))
    n_slow: int = setting(20, count(1, 1000))


class Case(Values):
    """The fields of the panel, and what they try out."""

    def value(self, name: str) -> Any:
        """Return a setting as it is now."""
        return self.panel.settings.get(name, Tried.declared()[name].default)

    def shown(self, name: str) -> object:
        """Return a setting as its field shows it."""
        value = self.value(name)
        if isinstance(value, tuple):
            return ", ".join(f"{each:g}" for each in value)
        return str(value).lower() if name in {"quorum", "deadline_s", "slow"} else value

    def choose(self, name: str, value: object) -> None:
        """Accept what a user has chosen."""
        if name == "speeds":
            value = tuple(_number(each) for each in str(value).split(","))
        super().choose(name, value)

    @property
    def gang(self) -> whatif.Gang:
        """Whom a split waits for."""
        return whatif.Gang(**{name: self.value(name) for name in ("n_units", "quorum", "late", "deadline_s")})

    @property
    def trace(self) -> whatif.Contention:
        """The speeds that are drawn; ConfigError if the slow member is none of them."""
        slow, n = self.value("slow"), self.value("n_splits")
        if slow is not None and slow >= len(self.value("speeds")):
            raise ConfigError(f"slow must be from 0 to {len(self.value('speeds')) - 1}, or none, got {slow}")
        planted = [] if slow is None else [whatif.Slowed(slow, self.value("times"), n // 2, self.value("n_slow"))]
        given = {name: self.value(name) for name in ("family", "speeds", "n_splits", "seed")}
        return whatif.Contention(**given, planted=tuple(planted))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"speeds must be numbers apart by commas, got {text.strip()!r}") from None


class Splits(Content):
    """Splits among simulated members under a planner, and the other planners beside it.

    Its settings: those of :class:`Tried`.
    """

    NAME = "batching"
    MODULE = "timeline"
    MORE: ClassVar[Mapping[str, str]] = {
        "sizes": "chart",
        "shares": "timeline",
        "speeds": "timeline",
        "ledger": "table",
        "planners": "table",
    }
    CHECKS: ClassVar[settings.Checks] = {name: known.kind.read for name, known in Tried.declared().items()}
    case: Case
    #: What was played, of which settings; a text: why nothing can be.
    _played: tuple[object, Fold | str] = (None, "")
    #: What planners came to, of which settings.
    _came: tuple[object, View | None] = (None, None)

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them two pictures side by side, the others in tabs."""
        fields, pictures = self.fields(), {name: of.widget for name, of in self.panel.pictures.items()}
        for name, run in self.commands().items():
            self.panel.commands.add(name, run)
        above = [pictures[""], pictures["sizes"]]
        for widget in above:
            widget.layout.flex, widget.layout.min_width = "1 1 380px", "0"
        return [row(*fields), row(*above), ipywidgets.Tab([pictures[name] for name in _TABS], titles=[*_TABS.values()])]

    def fields(self) -> list[ipywidgets.Widget]:
        """Make the fields."""
        self.panel.fields.values = self.case = Case(self.panel)
        add, choice_of = self.panel.fields.add, ipywidgets.Dropdown
        line = partial(text, add)
        return [
            add("planner", choice_of, "planner", options=whatif.COMPARED),
            add("family", choice_of, "contention", options=whatif.FAMILIES),
            line("speeds", "samples/s", "370px"),
            add("n_units", ipywidgets.IntText, "batch, samples", "170px"),
            line("quorum", "quorum", "120px"),
            add("late", choice_of, "late members", "170px", options=("cut", "drop")),
            line("deadline_s", "deadline, s", "150px"),
            line("slow", "slow member", "150px"),
            add("times", ipywidgets.FloatText, "x", "90px"),
            add("n_slow", ipywidgets.IntText, "for splits", "130px"),
        ]

    def commands(self) -> dict[str, Command]:
        """Return the commands of the buttons."""
        return {
            "slow": Command(label="slow a member", run=lambda args: self._slow(self.case.value("slow") or 3)),
            "reset": Command(label="reset", run=lambda args: self._slow(None)),
            "compare": Command(label="compare planners", run=self._compare),
        }

    # ------------------------------------------------------------------ what is tried out
    @property
    def key(self) -> object:
        """What pictures depend on, as something to compare."""
        return repr([self.case.value(name) for name in Tried.declared()])

    @property
    def splits(self) -> Fold | str:
        """Columns of the splits that are shown; a text: why there are none."""
        if self._played[0] != self.key:
            try:
                self._check()
                came: Fold | str = fold_of(whatif.play(self.case.trace, self.case.value("planner"), self.case.gang))
            except (ConfigError, ValueError) as error:
                came = str(error)
            self._played = self.key, came
        return self._played[1]

    def _check(self) -> None:
        if problem := quorum_problem(self.case.value("quorum"), len(self.case.value("speeds"))):
            raise ConfigError(problem)

    def _slow(self, member: int | None) -> str:
        self.panel.set(slow=member)
        return "reset" if member is None else f"member {member} is slower for {self.case.value('n_slow')} splits"

    def _compare(self, args: Args) -> str:
        key = self.key
        self._came = key, self.compared()
        self.panel.touch()
        return self._came[1].sentence if self._came[1] else ""

    def compared(self) -> View:
        """Return what a split comes to under each planner."""
        self._check()
        return compared.planners(whatif.compare(self.case.trace, self.case.gang), self.case.value("planner"))

    # ------------------------------------------------------------------ pictures
    def draw(self, name: str = "") -> View:
        """Return the newest splits on a line of time, or one of the other pictures."""
        if name == "planners":
            return self._came[1] or nothing("batching.planners", "table", "nothing yet: press Compare planners")
        of = self.splits
        if isinstance(of, str):
            return nothing(f"batching.{name or 'splits'}", self.MORE.get(name, self.MODULE), of)
        return self.drawn(name, of, None, None)

    @staticmethod
    def drawn(name: str, of: Fold, task: str | None, role: str | None) -> View:
        """Return a picture of splits."""
        if name in {"", "shares"}:
            return measured.shares(of, 1 if name else measured.LATEST, task, role)
        draw = {"sizes": measured.sizes, "speeds": measured.speeds, "ledger": measured.ledger}[name]
        return draw(of, task, role)

    def facts(self) -> Plain:
        """Return the buttons, and whether what was compared is of former settings."""
        slow, times, n = (self.case.value(name) for name in ("slow", "times", "n_slow"))
        label = f"Slow member {3 if slow is None else slow} x{times:g} for {n} splits"
        idle = "nobody is slowed down" if slow is None else ""
        buttons = [
            button("slow", label, reason="" if idle else "it is slowed down"),
            button("reset", "Reset", reason=idle),
        ]
        return {"buttons": [*buttons, button("compare", "Compare planners")], "notes": self.old, "origin": "simulated"}

    @property
    def old(self) -> list[str]:
        """Whether what was compared is of former settings, in words."""
        is_old = self._came[1] is not None and self._came[0] != self.key
        return ["the planners were compared under former settings: press again"] if is_old else []


def text(add: Callable[..., ipywidgets.Widget], name: str, label: str, width: str) -> ipywidgets.Widget:
    """Make a field of text that is taken when Enter is pressed."""
    return add(name, ipywidgets.Text, label, width, continuous_update=False)

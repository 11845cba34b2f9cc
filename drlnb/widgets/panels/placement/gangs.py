"""Try out planners of gangs on a trace of jobs and slots that fail: by pictures, in numbers, and by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import ipywidgets

from drlnb.fleet.whatif import placement as whatif
from drlnb.records.errors import InputError
from drlnb.records.settings import Declared, between, choice, count, setting
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.views.placement import choice as choices
from drlnb.views.placement import compared, gangs
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row, side_by_side
from drlnb.widgets.panels.frame import Content, button
from drlnb.widgets.panels.placement.parts import on_click, opened, tabs_of
from drlnb.widgets.transport.commands import Command

__all__ = ["Case", "Gangs", "Tried"]

_OF_MODEL = whatif.FaultModel.declared()
#: Days between failures of a slot at which the slider stops.
_STOPS = (3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 337.0, 1230.0)
#: Days for which slots are watched in the picture of their health.
_WATCHED_DAYS = 30.0
_TABS = {
    "ratios": "Planners",
    "choice": "Next placement",
    "regimes": "Regimes",
    "health": "Health",
    "hand": "By hand",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Declared):
    """Settings of the panel; they begin with failures as often as on a thousand slots, and no checkpoints."""

    planner: str = setting("ect", choice(*whatif.PLANNERS))
    against: str = setting("healthiest", choice(*whatif.PLANNERS))
    order: str = setting("fifo", choice(*whatif.ORDERS))
    #: A CSV file; empty: the sample that is part of the package.
    trace: str = setting("", settings.TEXT)
    family: str = setting("gang", choice(*whatif.FAMILIES))
    window: int = setting(0, count(0, 10**6))
    n_jobs: int = setting(64, count(8, 512))
    mtbf_days: float = setting(20.0, between(1, 1e5))
    spread: float = setting(0.9, _OF_MODEL["spread"].kind)
    lemons: float = setting(0.0, _OF_MODEL["lemons"].kind)
    checkpoint: str = setting("none", choice(*whatif.CHECKPOINTS))
    locality_frac: float = setting(0.05, between(0, 1))
    #: Moment that the board shows, as a share of the makespan.
    at_frac: float = setting(0.4, between(0, 1))
    #: Slots of the first jobs, as :meth:`~drlnb.fleet.whatif.placement.Case.by_hand` reads them.
    hand: str = setting("", settings.TEXT)


#: Settings that say who plans and what is shown; all others are of the case.
_SHOWN = {"planner", "against", "at_frac", "hand"}


class Case(Values):
    """The fields of the panel, and what they try out."""

    CHECKS: ClassVar[settings.Checks] = {name: known.kind.read for name, known in Tried.declared().items()}
    #: What was made last, of which settings: the case, and the gangs that were placed.
    _made: tuple[object, whatif.Case] | None = None
    _placed: tuple[object, gangs.Placed] | None = None

    def in_force(self, name: str) -> object:
        """Return what a setting begins with."""
        return Tried.declared()[name].default

    @property
    def key(self) -> object:
        """What a comparison depends on, as something to compare."""
        return repr([self.value(name) for name in Tried.declared() if name not in _SHOWN])

    @property
    def tried(self) -> whatif.Case:
        """The jobs and faults that the fields say; InputError if there are none such."""
        if self._made is None or self._made[0] != self.key:
            of = {name: self.value(name) for name in Tried.declared()}
            model = {name: of[name] for name in ("mtbf_days", "spread", "lemons")}
            terms = {name: of[name] for name in ("order", "locality_frac")}
            case = whatif.Case(
                trace=of["trace"] or None,
                windows=whatif.Windows(family=of["family"], n_jobs=of["n_jobs"]),
                number=of["window"],
                model=whatif.FaultModel(**model, node_spread=0.0),
                conditions=whatif.Conditions(**terms, checkpoint_s=whatif.CHECKPOINTS[of["checkpoint"]]),
            )
            self._made = self.key, case
        return self._made[1]

    @property
    def placed(self) -> gangs.Placed:
        """What becomes of the jobs under the planner."""
        key, planner = (self.key, self.value("planner")), self.value("planner")
        if self._placed is None or self._placed[0] != key:
            self._placed = key, self.tried.placed(planner)
        return self._placed[1]

    @property
    def t(self) -> float:
        """The moment that the board shows, in seconds."""
        return float(self.value("at_frac")) * self.placed.end_s

    @property
    def next(self) -> choices.Choice | None:
        """The first plan from that moment on."""
        return next((choose() for made_s, choose in self.placed.choices if made_s >= self.t), None)


class Gangs(Content):
    """Gangs on slots that fail under a planner, the other planners beside it, and where it matters which one it is.

    Its settings: those of :class:`Tried`.
    """

    NAME = "placement"
    MODULE = "timeline"
    MORE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("gantt", "ratios", "choice", "regimes", "health", "seats"), "timeline"),
        "hand": "table",
    }
    CHECKS: ClassVar[settings.Checks] = Case.CHECKS
    case: Case
    #: What was computed at a click, of which settings: planners, and regimes.
    came: tuple[object, str, tuple[list[compared.PlannerRatio], compared.Ratio, float]] | None = None
    regimes: tuple[object, View] | None = None
    tabs: ipywidgets.Tab

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them board and Gantt side by side, the other pictures in tabs."""
        self.panel.fields.values = self.case = Case(self.panel)
        self.panel.commands.add("run", Command(label="compare planners", run=self._run))
        self.panel.commands.add("map", Command(label="map regimes", run=self._map))
        pictures = {name: of.widget for name, of in self.panel.pictures.items()}
        on_click(self.panel, "seats", self._clicked)
        pictures["hand"] = ipywidgets.VBox([pictures["seats"], pictures["hand"]])
        self.tabs = tabs_of(self.panel, _TABS, pictures)
        return [row(*self.fields()), side_by_side(pictures[""], pictures["gantt"]), self.tabs]

    def fields(self) -> list[ipywidgets.Widget]:
        """Make the fields."""
        add, few, share = self.panel.fields.add, ipywidgets.Dropdown, ipywidgets.FloatSlider
        line = {"kind": ipywidgets.Text, "continuous_update": False}
        return [
            add("planner", few, "planner", "230px", options=whatif.PLANNERS),
            add("against", few, "beside", "230px", options=whatif.PLANNERS),
            add("order", few, "order", "130px", options=list(whatif.ORDERS)),
            add("trace", label="trace (CSV file)", placeholder="the sample", **line),
            add("family", few, "jobs of", "130px", options=whatif.FAMILIES),
            add("window", ipywidgets.IntText, "window", "150px"),
            add("n_jobs", ipywidgets.IntSlider, "load, jobs on 64 slots", "400px", min=8, max=256, step=8),
            add("mtbf_days", ipywidgets.SelectionSlider, "slot-days", "330px", options=self._stops()),
            add("spread", share, "spread", "330px", min=0, max=3, step=0.1),
            add("lemons", share, "lemons", "330px", min=0, max=0.5, step=0.01),
            add("checkpoint", few, "checkpoints", "180px", options=list(whatif.CHECKPOINTS)),
            add("locality_frac", share, "locality", "330px", min=0, max=0.5, step=0.01),
            add("at_frac", share, "moment of the board", "400px", min=0, max=1, step=0.01),
            add("hand", label="by hand", width="370px", placeholder="n0/0-3, n1/0 n1/1", **line),
        ]

    def _stops(self) -> list[tuple[str, float]]:
        return [(f"{days:g}", days) for days in sorted({*_STOPS, self.case.value("mtbf_days")})]

    def changed(self, new: Mapping[str, object]) -> None:
        """Offer the days that code has chosen."""
        self.panel.fields.later(self.panel.fields["mtbf_days"].field, "options", self._stops())

    def _clicked(self, cell: Mapping[str, str]) -> None:
        """Give a slot to the first job by hand that lacks one, or take it back."""
        of = self.case
        self.panel.fields.choose("hand", lambda: of.tried.toggled(of.value("hand"), cell["slot"]))

    # ------------------------------------------------------------------ what is computed at a click
    def _run(self, args: object) -> str:
        key, against = self.case.key, self.case.value("against")
        self.came = key, against, self.case.tried.compare(against)
        self.panel.touch()
        return "compared"

    def _map(self, args: object) -> str:
        key = self.case.key
        self.regimes = key, compared.regimes(self.case.tried.regimes())
        self.panel.touch()
        return "mapped"

    # ------------------------------------------------------------------ pictures
    def draw(self, name: str = "") -> View:
        """Return the slots at a moment, or one of the other pictures."""
        try:
            return self._draw(name)
        except InputError as error:
            return nothing(f"placement.{name or 'board'}", self.MORE.get(name, self.MODULE), str(error), "simulated")

    def _draw(self, name: str) -> View:
        case = self.case
        draws: Mapping[str, Callable[[], View]] = {
            "": lambda: gangs.board(case.placed, case.t),
            "gantt": lambda: gangs.gantt(case.placed),
            "ratios": self._ratios,
            "choice": lambda: choices.choice(case.next, "simulated", "no gang is placed any more"),
            "regimes": self._regimes,
            "health": lambda: compared.health(case.tried.health(_WATCHED_DAYS), _WATCHED_DAYS),
            "seats": lambda: compared.seats(
                case.tried.seats(case.value("hand")), case.tried.missing(case.value("hand"))
            ),
            "hand": lambda: compared.by_hand(*case.tried.by_hand(case.value("hand"), case.value("planner"))),
        }
        return draws[name]()

    def _ratios(self) -> View:
        if self.came is None:
            return nothing("placement.ratios", "timeline", "nothing yet: press Run", "simulated")
        _, against, (came, awareness, bound) = self.came
        return compared.ratios(came, against, awareness, bound)

    def _regimes(self) -> View:
        why = "nothing yet: press Map regimes, some seconds"
        return self.regimes[1] if self.regimes else nothing("placement.regimes", "timeline", why, "simulated")

    def facts(self) -> dict[str, object]:
        """Return the buttons and, once planners were compared, what failure awareness is worth."""
        facts: dict[str, object] = {
            "buttons": [button("run", "Run"), button("map", "Map regimes")],
            "notes": self._notes(),
            "origin": "simulated",
        }
        if self.came is not None and self.came[0] == self.case.key:
            _, awareness, _ = self.came[2]
            facts |= {"sentence": compared.worth(awareness), "chips": [compared.NULL] if awareness.null else []}
        return facts

    def _notes(self) -> list[str]:
        """Return how the two planners stand, what is of former settings, and what the open tab shows."""
        notes = list[str]()
        if self.came is not None:
            key, against, (came, _, _) = self.came
            notes += [self.panel.view().sentence] if key == self.case.key else []
            mine = next(each for each in came if each.planner == self.case.value("planner"))
            notes.append(f"{mine.planner} takes {mine.ratio} x the time of {against}")
            if key != self.case.key or against != self.case.value("against"):
                notes.append("compared under former settings: press Run again")
        if self.regimes is not None and self.regimes[0] != self.case.key:
            notes.append("the map of regimes is of former settings: press again")
        # The ratios' sentence is the panel's own.
        shown = {"ratios": (), "hand": ("seats", "hand")}
        tab = opened(self.tabs, _TABS)
        views = [*map(self.panel.view, shown.get(tab, (tab,)))]
        return list(dict.fromkeys([*notes, *(line for view in views for line in (view.sentence, *view.notes))]))

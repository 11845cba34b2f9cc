"""Try out swap plans on the simulator: a network, a batch, a budget, a planner, and what each row of the plan costs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.whatif import swapping as whatif
from drlnb.fleet.whatif.swapping import Case, Explained
from drlnb.planning.settings import SETTINGS
from drlnb.records.errors import ConfigError
from drlnb.records.settings import between, choice, count
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import fold_of
from drlnb.views.swapping import compared, computed, measured
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row
from drlnb.widgets.panels.frame import Content, Panel, Plain, button
from drlnb.widgets.panels.swapping.plans import LABELS, Knobs, Plans, Reach
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Source", "Swaps", "change"]

#: Button -> its label, the chart that it is for, and how it is computed.
_JOBS: Mapping[str, tuple[str, str, Callable[[Case], object]]] = {
    "front": ("Time over budget", "front", whatif.front),
    "compare": ("Compare planners", "pareto", whatif.compare),
    "sweep": ("Sweep batch", "sweep", whatif.sweep),
    "learn": ("Learn", "learnt", whatif.learnt),
    "drift": ("Simulate drift", "time", lambda case: fold_of(whatif.drifting(case))),
}
#: Picture -> what it is made of, and what draws that.
_DRAWN: Mapping[str, tuple[str, Callable[[Any], View]]] = {
    "lanes": ("", computed.lanes),
    "types": ("", computed.types),
    "pareto": ("compare", compared.pareto),
    "sweep": ("sweep", compared.sweep),
    "learnt": ("learn", lambda of: compared.learnt(*of)),
    "values": ("learn", lambda of: compared.values(*of[:2])),
    "peak": ("drift", measured.steps),
    "time": ("drift", lambda of: measured.steps(of, "time")),
}
#: Title of a chart -> the picture.
_SHOWN = {
    "memory within a step": "memory",
    "peak of each step": "peak",
    "time of each step": "time",
    "step time over budget": "front",
    "step time over peak": "pareto",
    "throughput over batch": "sweep",
    "Q-learning": "learnt",
}
_TABS = {"plan": "Plan", "lanes": "Lanes", "types": "Layers", "choices": "Planners", "values": "Q-table"}


def _pins(name: str, value: object) -> object:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ConfigError(f"{name} must be a mapping from row to action, got {value!r}")
    return dict(value)


def _planner(name: str, value: object) -> object:
    if problem := whatif.setting_problem("swapping.planner", settings.text(name, value)):
        raise ConfigError(problem)
    return value


class Source(Values):
    """What a panel plans: a network that is not there, as its settings say."""

    CHECKS: ClassVar[settings.Checks] = {
        "net": choice(*whatif.NETS).read,
        "batch": count(1, 2**24).read,
        "budget_mib": between(2**-6, 2**20).read,
        "preset": choice(*whatif.PRESETS).read,
        "planner": _planner,
        "pins": _pins,
        "show": choice(*_SHOWN.values()).read,
    }
    #: First picture, and buttons that compute.
    FIRST, JOBS = "memory", tuple(_JOBS)
    #: Greatest bytes in use of the newest steps, and where that is from; nothing: no step was made.
    measured: tuple[float, str] | tuple[()] = ()

    def __init__(self, panel: Panel) -> None:
        super().__init__(panel)
        self.knobs = Knobs(self)

    @property
    def defaults(self) -> Plain:
        """What the controls begin with: 11 GiB, a batch of two fifths more than they hold, on the patent's device."""
        net = self.panel.settings.get("net", "resnet50_32")
        return {
            "net": net,
            "batch": whatif.usual_batch(net),
            "budget_mib": 11264.0,
            "preset": "2080ti",
            "planner": "auto",
            "pins": {},
            "show": "front",
        }

    def in_force(self, name: str) -> object:
        """Return what a setting is where nobody has chosen anything."""
        return self.defaults[name]

    def shown(self, name: str) -> object:
        """Return a setting as it is now, a parameter of the planner, or the task."""
        return self.knobs.value(name) if name in LABELS else super().shown(name)

    def choose(self, name: str, value: object) -> None:
        """Accept a setting, a parameter of the planner, or the task."""
        (self.knobs.turn if name in LABELS else super().choose)(name, value)

    @property
    def key(self) -> object:
        """What plans depend on, as something to compare."""
        return repr([self.value(name) for name in self.defaults if name != "show"])

    def case(self) -> Case:
        """Return the step that is planned; ConfigError if there is none."""
        net, batch, budget_mib, preset = (self.value(name) for name in ("net", "batch", "budget_mib", "preset"))
        more = {name: self.value(name) for name in ("planner", "pins")}
        return whatif.step_case(net, batch, round(budget_mib * 2**20), preset, **more)

    def explained(self) -> Explained:
        """Return the plan and what it costs."""
        case = self.case()
        return whatif.explain(case, case.plan())

    def draw(self, name: str) -> View | None:
        """Return a picture that no plan says; None: it has none of the name."""
        return None


class Swaps(Content):
    """Plans of a step, computed and simulated.

    Its settings: ``net``, ``batch`` (samples: they stay as the budget moves), ``budget_mib``, ``preset``, ``planner``,
    ``pins`` (row -> action), and ``show``, the second chart.
    """

    NAME = "swapping"
    MODULE = "chart"
    MORE: ClassVar[Mapping[str, str]] = {
        "more": "chart",
        "plan": "table",
        "lanes": "timeline",
        "types": "timeline",
        "choices": "table",
        "values": "table",
    }
    CHECKS = Source.CHECKS
    SOURCE: ClassVar[type[Source]] = Source

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them two charts side by side, the other pictures in tabs."""
        self.panel.fields.values = self.source = self.SOURCE(self.panel)
        self.plans = Plans(self.source)
        #: Button -> of what it computed, and what came of it; a text: why nothing did.
        self.results: dict[str, tuple[object, Any]] = {}
        known = {
            name: Command(label=_JOBS[name][0].lower(), run=partial(self._compute, name)) for name in self.source.JOBS
        }
        for name in ("keep", "swap", "free", "freeze", "choose"):
            known[name] = Command(label="pin rows", run=partial(self._pin, name), check=self.can_change)
        for name, command in known.items():
            self.panel.commands.add(name, command)
        add, budget = self.panel.fields.add, {"base": 2, "min": -6, "max": 20, "step": 0.05}
        planners = (*whatif.COMPARED, "auto")
        # Not while they move: else a page writes back what it has rounded to the slider's steps.
        fields = [
            *self.own(),
            add("budget_mib", ipywidgets.FloatLogSlider, "budget, MiB", "370px", continuous_update=False, **budget),
            add("planner", ipywidgets.Combobox, "planner", "300px", options=planners, continuous_update=False),
            add("show", ipywidgets.Dropdown, "chart", "240px", options=list(_SHOWN.items())),
        ]
        self.reach = Reach(self.source, self.panel.fields["budget_mib"].field)
        pictures = {name: of.widget for name, of in self.panel.pictures.items()}
        return [row(*fields), row(*self.source.knobs.make()), *_laid_out(pictures)]

    @property
    def off(self) -> str:
        """Why nothing can be changed; empty: everything can."""
        return "" if self.run is None else self.panel.steering.off

    def can_change(self, args: Args) -> None:
        """Refuse where nothing can be changed."""
        if self.run is not None:
            self.panel.steering.check(args)

    def own(self) -> list[ipywidgets.Widget]:
        """Make the fields of what is planned."""
        add = self.panel.fields.add
        return [
            add("net", ipywidgets.Dropdown, "net", "190px", options=whatif.NETS),
            add("batch", ipywidgets.FloatText, "batch, samples", "190px"),
            add("preset", ipywidgets.Dropdown, "device", "190px", options=whatif.PRESETS),
        ]

    def changed(self, new: Args) -> None:
        """Show the parameters of the planner that is set."""
        self.source.knobs.follow()

    # ------------------------------------------------------------------ what is computed
    def _compute(self, name: str, args: Args) -> str:
        key = self.reach.step if name == "front" else self.source.key
        came = (key, _JOBS[name][2](self.source.case()))
        self.results = {**self.results, name: came}
        self.panel.set(show=_JOBS[name][1])
        return self.draw(_JOBS[name][1]).sentence

    def close(self) -> None:
        """Wait for the plan that is being made."""
        self.plans.close()

    def draw(self, name: str = "") -> View:
        """Return the first picture, or another one."""
        name = {"": self.source.FIRST, "more": self.source.value("show")}.get(name, name)
        live = not self.off
        own: dict[str, tuple[str, Callable[[Any], View]]] = {
            "plan": ("", partial(computed.plan, live=live)),
            "memory": ("", lambda of: computed.memory(of, *self.source.measured)),
            "choices": ("compare", partial(compared.choices, live=live)),
            "front": (
                "front",
                lambda of: compared.front(of, *(self.source.value(n) for n in ("planner", "budget_mib"))),
            ),
        }
        job, drawn = {**_DRAWN, **own}[name]
        of = self.source.draw(name) or (_result(self.results, job) if job else self.plans.newest())
        if isinstance(of, View | str):
            return nothing(f"swapping.{name}", self.MORE.get(name, "chart"), of) if isinstance(of, str) else of
        return drawn(of)

    def facts(self) -> Plain:
        """Return the buttons, and where the numbers come from."""
        off, step = self.off, self.reach.step
        old = [job for job, (key, _) in self.results.items() if key != (step if job == "front" else self.source.key)]
        buttons = [*(button(name, _JOBS[name][0]) for name in self.source.JOBS), button("freeze", "Freeze", reason=off)]
        self.plans.newest()
        notes = ["planning: until then a former plan is drawn"] if self.plans.stale else []
        notes += [f"of former settings, press again: {', '.join(_JOBS[job][0] for job in old)}"] if old else []
        return {"buttons": buttons, "notes": [*notes, *self.reach.follow()], "origin": computed.COMPUTED}

    # ------------------------------------------------------------------ pins
    def pin(self, pins: Mapping[str, str]) -> str:
        """Have plans obey other pins: those of the run's task, if there is a run."""
        if self.run is not None:
            return change(self.panel, "swapping.pin", pins)
        self.panel.set(pins=pins)
        return f"{len(pins)} rows are pinned"

    def _pin(self, name: str, args: Args) -> str:
        """Pin a row, all of them as they are, or the rows of another planner's plan."""
        at, of, others = str(args.get("row")), self.plans.current(), _result(self.results, "compare")
        plans = {} if isinstance(others, str) else {each["planner"]: each["pins"] for each in others}
        if name in {"choose", "freeze"}:
            plans |= {"None": whatif.pins_of(of)} if isinstance(of, Explained) else {}
            if at not in plans:
                raise ConfigError(f"there is no plan to pin{f' of {at!r}: press Compare planners' if args else ''}")
            return self.pin(plans[at])
        wanted = {**self.source.value("pins"), (of.prefix if isinstance(of, Explained) else "") + at: name}
        return self.pin({row: action for row, action in wanted.items() if action != "free"})


def change(panel: Panel, key: str, value: object) -> str:
    """Change a setting of the run's task at once."""
    panel.steering.change(key, value, panel.steering.task)
    return f"changed, {SETTINGS[key].counts}"


def _result(results: Mapping[str, tuple[object, Any]], name: str) -> Any:
    """Return what a button has computed; a text: it was not pressed."""
    return results[name][1] if name in results else f"nothing yet: press {_JOBS[name][0]}"


def _laid_out(pictures: Mapping[str, ipywidgets.Widget]) -> list[ipywidgets.Widget]:
    """Return two charts side by side, and tabs."""
    for name, widget in pictures.items():
        flexible = {"max_height": "380px", "overflow": "auto"} if name in _TABS else {"flex": "1 1 380px"}
        for key, value in {"min_width": "0", **flexible}.items():
            setattr(widget.layout, key, value)
    tabs = ipywidgets.Tab([pictures[name] for name in _TABS], titles=tuple(_TABS.values()))
    return [row(pictures[""], pictures["more"]), tabs]

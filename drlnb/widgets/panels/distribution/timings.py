"""Try out ways to distribute parameters: the cost model while a control moves, the simulator at a click."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.cluster.pool import Client
from drlnb.fleet.fleet import Fleet, client_of
from drlnb.fleet.whatif.distribution import LINKS, PLANS, Computed, Spread, compute, numbers_of, planner, simulate
from drlnb.planning.distribution import PRESETS, Link
from drlnb.records.errors import ConfigError
from drlnb.records.settings import Declared, between, choice, count, setting
from drlnb.views.distribution import computed, simulated
from drlnb.views.drawing.pictures import nothing
from drlnb.views.drawing.view import View
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row, side_by_side
from drlnb.widgets.panels.distribution.publishing import Publishing
from drlnb.widgets.panels.frame import Content, Panel, Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["DEFAULTS", "Case", "Simulations", "Timings"]

#: Most hosts, and messages of a version that is simulated anew, unasked, when a control has moved.
_HOSTS, _AT_ONCE = 300, 6_000
#: Numbers of hosts that the slider stops at, each some 10 % beyond the one before.
_STOPS = sorted({round(_HOSTS ** (i / 56)) for i in range(57)} | {16, 32, 64, 100, 128, 256, 298})
#: Chunks of each shard; 0: the planner's own number.
_CHUNKS = {"usual": 0, **{str(1 << i): 1 << i for i in range(10)}}
#: Command -> label of its button.
_BUTTONS = {"simulate": "Simulate", "kill": "Kill relay", "race": "Race", "best": "Best m"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Declared):
    """Settings of the panel; they begin with 20 MB to 16 hosts by relays, as the seed has it."""

    plan: str = setting("relay", choice(*PLANS))
    m: int = setting(8, count(1, _HOSTS))
    chunks: int = setting(0, choice(*_CHUNKS.values()))
    n_hosts: int = setting(16, count(1, _HOSTS))
    model_mb: float = setting(20.0, between(1e-6, 1e6))
    link: str = setting("10GbE", choice(*LINKS))
    latency_us: float = setting(300.0, between(0, 1e6))
    overhead_us: float = setting(150.0, between(0, 1e6))
    kill: int = setting(3, count(0, _HOSTS - 1))
    shard: int = setting(0, count(0, _HOSTS - 1))


#: What the controls begin with.
DEFAULTS: Plain = {name: known.default for name, known in Tried.declared().items()}


class Case(Values):
    """The fields of the panel, which begin with its settings, and what the closed forms say of them."""

    CHECKS: ClassVar[settings.Checks] = {name: known.kind.read for name, known in Tried.declared().items()}

    def __init__(self, panel: Panel) -> None:
        super().__init__(panel)
        #: Returns what holds where nobody has chosen anything; and the plan that a choice would replace, None: none.
        self.defaults: Callable[[], Plain] = lambda: DEFAULTS
        self.running: Callable[[], str | None] = lambda: None
        #: Returns how many shards the topology has; as good as endless before there is one.
        self.n_shards: Callable[[], int] = lambda: _HOSTS
        #: What was computed last, of which settings; a text: why it cannot be.
        self._computed: tuple[object, Computed | str] = (None, "")

    def make(self) -> list[ipywidgets.Widget]:
        """Make the fields."""
        add, choice, number = self.panel.fields.add, ipywidgets.Dropdown, ipywidgets.FloatText
        boxes = [
            add("plan", choice, "plan", "150px", options=PLANS),
            add("m", ipywidgets.IntSlider, "m", "300px", min=1, max=self.value("n_hosts")),
            add("chunks", choice, "chunks", "150px", options=_CHUNKS.items()),
            add("n_hosts", ipywidgets.SelectionSlider, "hosts", "300px", options=self._stops()),
            add("model_mb", number, "model, MB", "180px"),
            add("link", choice, "link", "150px", options=LINKS),
            add("latency_us", number, "latency, us", "150px"),
            add("overhead_us", number, "us per message", "190px"),
            add("kill", number, "kill relay", "150px"),
            add("shard", number, "shard", "150px"),
        ]
        self._m = boxes[1]
        self.follow()
        return boxes

    def value(self, name: str) -> Any:
        """Return a setting as it is in force: what is more than there can be is the most that there is."""
        return min(self.wanted(name), self._most(name)) if name in {"m", "shard"} else self.wanted(name)

    def in_force(self, name: str) -> object:
        """Return what a setting is where nobody has chosen anything."""
        return self.defaults()[name]

    def wanted(self, name: str) -> Any:
        """Return a setting as it was chosen."""
        return super().value(name)

    def waits(self, name: str) -> bool:
        """Whether a field was moved, and the plan that the fields make is not in force."""
        moved = name in {"plan", "m", "chunks"} and name in self.panel.settings
        return moved and self.running() not in {None, self.plan}

    def _most(self, name: str) -> int:
        """Return how many m there can be, or the number of the last shard that is drawn."""
        return int(self.wanted("n_hosts")) if name == "m" else self.n_shards() - 1

    @property
    def notes(self) -> list[str]:
        """What was chosen and cannot be, and what is taken instead."""
        return [
            f"{label} {self.wanted(name)} was chosen, {self.value(name)} is the last one here"
            for name, label in (("m", self._m.children[0].description), ("shard", "shard"))
            if self.value(name) != self.wanted(name) and (name != "m" or not self._m.children[0].disabled)
        ]

    @property
    def plan(self) -> str:
        """Name of the planner with its numbers."""
        return planner(self.value("plan"), self.value("m"), self.value("chunks"))

    @property
    def given(self) -> tuple[int, int, Link]:
        """Hosts, bytes of a version and network."""
        latency_s, overhead_s = (1e-6 * self.value(name) for name in ("latency_us", "overhead_us"))
        bytes_per_s = PRESETS[self.value("link")].learner_bytes_per_s
        link = Link.of(bytes_per_s, latency_s=latency_s, overhead_s=overhead_s)
        return self.value("n_hosts"), max(1, round(self.value("model_mb") * 1e6)), link

    @property
    def key(self) -> object:
        """What the fields say, as something to compare."""
        return self.plan, *self.given

    @property
    def said(self) -> Computed | str:
        """What the closed forms say of it, or why they cannot."""
        key = self.key
        if self._computed[0] != key:
            try:
                self._computed = key, compute(self.plan, *self.given)
            except ValueError as error:
                self._computed = key, str(error)
        return self._computed[1]

    @property
    def problem(self) -> str:
        """Why nothing can be computed; empty if it can."""
        return self.said if isinstance(self.said, str) else ""

    def check(self, args: Args) -> None:
        """Raise ConfigError if nothing can be computed."""
        if self.problem:
            raise ConfigError(self.problem)

    def choose(self, name: str, value: object) -> None:
        """Accept what the user has chosen; within the callback."""
        if name in {"m", "shard"}:
            number = settings.checked("distribution", self.CHECKS, {name: value})[name]
            if number > self._most(name):
                raise ConfigError(f"{name} must be at most {self._most(name)} here, got {number}")
        super().choose(name, value)

    def follow(self) -> None:
        """Have the slider of m follow the number of hosts, and what the planner takes."""
        takes, parts, fields = numbers_of(self.value("plan")), self._m.children, self.panel.fields
        for widget, name, value in (
            (parts[0], "max", self._most("m")),
            (parts[0], "description", takes.get("m", "m")),
            *((part, "disabled", "m" not in takes) for part in parts),
            (fields["chunks"].field, "disabled", "c" not in takes),
            (fields["chunks"].field, "description", "levels" if takes.get("c") == "levels" else "chunks"),
            (fields["n_hosts"].field, "options", tuple(self._stops())),
        ):
            if getattr(widget, name) != value:
                fields.later(widget, name, value)

    def _stops(self) -> list[int]:
        return sorted({*_STOPS, self.value("n_hosts")})


class Simulations:
    """What was simulated of a panel's case, and the commands that simulate."""

    def __init__(self, panel: Panel, case: Case) -> None:
        self._panel, self._case = panel, case
        #: Picture -> of which settings it is, and what was simulated.
        self.results: dict[str, tuple[object, tuple[Spread, ...]]] = {}
        #: Picture -> results that it was drawn of, and itself.
        self._drawn: dict[str, tuple[tuple[Spread, ...], View]] = {}
        #: Picture -> settings of which it was asked for, unasked by the user.
        self._asked: dict[str, object] = {}
        for name, run in zip(_BUTTONS, (self._simulate, self._kill, self._race, self._best), strict=True):
            panel.commands.add(name, Command(label=_BUTTONS[name].lower(), run=run, check=case.check))

    @property
    def fresh(self) -> Spread | None:
        """The version that was simulated, if it was under the settings as they are now."""
        key, results = self.results.get("shards", (None, ()))
        return results[0] if key == self._case.key else None

    @property
    def stale(self) -> bool:
        """Whether a picture is of former settings."""
        return any(key != self._case.key for key, _ in self.results.values())

    def draw(self, name: str) -> View:
        """Return the picture ``shards`` or ``race``; the same one as long as its results are the same."""
        results = self.results.get(name, (None, ()))[1]
        if name not in self._drawn or self._drawn[name][0] is not results:
            self._drawn[name] = results, self._draw(name, results)
        return self._drawn[name][1]

    def _draw(self, name: str, results: tuple[Spread, ...]) -> View:
        if name == "race":
            return (
                simulated.race(results) if results else nothing("distribution.race", "chart", "no race yet: press Race")
            )
        why = "nothing is simulated yet: press Simulate"
        return simulated.shards(results[0]) if results else nothing(f"distribution.{name}", "timeline", why)

    def _simulate(self, args: Args) -> str:
        return self._publish(args, None)

    def _kill(self, args: Args) -> str:
        return self._publish(args, int(args.get("kill", self._case.value("kill"))))

    def _publish(self, args: Args, kill: int | None) -> str:
        key = self._case.key
        done = simulate(self._case.plan, *self._case.given, kill=kill)
        self._done("shards", key, (done,), args)
        return f"simulated: {len(done.messages['done'])} messages"

    def _race(self, args: Args) -> str:
        key, plans = self._case.key, dict.fromkeys(["star", "tree", self._case.plan, "auto"])
        results = tuple([simulate(plan, *self._case.given) for plan in plans])
        self._done("race", key, results, args)
        return f"simulated: {len(results)} plans"

    def _done(self, name: str, key: object, results: tuple[Spread, ...], args: Args) -> None:
        """Show what was simulated; its tab, too, if the user has asked for it and sees none of it."""
        asked, (_, was) = not args.get("unasked"), self.results.get("shards", (None, ()))
        self.results = {**self.results, name: (key, results)}
        content = self._panel.content
        assert isinstance(content, Timings)
        if name == "shards" and (asked or content.publishing.latest in was):
            content.publishing.latest = results[0]
        tabs, shown = list(content.TABS), content.tabs.selected_index or 0
        if asked and (name, tabs[shown]) != ("shards", "topology"):
            self._panel.fields.later(content.tabs, "selected_index", tabs.index(name))
        self._panel.touch()

    def _best(self, args: Args) -> str:
        best = compute(planner(self._case.value("plan"), 0, self._case.value("chunks")), *self._case.given)
        self._panel.set(m=best.m)
        return f"best by the closed form: {best.name}"

    def follow(self) -> None:
        """Simulate anew what is of former settings, once per setting and unless it takes long."""
        key, of = self._case.key, self._case.said
        if isinstance(of, str) or of.n_hosts * of.m > _AT_ONCE:
            return
        for name, (of_key, results) in list(self.results.items()):
            if of_key != key and self._asked.get(name) != key:
                self._asked[name] = key
                self._again(name, results[0], of)

    def _again(self, name: str, result: Spread, of: Computed) -> None:
        args = {"unasked": True, "kill": min(self._case.value("kill"), of.m - 1)}
        command = "race" if name == "race" else "kill" if result.lost else "simulate"
        content = {"id": f"{command} {time.monotonic()}", "name": command, "args": args}
        self._panel.commands.receive(content, lambda reply: None)


class Timings(Content):
    """What a plan costs on a network: models per second over m, bytes per host, shards on a clock, a race of plans.

    Its settings: ``plan``, ``m``, ``chunks`` (0: the planner's own), ``n_hosts``, ``model_mb``, ``link``,
    ``latency_us``, ``overhead_us``, ``kill``, the number of the relay that the button kills, and ``shard``, which the
    topology shows.
    """

    NAME = "distribution"
    MODULE = "chart"
    MORE: ClassVar[Mapping[str, str]] = {
        "egress": "chart",
        "shards": "timeline",
        "topology": "topology",
        "race": "chart",
        "scaling": "chart",
    }
    CHECKS: ClassVar[settings.Checks] = Case.CHECKS
    #: Tabs below: name of a picture -> its title.
    TABS: ClassVar[Mapping[str, str]] = {
        "shards": "Shards per host",
        "topology": "Topology",
        "race": "Race",
        "scaling": "Scaling over hosts",
    }
    #: A Dask client or a fleet, whose workers versions are sent to; None: what is up, as soon as there is something.
    attached: Client = None

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields; below them models per second and bytes side by side, the other pictures in tabs."""
        self.panel.fields.values = self.case = Case(self.panel)
        self.simulations = Simulations(self.panel, self.case)
        self.publishing = Publishing(self.panel, self.case, lambda: client_of(self.attached))
        self.case.n_shards = lambda: self.publishing.n_shards
        fields = self.case.make()
        pictures = {name: picture.widget for name, picture in self.panel.pictures.items()}
        self.tabs = ipywidgets.Tab([pictures[name] for name in self.TABS], titles=tuple(self.TABS.values()))
        return [row(*fields), side_by_side(pictures[""], pictures["egress"]), self.tabs]

    def changed(self, new: Args) -> None:
        """Show what code has set."""
        self.case.follow()

    def tick(self, now_s: float) -> None:
        """Have simulations follow the fields."""
        self.simulations.follow()

    def draw(self, name: str = "") -> View:
        """Return models per second over m, or one of the other pictures."""
        if name in {"shards", "topology", "race"}:
            return self.publishing.draw() if name == "topology" else self.simulations.draw(name)
        of, done = self.case.said, self.simulations.fresh
        if isinstance(of, str):
            return nothing(f"distribution.{name or 'sweep'}", "chart", of)
        if name == "scaling":
            return computed.scaling(of)
        if name:
            return computed.egress(of, done.egress if done else None)
        return computed.sweep(of, f"; {done.outcome}" if done else "", self.publishing.measured)

    def facts(self) -> Plain:
        """Return the buttons, where the numbers come from, and what the tabs are of."""
        buttons = [button(name, label, reason=self.case.problem) for name, label in _BUTTONS.items()]
        if not numbers_of(self.case.value("plan")):
            buttons[-1] = button("best", _BUTTONS["best"], reason="this plan has no m")
        results = self.simulations.results
        notes = [
            *self.case.notes,
            *self.panel.view().notes,
            *(self.panel.view(name).sentence for name in ("race",) if name in results),
        ]
        if (spread := self.simulations.fresh) and spread.lost and spread.lost[0][2] != self.case.value("kill"):
            notes.append(f"relay {spread.lost[0][2]} was killed: there is no {self.case.value('kill')}")
        if self.simulations.stale:
            notes.append("the simulation is of former settings: press again")
        if self.publishing.said:
            notes.insert(0, self.publishing.said)
        known = {simulated.SIMULATED: results, "measured": self.publishing.said}
        origin = " and ".join([computed.COMPUTED, *(word for word, of in known.items() if of)])
        return {"buttons": [*buttons, *self.publishing.buttons()], "origin": origin, "notes": notes}

    def code(self) -> str:
        """Return the lines of Python that give this panel."""
        if self.run is not None:
            return super().code()
        attached = [] if self.attached is None else ["fleet" if isinstance(self.attached, Fleet) else "client"]
        given = ", ".join(attached + [f"{name}={value!r}" for name, value in self.panel.settings.items()])
        return f"from drlnb.widgets.faces import {self.NAME}\n\n{self.NAME}({given})"

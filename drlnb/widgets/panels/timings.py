"""Try out ways to distribute parameters: the cost model while a control moves, the simulator at a click."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.whatif.distribution import LINKS, PLANS, Computed, Simulated, compute, numbers_of, planner, simulate
from drlnb.planning.distribution import PRESETS, Link
from drlnb.records.errors import ConfigError
from drlnb.views.distribution import computed, simulated
from drlnb.views.drawing.view import View
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Content, Plain, button, row, styled
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["DEFAULTS", "Timings"]

#: What the controls begin with: 20 MB as the seed has it, to 16 hosts.
DEFAULTS: Plain = {
    "plan": "relay", "m": 8, "chunks": 0, "n_hosts": 16, "model_mb": 20.0, "link": "10GbE", "latency_us": 300.0,
    "overhead_us": 150.0, "kill": 3,
}  # fmt: skip
#: Most hosts, and messages of a version that is simulated anew, unasked, when a control has moved.
_HOSTS, _AT_ONCE = 300, 6_000
#: Numbers of hosts that the slider stops at, each some 10 % beyond the one before.
_STOPS = sorted({round(_HOSTS ** (i / 56)) for i in range(57)} | {16, 32, 64, 100, 128, 256, 298})
#: Chunks of each shard; 0: the planner's own number.
_CHUNKS = {"usual": 0, **{str(1 << i): 1 << i for i in range(10)}}
#: Command -> label of its button.
_BUTTONS = {"simulate": "Simulate", "kill": "Kill relay", "race": "Race", "best": "Best m"}


class Timings(Content):
    """What a plan costs on a network: models per second over m, bytes per host, shards on a clock, a race of plans.

    Its settings: ``plan``, ``m``, ``chunks`` (0: the planner's own), ``n_hosts``, ``model_mb``, ``link``,
    ``latency_us``, ``overhead_us``, and ``kill``, the number of the relay that the button kills.
    """

    NAME = "distribution"
    MODULE = "chart"
    MORE: ClassVar[Mapping[str, str]] = {"egress": "chart", "shards": "timeline", "race": "chart"}
    CHECKS: ClassVar[settings.Checks] = {
        "plan": settings.choice(*PLANS),
        "m": settings.number(1, _HOSTS, whole=True),
        "chunks": settings.choice(*_CHUNKS.values()),
        "n_hosts": settings.number(1, _HOSTS, whole=True),
        "model_mb": settings.number(1e-6, 1e6),
        "link": settings.choice(*LINKS),
        "latency_us": settings.number(0, 1e6),
        "overhead_us": settings.number(0, 1e6),
        "kill": settings.number(0, _HOSTS - 1, whole=True),
    }
    #: Tabs below: name of a picture -> its title.
    TABS: ClassVar[Mapping[str, str]] = {"shards": "Shards per host", "race": "Race"}
    #: What was computed last, of which settings; a text: why it cannot be.
    _computed: tuple[object, Computed | str] = (None, "")

    def __init__(self) -> None:
        #: Picture -> of which settings it is, and what was simulated.
        self._results: dict[str, tuple[object, tuple[Simulated, ...]]] = {}
        #: Picture -> settings of which it was asked for, unasked by the user.
        self._asked: dict[str, object] = {}

    # ------------------------------------------------------------------ settings
    def value(self, name: str) -> Any:
        """Return a setting as it is now."""
        return self.panel.settings.get(name, DEFAULTS[name])

    @property
    def plan(self) -> str:
        """Name of the planner with its numbers."""
        return planner(self.value("plan"), self.value("m"), self.value("chunks"))

    @property
    def case(self) -> tuple[int, int, Link]:
        """Hosts, bytes of a version and network."""
        latency_s, overhead_s = (1e-6 * self.value(name) for name in ("latency_us", "overhead_us"))
        bytes_per_s = PRESETS[self.value("link")].learner_bytes_per_s
        link = Link.of(bytes_per_s, latency_s=latency_s, overhead_s=overhead_s)
        return self.value("n_hosts"), max(1, round(self.value("model_mb") * 1e6)), link

    def _key(self) -> object:
        return self.plan, *self.case

    # ------------------------------------------------------------------ controls
    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields and the commands."""
        for name, run in zip(_BUTTONS, (self._simulate, self._kill, self._race, self._best), strict=True):
            self.panel.commands.add(name, Command(label=_BUTTONS[name].lower(), run=run, check=self._can_plan))
        own = self.value
        self.fields = {
            "plan": ipywidgets.Dropdown(description="plan", options=PLANS, value=own("plan")),
            "m": ipywidgets.IntSlider(description="m", min=1, max=own("n_hosts"), value=min(own("m"), own("n_hosts"))),
            "chunks": ipywidgets.Dropdown(description="chunks", options=_CHUNKS.items(), value=own("chunks")),
            "n_hosts": ipywidgets.SelectionSlider(description="hosts", options=self._stops(), value=own("n_hosts")),
            "model_mb": ipywidgets.FloatText(description="model, MB", value=own("model_mb")),
            "link": ipywidgets.Dropdown(description="link", options=LINKS, value=own("link")),
            "latency_us": ipywidgets.FloatText(description="latency, us", value=own("latency_us")),
            "overhead_us": ipywidgets.FloatText(description="us per message", value=own("overhead_us")),
            "kill": ipywidgets.IntText(description="kill relay", value=own("kill")),
        }
        widths = {"m": "300px", "n_hosts": "300px", "overhead_us": "190px"}
        for name, field in self.fields.items():
            styled(field, name, widths.get(name, "150px"))
            field.observe(partial(self._moved, name), "value")
        self.follow()
        return [row(*self.fields.values())]

    def _moved(self, name: str, change: Args) -> None:
        """Follow a control that the user has moved; within the callback."""
        if self.panel.writing:
            return
        with self.panel.messages.guard("read the controls"):
            new = settings.checked(self.NAME, self.CHECKS, {name: change["new"]})
            self.panel.settings = {**self.panel.settings, **new}
            self.follow()
            self.panel.touch()

    def follow(self) -> None:
        """Let the slider of m follow the number of hosts, and what the planner takes."""
        n, takes, m = self.value("n_hosts"), numbers_of(self.value("plan")), self.fields["m"]
        if self.value("m") > n:
            self.panel.settings = {**self.panel.settings, "m": n}
        for widget, name, value in (
            (m, "max", n), (m, "disabled", "m" not in takes), (m, "description", takes.get("m", "m")),
            (self.fields["chunks"], "disabled", "c" not in takes),
        ):  # fmt: skip
            if getattr(widget, name) != value:
                self.panel.later(widget, name, value)

    def _stops(self) -> list[int]:
        return sorted({*_STOPS, self.value("n_hosts")})

    def changed(self, new: Args) -> None:
        """Show what code has set."""
        self.follow()
        self.panel.later(self.fields["n_hosts"], "options", self._stops())
        self.panel.later(self.fields["n_hosts"], "value", self.value("n_hosts"))
        for name, value in new.items():
            self.panel.later(self.fields[name], "value", value)

    def arrange(self, pictures: Mapping[str, ipywidgets.Widget]) -> list[ipywidgets.Widget]:
        """Return sweep and bytes side by side, the others in tabs below."""
        above = [pictures[""], pictures["egress"]]
        for widget in above:
            widget.layout.flex, widget.layout.min_width = "1 1 380px", "0"
        self._tabs = ipywidgets.Tab([pictures[name] for name in self.TABS], titles=tuple(self.TABS.values()))
        return [row(*above), self._tabs]

    # ------------------------------------------------------------------ pictures
    def said(self) -> Computed | str:
        """Return what the closed forms say of the settings, or why they cannot."""
        key = self._key()
        if self._computed[0] != key:
            try:
                self._computed = key, compute(self.plan, *self.case)
            except ValueError as error:
                self._computed = key, str(error)
        return self._computed[1]

    def draw(self) -> View:
        """Return models per second over m."""
        of, done = self.said(), self._fresh()
        if isinstance(of, str):
            return computed.nothing("sweep", "chart", of)
        return computed.sweep(of, f"; {done.outcome}" if done else "")

    def draw_more(self, name: str) -> View:
        """Return one of the other pictures."""
        views: dict[str, Callable[[], View]] = {"egress": self._egress, "shards": self._shards, "race": self._races}
        return views[name]()

    def _fresh(self) -> Simulated | None:
        """Return what was simulated, if it was of the settings as they are now."""
        key, results = self._results.get("shards", (None, ()))
        return results[0] if key == self._key() else None

    def _egress(self) -> View:
        of, done = self.said(), self._fresh()
        if isinstance(of, str):
            return computed.nothing("egress", "chart", of)
        return computed.egress(of, done.egress if done else None)

    def _shards(self) -> View:
        results = self._results.get("shards", (None, ()))[1]
        if not results:
            return computed.nothing("shards", "timeline", "nothing is simulated yet: press Simulate")
        return simulated.shards(results[0])

    def _races(self) -> View:
        results = self._results.get("race", (None, ()))[1]
        return simulated.race(results) if results else computed.nothing("race", "chart", "no race yet: press Race")

    def facts(self) -> Plain:
        """Return the buttons, where the numbers come from, and what the tabs are of."""
        off = self.said() if isinstance(self.said(), str) else ""
        buttons = [button(name, label, reason=str(off)) for name, label in _BUTTONS.items()]
        if not numbers_of(self.value("plan")):
            buttons[-1] = button("best", _BUTTONS["best"], reason="this plan has no m")
        notes = [*self.draw().notes, *(self.draw_more(name).sentence for name in self._noted())]
        if any(key != self._key() for key, _ in self._results.values()):
            notes.append("the simulation is of former settings: press again")
        origin = f"{computed.COMPUTED} and {simulated.SIMULATED}" if self._results else computed.COMPUTED
        return {"buttons": buttons, "origin": origin, "notes": notes}

    def _noted(self) -> list[str]:
        """Return the pictures whose sentence stands above, too."""
        return ["race"] if "race" in self._results else []

    # ------------------------------------------------------------------ commands
    def _can_plan(self, args: Args) -> None:
        of = self.said()
        if isinstance(of, str):
            raise ConfigError(of)

    def _simulate(self, args: Args) -> str:
        return self._publish(args, None)

    def _kill(self, args: Args) -> str:
        return self._publish(args, int(args.get("kill", self.value("kill"))))

    def _publish(self, args: Args, kill: int | None) -> str:
        key = self._key()
        done = simulate(self.plan, *self.case, kill=kill)
        self._done("shards", key, (done,), args)
        return f"simulated: {len(done.messages['done'])} messages"

    def _race(self, args: Args) -> str:
        key, plans = self._key(), dict.fromkeys(["star", "tree", self.plan, "auto"])
        results = tuple([simulate(plan, *self.case) for plan in plans])
        self._done("race", key, results, args)
        return f"simulated: {len(results)} plans"

    def _done(self, name: str, key: object, results: tuple[Simulated, ...], args: Args) -> None:
        """Show what was simulated; its tab, too, if the user has asked for it."""
        self._results = {**self._results, name: (key, results)}
        if not args.get("unasked"):
            self.panel.later(self._tabs, "selected_index", list(self.TABS).index(name))
        self.panel.touch()

    def _best(self, args: Args) -> str:
        best = compute(planner(self.value("plan"), 0, self.value("chunks")), *self.case)
        self.panel.set(m=best.m)
        return f"best by the closed form: {best.name}"

    def tick(self, now_s: float) -> None:
        """Simulate anew what is of former settings, once per setting and unless it takes long."""
        key, of = self._key(), self.said()
        if isinstance(of, str) or of.n_hosts * of.m > _AT_ONCE:
            return
        for name, (of_key, results) in list(self._results.items()):
            if of_key != key and self._asked.get(name) != key:
                self._asked[name] = key
                self._again(name, results[0], of)

    def _again(self, name: str, result: Simulated, of: Computed) -> None:
        args = {"unasked": True, "kill": min(self.value("kill"), of.m - 1)}
        command = "race" if name == "race" else "kill" if result.lost else "simulate"
        content = {"id": f"{command} {time.monotonic()}", "name": command, "args": args}
        self.panel.commands.receive(content, lambda reply: None)

    def code(self) -> str:
        """Return the lines of Python that give this panel."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.panel.settings.items())
        return f"from drlnb.widgets.faces import {self.NAME}\n\n{self.NAME}({given})"

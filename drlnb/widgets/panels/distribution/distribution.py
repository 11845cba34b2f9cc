"""Show how versions reach the hosts of a run, measured beside predicted, and change the plan while it trains."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import ipywidgets

from drlnb.fleet.cluster.pool import Client
from drlnb.fleet.fleet import client_of
from drlnb.fleet.training import Training
from drlnb.fleet.whatif.distribution import parts
from drlnb.views.distribution import measured
from drlnb.views.drawing.view import View
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import ALL, row
from drlnb.widgets.panels.distribution.timings import DEFAULTS, Timings
from drlnb.widgets.panels.frame import Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Distribution"]

_NO_CLUSTER = "this run is on no cluster that can be reached from here"


class Distribution(Timings):
    """The timings of plans, beside the versions and hosts of one run."""

    MORE: ClassVar[Mapping[str, str]] = {**Timings.MORE, "versions": "chart", "hosts": "table"}
    TABS: ClassVar[Mapping[str, str]] = {"versions": "Versions", "hosts": "Hosts", **Timings.TABS}

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the choice of the task beside the other fields."""
        names = list(self.run.specs) if self.run is not None else []
        #: Whether the fields hold what they began with, unasked: the run's own numbers are better then.
        self._own = not self.panel.settings
        fields, *pictures = super().controls()
        task = self.panel.fields.add("task", ipywidgets.Dropdown, "task", options=[ALL, *names])
        apply = Command(label="change the plan", run=self._apply, check=self._can_apply)
        self.panel.commands.add("apply", apply)
        self.case.running = lambda: settings.held(
            self.run, self.fold, "distribution", "distribution.plan", self.panel.steering.task
        )
        self.case.defaults = lambda: {**DEFAULTS, **parts(self.case.running() or "")}
        self.publishing.client = partial(_client, self.run)
        self.publishing.newest = lambda: measured.spread(self.fold, self.panel.steering.task)
        return [fields, row(task), *pictures]

    # ------------------------------------------------------------------ pictures
    def draw(self, name: str = "") -> View:
        """Return models per second over m, or one of the other pictures."""
        drawn = {"versions": measured.versions, "hosts": measured.hosts}.get(name)
        return drawn(self.fold, self.panel.steering.task) if drawn else super().draw(name)

    def folded(self) -> None:
        """Begin with the model of the run, and with its hosts if there are several; follow the plan in force."""
        self.case.follow()
        _, of = measured.newest(self.fold)
        if self._own and len(of.versions):
            self._own = False
            n_hosts, mb = int(of.versions.get(-1, "hosts")), float(of.versions.get(-1, "mb"))
            several = {"n_hosts": min(n_hosts, 300)} if n_hosts > 1 else {}  # to one host there is but one way
            self.panel.set(model_mb=max(1e-6, mb), **several)

    # ------------------------------------------------------------------ the plan in force
    def facts(self) -> Plain:
        """Return the buttons of the timings, and Apply; what was measured stands first."""
        facts = super().facts()
        apply = button("apply", "Apply plan", reason=self.panel.steering.off)
        versions, origin = self.panel.view("versions").sentence, facts["origin"]
        if self.fold.distributions and self.fold.origin not in origin:
            origin += f" and {self.fold.origin}"
        facts["notes"].insert(bool(self.publishing.said), versions)
        return {**facts, "buttons": [*facts["buttons"], apply], "origin": origin}

    def _can_apply(self, args: Args) -> None:
        self.panel.steering.check(args)
        self.case.check(args)

    def _apply(self, args: Args) -> str:
        plan, task = self.case.plan, self.panel.steering.task
        self.panel.steering.change("distribution.plan", plan, task)
        return f"plan: {plan} for {task or 'all tasks'}, from the next round on"


def _client(run: Training | None) -> Client:
    """Return the client of a run's cluster, or a text: why there is none."""
    return client_of(run.fleet) if run is not None and run.watch.live else _NO_CLUSTER

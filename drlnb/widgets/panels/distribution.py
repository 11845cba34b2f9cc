"""Show how versions reach the hosts of a run, measured beside predicted, and change the plan while it trains."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, ClassVar

import ipywidgets
import numpy as np

from drlnb.fleet.run import Run
from drlnb.fleet.training import Training
from drlnb.fleet.whatif.distribution import numbers_of, planner
from drlnb.planning.distribution import STRATEGIES
from drlnb.views.distribution import measured
from drlnb.views.drawing import words
from drlnb.views.drawing.view import View
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Content, Panel, Plain, button, row, styled
from drlnb.widgets.panels.timings import Case, Timings
from drlnb.widgets.transport.commands import Args, Command

if TYPE_CHECKING:
    from drlnb.distribution import PublishReport

__all__ = ["Distribution"]

_ALL = "all tasks"
#: Largest version that is sent at a click, in MB: hosts keep four of them; longest wait for its report, in seconds.
_LARGEST_MB, _PATIENCE_S = 1000.0, 600.0
#: Versions that are sent with each m.
_TIMES = 3


class Trial:
    """One version that is sent for real, to every worker of a run's cluster, beside what else goes on there."""

    def __init__(self, panel: Panel, case: Case, run: Run | None) -> None:
        self._panel, self._case, self._run = panel, case, run
        self.off = "" if isinstance(run, Training) else "this run is on no cluster that can be reached from here"
        #: What came of the last one, in words.
        self.said = ""
        panel.commands.add("publish", Command(label="publish once", run=self._publish, check=self._check))
        panel.commands.add("sweep", Command(label="sweep m", run=self._sweep, check=self._check))

    def _check(self, args: Args) -> None:
        mb = self._case.value("model_mb")
        if self.off or mb > _LARGEST_MB:
            raise settings.WrongSetting(self.off or f"model, MB must be at most {_LARGEST_MB:g} here, got {mb:g}")
        self._case.check(args)

    def _send(self, numbers: Callable[[int], Sequence[int]]) -> "list[tuple[int, PublishReport]]":
        """Send a version with each m for so many workers, one after the other."""
        from drlnb.distribution import Publisher  # Dask, for who presses this

        assert self._run is not None
        model, sent = {"model": np.zeros(self._case.given[1], np.uint8)}, []
        with Publisher(self._run.fleet.pool.link.client, task="panel") as publisher:
            for m in numbers(len(publisher.hosts)):
                publisher.plan = planner(self._case.value("plan"), m, self._case.value("chunks"))
                sent.append((m, publisher.publish(model).result(_PATIENCE_S)))
        return sent

    def _publish(self, args: Args) -> None:
        ((_, report),) = self._send(lambda n_hosts: [self._case.value("m")])
        self.said = f"published once: {report}"
        self._panel.touch()

    def _sweep(self, args: Args) -> None:
        name = self._case.value("plan")
        if "m" not in numbers_of(name):
            raise settings.WrongSetting(f"{name} has no m")
        of = dict[int, list[float]]()
        sent = self._send(lambda n: [m for m in STRATEGIES[name].m(n) if m == n or not m & (m - 1)] * _TIMES)
        for m, report in sent:
            of.setdefault(m, []).append(report.publish_s)
        whom = f"{name}, {self._case.value('model_mb'):g} MB, {words.plural(sent[0][1].n_hosts, 'worker')}"
        medians = {m: median(each) for m, each in of.items()}
        content = self._panel.content
        assert isinstance(content, Timings)
        content.measured = f"measured: {whom}", np.array(list(of), float), np.array(list(medians.values()))
        self.said = f"swept m ({whom}): " + ", ".join(
            f"{m} {words.duration(seconds)}" for m, seconds in medians.items()
        )
        self._panel.touch()


class Distribution(Timings):
    """The timings of plans, beside the versions and hosts of one run."""

    MORE: ClassVar[Mapping[str, str]] = {**Timings.MORE, "versions": "chart", "hosts": "table"}
    TABS: ClassVar[Mapping[str, str]] = {"versions": "Versions", "hosts": "Hosts", **Timings.TABS}
    #: Lines of Python for what was applied here, oldest first.
    applied: Sequence[str] = ()

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the choice of the task beside the other fields."""
        names = list(self.run.specs) if self.run is not None else []
        #: Whether the fields hold what they began with, unasked: the run's own numbers are better then.
        self._own = not self.panel.settings
        self.task = ipywidgets.Dropdown(description="task", options=[_ALL, *names], value=_ALL)
        self.task.observe(lambda change: self.panel.touch(), "value")
        apply = Command(label="change the plan", run=self._apply, check=self._can_apply)
        self.panel.commands.add("apply", apply)
        fields, *pictures = super().controls()
        self.trial = Trial(self.panel, self.case, self.run)
        return [fields, row(styled(self.task, "task")), *pictures]

    @property
    def _shown(self) -> str | None:
        """Task that is meant; None: all, of which the first that has sent versions is shown."""
        return None if self.task.value == _ALL else str(self.task.value)

    # ------------------------------------------------------------------ pictures
    def draw(self, name: str = "") -> View:
        """Return models per second over m, or one of the other pictures."""
        drawn = {"versions": measured.versions, "hosts": measured.hosts}.get(name)
        return drawn(self.fold, self._shown) if drawn else super().draw(name)

    def folded(self) -> None:
        """Begin with the model of the run, and with its hosts if there are several."""
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
        apply = button("apply", "Apply plan", reason=self._off())
        publish = button("publish", "Publish once", reason=self.case.problem or self.trial.off)
        sweep = button("sweep", "Sweep m", reason=self.case.problem or self.trial.off)
        versions, origin = self.panel.view("versions").sentence, facts["origin"]
        notes = [*filter(None, [self.trial.said]), versions, *facts["notes"]]
        if self.fold.distributions or self.measured:
            origin += f" and {self.fold.origin}"
        return {"buttons": [*facts["buttons"], publish, sweep, apply], "notes": notes, "origin": origin}

    def _off(self) -> str:
        return "there is no run yet" if self.run is None else self.run.watch.refusal

    def _can_apply(self, args: Args) -> None:
        if self._off():
            raise settings.WrongSetting(f"{self._off()}: nothing can be changed")
        self.case.check(args)

    def _apply(self, args: Args) -> str:
        plan, task = self.case.plan, self._shown
        if isinstance(self.run, Training):  # a recording has refused by now
            self.run.set("distribution.plan", plan, task=task)
        line = f'run.set("distribution.plan", {plan!r}' + (f", task={task!r})" if task else ")")
        self.applied = [*self.applied, line]
        return f"plan: {plan} for {task or 'all tasks'}, from the next round on"

    def code(self) -> str:
        """Return the line that gives this panel, and those that did what was applied."""
        return "\n".join([Content.code(self), *self.applied])

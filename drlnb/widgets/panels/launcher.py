"""Start more tasks: a form above the tasks of one run of the fleet, the newest or one that was chosen."""

import contextlib
import time
from collections.abc import Sequence
from typing import ClassVar

import ipywidgets

from drlnb.fleet.fleet import Fleet
from drlnb.fleet.tasks.launch_form import LaunchForm, known_envs
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, InputError
from drlnb.records.settings import choice
from drlnb.records.spec import ALGORITHMS
from drlnb.views.drawing.words import plural
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.control import Values, row
from drlnb.widgets.panels.fleet import Beside, Tasks
from drlnb.widgets.panels.frame import Panel, Plain, button
from drlnb.widgets.transport.commands import Args, Command, Commands

__all__ = ["Form", "Launcher", "Runs"]

#: Seconds between two questions which runs others have started on the cluster.
_LOOK_S = 5.0
#: What is offered where there is no run.
_NONE = [("none yet", "")]


class Form(Values):
    """The fields of the form, which begin with the panel's settings, and what is wrong with them."""

    def __init__(self, panel: Panel, fleet: Fleet) -> None:
        super().__init__(panel)
        self._fleet = fleet
        #: Chooses the run that is shown.
        self.choice = Runs(panel, fleet)
        #: Field -> why tasks cannot be started so.
        self.problems: dict[str, str] = {}
        #: The form that the cluster has refused last, and why.
        self.refused: tuple[LaunchForm | None, str] = (None, "")

    def make(self) -> list[ipywidgets.Widget]:
        """Make the fields."""
        add, text = self.panel.fields.add, ipywidgets.Text
        boxes = [
            add("env", ipywidgets.Combobox, "environment", "300px", options=known_envs(), ensure_option=False),
            add("algo", ipywidgets.Dropdown, "algorithm", options=ALGORITHMS),
            add("seeds", text, "seeds", placeholder="0, or 0-4"),
            add("total_timesteps", text, "steps", placeholder="tuned budget"),
            add("slots", text, "slots", placeholder=str(self._fleet.pool.n_devices)),
        ]
        self.look()
        return boxes

    def read(self) -> LaunchForm:
        """Return what the fields say."""
        return LaunchForm(**self.panel.settings)

    def look(self) -> None:
        """See what is wrong with the form; what cannot be seen here the cluster says when it is started."""
        form, (refused, why) = self.read(), self.refused
        self.problems = form.problems(self._fleet.pool.n_devices) or ({"env": why} if form == refused else {})

    def shown(self, name: str) -> object:
        """Return the run that is shown, or what the form says."""
        return self.choice.shown() if name == "run" else getattr(self.read(), name)

    def choose(self, name: str, value: object) -> None:
        """Show another run, or accept what was typed."""
        if name == "run":
            self.choice.choose(value)
        else:
            super().choose(name, value)
            self.panel.settings = dict(self.read().settings())


class Runs:
    """The choice of the fleet's run that is shown: the newest of this kernel, until another one is chosen."""

    def __init__(self, panel: Panel, fleet: Fleet) -> None:
        self._panel, self._fleet = panel, fleet
        #: The newest run of this kernel that was followed by itself.
        self._newest: Training | None = None
        #: Runs of the cluster, as it last told them: id -> number of tasks.
        self.known: dict[str, int] = {}
        self._look_t = float("-inf")
        self._offered: list[tuple[str, str]] = []
        #: A panel for each other run of this kernel that has trained beside the one that was shown.
        self._beside: dict[str, Panel] = {}
        self.box: ipywidgets.Dropdown | None = None
        self.looks = Commands(panel.messages)
        self.looks.add("look", Command(label="look for runs", run=self._look))
        panel.commands.add("show", Command(label="show run", run=self._attach))
        self.follow_newest()

    def make(self) -> ipywidgets.Widget:
        """Make the field."""
        self.box = self._panel.fields.add("run", ipywidgets.Dropdown, "run", "420px", options=_NONE)
        return self.box

    def tick(self, now_s: float) -> None:
        """Follow a run that was started in code, and ask now and then which ones others have started."""
        self.follow_newest()
        if now_s - self._look_t >= _LOOK_S and not self._fleet.closed and self._panel.shell.widget.shown:
            self._look_t = now_s
            self.looks.receive({"id": str(now_s), "name": "look"}, lambda reply: None)
        self._offer()

    def follow_newest(self) -> None:
        """Show the fleet's newest run, if it is new."""
        newest = self._fleet.trainings[-1] if self._fleet.trainings else None
        if newest is not None and newest is not self._newest:
            self.show(newest)

    def show(self, run: Training) -> None:
        """Show a run from now on, until a newer one is started or another one is chosen."""
        self._newest = self._fleet.trainings[-1] if self._fleet.trainings else run
        if run is not self._panel.training:
            self._panel.follow(run)
        self._panel.touch()

    def _look(self, args: Args) -> None:
        if not self._fleet.closed:
            self.known = {str(row["run"]): len(row["tasks"]) for row in self._fleet.runs()}

    def _offer(self) -> None:
        """Offer the runs, newest first: this kernel's, then those that others started."""
        ours = {run.id: len(run.specs) for run in reversed(self._fleet.trainings)}
        runs = {**ours, **self.known}
        offered = [(f"{run_id}, {plural(n, 'task')}", run_id) for run_id, n in runs.items()] or _NONE
        if offered != self._offered:
            self._offered = offered
            self._panel.fields.later(self.box, "options", offered)

    def shown(self) -> str:
        """Return the id of the run that is shown, as soon as it is offered."""
        run, offers = self._panel.training, self.box.options if self.box is not None else ()
        return run.id if run is not None and any(run.id == offer for _, offer in offers) else ""

    def choose(self, chosen: object) -> None:
        """Show another run."""
        run_id, shown = str(chosen or ""), self._panel.training
        if run_id and (shown is None or run_id != shown.id):
            content = {"id": f"show {run_id} {time.monotonic()}", "name": "show", "args": {"run": run_id}}
            self._panel.commands.receive(content, lambda reply: None)

    def beside(self, others: Sequence[Training]) -> Sequence[Panel]:
        """Show other runs below, from now on: a run that is started hides none; return their panels, newest first."""
        for run in others:
            if run.id not in self._beside:
                self._beside[run.id] = Panel(Beside(), run)
        shown = self._panel.training.id if self._panel.training is not None else ""
        below = [panel for run_id, panel in reversed(self._beside.items()) if run_id != shown]
        boxes = [panel.box for panel in self._beside.values()]
        now = self._panel.box.children
        children = (*(widget for widget in now if widget not in boxes), *(panel.box for panel in below))
        if children != tuple(now):
            self._panel.fields.later(self._panel.box, "children", children)
        return below

    def close(self) -> None:
        """End what asks the cluster, and the panels of other runs."""
        self.looks.join()
        for panel in self._beside.values():
            panel.close()

    def _attach(self, args: Args) -> None:
        self.show(self._fleet.attach(str(args["run"])))


class Launcher(Tasks):
    """A form that starts tasks on a fleet, above the tasks of its newest run; below them the others that train.

    Its settings (``env``, ``algo``, ``seeds``, ``total_timesteps``, ``slots``) are what the form's fields begin with,
    as text.

    Parameters
    ----------
    fleet
        Where they shall run.
    """

    NAME = "launcher"
    CHECKS: ClassVar[settings.Checks] = {
        "env": settings.text,
        "algo": choice(*ALGORITHMS).read,
        "seeds": settings.text,
        "total_timesteps": settings.text,
        "slots": settings.text,
    }

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._starting = False

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the fields, and the choice of the run."""
        super().controls()
        self.panel.fields.values = self.form = Form(self.panel, self.fleet)
        self.choice = self.form.choice
        self.panel.commands.add("start", Command(label="start", run=self._start, check=self._can_start))
        return [row(*self.form.make()), row(self.choice.make())]

    def changed(self, new: Args) -> None:
        """See what is wrong with the form now."""
        self.form.look()

    @property
    def reason(self) -> str:
        """Why Start is off, in words; empty if it is on."""
        if self.fleet.closed:
            return "this fleet is closed; make a new one: drlnb.Fleet()"
        if self._starting:
            return "starting"
        return next(iter(self.form.problems.values()), "")

    def facts(self) -> Plain:
        """Return Start with its reason, the buttons for all tasks, and what the pool has to say."""
        start = button("start", "Start", reason=self.reason)
        notes = [f"Start is off: {self.reason}"] if self.reason else []
        return {"buttons": [start, *super().facts()["buttons"]], "notes": [*notes, *self.fleet.pool.said]}

    def _can_start(self, args: Args) -> None:
        if self.reason:
            raise ConfigError(self.reason)
        self._starting = True
        self.panel.touch()

    def _start(self, args: Args) -> str:
        form, known = self.form.read(), tuple(self.fleet.trainings)
        try:
            training = self.fleet.train(form.tasks())
        except InputError as error:
            self.form.refused = (form, str(error))
            raise
        finally:
            self._starting = False
            self.form.look()
            self.panel.touch()
        done = "these tasks train already" if training in known else "started"
        self.choice.show(training)
        return f'{done}; in Python: run = fleet.attach("{training.id}")'

    def tick(self, now_s: float) -> None:
        """Follow runs."""
        with self.panel.messages.guard("look for runs"):
            self.choice.tick(now_s)
            self.others = [run for run in self.fleet.trainings if run is not self.run and not run.ended]
            self.below = self.choice.beside(self.others)

    def close(self) -> None:
        """End what asks the cluster; the runs go on."""
        self.choice.close()

    def code(self) -> str:
        """Return the line that gives this panel, and the one that starts what the form says."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.panel.settings.items())
        lines = [f"fleet.panel({given})"]
        if not self.form.problems and not self.reason:
            with contextlib.suppress(ConfigError):  # another thread has just read a key that makes it wrong
                lines.append(self.form.read().code())
        return "\n".join(lines)

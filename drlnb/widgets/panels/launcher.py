"""How is more started?  A form above the tasks of one run of the fleet: the newest, or one that was chosen."""

import contextlib
import time
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.fleet import Fleet
from drlnb.fleet.run import Run
from drlnb.fleet.tasks.launch_form import LaunchForm, known_envs
from drlnb.records.errors import ConfigError
from drlnb.records.spec import ALGORITHMS
from drlnb.views.drawing.words import plural
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.fleet import TasksPanel
from drlnb.widgets.panels.frame import button
from drlnb.widgets.panels.trial import Trial
from drlnb.widgets.transport.commands import Args, Command, Commands

__all__ = ["LauncherPanel"]

#: Seconds between two questions which runs others have started on the cluster.
_LOOK_S = 5.0


class LauncherPanel(TasksPanel):
    """A form that starts tasks on a fleet, above the tasks of its newest run.

    Parameters
    ----------
    fleet
        Where they shall run.
    **settings
        ``env``, ``algo``, ``seeds``, ``total_timesteps``, ``slots``: what the form's fields begin with, as text.
    """

    NAME = "launcher"
    CHECKS: ClassVar[settings.Checks] = {
        "env": settings.text,
        "algo": settings.choice(*ALGORITHMS),
        "seeds": settings.text,
        "total_timesteps": settings.text,
        "slots": settings.text,
    }

    def __init__(self, fleet: Fleet, **wanted: Any) -> None:
        self.fleet = fleet
        self._problems: dict[str, str] = {}
        self._starting = False
        #: The newest run of this kernel that was followed by itself.
        self._newest: Run | None = None
        #: Runs of the cluster, as it last told them: id -> number of tasks.
        self._known_runs: dict[str, int] = {}
        self._look_t = float("-inf")
        self._offered: list[tuple[str, str]] = []
        super().__init__(None, **wanted)
        self._follow_newest()

    # ------------------------------------------------------------------ the form
    def make_controls(self) -> list[ipywidgets.Widget]:
        """Return the fields, and the choice of the run."""
        super().make_controls()
        first = LaunchForm(**self.settings)
        self._fields: dict[str, ipywidgets.Widget] = {
            "env": ipywidgets.Combobox(description="environment", options=known_envs(), ensure_option=False),
            "algo": ipywidgets.Dropdown(description="algorithm", options=ALGORITHMS),
            "seeds": ipywidgets.Text(description="seeds", placeholder="0, or 0-4"),
            "total_timesteps": ipywidgets.Text(description="steps", placeholder="tuned budget"),
            "slots": ipywidgets.Text(description="slots", placeholder=str(self.fleet.pool.n_devices)),
        }
        for name, field in self._fields.items():
            field.value = getattr(first, name)
            _styled(field, name, "300px" if name == "env" else "200px")
            field.observe(self._typed, "value")
        self._runs = ipywidgets.Dropdown(description="run", options=[("none yet", "")])
        _styled(self._runs, "run", "420px")
        self._runs.observe(self._run_chosen, "value")
        self._add_commands()
        self._look()
        return [_row(*self._fields.values()), _row(self._runs)]

    def _add_commands(self) -> None:
        # Weakly: a probe that takes long must not keep a closed panel.
        me = weakref.proxy(self)
        self._trial = Trial(lambda env: me.fleet.probe(env), self.messages, lambda: me._tried())
        self._looks = Commands(self.messages)
        self._looks.add("look", Command(what="look for runs", run=self._look_for_runs))
        self.commands.add("start", Command(what="start", run=self._start, check=self._can_start))
        self.commands.add("show", Command(what="show run", run=self._show_run))
        self.commands.add("clone", Command(what="clone task", run=self._clone, check=self._known))

    def form(self) -> LaunchForm:
        """Return the fields as they are now."""
        return LaunchForm(**{name: str(field.value) for name, field in self._fields.items()})

    def _look(self) -> None:
        """See what is wrong with the form; what cannot be seen here is tried on the cluster, a moment later."""
        form = self.form()
        found = form.problems(self.fleet.pool.n_devices)
        fits = "env" not in found and "algo" not in found
        self._trial.typed(form if fits else None)
        if fits and self._trial.problem(form):
            found["env"] = self._trial.problem(form)
        self._problems = found

    def _tried(self) -> None:
        self._look()
        self.touch()

    def _typed(self, change: Mapping[str, Any]) -> None:
        del change
        with self.messages.guard("read the form"):
            form = self.form()
            self.settings = dict(form.settings())
            self._look()
            self.touch()

    def changed(self, new: Mapping[str, Any]) -> None:
        """Show what code has put into the fields."""
        for name, value in new.items():
            self.later(self._fields[name], "value", value)

    @property
    def reason(self) -> str:
        """Why Start is off, in words; empty if it is on."""
        if self.fleet.closed:
            return "this fleet is closed; make a new one: drlnb.Fleet()"
        if self._starting:
            return "starting"
        return next(iter(self._problems.values()), "")

    def facts(self) -> dict[str, Any]:
        """Return Start with its reason, the buttons for all tasks, and what the pool has to say."""
        start = button("start", "Start", reason=self.reason)
        notes = [f"Start is off: {self.reason}"] if self.reason else []
        return {"buttons": [start, *self._steering()], "notes": [*notes, *self.fleet.notices]}

    # ------------------------------------------------------------------ start
    def _can_start(self, args: Args) -> None:
        del args
        if self.reason:
            raise ConfigError(self.reason)
        self._starting = True
        self.touch()

    def _start(self, args: Args) -> str:
        del args
        form, known = self.form(), self.fleet.trainings
        try:
            training = self.fleet.train(form.tasks())
        except Exception as error:
            self._trial.refused(form, str(error))
            raise
        finally:
            self._starting = False
            self._look()
            self.touch()
        what = "these tasks train already" if training in known else "started"
        self._shown(training)
        return f'{what}; in Python: run = fleet.attach("{training.id}")'

    def _clone(self, args: Args) -> str:
        """Fill the form with what a task was started with."""
        task = str(args.get("task"))
        if self.training is None or task not in self.training.specs:
            raise ConfigError("choose a task to clone")
        spec = self.training.specs[task]
        steps = str(spec.total_timesteps)
        self.set(env=spec.env, algo=spec.algo, seeds=str(spec.seed), total_timesteps=steps)
        return f"the form holds {task}: choose another seed, then Start"

    # ------------------------------------------------------------------ which run
    def tick(self, now_s: float, *, keep: bool = False) -> None:
        """Follow a run that was started in code, and try what was typed; then as every panel."""
        if not self.closed:
            with self.messages.guard("look for runs"):
                self._follow_newest()
                self._trial.tick(now_s)
                self._ask_for_runs(now_s)
                self._offer_runs()
        super().tick(now_s, keep=keep)

    def _follow_newest(self) -> None:
        newest = self.fleet.trainings[-1] if self.fleet.trainings else None
        if newest is not None and newest is not self._newest:
            self._shown(newest)

    def _shown(self, run: Run) -> None:
        """Show a run from now on, until a newer one is started or another one is chosen."""
        self._newest = self.fleet.trainings[-1] if self.fleet.trainings else run
        if run is not self.training:
            self._follow(run)
        self.touch()

    def _ask_for_runs(self, now_s: float) -> None:
        if now_s - self._look_t >= _LOOK_S and not self.fleet.closed and self.shell.widget.shown:
            self._look_t = now_s
            self._looks.receive({"id": str(now_s), "name": "look"}, lambda reply: None)

    def _look_for_runs(self, args: Args) -> None:
        del args
        if not self.fleet.closed:
            self._known_runs = {str(row["run"]): len(row["tasks"]) for row in self.fleet.runs()}

    def _offer_runs(self) -> None:
        """Have the pump write the choice of runs, newest first: this kernel's, then those that others started."""
        ours = {run.id: len(run.specs) for run in reversed(self.fleet.trainings)}
        runs = {**ours, **self._known_runs}
        offered = [(f"{run_id}, {plural(n, 'task')}", run_id) for run_id, n in runs.items()] or [("none yet", "")]
        chosen = self.training.id if self.training is not None else ""
        if offered != self._offered:
            self._offered = offered
            self.later(self._runs, "options", offered)
        if self._runs.value != chosen and chosen in runs:
            self.later(self._runs, "value", chosen)

    def _run_chosen(self, change: Mapping[str, Any]) -> None:
        with self.messages.guard("choose a run"):
            run_id = str(change["new"] or "")
            if run_id and not self.writing and (self.training is None or run_id != self.training.id):
                content = {"id": f"show {run_id} {time.monotonic()}", "name": "show", "args": {"run": run_id}}
                self.commands.receive(content, lambda reply: None)

    def _show_run(self, args: Args) -> None:
        self._shown(self.fleet.attach(str(args["run"])))

    def close(self) -> None:
        """Leave nothing behind; the runs go on."""
        super().close()
        self._trial.close()
        self._looks.join()

    def code(self) -> str:
        """Return the line that gives this panel, and the one that starts what the form says."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        lines = [f"fleet.panel({said})"]
        if not self._problems and not self.reason:
            with contextlib.suppress(ConfigError):  # another thread has just heard of a key that makes it wrong
                lines.append(self.form().code())
        return "\n".join(lines)


def _styled(field: ipywidgets.Widget, name: str, width: str) -> None:
    field.layout.width = width
    field.style.description_width = "initial"  # as wide as the word: a narrower one would be cut
    field.add_class(f"drlnb-t-{name}")


def _row(*fields: ipywidgets.Widget) -> ipywidgets.HBox:
    return ipywidgets.HBox(list(fields), layout={"flex_flow": "row wrap", "grid_gap": "0 12px"})

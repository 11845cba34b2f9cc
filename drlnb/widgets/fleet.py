"""What trains now, and how is more of it started?  The table of tasks, and the launcher above it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.fleet import Fleet
from drlnb.fleet.form import LaunchForm, known_envs
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError
from drlnb.records.spec import ALGORITHMS
from drlnb.views import fleet as pictures
from drlnb.views.view import View
from drlnb.widgets import settings
from drlnb.widgets.commands import Args, Command
from drlnb.widgets.frame import Panel, button

__all__ = ["LauncherPanel", "TasksPanel"]

#: Button of a row -> what is said when it was done.
_STEERING = {
    "pause": "pauses after this round",
    "resume": "goes on",
    "stop": "stops after this round",
}


class TasksPanel(Panel):
    """The tasks of one run, with buttons in each row and for all.

    Parameters
    ----------
    training
        The run; None before there is one.
    """

    NAME = "fleet"

    def pictured(self) -> Sequence[str]:
        """One table."""
        return ("table",)

    def draw(self, index: int) -> View:
        """Return the table."""
        del index
        specs = [] if self.training is None else [spec.to_plain() for spec in self.training.specs.values()]
        return pictures.tasks(self._fold, specs, live=self.steerable)

    @property
    def steerable(self) -> bool:
        """Whether the buttons of the rows do something."""
        return self.training is not None and not self.training.ended

    def make_controls(self) -> list[ipywidgets.Widget]:
        """No values; only what the buttons do."""
        for name in _STEERING:
            run = partial(self._steer, name)
            self.commands.add(name, Command(what=f"{name} task", run=run, check=self._known))
        return []

    def facts(self) -> dict[str, Any]:
        """Return the buttons for all tasks."""
        return {"buttons": self._steering()}

    def _steering(self) -> list[dict[str, Any]]:
        n = len(self.training.specs) if self.training is not None else 0
        states = {task.state for task in self.training.tasks.values()} if self.training is not None else set()
        ended = not self.steerable
        return [
            button("pause", "Pause all", not ended and "running" in states),
            button("resume", "Resume all", not ended and "paused" in states),
            button("stop", "Stop all", not ended, confirm=f"Stop {n} task{'s' if n != 1 else ''}?"),
        ]

    def _known(self, args: Args) -> None:
        if self.training is None:
            raise ConfigError("nothing has been started yet")
        if self.training.ended:
            raise ConfigError(f"run {self.training.run_id} is {self.training.status} already")
        task = args.get("task")
        if task is not None and task not in self.training.specs:
            raise ConfigError(f"this run has no task {task!r}{settings.nearest(str(task), self.training.specs)}")

    def _steer(self, name: str, args: Args) -> str:
        assert self.training is not None
        task = args.get("task")
        steer: Mapping[str, Callable[..., None]] = {
            "pause": self.training.pause,
            "resume": self.training.resume,
            "stop": self.training.stop,
        }
        steer[name](task)
        return _STEERING[name] if task else f"every task {_STEERING[name]}"


class LauncherPanel(TasksPanel):
    """A form that starts tasks on a fleet, above the tasks of the newest run.

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
        self._envs: dict[str, str] = {}
        self._starting = False
        super().__init__(None, **wanted)
        if fleet.trainings:
            self._follow(fleet.trainings[-1])

    # ------------------------------------------------------------------ the form
    def make_controls(self) -> list[ipywidgets.Widget]:
        """Return the fields."""
        super().make_controls()
        first = LaunchForm(**self.settings)
        self._fields: dict[str, ipywidgets.Widget] = {
            "env": ipywidgets.Combobox(description="environment", options=known_envs(), ensure_option=False),
            "algo": ipywidgets.Dropdown(description="algorithm", options=ALGORITHMS),
            "seeds": ipywidgets.Text(description="seeds", placeholder="0, or 0-4"),
            "total_timesteps": ipywidgets.Text(description="steps", placeholder="tuned budget"),
            "slots": ipywidgets.Text(description="slots", placeholder=str(len(self.fleet.slots))),
        }
        for name, field in self._fields.items():
            field.value = getattr(first, name)
            field.layout.width = "300px" if name == "env" else "200px"
            field.style.description_width = "90px"  # as wide as the longest word
            field.add_class(f"drlnb-t-{name}")
            field.observe(self._typed, "value")
        self.commands.add("start", Command(what="start", run=self._start, check=self._can_start))
        self.commands.add("probe", Command(what="try the environment", run=self._probe))
        self._look()
        return [ipywidgets.HBox(list(self._fields.values()), layout={"flex_flow": "row wrap"})]

    def form(self) -> LaunchForm:
        """Return the fields as they are now."""
        return LaunchForm(**{name: str(field.value) for name, field in self._fields.items()})

    def _look(self) -> None:
        form = self.form()
        found = form.problems(len(self.fleet.slots))
        env = form.env.strip()
        if self._envs.get(env):
            found["env"] = self._envs[env]
        self._problems = found

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
        """Return Start with its reason, and the buttons for all tasks."""
        start = button("start", "Start", not self.reason, reason=self.reason)
        notes = [f"Start is off: {self.reason}"] if self.reason else []
        return {"buttons": [start, *self._steering()], "notes": notes}

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
            self._envs[form.env.strip()] = str(error)
            raise
        finally:
            self._starting = False
            self._look()
            self.touch()
        self.launched(training)
        what = "these tasks train already" if training in known else "started"
        return f'{what}; in Python: run = fleet.attach("{training.run_id}")'

    def _probe(self, args: Args) -> str:
        env = str(args.get("env") or self.form().env).strip()
        self.fleet.probe(env)
        return f"{env} can be trained on"

    def launched(self, training: Training) -> None:
        """Show a run that has just been started."""
        self._follow(training)
        self.touch()

    def code(self) -> str:
        """Return the line that gives this panel, and the one that starts what the form says."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        lines = [f"fleet.panel({said})"]
        return "\n".join(lines if self._problems or self.reason else [*lines, self.form().code()])

"""Show the tasks of a run, with a button for everything that can be asked of them."""

from collections import Counter
from functools import partial

import ipywidgets

from drlnb.fleet.run import Run
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError
from drlnb.views import fleet as pictures
from drlnb.views.drawing.view import View
from drlnb.views.drawing.words import plural
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Content, Panel, Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["TaskRows", "Tasks"]

#: Button of a row -> the answer when it was done.
_STEERING = {
    "pause": "pauses after this round",
    "resume": "goes on",
    "stop": "stops after this round",
    "checkpoint": "writes a checkpoint after this round",
    "restart": "starts again from its newest checkpoint",
}
#: States that a task can be started again from.
_RESTARTABLE = frozenset({"failed", "stopped"})


class TaskRows:
    """The tasks of a panel's run: their table, and what can be asked of them.

    Parameters
    ----------
    panel
        Gets a command for each button.
    """

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        #: The run, and its tasks as plain data: they never change.
        self._plain: tuple[Run, list[Plain]] | None = None
        for name in _STEERING:
            check = self._can_restart if name == "restart" else self._can_steer
            panel.commands.add(name, Command(label=f"{name} task", run=partial(self._steer, name), check=check))

    def draw(self) -> View:
        """Return the table."""
        run, fold = self._panel.training, self._panel.reader.fold
        if run is None:
            return pictures.tasks(fold)
        if self._plain is None or self._plain[0] is not run:
            self._plain = (run, [spec.to_plain() for spec in run.specs.values()])
        # A cluster that is gone tells no end: what this process knows of it counts.
        lost = run.ended and isinstance(run, Training)
        ends = {t.name: (t.state, t.failure) for t in run.tasks.values() if t.ended} if lost else {}
        return pictures.tasks(fold, self._plain[1], live=self._can_act, over=run.ended, ends=ends)

    def buttons(self) -> list[Plain]:
        """Return the buttons for all tasks."""
        run, off = self._panel.training, self._off()
        states = Counter(task.state for task in run.tasks.values()) if run is not None else Counter[str]()
        busy, again = states["running"], sum(states[state] for state in _RESTARTABLE)
        idle = off or ("" if busy else "no task is running")
        buttons = [
            button("pause", "Pause all", reason=idle),
            button("resume", "Resume all", reason=off or ("" if states["paused"] else "no task is paused")),
            button("checkpoint", "Checkpoint all", reason=idle),
            button("stop", "Stop all", reason=off, confirm=f"Stop {plural(busy + states['paused'], 'task')}?"),
        ]
        if again and self._can_act:
            buttons.append(button("restart", f"Restart {plural(again, 'task')}"))
        return buttons

    @property
    def _can_act(self) -> bool:
        """Whether there is a cluster that can still be asked: not of a recording, nor of a handle that was closed."""
        run = self._panel.training
        return isinstance(run, Training) and not run.watch.closed

    def _off(self) -> str:
        """Return why nothing can be asked of the run; empty while something can."""
        run = self._panel.training
        return "nothing has been started yet" if run is None else run.watch.refusal

    def _can_steer(self, args: Args) -> None:
        if self._off():
            raise ConfigError(self._off())
        self.known(args)

    def _can_restart(self, args: Args) -> None:
        if not self._can_act:
            raise ConfigError(self._off() or "this run is not watched any more")
        self.known(args)

    def known(self, args: Args) -> None:
        """Refuse a task that the run does not have."""
        run = self._panel.training
        task, specs = args.get("task"), run.specs if run is not None else ()
        if task is not None and task not in specs:
            raise ConfigError(f"this run has no task {task!r}{settings.nearest(str(task), specs)}")

    def _steer(self, name: str, args: Args) -> str:
        task = args.get("task")
        getattr(self._panel.training, name)(task)
        if name == "restart":
            self._panel.touch()
        who = "" if task else "every task that has ended early " if name == "restart" else "every task "
        return who + _STEERING[name]


class Tasks(Content):
    """The tasks of one run, with buttons in each row and for all."""

    NAME = "fleet"
    MODULE = "table"

    def controls(self) -> list[ipywidgets.Widget]:
        """Make no widgets, only the buttons' commands."""
        self._rows = TaskRows(self.panel)
        return []

    def draw(self) -> View:
        """Return the table."""
        return self._rows.draw()

    def facts(self) -> Plain:
        """Return the buttons for all tasks."""
        return {"buttons": self._rows.buttons()}

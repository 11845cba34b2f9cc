"""What trains now?  The table of tasks, with a button for everything that can be asked of them."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets

from drlnb.fleet.run import Run
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError
from drlnb.views import fleet as pictures
from drlnb.views.drawing.view import View
from drlnb.views.drawing.words import plural
from drlnb.widgets.panels import settings
from drlnb.widgets.panels.frame import Panel, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["TasksPanel"]

#: Button of a row -> what is said when it was done.
_STEERING = {
    "pause": "pauses after this round",
    "resume": "goes on",
    "stop": "stops after this round",
    "checkpoint": "writes a checkpoint after this round",
    "restart": "starts again from its newest checkpoint",
}
#: States that a task can be started again from.
_RESTARTABLE = frozenset({"failed", "stopped"})


class TasksPanel(Panel):
    """The tasks of one run, with buttons in each row and for all.

    Parameters
    ----------
    training
        The run; None before there is one.
    """

    NAME = "fleet"
    #: The run, and its tasks as plain data: they never change.
    _plain: tuple[Run, list[dict[str, Any]]] | None = None

    def pictured(self) -> Sequence[str]:
        """One table."""
        return ("table",)

    def draw(self, index: int) -> View:
        """Return the table."""
        del index
        run = self.training
        if run is None:
            return pictures.tasks(self._fold)
        if self._plain is None or self._plain[0] is not run:
            self._plain = (run, [spec.to_plain() for spec in run.specs.values()])
        specs = self._plain[1]
        # A cluster that is gone tells no end: what this process knows of it counts.
        lost = run.ended and isinstance(run, Training)
        ends = {t.name: (t.state, t.failure) for t in run.tasks.values() if t.ended} if lost else {}
        return pictures.tasks(self._fold, specs, live=self._can_act, over=run.ended, ends=ends)

    @property
    def _can_act(self) -> bool:
        """Whether there is a cluster that can still be asked: not of a recording, nor of a handle that was closed."""
        return isinstance(self.training, Training) and not self.training.watch.closed

    def make_controls(self) -> list[ipywidgets.Widget]:
        """No values; only what the buttons do."""
        for name in _STEERING:
            run = partial(self._steer, name)
            check = self._can_restart if name == "restart" else self._can_steer
            self.commands.add(name, Command(what=f"{name} task", run=run, check=check))
        return []

    def facts(self) -> dict[str, Any]:
        """Return the buttons for all tasks."""
        return {"buttons": self._steering()}

    def _states(self) -> Counter[str]:
        """Count the tasks by state."""
        return Counter(task.state for task in self.training.tasks.values()) if self.training is not None else Counter()

    def _off(self) -> str:
        """Say why nothing can be asked of the run; empty while something can."""
        return "nothing has been started yet" if self.training is None else self.training.watch.refusal

    def _steering(self) -> list[dict[str, Any]]:
        states, off = self._states(), self._off()
        busy, again = states["running"], sum(states[state] for state in _RESTARTABLE)
        idle = off or ("" if busy else "no task is running")
        found = [
            button("pause", "Pause all", reason=idle),
            button("resume", "Resume all", reason=off or ("" if states["paused"] else "no task is paused")),
            button("checkpoint", "Checkpoint all", reason=idle),
            button("stop", "Stop all", reason=off, confirm=f"Stop {plural(busy + states['paused'], 'task')}?"),
        ]
        if again and self._can_act:
            found.append(button("restart", f"Restart {plural(again, 'task')}"))
        return found

    def _can_steer(self, args: Args) -> None:
        if self._off():
            raise ConfigError(self._off())
        self._known(args)

    def _can_restart(self, args: Args) -> None:
        if not self._can_act:
            raise ConfigError(self._off() or "this run is not watched any more")
        self._known(args)

    def _known(self, args: Args) -> None:
        task, specs = args.get("task"), self.training.specs if self.training is not None else ()
        if task is not None and task not in specs:
            raise ConfigError(f"this run has no task {task!r}{settings.nearest(str(task), specs)}")

    def _steer(self, name: str, args: Args) -> str:
        task = args.get("task")
        getattr(self.training, name)(task)
        if name == "restart":
            self.touch()
        who = "" if task else "every task that has ended early " if name == "restart" else "every task "
        return who + _STEERING[name]

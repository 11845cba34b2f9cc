"""Show the tasks of a run, with a button for everything that can be asked of them."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import ipywidgets

from drlnb.fleet.steering import RESTARTABLE
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, nearest
from drlnb.views import fleet as pictures
from drlnb.views.drawing.view import View
from drlnb.views.drawing.words import plural
from drlnb.widgets.panels.frame import Content, Panel, Plain, button
from drlnb.widgets.transport.commands import Args, Command

__all__ = ["Beside", "Tasks", "known"]

#: Button of a row -> the answer when it was done.
_STEERING = {
    "pause": "pauses after this round",
    "resume": "goes on",
    "stop": "stops after this round",
    "checkpoint": "writes a checkpoint after this round",
    "restart": "starts again from its newest checkpoint",
}


class Tasks(Content):
    """The tasks of one run, with buttons in each row and for all."""

    NAME = "fleet"
    MODULE = "table"
    #: The run, and its tasks as plain data: they never change.
    _plain: tuple[Training, list[Plain]] | None = None

    def controls(self) -> list[ipywidgets.Widget]:
        """Make no widgets, only the buttons' commands."""
        for name in _STEERING:
            run, check = partial(_steer, self, name), partial(_check, self, name)
            self.panel.commands.add(name, Command(label=f"{name} task", run=run, check=check))
        return []

    def draw(self, name: str = "") -> View:
        """Return the table."""
        run = self.run
        if run is None:
            return pictures.tasks(self.fold)
        if self._plain is None or self._plain[0] is not run:
            self._plain = (run, [spec.to_plain() for spec in run.specs.values()])
        # A cluster that is gone tells no end: what this process knows of it counts.
        lost = run.ended and run.watch.live
        ends = {t.name: (t.state, t.failure) for t in run.tasks.values() if t.ended} if lost else {}
        return pictures.tasks(self.fold, self._plain[1], live=_can_act(run), over=lost, ends=ends)

    #: Runs that train beside the one that is shown; the buttons for all tasks are for theirs, too.
    others: Sequence[Training] = ()

    @property
    def runs(self) -> Sequence[Training]:
        """The runs that the buttons for all tasks are for."""
        return [run for run in (self.run, *self.others) if run is not None]

    def facts(self) -> Plain:
        """Return the buttons for all tasks."""
        refusals = [_off(run) for run in self.runs] or [_off(None)]
        off = min(refusals, key=bool)  # one that can be asked is enough
        told = [(run, Counter(task.state for task in run.tasks.values())) for run in self.runs]
        states = sum((of for run, of in told if not _off(run)), Counter[str]())
        ended = sum((of for run, of in told if _can_act(run)), Counter[str]())
        busy, again = states["running"], sum(ended[state] for state in RESTARTABLE)
        idle = off or ("" if busy else "no task is running")
        buttons = [
            button("pause", "Pause all", reason=idle),
            button("resume", "Resume all", reason=off or ("" if states["paused"] else "no task is paused")),
            button("checkpoint", "Checkpoint all", reason=idle),
            button("stop", "Stop all", reason=off, confirm=f"Stop {plural(busy + states['paused'], 'task')}?"),
        ]
        if again:
            buttons.append(button("restart", f"Restart {plural(again, 'task')}"))
        return {"buttons": buttons}


class Beside(Tasks):
    """The tasks of a run that trains beside the one that a launcher shows."""

    def facts(self) -> Plain:
        """Return the buttons, and which run it is."""
        return {**super().facts(), "notes": [f"run {self.run.id}"] if self.run is not None else []}


def known(panel: Panel, args: Args) -> None:
    """Refuse a task that the panel's run does not have."""
    task, specs = args.get("task"), panel.training.specs if panel.training is not None else ()
    if task is not None and task not in specs:
        raise ConfigError(f"this run has no task {task!r}{nearest(str(task), specs)}; there are {', '.join(specs)}")


def _can_act(run: Training | None) -> bool:
    """Whether there is a cluster that can still be asked: not of a recording, nor of a handle that was closed."""
    return run is not None and run.watch.live and not run.watch.closed


def _off(run: Training | None) -> str:
    """Return why nothing can be asked of the run; empty while something can."""
    return "nothing has been started yet" if run is None else run.watch.refusal


def _check(content: Tasks, name: str, args: Args) -> None:
    known(content.panel, args)
    runs = content.runs if args.get("task") is None else [content.run]
    if name == "restart" and not any(map(_can_act, runs)):
        raise ConfigError(_off(content.run) or "this run is not watched any more")
    if name != "restart" and (not runs or all(map(_off, runs))):
        raise ConfigError(_off(content.run))


def _steer(content: Tasks, name: str, args: Args) -> str:
    task = args.get("task")
    for run in [content.run] if task else content.runs:
        if _can_act(run) if name == "restart" else not _off(run):
            getattr(run, name)(task)
    if name == "restart":
        content.panel.touch()
    who = "" if task else "every task that has ended early " if name == "restart" else "every task "
    return who + _STEERING[name]

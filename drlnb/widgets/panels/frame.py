"""Show a run in a notebook: sentence, origin, controls, one picture, messages, and an end without a trace.

A :class:`Panel` is the same for all; what it shows and can do is its :class:`Content`.
"""

import abc
import html
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import ClassVar

import ipywidgets

from drlnb.fleet.training import Training
from drlnb.records.attributes import fixed
from drlnb.views.drawing import payload
from drlnb.views.drawing.payload import Drawn
from drlnb.views.drawing.view import View
from drlnb.views.folds.fold import Fold
from drlnb.widgets.panels.control import Fields, Values
from drlnb.widgets.panels.picture import Picture
from drlnb.widgets.panels.settings import Checks, Steering, checked
from drlnb.widgets.panels.twin import Twin, mime_bundle, resuming
from drlnb.widgets.transport.apart import apart
from drlnb.widgets.transport.commands import Args, Commands, Reply
from drlnb.widgets.transport.live import live
from drlnb.widgets.transport.messages import MessageArea
from drlnb.widgets.transport.modules import MODULES, Shell, free_route
from drlnb.widgets.transport.story import FOLDS, Reader

__all__ = ["Content", "Panel", "Plain", "button"]

#: Rows that are folded while a cell waits for its output: some 50 ms.
_AT_ONCE = 5_000
#: Seconds between two sendings of what is read, not watched: tables, sentences, buttons.  A little less than two turns.
_WORDS_S = 0.45

#: Plain data, as JSON holds it.
Plain = payload.Content


class Content(abc.ABC):
    """What one kind of panel shows and can do; :attr:`panel` is set before anything is called."""

    NAME: ClassVar[str] = ""
    CHECKS: ClassVar[Checks] = {}
    #: Module of its picture: ``timeline``, ``table`` ...
    MODULE: ClassVar[str] = ""
    #: Name of a further picture -> its module; who has any puts all pictures among its controls.
    MORE: ClassVar[Mapping[str, str]] = {}
    panel: "Panel"
    #: Panels that it shows below its own pictures.
    below: Sequence["Panel"] = ()

    @property
    def run(self) -> Training | None:
        """The run that is shown, None before there is one."""
        return self.panel.training

    @property
    def fold(self) -> Fold:
        """The run's columns."""
        return self.panel.reader.fold

    @abc.abstractmethod
    def draw(self, name: str = "") -> View:
        """Return the picture as it is now, or one of :attr:`MORE`."""

    def controls(self) -> list[ipywidgets.Widget]:
        """Make the widgets that hold values, and the commands."""
        return []

    def facts(self) -> Plain:
        """Return what the shell shows beside sentence, code and messages: its buttons."""
        return {}

    def folded(self) -> None:  # noqa: B027 - most have nothing to follow
        """Follow the columns with the controls, after records were folded; the lock is held."""

    def changed(self, settings: Args) -> None:  # noqa: B027 - likewise
        """Follow settings that have changed with what hangs on them; the fields themselves follow by their rule."""

    def tick(self, now_s: float) -> None:  # noqa: B027 - likewise
        """Do what is due, before columns are read; must not raise."""

    def close(self) -> None:  # noqa: B027 - likewise
        """End what it began."""

    def code(self) -> str:
        """Return the lines of Python that give this panel, and those that did what was applied."""
        given = "".join(f", {name}={value!r}" for name, value in self.panel.settings.items())
        if self.run is None:
            return f"from drlnb.widgets.faces import {self.NAME}\n\n{self.NAME}({given[2:]})"
        return "\n".join([f'run.panel("{self.NAME}"{given})', *self.panel.steering.applied])


@fixed("settings", "tells_defects")
class Panel:
    """A live panel: one shell, controls, one picture of a run.

    Parameters
    ----------
    content
        What it shows.
    training
        The run; None for a panel that has none yet.
    **settings
        As the content's ``CHECKS`` name them.
    """

    content: Content
    settings: payload.Content
    messages: MessageArea
    commands: Commands
    reader: Reader
    #: Whether it says what is wrong with the run's journal; of several panels in one output, one does.
    tells_defects: bool
    #: Its fields, which show what is in force; and what is changed of its run.
    fields: Fields
    steering: Steering
    shell: Picture
    #: Its pictures by name, the first one without any.
    pictures: Mapping[str, Picture]
    picture: Picture
    twin: Twin
    controls: Sequence[ipywidgets.Widget]
    box: ipywidgets.VBox

    def __init__(self, content: Content, training: Training | None = None, **settings: object) -> None:
        self.content = content
        self.settings = checked(content.NAME, content.CHECKS, settings)
        self.messages = MessageArea(lambda message: self.shell.send({"kind": "message", **asdict(message)}))
        self.commands = Commands(self.messages)
        self.reader = Reader()
        self.tells_defects = True
        self._closed = False
        #: Grows with everything that may change a picture; pictures by name as of a version.
        self._version = 0
        self._drawn: dict[str, tuple[int, View]] = {}
        #: Whether somebody asked for the picture, and when words and numbers were last sent.
        self._touched, self._read_t = True, float("-inf")
        self.fields = Fields(self.messages, Values(self), self.touch)
        self.steering = Steering(lambda: self.training)
        with apart():
            self._make(training)
        live.add(self)

    def _make(self, training: Training | None) -> None:
        """Make the widgets: pictures, fields, and the box of all."""
        content = self.content
        self.shell = Picture(Shell(), self._sheet, self._received)
        self.pictures = {
            name: Picture(MODULES[module](), partial(self._drawn_as, name), self._received)
            for name, module in {"": content.MODULE, **content.MORE}.items()
        }
        self.picture = self.pictures[""]
        self._all = [*self.pictures.values(), self.shell]
        self.twin = Twin(self.shell, lambda: [*map(self._view, self.pictures), *(one.view() for one in content.below)])
        if training is not None:
            self.follow(training)
        content.panel = self
        self.controls = content.controls()
        below = [] if content.MORE else [self.picture.widget]
        self.box = ipywidgets.VBox([self.shell.widget, *self.controls, *below])
        self.box.add_class(f"drlnb-t-{content.NAME}")

    def __repr__(self) -> str:
        return f"<Panel {self.code()}{', closed' if self._closed else ''}>"

    # ------------------------------------------------------------------ what a user calls
    @property
    def training(self) -> Training | None:
        """The run that is shown."""
        return self.reader.run

    def code(self) -> str:
        """Return the lines of Python that give this panel."""
        return self.content.code()

    def set(self, **settings: object) -> "Panel":
        """Change settings.

        Raises
        ------
        UnknownSetting
            If there is no such setting.
        ConfigError
            If a value is wrong; nothing is changed then.
        """
        new = checked(self.content.NAME, self.content.CHECKS, settings)
        self.settings = {**self.settings, **new}
        self.fields.refusals = {}
        self.content.changed(new)
        self.touch()
        return self

    def follow(self, run: Training) -> None:
        """Show a run from now on."""
        self.reader.follow(run)
        self._version += 1

    def touch(self) -> None:
        """Draw anew at the hub's next turn, which is now."""
        self._version += 1
        self._touched = True
        live.hub.wake()

    def view(self, name: str = "") -> View:
        """Return the picture as it is now, or another one of the panel by its name."""
        with FOLDS:
            self._take()
            return self._view(name)

    def figure(self) -> object:
        """Return the picture as a plotly figure."""
        return self.view().figure()

    def to_dict(self) -> Plain:
        """Return the panel as plain data; works on a closed one, too."""
        view = json.loads(self.view().json())
        return {"panel": self.content.NAME, "settings": dict(self.settings), "code": self.code(), "view": view}

    def refresh(self) -> None:
        """Fold, send and write now, instead of leaving it to hub and pump (there are none without a kernel)."""
        self.tick(time.monotonic(), keep=True)
        self.write()

    @property
    def closed(self) -> bool:
        """Whether it was closed, here or by ``Widget.close_all``."""
        return self._closed or self.shell.widget.gone

    def close(self) -> None:
        """Leave nothing behind: no model, no thread; the run goes on."""
        if self._closed:
            return
        self._closed = True
        live.forget(self)
        self.commands.join()
        self.reader.story.leave()
        for widget in _family(self.box):
            widget.close()
        self.content.close()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[Plain, Plain]:
        """Return the widget view with its twin as text; never raises, blocks or makes a model."""
        data: Plain = {"text/plain": repr(self)}
        with self.messages.guard("show panel"):
            data["text/html"] = self.still()
        return mime_bundle(None if self.closed else self.box, data)

    def still(self) -> str:
        """Return the pictures as HTML that needs neither kernel nor network; at once, whoever reads the columns."""
        if not FOLDS.acquire(timeout=0.05):
            return f"<p>{html.escape(repr(self))}</p>"
        try:
            if self.reader.story.n_waiting <= _AT_ONCE:
                self._take()
            return self.twin.html(self.training)
        finally:
            FOLDS.release()

    # ------------------------------------------------------------------ the hub
    def tick(self, now_s: float, *, keep: bool = False) -> None:
        """Drain, fold, send what is new; a panel that nobody sees does nothing."""
        if self.closed:
            live.forget(self)
            return
        self.content.tick(now_s)
        with FOLDS:
            last = self.reader.has_just_ended() or keep
            if last or not live.running or any(p.widget.shown or p.greeted for p in self._all):
                with self.messages.guard("draw panel"):
                    self._take()
                    self._push(now_s, last)

    def _push(self, now_s: float, last: bool) -> None:
        """Send what is new: what moves each time, words and numbers half as often."""
        calm = not (last or self._touched) and now_s - self._read_t < _WORDS_S
        if not calm:
            self._touched, self._read_t = False, now_s
        for picture in self._all:
            if not (calm and picture.calm) or picture.greeted:
                picture.push(now_s, keep=last)
        self.twin.keep(now_s, self._version, self.training, last=last)

    def _take(self) -> None:
        """Fold the rows that wait."""
        defects = self.reader.take()
        if defects is not None:
            self._version += 1
            for text in defects if self.tells_defects else ():
                self.messages.say("warning", text)
            self.content.folded()

    def _view(self, name: str = "") -> View:
        """Return a picture, drawn anew only if something has changed."""
        drawn = self._drawn.get(name)
        if drawn is None or drawn[0] != self._version:
            drawn = self._version, self.content.draw(name)
            self._drawn[name] = drawn
        return drawn[1]

    def _drawn_as(self, name: str) -> Drawn:
        return self._view(name).drawn

    def _sheet(self) -> Drawn:
        fold = self.reader.fold
        on_cpu = any(life.device.startswith("cpu") for life in fold.pool.lives.values())
        facts = {"chips": ["CPU slots"] if on_cpu else [], "notes": [], "buttons": [], **self.content.facts()}
        facts |= {**self.fields.facts(), "twin": self.twin.name, "resume": resuming(self.training)}
        sentence, origin = self._view().sentence, fold.origin if fold.n_rows else ""
        return {"name": self.content.NAME, "sentence": sentence, "origin": origin, **facts}, {}

    # ------------------------------------------------------------------ the pump
    def write(self) -> None:
        """Write the traits that wait."""
        with self.messages.guard("write panel"), apart():
            self.fields.write()
            for picture in self._all:
                picture.write()
            if not self.shell.widget.gone:
                self.shell.widget._code = self.code()
                self.shell.widget._messages = json.dumps([asdict(message) for message in self.messages])
        for widget in _family(self.box):
            free_route(widget)

    # ------------------------------------------------------------------ the page's callbacks
    def _received(self, content: Plain, reply: Reply) -> None:
        kind = content.get("kind")
        if kind == "hello":
            live.hub.wake()
        elif kind == "command":
            self.commands.receive(content, reply)
        elif kind == "js_error":
            self.messages.say("error", f"drawing in the page: {content.get('text')}", str(content.get("details", "")))


def _family(widget: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """Return a widget, all that is in it, and their layouts and styles."""
    family = [widget, *(getattr(widget, name) for name in ("layout", "style") if hasattr(widget, name))]
    for child in getattr(widget, "children", ()):
        family += _family(child)
    return family


def button(name: str, label: str, *, reason: str = "", confirm: str = "") -> Plain:
    """Return a button of the shell; it is off as long as there is a `reason`. `confirm`: what is asked back."""
    return {"name": name, "label": label, "enabled": not reason, "confirm": confirm, "reason": reason}

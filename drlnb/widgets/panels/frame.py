"""What do all panels have in common?  Sentence, origin, copy as code, messages, and an end without a trace."""

import abc
import html
import json
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets

from drlnb.fleet.run import Run
from drlnb.views.drawing.view import View
from drlnb.widgets.panels.picture import Picture, Sheet
from drlnb.widgets.panels.settings import Checks, checked
from drlnb.widgets.transport.commands import Commands, Reply
from drlnb.widgets.transport.live import live
from drlnb.widgets.transport.messages import Message, MessageArea
from drlnb.widgets.transport.modules import MODULES, Module, Shell, free_route
from drlnb.widgets.transport.story import FOLDS, Story

__all__ = ["Panel", "button"]

#: Rows that are folded while a cell waits for its output: some 50 ms.
_AT_ONCE = 5_000
#: Seconds between two sendings of what is read, not watched: tables, sentences, buttons.  A little less than two turns.
_WORDS_S = 0.45


class Panel(abc.ABC):
    """A live panel: one shell, controls, pictures of one run.

    Parameters
    ----------
    training
        The run; None for a panel that has none yet.
    **settings
        As :attr:`CHECKS` names them.
    """

    NAME: ClassVar[str] = ""
    CHECKS: ClassVar[Checks] = {}
    #: Whether it says what is wrong with the run's journal; of several panels in one output, one does.
    tells_defects: bool = True

    def __init__(self, training: Run | None = None, **settings: Any) -> None:
        self.settings = checked(self.NAME, self.CHECKS, settings)
        self.training = training
        self.messages = MessageArea(self._told)
        self._closed = False
        self._ended = False
        self._story = Story()
        #: The columns, and the version of them that were drawn last.
        self._fold, self._read = self._story.fold, 0
        #: Grows with everything that may change a picture; picture -> (version, view).
        self._version = 0
        #: Whether somebody asked for all pictures, and when words and numbers were last sent.
        self._touched, self._read_t = True, float("-inf")
        self._views: dict[int, tuple[int, View]] = {}
        self._n_told = 0
        #: Whether the pump writes traits now: what is observed then is no wish of a person.
        self.writing = False
        #: Trait writes that wait for the pump: (widget, name, value).
        self._writes: list[tuple[Any, str, Any]] = []
        self.shell = self._picture(Shell(), self._sheet)
        self.commands = Commands(self.messages)
        self.pictures = [self._picture_of(i, name) for i, name in enumerate(self.pictured())]
        self.controls = self.make_controls()
        self.box = ipywidgets.VBox([self.shell.widget, *self.controls, *(p.widget for p in self.pictures)])
        self.box.add_class(f"drlnb-t-{self.NAME}")
        if training is not None:
            self._follow(training)
        live.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.code()}{', closed' if self._closed else ''}>"

    # ------------------------------------------------------------------ what a panel adds
    @abc.abstractmethod
    def pictured(self) -> Sequence[str]:
        """Return the module of each picture, in order, at least one: ``timeline``, ``table`` ..."""

    @abc.abstractmethod
    def draw(self, index: int) -> View:
        """Return what picture number `index` shows now."""

    def make_controls(self) -> list[ipywidgets.Widget]:
        """Return the widgets that hold values."""
        return []

    def facts(self) -> dict[str, Any]:
        """Return what the shell shows beside sentence, code and messages: its buttons."""
        return {}

    def folded(self) -> None:  # noqa: B027 - most panels have nothing to note
        """Hear that rows were folded: note what the controls shall show; called with the lock held."""

    def changed(self, settings: Mapping[str, Any]) -> None:  # noqa: B027 - likewise
        """Hear that settings were changed by code: note what the controls shall show."""

    def code(self) -> str:
        """Return the line of Python that gives this panel."""
        said = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f'run.panel("{self.NAME}"{said})'

    # ------------------------------------------------------------------ what a person calls
    def set(self, **settings: Any) -> "Panel":
        """Change settings.

        Raises
        ------
        UnknownSetting
            If there is no such setting.
        WrongSetting
            If a value is wrong; nothing is changed then.
        """
        new = checked(self.NAME, self.CHECKS, settings)
        self.settings = {**self.settings, **new}
        self.changed(new)
        self.touch()
        return self

    def touch(self) -> None:
        """Draw anew at the hub's next turn, which is now."""
        self._version += 1
        self._touched = True
        live.hub.wake()

    def view(self) -> View:
        """Return the picture as it is now."""
        with FOLDS:
            self._take()
            return self._drawn(0)

    def figure(self) -> Any:
        """Return the picture as a plotly figure."""
        return self.view().figure()

    def to_dict(self) -> dict[str, Any]:
        """Return the panel as plain data; works on a closed one, too."""
        view = json.loads(self.view().json())
        return {"panel": self.NAME, "settings": dict(self.settings), "code": self.code(), "view": view}

    def to_html(self, path: str | Path) -> Path:
        """Write the picture, as it is now, to a file that needs no network."""
        page = f'<!doctype html><meta charset="utf-8"><title>{html.escape(self.NAME)}</title>{self.view().html()}'
        target = Path(path)
        target.write_text(page, encoding="utf-8")
        return target

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
        self._story.leave()
        for widget in _family(self.box):
            widget.close()

    # ------------------------------------------------------------------ display
    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return the widget view with its twin as text; never raises, blocks or makes a model."""
        del include, exclude
        data: dict[str, Any] = {"text/plain": repr(self)}
        with self.messages.guard("show panel"):
            data["text/html"] = self._twin()
        found = None if self.closed else self.box._repr_mimebundle_()
        shown, meta = found if isinstance(found, tuple) else (found or {}, {})
        return {**shown, **data}, meta

    def _twin(self) -> str:
        if not FOLDS.acquire(timeout=0.05):
            return f"<p>{html.escape(repr(self))}</p>"
        try:
            if self._story.n_waiting <= _AT_ONCE:
                self._take()
            return self._drawn(0).html()
        finally:
            FOLDS.release()

    # ------------------------------------------------------------------ the page's callbacks
    def _heard(self, content: dict[str, Any], reply: Reply) -> None:
        kind = content.get("kind")
        if kind == "hello":
            live.hub.wake()
        elif kind == "command":
            self.commands.receive(content, reply)
        elif kind == "js_error":
            self.messages.say("error", f"drawing in the page: {content.get('text')}", str(content.get("details", "")))

    # ------------------------------------------------------------------ the hub
    def tick(self, now_s: float, *, keep: bool = False) -> None:
        """Drain, fold, send what is new; a panel that nobody sees does nothing."""
        if self.closed:
            live.forget(self)
            return
        with self.messages.guard("draw panel"), FOLDS:
            last = self._is_last() or keep
            if last or not live.running or any(p.widget.shown or p.greeted for p in self._every()):
                self._take()
                self._push(now_s, last)

    def _push(self, now_s: float, last: bool) -> None:
        """Send every picture what is new: what moves each time, words and numbers half as often."""
        calm = not (last or self._touched) and now_s - self._read_t < _WORDS_S
        if not calm:
            self._touched, self._read_t = False, now_s
        for picture in self._every():
            if not (calm and picture.calm) or picture.greeted:
                picture.push(now_s, keep=last)

    def _every(self) -> tuple[Picture, ...]:
        return (*self.pictures, self.shell)

    def _is_last(self) -> bool:
        """Whether the run has just ended: its last picture is kept in the traits even if nobody looks."""
        ended = self.training is not None and self.training.ended
        last, self._ended = ended and not self._ended, ended
        return last

    def _take(self) -> None:
        """Fold the rows that wait, unless another panel of the run has done so."""
        self._story.take()
        if self._read == self._story.version:
            return
        self._read = self._story.version
        self._version += 1
        if self._fold is not self._story.fold:
            self._fold, self._n_told = self._story.fold, 0
        for text in self._fold.defects[self._n_told :] if self.tells_defects else ():
            self.messages.say("warning", text)
        self._n_told = len(self._fold.defects)
        self.folded()

    def _drawn(self, index: int) -> View:
        """Return a picture, drawn anew only if something has changed."""
        version, view = self._views.get(index, (-1, None))
        if view is None or version != self._version:
            view = self.draw(index)
            self._views[index] = (self._version, view)
        return view

    def _follow(self, training: Run) -> None:
        """Show a run from now on."""
        with FOLDS:
            self._story.leave()
            self.training, self._story, self._ended = training, Story.of(training), False
            self._read = -1  # whatever was folded for others is new here
            self._version += 1

    def _sheet(self) -> Sheet:
        return Sheet({
            "name": self.NAME,
            "sentence": self.sentence(),
            "origin": self._fold.origin if self._fold.n_rows else "",
            "chips": ["CPU slots"] if self._on_cpu() else [],
            "notes": [],
            "buttons": [],
            **self.facts(),
        })

    def _on_cpu(self) -> bool:
        return any(life.device.startswith("cpu") for life in self._fold.pool.lives.values())

    def _told(self, message: Message) -> None:
        self.shell.send({"kind": "message", **message.to_plain()})

    def sentence(self) -> str:
        """Return the panel in one sentence."""
        return self._drawn(0).sentence

    # ------------------------------------------------------------------ the pump
    def write(self) -> None:
        """Write the traits that were noted."""
        writes, self._writes = self._writes, []
        self.writing = True
        try:
            self._write(writes)
        finally:
            self.writing = False

    def _write(self, writes: list[tuple[Any, str, Any]]) -> None:
        with self.messages.guard("write panel"):
            for widget, name, value in writes:
                setattr(widget, name, value)
            for picture in self._every():
                picture.write()
            if not self.shell.widget.gone:
                self.shell.widget._code = self.code()
                self.shell.widget._messages = json.dumps([message.to_plain() for message in self.messages])
        for widget in _family(self.box):
            free_route(widget)

    def later(self, widget: Any, name: str, value: Any) -> None:
        """Note a trait for the pump."""
        self._writes.append((widget, name, value))

    # ------------------------------------------------------------------ making
    def _picture_of(self, index: int, module: str) -> Picture:
        return self._picture(MODULES[module](), lambda: self._drawn(index))

    def _picture(self, widget: Module, draw: Any) -> Picture:
        me = weakref.WeakMethod(self._heard)

        def heard(content: dict[str, Any], reply: Reply) -> None:
            method = me()
            if method is not None:
                method(content, reply)

        return Picture(widget, draw, heard)


def _family(widget: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """Return a widget, all that is in it, and their layouts and styles."""
    found = [widget, *(getattr(widget, name) for name in ("layout", "style") if hasattr(widget, name))]
    for child in getattr(widget, "children", ()):
        found += _family(child)
    return found


def button(name: str, label: str, *, reason: str = "", confirm: str = "") -> dict[str, Any]:
    """Return a button of the shell; it is off as long as there is a `reason`. `confirm`: what is asked back."""
    return {"name": name, "label": label, "enabled": not reason, "confirm": confirm, "reason": reason}

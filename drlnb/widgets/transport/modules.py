"""Declare the traits that a picture has in the page; what it draws is decided elsewhere."""

from typing import ClassVar

import anywidget
import ipywidgets
import traitlets

from drlnb.views.drawing import assets

__all__ = ["MODULES", "Chart", "Module", "Shell", "Table", "Timeline", "Topology", "free_route"]


class Module(anywidget.AnyWidget):
    """An ES module of ``views/drawing/js`` and what it is told.

    Deltas travel as custom messages; the traits hold the whole picture for a reload, a second view and an export.
    """

    #: Name of the ES module.
    MODULE: ClassVar[str] = ""

    _esm = traitlets.Unicode(help="text of the ES module").tag(sync=True)
    _header = traitlets.Unicode(help="JSON: everything about the picture but its columns").tag(sync=True)
    _snapshot = traitlets.Bytes(b"", help="the columns as of `_header`'s seq").tag(sync=True)
    _selection = traitlets.Unicode(help="key of what is selected, empty for nothing").tag(sync=True)

    def __init__(self, **traits: object) -> None:
        super().__init__(_view_count=0, **traits)  # 0 makes the page count its views; None would not

    @traitlets.default("_esm")
    def _default_esm(self) -> str:
        return assets.module(self.MODULE)

    @property
    def shown(self) -> bool:
        """Whether a page has said that it draws this."""
        return bool(self._view_count)

    @property
    def gone(self) -> bool:
        """Whether the model was closed, by whomever."""
        return self.comm is None


def free_route(widget: ipywidgets.Widget) -> None:
    """Route what the page sends to a widget to the subshell that the page names.

    ipykernel 7.4 sends it instead to the subshell of the request under which the widget published last.  A thread
    publishes under the latest request of all; JupyterLab deletes its subshells when it reconnects or closes a notebook;
    what is sent to one that is gone is dropped, so a click would wait for ever.
    """
    if widget.comm is not None:
        vars(widget.comm).pop("_reply_subshell_id", None)


class Timeline(Module):
    """Lanes of bars on one time axis."""

    MODULE = "timeline"


class Chart(Module):
    """Lines and steps."""

    MODULE = "chart"


class Topology(Module):
    """Nodes and edges, or a matrix, at one moment."""

    MODULE = "topology"


class Table(Module):
    """Rows with buttons."""

    MODULE = "table"


class Shell(Module):
    """What stands above every panel: sentence, origin, buttons, copy as code, messages."""

    MODULE = "shell"

    _code = traitlets.Unicode(help="lines of Python that make this panel").tag(sync=True)
    _messages = traitlets.Unicode("[]", help="JSON: the messages, newest first").tag(sync=True)


#: Module of a view -> the class that shows it.
MODULES: dict[str, type[Module]] = {kind.MODULE: kind for kind in (Timeline, Chart, Topology, Table, Shell)}

"""Keep the last picture of a panel in the notebook's file, for when there is no kernel any more.

A widget is nothing without its kernel.  So a panel's pictures stand in an output of their own above it, as HTML; the
page hides that as long as the panel lives, and writes a newer one into the notebook now and then.
"""

import html
from collections.abc import Callable, Iterable
from pathlib import Path

import ipywidgets

from drlnb.fleet import faces
from drlnb.fleet.training import Training
from drlnb.views.drawing.payload import Array, Content
from drlnb.views.drawing.view import View
from drlnb.widgets.panels.picture import Picture

__all__ = ["Twin", "mime_bundle", "resuming"]

#: Seconds between two versions while pictures change, and until the last one is kept after they did.
_PERIOD_S, _REST_S = 10.0, 1.5
#: Bytes per second that they may take: large ones come less often.
_BYTES_S = 10_000
#: Hides what JupyterLab writes in the place of a widget that is gone: text alone.
_STYLE = (
    "<style>.jp-OutputArea-child:has([data-drlnb-twin]) + .jp-OutputArea-child > "
    ".jupyter-widgets:not(:has(*)){display:none}</style>"
)


def resuming(run: Training | None) -> str:
    """Return the line of Python that goes on with a run in another kernel; empty where nothing can go on."""
    if run is None or not run.watch.live or run.ended:
        return ""
    out = Path(run.out)
    near = out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out
    return f'run = drlnb.resume("{near}")'


def mime_bundle(box: ipywidgets.Widget | None, data: Content) -> tuple[Content, Content]:
    """Return what a notebook shows of a widget (None: it is closed), with text beside it.

    In a kernel the HTML becomes an output of its own, before the widget's: it stays when the widget is gone.
    """
    if faces.kernel() is not None and data.get("text/html"):
        faces.kernel().shell.display_pub.publish({"text/html": data["text/html"], "text/plain": ""})
        data = {**data, "text/html": ""}
    bundle = None if box is None else box._repr_mimebundle_()  # an AnyWidget adds metadata, others do not
    shown, meta = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
    return {**shown, **data}, meta


class Twin:
    """The pictures of one panel as HTML.

    Parameters
    ----------
    shell
        Its head, whose model's id is the twin's name.
    views
        Returns the pictures as they are.
    """

    def __init__(self, shell: Picture, views: Callable[[], Iterable[View]]) -> None:
        self._shell, self._views = shell, views
        #: Its name in the page.
        self.name = str(shell.widget.model_id)
        self._version = self._seen = -1
        self._kept_t = self._seen_t = float("-inf")
        self._pause_s = _PERIOD_S

    def html(self, run: Training | None) -> str:
        """Return the pictures, and how to go on."""
        line = resuming(run)
        more = f"<p><small>to go on: <code>{html.escape(line)}</code></small></p>" if line else ""
        first, *others = self._views()
        # The first one may say in words why it is empty; of the others nobody misses those that show nothing yet.
        shown = [first, *(view for view in others if any(map(len, _columns(view))))]
        pictures = "".join(view.html() for view in shown)
        return f'<div data-drlnb-twin="{self.name}">{_STYLE}{pictures}{more}</div>'

    def keep(self, now_s: float, version: int, run: Training | None, *, last: bool = False) -> None:
        """Send a newer one to the page where it is due."""
        if version != self._seen:
            self._seen, self._seen_t = version, now_s
        rests = now_s - self._seen_t >= _REST_S
        if version == self._version or not (last or now_s - self._kept_t >= (_REST_S if rests else self._pause_s)):
            return
        self._version, self._kept_t = version, now_s
        text = self.html(run)
        self._pause_s = max(_PERIOD_S, len(text) / _BYTES_S)
        self._shell.send({"kind": "twin", "html": text})


def _columns(view: View) -> Iterable[Array]:
    """Return all that a picture draws."""
    return (values for table in view.columns.values() for values in table.values())

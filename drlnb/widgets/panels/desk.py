"""Show a run as a whole: its tasks, and below them who holds which slot."""

import ipywidgets

from drlnb.widgets.panels.frame import Panel, Plain
from drlnb.widgets.panels.twin import mime_bundle
from drlnb.widgets.transport.apart import apart
from drlnb.widgets.transport.live import live

__all__ = ["Desk"]


class Desk:
    """Panels of one run, one above the other; they live and end as if each were shown alone.

    Parameters
    ----------
    *panels
        What it holds.
    """

    def __init__(self, *panels: Panel) -> None:
        self.panels = panels
        for panel in panels[1:]:
            panel.tells_defects = False
        with apart():
            self.box = ipywidgets.VBox([panel.box for panel in panels])

    def __repr__(self) -> str:
        return f"<Desk of {', '.join(panel.content.NAME for panel in self.panels)}>"

    @property
    def closed(self) -> bool:
        """Whether any of its panels was closed."""
        return self.box.comm is None or any(panel.closed for panel in self.panels)

    def code(self) -> str:
        """Return the line of Python that gives it."""
        return "run.panel()"

    def refresh(self) -> None:
        """Bring every panel up to date now."""
        for panel in self.panels:
            panel.refresh()

    def close(self) -> None:
        """Close every panel."""
        for panel in self.panels:
            panel.close()
        live.registry.forget(self)
        self.box.layout.close()
        self.box.close()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[Plain, Plain]:
        """Return the panels' views in one output."""
        twin = "".join(panel.still() for panel in self.panels)
        return mime_bundle(None if self.closed else self.box, {"text/plain": repr(self), "text/html": twin})

"""Tell a panel of cells of a board that were clicked."""

from collections.abc import Callable, Mapping

from drlnb.views.placement import gangs
from drlnb.widgets.panels.frame import Panel
from drlnb.widgets.transport.commands import Args

__all__ = ["on_click"]


def on_click(panel: Panel, name: str, chosen: Callable[[Mapping[str, str]], None]) -> None:
    """Call `chosen` with what the table says of each cell of a board of a panel that is clicked; again if again."""
    widget = panel.pictures[name].widget

    def moved(change: Args) -> None:
        if not change["new"]:
            return
        with panel.messages.guard("choose a cell"):
            if of := gangs.cell(panel.view(name), str(change["new"])):
                chosen(of)
        panel.fields.later(widget, "_selection", "")  # the same cell is another choice
        panel.touch()

    widget.observe(moved, "_selection")

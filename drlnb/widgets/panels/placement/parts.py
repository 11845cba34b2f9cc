"""Tell a panel of the tab that is open, and of cells of a board that were clicked."""

from collections.abc import Callable, Mapping

import ipywidgets

from drlnb.views.placement import gangs
from drlnb.widgets.panels.frame import Panel
from drlnb.widgets.transport.commands import Args

__all__ = ["on_click", "opened", "tabs_of"]


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


def tabs_of(panel: Panel, titles: Mapping[str, str], pictures: Mapping[str, ipywidgets.Widget]) -> ipywidgets.Tab:
    """Return pictures in tabs; the notes of a panel follow the one that is open."""
    tabs = ipywidgets.Tab([pictures[name] for name in titles], titles=[*titles.values()])
    tabs.observe(lambda change: panel.touch(), "selected_index")
    return tabs


def opened(tabs: ipywidgets.Tab, titles: Mapping[str, str]) -> str:
    """Return the name of the picture whose tab is open."""
    return [*titles][tabs.selected_index or 0]

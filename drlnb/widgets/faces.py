"""Which panel is asked for?  The names behind the entry points of group ``drlnb.faces``."""

from typing import Any

from drlnb.fleet.fleet import Fleet
from drlnb.fleet.training import Training
from drlnb.widgets.desk import Desk
from drlnb.widgets.fleet import LauncherPanel, TasksPanel
from drlnb.widgets.frame import Panel
from drlnb.widgets.leasing import LeasingPanel
from drlnb.widgets.live import live
from drlnb.widgets.settings import WrongSetting, nearest

__all__ = ["PANELS", "desk", "launcher", "panel"]

#: Name of a panel -> its class.
PANELS: dict[str, type[Panel]] = {"fleet": TasksPanel, "leasing": LeasingPanel}


def panel(training: Training, name: str | None = None, **settings: Any) -> Any:
    """Return a panel of a run; asked for twice in the same words, it is the same one.

    Parameters
    ----------
    training
        The run.
    name
        One of :data:`PANELS`, None for the desk.
    **settings
        Of the panel.

    Raises
    ------
    WrongSetting
        If there is no such panel, or a value is wrong.
    UnknownSetting
        If the panel has no such setting.
    """
    if name is None:
        return desk(training, **settings)
    if name not in PANELS:
        raise WrongSetting(f"there is no panel {name!r}{nearest(name, PANELS)}")
    key = (id(training), training.run_id, name, tuple(sorted(settings.items())))
    return live.registry.get(key, lambda: PANELS[name](training, **settings))


def desk(training: Training, **settings: Any) -> Desk:
    """Return tasks and leases of a run, one above the other."""
    return Desk(panel(training, "fleet"), panel(training, "leasing", **settings))


def launcher(fleet: Fleet, **settings: Any) -> LauncherPanel:
    """Return the launcher of a fleet; without settings, the one that is there already."""
    key = (id(fleet), fleet.address, "launcher", tuple(sorted(settings.items())))
    return live.registry.get(key, lambda: LauncherPanel(fleet, **settings))

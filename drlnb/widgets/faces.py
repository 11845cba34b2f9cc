"""Make the panels that are asked for: the names behind the entry points of group ``drlnb.faces``."""

from collections.abc import Mapping

from drlnb.fleet.fleet import Fleet
from drlnb.fleet.training import Training
from drlnb.records.errors import ConfigError, nearest
from drlnb.widgets.panels.batching.running import Batching
from drlnb.widgets.panels.batching.splits import Splits
from drlnb.widgets.panels.desk import Desk
from drlnb.widgets.panels.distribution.distribution import Distribution
from drlnb.widgets.panels.distribution.timings import Timings
from drlnb.widgets.panels.fleet import Tasks
from drlnb.widgets.panels.frame import Content, Panel
from drlnb.widgets.panels.launcher import Launcher
from drlnb.widgets.panels.leasing import Leasing
from drlnb.widgets.panels.placement.gangs import Gangs
from drlnb.widgets.panels.placement.running import Placing
from drlnb.widgets.panels.swapping.swapping import Swapping
from drlnb.widgets.panels.swapping.swaps import Swaps
from drlnb.widgets.transport.live import live

__all__ = ["PANELS", "batching", "desk", "distribution", "launcher", "panel", "placement", "swapping"]

#: Name of a panel -> what it shows.
PANELS: dict[str, type[Content]] = {
    "batching": Batching,
    "distribution": Distribution,
    "fleet": Tasks,
    "leasing": Leasing,
    "placement": Placing,
    "swapping": Swapping,
}


def panel(training: Training, name: str | None = None, **settings: object) -> Panel | Desk:
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
    ConfigError
        If there is no such panel, or a value is wrong.
    UnknownSetting
        If the panel has no such setting.
    """
    if name is None:
        return desk(training, **settings)
    if name not in PANELS:
        raise ConfigError(f"there is no panel {name!r}{nearest(name, PANELS)}; there are {', '.join(PANELS)}")
    return _panel(training, name, **settings)


def _panel(training: Training, name: str, **settings: object) -> Panel:
    key = _key(training, training.id, name, settings)
    return live.registry.get(key, lambda: Panel(PANELS[name](), training, **settings))


def desk(training: Training, **settings: object) -> Desk:
    """Return tasks and leases of a run, one above the other."""
    return live.registry.get(
        _key(training, training.id, "desk", settings),
        lambda: Desk(_panel(training, "fleet"), _panel(training, "leasing", **settings)),
    )


def distribution(client: object = None, **settings: object) -> Panel:
    """Return the distribution panel without a run: what plans would cost, computed, simulated, and measured at a click.

    Parameters
    ----------
    client
        A Dask client, or a fleet, to whose workers *Publish once* and *Sweep m* send; None: Dask's current client, or
        the fleet of this process whose cluster is its own, as soon as there is one.
    **settings
        As of :class:`~drlnb.widgets.panels.distribution.timings.Timings`.

    Raises
    ------
    UnknownSetting
        If there is no such setting.
    ConfigError
        If a value is out of range.
    """
    content = Timings()
    content.attached = client
    return _without_run(content, settings, client)


def swapping(**settings: object) -> Panel:
    """Return the swapping panel without a run: what plans would cost, computed and simulated.

    Parameters
    ----------
    **settings
        As of :class:`~drlnb.widgets.panels.swapping.swaps.Swaps`.

    Raises
    ------
    UnknownSetting
        If there is no such setting.
    ConfigError
        If a value is out of range.
    """
    return _without_run(Swaps(), settings)


def batching(**settings: object) -> Panel:
    """Return the batching panel without a run: splits among simulated members, under any planner.

    Parameters
    ----------
    **settings
        As of :class:`~drlnb.widgets.panels.batching.splits.Tried`.

    Raises
    ------
    UnknownSetting
        If there is no such setting.
    ConfigError
        If a value is out of range.
    """
    return _without_run(Splits(), settings)


def placement(**settings: object) -> Panel:
    """Return the placement panel without a run: gangs of a trace on slots that fail, under any planner.

    Parameters
    ----------
    **settings
        As of :class:`~drlnb.widgets.panels.placement.gangs.Tried`.

    Raises
    ------
    UnknownSetting
        If there is no such setting.
    ConfigError
        If a value is out of range.
    """
    return _without_run(Gangs(), settings)


def _without_run(content: Content, settings: Mapping[str, object], owner: object = None) -> Panel:
    key = _key(owner or type(content), "", content.NAME, settings)
    return live.registry.get(key, lambda: Panel(content, None, **settings))


def launcher(fleet: Fleet, **settings: object) -> Panel:
    """Return the launcher of a fleet; without settings, the one that is there already."""
    key = _key(fleet, fleet.address, "launcher", settings)
    return live.registry.get(key, lambda: Panel(Launcher(fleet), None, **settings))


def _key(owner: object, of: str, name: str, settings: Mapping[str, object]) -> tuple[int, str, str, str]:
    """Return what was asked for; panels hold their owners, so an id stays theirs."""
    return (id(owner), of, name, repr(sorted(settings.items())))

"""Find a planner: by name, by the entry point of an installed package, or an object or a class of the user's own."""

from importlib.metadata import EntryPoint, entry_points
from typing import cast

import drlnb.learned  # noqa: F401  # its planners have names, too
from drlnb.planning.registry import AnyKind, AnyPlanner
from drlnb.records.errors import ConfigError, nearest

__all__ = ["GROUP", "resolve"]

#: Group of entry points, named ``DECISION.NAME``: classes of planners that are not drlnb's.
GROUP = "drlnb.planners"


def resolve(kind: AnyKind, value: object) -> str | AnyPlanner:
    """Return the name of a planner of drlnb's, with its parameters, or else the planner itself.

    Parameters
    ----------
    kind
        The decision.
    value
        A name (with parameters: ``relay:m=4``), a planner, or its class.

    Raises
    ------
    ValueError
        If the name or a parameter is wrong, or what is given has not the face of a planner.
    """
    if not isinstance(value, str):
        return _own(kind, value)
    if (point := _entry_point(kind, value)) is not None:
        return _built(kind, value, point)
    kind.build(value)  # refuses a parameter's value, too
    return str(kind.parse(value))


def _entry_point(kind: AnyKind, text: str) -> EntryPoint | None:
    """Return the entry point of a name that drlnb does not have; None if there is none."""
    name = text.partition(":")[0]
    if name in kind.names:
        return None
    points = {point.name: point for point in entry_points(group=GROUP)}
    entry = points.get(f"{kind.decision}.{name}")
    near = nearest(f"{kind.decision}.{name}", points).replace(f"{kind.decision}.", "")
    if entry is None and near:
        raise ConfigError(f"{kind.decision} planner must be one of {', '.join(kind.names)}, got {text!r}{near}")
    return entry


def _built(kind: AnyKind, text: str, point: EntryPoint) -> AnyPlanner:
    """Return the planner of an entry point; the class may declare ``params``, name -> type."""
    try:
        made = point.load()
        own = AnyKind(kind.decision, kind.default, problem=lambda view, plan: "", recorded=kind.recorded)
        own.register(text.partition(":")[0], made, getattr(made, "params", None))
        return _own(kind, own.build(text))
    except ValueError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(
            f"{kind.decision} planner {text!r} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _own(kind: AnyKind, value: object) -> AnyPlanner:
    """Return a user's planner, of which a class may be given, too."""
    planner = value
    if isinstance(value, type):
        try:
            planner = value()
        except Exception as error:  # a user's class may raise anything
            text = f"{value.__name__} cannot be made: {type(error).__name__}: {error}"
            raise ConfigError(f"{kind.decision} planner {text}") from error
    name = getattr(planner, "name", None)
    if not isinstance(name, str) or not name or not callable(getattr(planner, "plan", None)):
        raise ConfigError(
            f"{kind.decision} planner must be a name, or an object or a class with a name and plan(view), got {value!r}"
        )
    own = cast(AnyPlanner, planner)
    kind.check_learns(own)
    return own

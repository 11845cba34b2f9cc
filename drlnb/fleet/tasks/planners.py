"""Choose the planner of each decision: by name, by entry point, or an object of the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, cast

from drlnb.fleet.plain import by_name
from drlnb.planning.decisions import KINDS, kind_of
from drlnb.planning.registry import OWN, Planner, PlannerKind
from drlnb.records.errors import ConfigError, nearest
from drlnb.rl.pickled import pack

__all__ = ["CHOICES", "GROUP", "Chosen", "chosen"]

# Views and plans of different decisions have nothing in common, hence Any.
_Kind: TypeAlias = PlannerKind[Any, Any]
_Planner: TypeAlias = Planner[Any, Any]

#: Group of entry points, named ``DECISION.NAME``: classes of planners that are not drlnb's.
GROUP = "drlnb.planners"

#: Sets of planners by name.
_SETS: Mapping[str, dict[str, str]] = {
    "auto": {},
    "seed": {"hold": "round", "warmup": "seed", "distribution": "relay", "swapping": "qtable"},
}

#: Setting -> values that it can be given while tasks run.
CHOICES: Mapping[str, tuple[str, ...]] = {"leasing.hold": tuple(sorted(KINDS["hold"].names))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The planners of a run."""

    #: Decision -> name, for all of them.
    names: dict[str, str]
    #: Decision -> a user's own planner as text, see :mod:`drlnb.rl.pickled`.
    own: dict[str, str] = field(default_factory=dict)
    #: All rules are the seed's: collectors end between rounds, where their environments can go on.
    seed: bool = False


def chosen(asked: Mapping[str, object] | str | None = None) -> Chosen:
    """Return the planner of each decision.

    Parameters
    ----------
    asked
        Decision -> a name (with parameters: ``relay:m=4``), or a planner, or its class, for those that shall differ
        from the default; ``"auto"``: the defaults; ``"seed"``: the rules of the patents, where they differ.

    Raises
    ------
    ConfigError
        If a decision, a name or a parameter is wrong, or a planner has not the face of one or cannot travel; the
        message holds all of it.

    Examples
    --------
    >>> chosen({"hold": "last"}).names["hold"]
    'last'
    """
    names = {decision: kind.default for decision, kind in KINDS.items()}
    if isinstance(asked, str):
        if asked not in _SETS:
            raise ConfigError(f"planners must be {', '.join(map(repr, _SETS))} or decision -> name, got {asked!r}")
        return Chosen(names=names | _SETS[asked], seed=asked == "seed")
    own: dict[str, str] = {}
    problems = []
    for decision, value in by_name("planners", asked).items():
        try:
            kind = kind_of(decision)
            if isinstance(value, str) and (point := _entry_point(kind, value)) is None:
                kind.build(value)  # refuses a parameter's value, too
                names[decision] = str(kind.parse(value))
                continue
            planner = _built(kind, value, point) if isinstance(value, str) else _own(kind, value)
            names[decision], own[decision] = f"{OWN}{planner.name}", pack(planner)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)
    return Chosen(names=names, own=own)


def _entry_point(kind: _Kind, text: str) -> EntryPoint | None:
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


def _built(kind: _Kind, text: str, point: EntryPoint | None) -> _Planner:
    """Return the planner of an entry point; the class may declare ``params``, name -> type."""
    assert point is not None
    try:
        made = point.load()
        own = _Kind(kind.decision, kind.default, problem=lambda view, plan: "", recorded=kind.recorded)
        own.register(text.partition(":")[0], made, getattr(made, "params", None))
        return _own(kind, own.build(text))
    except ValueError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise ConfigError(
            f"{kind.decision} planner {text!r} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _own(kind: _Kind, value: object) -> _Planner:
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
    return cast(_Planner, planner)

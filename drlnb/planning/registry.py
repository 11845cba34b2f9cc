"""Register planners of each decision and build them from their names, such as ``relay:m=4``.

A planner looks at a view and returns a plan.  Each room describes its decision by a :class:`PlannerKind`: what a plan
must be, and how it is read back from a journal.  Machines are given planners; they build none.
"""

import contextlib
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from drlnb.records.base import Record, shared
from drlnb.records.errors import ConfigError, nearest, words_of
from drlnb.records.settings import Kind

__all__ = [
    "LEARNING",
    "OWN",
    "Answer",
    "AnyKind",
    "AnyPlanner",
    "FailedBefore",
    "Named",
    "Plan",
    "Planner",
    "PlannerFailed",
    "PlannerKind",
    "Planners",
    "View",
    "plan_of",
    "planner",
]

#: What a planner of a decision may look at.
View = TypeVar("View")
#: What it answers.
Plan = TypeVar("Plan")
SomeRecord = TypeVar("SomeRecord", bound=Record)
_View = TypeVar("_View", contravariant=True)
_Plan = TypeVar("_Plan", covariant=True)

#: Stands in the reason of a task that ended because its planner could not learn.
LEARNING = "as it learned:"
#: What the name of a planner begins with that is in no registry: a user's own.
OWN = "own:"
#: Name of a parameter -> its type, or its value where none is given.
Parameters = Mapping[str, type | int | float | str]
#: Type of a parameter -> how it is described.
_WORDS: Mapping[type, str] = {int: "a whole number", float: "a number", str: "a word"}


class Planner(Protocol[_View, _Plan]):
    """Decides by looking at a view; it holds no clock and does no I/O.

    One that learns has ``observe(memory, report)``, too: see :meth:`PlannerKind.observe`.
    """

    #: What the journal calls it.
    name: str

    def plan(self, view: _View, /) -> _Plan:
        """Return the plan for a view."""
        ...


class PlannerFailed(RuntimeError):
    """A planner raised, or returned a plan that does not fit to its view; the message names it and what is wrong."""


class FailedBefore(PlannerFailed):
    """A planner had failed in the run that is replayed; the message is the reason that its task ended with."""


@dataclass(frozen=True, slots=True)
class Named:
    """A planner's name and the values of its parameters, as read from a text."""

    name: str
    params: Mapping[str, int | float | str] = field(default_factory=dict)

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}:{pairs}" if pairs else self.name


class Answer:
    """The records that a journal holds as the answer to one event; each is handed out once."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._left = list(records)

    def next(self, kind: type[SomeRecord], **fields: object) -> SomeRecord | None:
        """Return and remove the first record of a class, and with these fields, that is left; None if there is none."""
        for i, record in enumerate(self._left):
            if isinstance(record, kind) and all(getattr(record, name) == value for name, value in fields.items()):
                del self._left[i]
                return record
        return None

    def first(self, kind: type[SomeRecord]) -> SomeRecord | None:
        """Return the first record of a class that is left, and leave it; None if there is none."""
        return next((record for record in self._left if isinstance(record, kind)), None)


class PlannerKind(Generic[View, Plan]):
    """One decision: its planners by name, and the checks of their plans.

    Parameters
    ----------
    decision
        Its name, such as ``distribution``.
    default
        Name of the planner that decides where nobody has chosen one.
    problem
        Returns why a plan does not fit to its view, empty if it does.  The plan may be of any type, since users write
        planners.
    recorded
        Returns the plan that a journal's answer holds, None if it holds none.
    traits
        What a planner may say of itself by an attribute -> what holds of one that does not say it.
    reports
        Its planners are told what became of their plans, and may learn; see :meth:`observe`.
    """

    def __init__(
        self,
        decision: str,
        default: str,
        *,
        problem: Callable[[View, object], str],
        recorded: Callable[[View, Answer], Plan | None],
        traits: Mapping[str, bool] | None = None,
        reports: bool = False,
    ) -> None:
        self.decision, self.default = decision, default
        self._problem, self.recorded, self._traits = problem, recorded, dict(traits or {})
        self.reports = reports
        #: Name -> how its planners are made, and the types of their parameters.
        self._entries: dict[str, tuple[Callable[..., Planner[View, Plan]], Parameters]] = {}

    def also(self, decision: str, default: str) -> "PlannerKind[View, Plan]":
        """Return another decision of the same planners, those to come, too, with a default of its own."""
        kind = copy.copy(self)
        kind.decision, kind.default = decision, default
        return kind

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its planners, in the order of their registration."""
        return tuple(self._entries)

    def register(self, name: str, make: Callable[..., Planner[View, Plan]], params: Parameters | None = None) -> None:
        """Add a planner.

        Parameters
        ----------
        name
            Its name.
        make
            Returns the planner; given the parameters by keyword.
        params
            Name of a parameter -> its type (int, float or str), or the value that it has where none is given.

        Raises
        ------
        ValueError
            If the name is in use.
        """
        if name in self._entries:
            raise ValueError(f"{self.decision} planner {name!r} is registered already")
        self._entries[name] = make, dict(params or {})

    def parameters(self, name: str) -> Parameters:
        """Return the parameters of a planner, as it was registered; none of an unknown one."""
        return self._entries[name][1] if name in self._entries else {}

    def parse(self, text: str) -> Named:
        """Read a planner's name and parameters.

        Raises
        ------
        ValueError
            If the name is unknown, or a parameter unknown, missing or of the wrong type; one line.

        Examples
        --------
        >>> from drlnb.planning.distribution import DISTRIBUTION
        >>> str(DISTRIBUTION.parse("chain"))
        'chain'
        """
        name, _, rest = str(text).partition(":")
        if name not in self._entries:
            known = ", ".join(self._entries)
            raise ValueError(
                f"{self.decision} planner must be one of {known}, got {text!r}{nearest(name, self._entries)}"
            )
        _, wanted = self._entries[name]
        title = f"{self.decision} planner {name}"
        given = dict(_pairs(title, rest)) if rest else {}
        if unknown := [key for key in given if key not in wanted]:
            takes = ", ".join(wanted) or "no parameter"
            raise ValueError(f"{title} takes {takes}, got {unknown[0]!r}{nearest(unknown[0], wanted)}")
        if missing := [key for key, kind in wanted.items() if isinstance(kind, type) and key not in given]:
            word = _WORDS[wanted[missing[0]]]  # type: ignore[index]  # it is a type
            raise ValueError(f"{title} needs {missing[0]} ({word}), such as {name}:{missing[0]}=...")
        kinds = {key: kind if isinstance(kind, type) else type(kind) for key, kind in wanted.items() if key in given}
        return Named(name, {key: _typed(title, key, given[key], kind) for key, kind in kinds.items()})

    def build(self, text: str) -> Planner[View, Plan]:
        """Build a planner from its text.

        Raises
        ------
        ValueError
            As of :meth:`parse`, or if the planner refuses a parameter's value.
        """
        named = self.parse(text)
        try:
            make, wanted = self._entries[named.name]
            defaults = {key: value for key, value in wanted.items() if not isinstance(value, type)}
            planner = make(**{**defaults, **named.params})
        except ValueError as error:
            raise ValueError(f"{self.decision} planner {named}: {error}") from None
        if named.params:
            planner.name = str(named)
        return planner

    def ask(self, planner: Planner[View, Plan], view: View) -> Plan:
        """Return a planner's plan once it has been checked.

        Raises
        ------
        PlannerFailed
            If the planner raises, or its plan does not fit.
        """
        with self._told(planner, ":"):
            plan = planner.plan(view)
            problem = self._problem(view, plan)
        if problem:
            raise PlannerFailed(f"{self.decision} planner {planner.name}: {problem}")
        return plan

    def trait(self, planner: Planner[View, Plan], name: str) -> bool:
        """Return what a planner says of itself under one of the decision's traits."""
        return bool(getattr(planner, name, self._traits[name]))

    def check_learns(self, planner: Planner[View, Plan]) -> None:
        """Raise ConfigError if a user's planner has ``observe``, and nobody would ever call it."""
        if not self.reports and hasattr(planner, "observe"):
            raise ConfigError(
                f"{self.decision} planner {planner.name} has observe(memory, report), which nobody would call: "
                f"planners of {self.decision} are sent no reports, their views hold what was measured"
            )

    def observe(self, planner: Planner[View, Plan], memory: object, report: object) -> object:
        """Return what a planner remembers after a report; what it remembered, if it does not learn.

        Memories are plain data: the machine keeps them in its snapshots and checkpoints and shows them in its views, so
        a planner that keeps nothing else learns the same in a replay.

        Raises
        ------
        PlannerFailed
            If the planner raises, or what it returns is no plain data.
        """
        learn = getattr(planner, "observe", None)
        if learn is None:
            return memory
        with self._told(planner, f" {LEARNING}"):
            # As a snapshot gives it back, now: a tuple is a list there.
            plain: object = json.loads(json.dumps(learn(memory, report), allow_nan=False))
        return plain

    @contextlib.contextmanager
    def _told(self, planner: Planner[View, Plan], when: str) -> Iterator[None]:
        """Raise PlannerFailed, in one line, of whatever a user's planner raises."""
        try:
            yield
        except PlannerFailed:
            raise
        except Exception as error:
            text = " ".join(words_of(error).split())
            raise PlannerFailed(
                f"{self.decision} planner {planner.name} raised {type(error).__name__}{when} {text}"
            ) from error


#: Any decision, and any planner: views and plans of different decisions have nothing in common.
AnyKind = PlannerKind[Any, Any]
#: See :data:`AnyKind`.
AnyPlanner = Planner[Any, Any]


class _Own(Generic[View, Plan]):
    """A user's planner under its full name; it is asked whenever another answer could be wanted."""

    def __init__(self, name: str, planner: Planner[View, Plan]) -> None:
        self.name, self._planner = name, planner
        self.yields = self.replans = True
        self.uses_link = getattr(planner, "uses_link", True)
        self.window, self.history = getattr(planner, "window", False), getattr(planner, "history", False)

    def plan(self, view: View) -> Plan:
        return self._planner.plan(view)

    def observe(self, memory: object, report: object) -> object:
        learn = getattr(self._planner, "observe", None)
        return memory if learn is None else learn(memory, report)


class Planners:
    """The planners that a machine may ask: those of the registry, and a user's own.

    Parameters
    ----------
    own
        Decision -> a planner that is in no registry; it is asked for as ``own:`` and its name.
    """

    def __init__(self, own: Mapping[str, AnyPlanner] | None = None) -> None:
        self._made: dict[tuple[str, str], AnyPlanner] = {}
        for decision, planner in (own or {}).items():
            self.add(decision, planner)

    def add(self, decision: str, planner: AnyPlanner) -> str:
        """Add a user's own planner of a decision; return the name by which it is asked for."""
        name = f"{OWN}{planner.name}"
        self._made[decision, name] = _Own(name, planner)
        return name

    def make(self, kind: PlannerKind[View, Plan], name: str) -> Planner[View, Plan]:
        """Return the planner of a name, the same one each time: it may learn.

        Raises
        ------
        ValueError
            If there is none.
        """
        key = (kind.decision, name)
        if key not in self._made:
            self._made[key] = self._new(kind, name)
        return self._made[key]

    def _new(self, kind: PlannerKind[View, Plan], name: str) -> Planner[View, Plan]:
        if name.startswith(OWN):
            raise ValueError(f"this task has no {kind.decision} planner {name!r}")
        return kind.build(name)


def plan_of(kind: type[Plan], record: Record | None) -> Plan | None:
    """Return the plan that a record holds: the fields of its own names; None of none."""
    return None if record is None else kind(**shared(record, kind))


def _pairs(title: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of ``a=1,b=2``, each of which may stand once."""
    seen = set[str]()
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if not key or not equals or not value:
            raise ValueError(f"{title} takes parameters as NAME=VALUE, got {word!r}")
        if key in seen:
            raise ValueError(f"{title} is given {key} twice")
        seen.add(key)
        yield key, value


def _typed(title: str, key: str, value: str, kind: type) -> int | float | str:
    """Return a parameter's value in its type."""
    try:
        typed: int | float | str = kind(value)
    except ValueError:
        raise ValueError(f"{title}: {key} must be {_WORDS[kind]}, got {value!r}") from None
    return typed


def planner(kind: AnyKind) -> Kind:
    """Return the kind of the names of a decision's planners."""

    def problem(name: str, value: object) -> str:
        if isinstance(value, str) and value.startswith(OWN):
            return ""  # the machine that it was given to knows it
        try:
            kind.build(str(value))
        except ValueError as error:
            return str(error)
        return ""

    return Kind(problem, kind.names)

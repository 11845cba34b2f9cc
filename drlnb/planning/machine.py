"""Apply events to a state by a table of rules: what the machines of planning have in common."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, Generic, Protocol, TypeVar

from drlnb.planning.codec import from_plain, to_plain
from drlnb.records.base import Event, Facts, Record, Row
from drlnb.records.errors import InvalidTransition

__all__ = ["AnyMachine", "Impossible", "Machine", "Out", "Rule", "Rules", "ignore"]

#: The answer to the present event; rules append to it.
Out = list[Record]
#: Records kept for the message of a forbidden transition.
_STORY = 10


class Impossible(Exception):
    """The state forbids an event; the message says what of it."""


class _Timed(Protocol):
    """A dataclass that is the state of a machine."""

    #: Time of the last event, in seconds.
    t: float


State = TypeVar("State", bound=_Timed)
_Any = TypeVar("_Any")
#: Changes a state by one event and appends the answer; it gets the events of its own class alone, hence Any.
Rule = Callable[[_Any, Any, Out], None]
#: Event -> its rule.
Rules = Mapping[type[Event], Rule[_Any]]


def ignore(state: object, event: Event, out: Out) -> None:
    """Change nothing."""


class Machine(Generic[State]):
    """A pure machine: an event in, records out.

    Parameters
    ----------
    name
        What its messages call it.
    state
        Its state, a dataclass; fields that are transient and have no default outlive a restore.
    rules
        The rule for each kind of event.
    other
        The rule for every other kind; None: such an event is a defect.
    """

    def __init__(self, name: str, state: State, rules: Rules[State], other: Rule[State] | None = None) -> None:
        self.name, self.state = name, state
        self._rules, self._other = rules, other
        self._story: deque[Record] = deque(maxlen=_STORY)

    @property
    def phase(self) -> str:
        """What a message says of the state."""
        return f"at t={self.state.t:g} s"

    def handle(self, event: Event) -> tuple[Record, ...]:
        """Apply an event; return what was decided and what must be done, in its order.

        Raises
        ------
        InvalidTransition
            If it is older than the last one, not ours, or the state forbids it: a defect of the caller.
        """
        rule = self._rules.get(type(event), self._other)
        # "not >=" also catches nan
        if rule is None or not event.t >= self.state.t:
            raise self.forbidden(event, "without a rule for it" if rule is None else self.phase)
        self.state.t = event.t
        self._story.append(event)
        out: Out = []
        try:
            self._apply(rule, event, out)
        except Impossible as error:
            raise self.forbidden(event, str(error)) from None
        self._story.extend(out)
        return tuple(out)

    def forbidden(self, event: Event, phase: str) -> InvalidTransition:
        """Return the error for an event that cannot come now."""
        return InvalidTransition(self.name, phase, event, self._story)

    def _apply(self, rule: Rule[State], event: Event, out: Out) -> None:
        rule(self.state, event, out)

    def laws(self) -> Iterator[tuple[bool, str]]:
        """Yield whether each law of the state holds, and the law in words."""
        raise NotImplementedError

    def check(self) -> None:
        """Check what must hold after each event.

        Raises
        ------
        AssertionError
            If something does not; the message lists all of it.
        """
        broken = [law for holds, law in self.laws() if not holds]
        if broken:
            raise AssertionError(f"{self.name}: not true: {'; '.join(broken)}")

    def snapshot(self) -> Row:
        """Return the state as plain data, fit for JSON."""
        return dict(to_plain(self.state))

    def restore(self, snapshot: Facts) -> None:
        """Restore the state of :meth:`snapshot`; the same events then give the same records."""
        kept = {
            each.name: getattr(self.state, each.name)
            for each in fields(self.state)  # type: ignore[arg-type]  # it is a dataclass
            if each.metadata.get("transient") and each.default is MISSING and each.default_factory is MISSING
        }
        self.state = from_plain(type(self.state), snapshot, **kept)


#: A machine of any state, as drivers see it.
AnyMachine = Machine[Any]

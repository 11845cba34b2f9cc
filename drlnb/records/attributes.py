"""Refuse attributes that nothing would read, on the objects that users hold."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from drlnb.records.errors import nearest

__all__ = ["assignable", "fixed", "no_attribute"]

T = TypeVar("T")


@cache
def assignable(kind: type) -> frozenset[str]:
    """Return what instances of a class hold: what it and its bases annotate, or have as values of the class."""
    names = set[str]()
    for base in kind.__mro__:
        values = [name for name, value in vars(base).items() if not callable(value) and not hasattr(value, "__get__")]
        names |= {*inspect.get_annotations(base), *values}
    return frozenset(name for name in names if not name.startswith("__"))


def no_attribute(kind: type, name: str, *more: str) -> str:
    """Return the complaint about a name that a class does not have, nor any of `more`."""
    hint = nearest(name, [*more, *(each for each in assignable(kind) if not each.startswith("_"))])
    return f"{kind.__name__} has no attribute {name!r}{hint or '; it would have no effect'}"


def fixed(*changes: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of what users hold: the class names its public attributes, and sets each of them once.

    What can change later has a method, or a property with a setter.  A subclass of the user's own has what its body
    names, too, and may set that whenever it likes.

    Parameters
    ----------
    *changes
        Public attributes that the class itself sets again.
    """

    def assign(self: object, name: str, value: object) -> None:
        kind: type = type(self)
        if not name.startswith("_") and not isinstance(getattr(kind, name, None), property):
            if name not in assignable(kind):
                raise AttributeError(_fixed(kind, name) if hasattr(kind, name) else no_attribute(kind, name))
            if name in vars(self) and name not in changes and _is_ours(kind, name):
                raise AttributeError(_fixed(kind, name))
        object.__setattr__(self, name, value)

    def decorate(kind: type[T]) -> type[T]:
        kind.__setattr__ = assign  # type: ignore[method-assign]
        return kind

    return decorate


def _fixed(kind: type, name: str) -> str:
    return f"{name} of a {kind.__name__} cannot be assigned"


def _is_ours(kind: type, name: str) -> bool:
    """Return whether a class of this package names an attribute."""
    named = [base for base in kind.__mro__ if name in vars(base) or name in inspect.get_annotations(base)]
    return any(base.__module__.startswith("drlnb.") for base in named)

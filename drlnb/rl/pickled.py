"""Carry a function of the user's in plain data: as base64 text of a cloudpickle, unpickled only to train.

A factory from a notebook cell is defined in ``__main__``, which other processes do not have: cloudpickle carries its
code by value.  What cannot travel (an open file, a lock, a live environment in a closure) is reported by name.
"""

import base64
import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import FunctionType
from typing import Any

import cloudpickle

__all__ = [
    "code_in",
    "culprit",
    "display_name",
    "holds_code",
    "is_kept",
    "keep",
    "named",
    "pack",
    "parts_of",
    "unpack",
]

#: What stands for a value that stays in this process, in front of its number; no base64 has it.
_HERE = "here:"
_KEPT: dict[str, object] = {}
#: How deep :func:`culprit` looks into objects: a closure's attribute's attribute.
_DEPTH = 4


def display_name(value: object) -> str:
    """Return what a user calls a class, a function, a partial or an object.

    Examples
    --------
    >>> display_name(dict), display_name(lambda: None)
    ('dict', 'lambda')
    """
    inner = getattr(value, "func", value)  # functools.partial
    name = getattr(inner, "__qualname__", "") or type(value).__name__
    return str(name).rpartition("<locals>.")[2].strip("<>") or "factory"


def pack(value: object) -> str:
    """Return `value` as text.

    Raises
    ------
    ValueError
        If it cannot be pickled; the message names the attribute or variable that cannot.
    """
    try:
        return base64.b64encode(cloudpickle.dumps(value, protocol=5)).decode("ascii")
    except Exception as error:  # pickling runs foreign code, which may raise anything
        where = culprit(value)
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{display_name(value)} cannot travel to another process: {where} ({reason})") from error


def keep(value: object) -> str:
    """Return a text for a value that cannot travel: :func:`unpack` gives it back in this process alone."""
    text = f"{_HERE}{len(_KEPT)}"
    _KEPT[text] = value
    return text


def is_kept(text: str | None) -> bool:
    """Whether a text is one of :func:`keep`."""
    return text is not None and text.startswith(_HERE)


def unpack(text: str) -> Any:  # whatever was packed
    """Rebuild what :func:`pack` made; runs code, so only for text that this user wrote.

    Raises
    ------
    ValueError
        If the text is damaged, needs a module that cannot be imported here, or stands for a value of another process.
    """
    if is_kept(text):
        if text not in _KEPT:
            raise ValueError(
                "lives in the process that made it alone, it could not be copied: give another one (env=...)"
            )
        return _KEPT[text]
    try:
        return pickle.loads(base64.b64decode(text, validate=True))
    except Exception as error:  # unpickling runs foreign code, which may raise anything
        raise ValueError(f"cannot be rebuilt here: {type(error).__name__}: {error}") from error


def named(text: str) -> Any:  # the function
    """Return a function that is named as ``module:callable``.

    Raises
    ------
    ValueError
        If it cannot be imported here.
    """
    module, _, name = text.partition(":")
    try:
        return attrgetter(name)(import_module(module))
    except Exception as error:  # importing runs foreign code, which may raise anything
        raise ValueError(f"{text} cannot be imported here: {type(error).__name__}: {error}") from error


def code_in(task: Mapping[str, Any]) -> list[str]:
    """Return which parts of a task, as plain data, are code of its author's: unpickling one runs it."""
    settings = task.get("hyperparameters", {})
    parts = {"policy": settings.get("policy"), **(settings.get("policy_kwargs") or {})}
    pickled = [name for name, value in parts.items() if isinstance(value, Mapping) and "pickled" in value]
    factory = task.get("env_factory")
    return pickled + ["env"] * bool(factory and not is_kept(factory)) + ["program"] * bool(task.get("data"))


def holds_code(content: Mapping[str, Any]) -> bool:
    """Whether a file of plain data, of a run or of a checkpoint, holds code of its author's."""
    tasks = [*content.get("tasks", ()), content.get("spec", {})]
    return bool(content.get("own_planners")) or any(code_in(task) for task in tasks if isinstance(task, Mapping))


def _travels(value: object) -> bool:
    try:
        cloudpickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - foreign code; whatever it raises means "no"
        return False
    return True


def parts_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield the named things that an object carries with it."""
    function = getattr(value, "__func__", value)
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield f"variable {name!r}", cell.cell_contents
        for name in function.__code__.co_names:
            if name in function.__globals__:
                yield f"global {name!r}", function.__globals__[name]
        yield "its defaults", function.__defaults__
    if hasattr(value, "__self__"):
        yield "its object", value.__self__
    if isinstance(value, partial):
        yield "its function", value.func
        yield from ((f"argument {n}", a) for n, a in enumerate(value.args))
        yield from ((f"argument {name!r}", a) for name, a in value.keywords.items())
    held = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    yield from ((f"attribute {name!r}", part) for name, part in held.items() if not str(name).startswith("__"))


def culprit(value: object, depth: int = _DEPTH) -> str:
    """Return in words which variable, argument or attribute keeps `value` from being pickled."""
    if depth:
        for name, part in parts_of(value):
            if part is not value and not _travels(part):
                deeper = culprit(part, depth - 1)
                kind = type(part).__name__
                return f"{name} ({kind})" + (f", in it {deeper}" if "'" in deeper else "")
    return "it holds something that cannot be pickled"

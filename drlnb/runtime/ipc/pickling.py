"""Pack a user's function, its arguments, its result and its error for the way between a notebook and a slot.

By cloudpickle: functions of a notebook cell or a script travel by value.  Tensors on a CUDA device are brought to the
CPU on the way, because the other side has another device or none.
"""

import io
import pickle
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import cloudpickle

from drlnb.planning.registry import Planners
from drlnb.records.errors import ConfigError, words_of
from drlnb.rl.pickled import culprit, display_name
from drlnb.rl.pickled import unpack as unpack_text
from drlnb.runtime.protocol import Payload

__all__ = [
    "JobFailed",
    "Pickler",
    "RemoteTraceback",
    "pack_call",
    "pack_error",
    "pack_value",
    "unpack",
    "unpack_error",
    "unpack_planners",
]

#: Longest traceback that travels, in characters; its end is what helps.
_TRACEBACK = 16_384


class JobFailed(RuntimeError):
    """A function failed on its slot with an error that cannot be raised here; the message names it."""


class RemoteTraceback(Exception):
    """Where on the slot an error was raised: the cause of the error that the caller sees."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle that takes tensors off their CUDA device, and modules that torch has parametrized."""

    def reducer_override(self, obj: Any) -> object:
        """Return how an object is pickled, where that is not as usual."""
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and obj.is_cuda:
            return obj.detach().cpu().requires_grad_(obj.requires_grad).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if torch is not None and type(obj) is torch.Tensor:
            from drlnb.runtime.ipc.tensors import reduced

            if (as_bytes := reduced(obj)) is not None:
                return as_bytes
        if torch is not None and isinstance(obj, torch.nn.Module) and torch.nn.utils.parametrize.is_parametrized(obj):
            # The class that torch has made for it travels by value, and refuses; the one that it is made of does not.
            return object.__new__, (type(obj),), super(type(obj), obj).__getstate__()
        return super().reducer_override(obj)


def unpack_planners(texts: Mapping[str, str], decisions: Collection[str]) -> Planners:
    """Return the planners that a process may ask, with a user's own for some decisions.

    Parameters
    ----------
    texts
        Decision -> planner, as :func:`drlnb.rl.pickled.pack` makes it.
    decisions
        Those that are made in this process; the others are left alone.

    Raises
    ------
    ValueError
        If one cannot be rebuilt here; the message names its decision.
    """
    own = {}
    for decision in texts.keys() & set(decisions):
        try:
            own[decision] = unpack_text(texts[decision])
        except ValueError as error:
            raise ValueError(f"{decision} planner {error}") from None
    return Planners(own)


def pack_value(value: object) -> bytes:
    """Return any picklable value as bytes."""
    with io.BytesIO() as file:
        Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return file.getvalue()


def unpack(data: Payload) -> Any:
    """Rebuild what :func:`pack_value` or :func:`pack_call` made."""
    return pickle.loads(data)


def pack_call(fn: object, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Return a call as bytes, which :func:`unpack` turns into ``(fn, args, kwargs)``.

    Raises
    ------
    ConfigError
        If `fn` cannot be called, or something of the call cannot be pickled; the message names it.
    """
    if not callable(fn):
        raise ConfigError(f"a lease runs a function, got {fn!r}: pass the function and its arguments, do not call it")
    try:
        return pack_value((fn, tuple(args), dict(kwargs)))
    except Exception as error:  # noqa: BLE001 - pickling runs foreign code, which may raise anything
        where = culprit(partial(fn, *args, **kwargs))
        reason = f"{type(error).__name__}: {_first(error)}"
    raise ConfigError(f"{display_name(fn)} cannot travel to a slot: {where} ({reason}); make it inside the function")


def pack_error(error: BaseException) -> bytes:
    """Return an error with its traceback as bytes; one that cannot travel is told in words."""
    text = "".join(traceback.format_exception(error))[-_TRACEBACK:]
    words = f"{type(error).__name__}: {words_of(error)}"
    try:
        if not isinstance(error, Exception):
            raise TypeError("it would end the caller, too")
        data = pack_value(error.with_traceback(None))
        str(unpack(data))  # whoever gets it will ask for its words
    except Exception:  # noqa: BLE001 - foreign code again
        data = b""
    return pack_value((data, words, text))


def unpack_error(data: Payload) -> Exception:
    """Rebuild an error of :func:`pack_error`, its traceback as its cause, ready to be raised."""
    packed, words, text = unpack(data)
    error: Exception
    try:
        error = unpack(packed) if packed else JobFailed(words)
    except Exception:  # noqa: BLE001 - its class may be of a module that only the slot has
        error = JobFailed(words)
    error.__cause__ = RemoteTraceback(text)
    return error


def _first(error: BaseException) -> str:
    return next(iter(words_of(error).strip().splitlines()), "")

"""Face the user: find the panel or report that shows an object by its entry point, and write lines.

This floor never imports a panel.
"""

import logging
import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from drlnb.fleet.plain import Row
from drlnb.records.errors import InputError

__all__ = [
    "GROUP",
    "MissingFace",
    "awake",
    "face",
    "kernel",
    "leave",
    "note",
    "notebook",
    "redraw",
    "say",
    "show",
    "shown_as",
]

_LOG = logging.getLogger("drlnb")

#: Seconds between two signs of life: shorter than any time after which a server may call a kernel idle.
_AWAKE_S = 20.0
#: The line that is kept up to date, where there is one.
_STANDING: list[str] = []
#: Group of entry points: name -> callable.
GROUP = "drlnb.faces"


class MissingFace(InputError, RuntimeError):
    """Nothing is installed that can show this; the message names the group of entry points that was searched."""


def face(name: str) -> Any:
    """Return what shows things under `name`.

    Parameters
    ----------
    name
        ``panel``, ``launcher``, ``desk`` or ``report``.

    Raises
    ------
    MissingFace
        If no entry point has that name, or what it names cannot be imported.
    """
    installed = list(entry_points(group=GROUP, name=name))
    if not installed:
        raise MissingFace(f"no face {name!r} is installed (entry points of group {GROUP}); install drlnb anew with pip")
    try:
        return installed[0].load()
    except (ImportError, AttributeError) as error:
        raise MissingFace(f"face {name!r} ({installed[0].value}, group {GROUP}) cannot be loaded: {error}") from error


def kernel() -> Any:
    """Return the Jupyter kernel of this process, None where there is none (a script, a terminal, a worker)."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)  # another thread may be in the midst of importing it
    return getattr(ask(), "kernel", None) if ask is not None else None


def awake(last_t: float) -> float:
    """Publish a sign of life if the last one is so old; return when the last one was.

    Servers end kernels that have published nothing for a while (``cull_idle_timeout``), and the training in them.  It
    is a message to no widget: pages drop it, runners of notebooks keep nothing of it.

    Parameters
    ----------
    last_t
        Seconds of the monotonic clock.
    """
    now_s, mine = time.monotonic(), kernel()
    if mine is None or getattr(mine, "session", None) is None or now_s - last_t < _AWAKE_S:
        return last_t
    mine.session.send(mine.iopub_socket, "comm_msg", {"comm_id": "drlnb", "data": {}}, parent={})
    return now_s


def notebook() -> bool:
    """Whether a cell may be run twice here, so that the same words mean the same thing."""
    return kernel() is not None


def shown_as(name: str) -> Callable[..., Row]:
    """Return the method ``_repr_mimebundle_`` of what a notebook shows by a face.

    In a terminal, and when the face fails, it gives the ``repr``.  It never raises: a cell that ends with a run shall
    not end with a traceback.
    """

    def mimebundle(thing: object, include: object = None, exclude: object = None) -> Row:
        del include, exclude
        text = repr(thing)
        if kernel() is None:
            return {"text/plain": text}
        try:
            shown: Row = face(name)(thing)._repr_mimebundle_()
            return shown
        except Exception as error:  # noqa: BLE001 - shown in the output instead: a picture is not worth a failed cell
            return {"text/plain": f"{text}\nno panel: {type(error).__name__}: {error}"}

    return mimebundle


def say(text: str) -> None:
    """Write one line to the user, in a notebook to the cell's plain output, elsewhere to standard error.

    A cell shows standard error in red, and this is no error.
    """
    redraw("")
    _write(f"drlnb: {text}\n")


def show(text: str) -> None:
    """Write what was asked for to standard output."""
    redraw("")
    print(text, flush=True)  # noqa: T201 - it is for the reader


def redraw(text: str) -> None:
    """Write over the line that stands, which other words go above; an empty text wipes it."""
    width = max(map(len, _STANDING), default=0)
    _STANDING.clear()
    if text:
        _STANDING.append(text)
    if text or width:
        _write("\r" + text.ljust(width) + ("" if text else "\r"))


def leave() -> None:
    """Leave the line that stands as it is, and go on below."""
    if _STANDING:
        _STANDING.clear()
        _write("\n")


def _write(text: str) -> None:
    stream = sys.stdout if notebook() else sys.stderr
    stream.write(text)
    stream.flush()


def note(text: str) -> None:
    """Write what a panel shows anyway: in a notebook it is only logged."""
    if notebook():
        _LOG.info(text)
    else:
        say(text)

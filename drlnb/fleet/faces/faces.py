"""Find the panel or report that shows an object, by its entry point: this floor never imports one."""

import sys
from importlib.metadata import entry_points
from typing import Any

from drlnb.fleet.plain import Row
from drlnb.records.errors import InputError

__all__ = ["GROUP", "MissingFace", "face", "kernel", "mimebundle", "notebook"]

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
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None)


def notebook() -> bool:
    """Whether a cell may be run twice here, so that the same words mean the same thing."""
    return kernel() is not None


def mimebundle(name: str, thing: object) -> Row:
    """Return what a notebook shows for `thing`: its face, or in a terminal (and when the face fails) its ``repr``.

    Never raises: a cell that ends with a run shall not end with a traceback.
    """
    text = repr(thing)
    if kernel() is None:
        return {"text/plain": text}
    try:
        shown: Row = face(name)(thing)._repr_mimebundle_()
        return shown
    except Exception as error:  # noqa: BLE001 - shown in the output instead: a picture is not worth a failed cell
        return {"text/plain": f"{text}\nno panel: {type(error).__name__}: {error}"}

"""How does something headless show itself?  Its face is found by name at run time; this floor never imports one."""

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from drlnb.records.errors import InputError

__all__ = ["GROUP", "MissingFace", "RunFaces", "face", "kernel", "mimebundle", "notebook"]

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
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        raise MissingFace(f"no face {name!r} is installed (entry points of group {GROUP}); install drlnb anew with pip")
    try:
        return found[0].load()
    except (ImportError, AttributeError) as error:
        raise MissingFace(f"face {name!r} ({found[0].value}, group {GROUP}) cannot be loaded: {error}") from error


def kernel() -> Any:
    """Return the Jupyter kernel of this process, None where there is none (a script, a terminal, a worker)."""
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None)


def notebook() -> bool:
    """Whether a cell may be run twice here, so that the same words mean the same thing."""
    return kernel() is not None


def mimebundle(name: str, thing: object) -> Any:
    """Return what a notebook shows for `thing`: its face, or in a terminal (and when the face fails) its ``repr``.

    Never raises: a cell that ends with a run shall not end with a traceback.
    """
    text = repr(thing)
    if kernel() is None:
        return {"text/plain": text}
    try:
        return face(name)(thing)._repr_mimebundle_()
    except Exception as error:  # noqa: BLE001 - told in the output instead: a picture is not worth a failed cell
        return {"text/plain": f"{text}\nno panel: {type(error).__name__}: {error}"}


class RunFaces:
    """What every run can be asked to show."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Show tasks and leases in a notebook, ``repr`` elsewhere; never raises."""
        del include, exclude
        return mimebundle("desk", self)

    def panel(self, name: str | None = None, **settings: Any) -> Any:
        """Return a live panel: ``fleet`` (the tasks), ``leasing``, or None for both.

        Parameters
        ----------
        name
            Which one; asked for twice, it is the same panel.
        **settings
            As its :meth:`code` writes them.

        Raises
        ------
        MissingFace
            If no panels are installed.
        """
        return face("panel")(self, name, **settings)

    def report(self, path: str | Path, **options: Any) -> Any:
        """Write the run as it is now as one HTML file that needs no network.

        Parameters
        ----------
        path
            The file.
        **options
            ``notes`` (text, or section -> text), ``theme``.

        Raises
        ------
        MissingFace
            If no reports are installed.
        """
        run: Any = self
        here = any((run.out / "journal").glob("*.jsonl"))
        return face("report")(run.out if here else run.journal(), path, **options)

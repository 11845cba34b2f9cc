"""Share what the commands that compare planners have in common: their names, means and the head of a report."""

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

import drlnb
from drlnb.records.errors import ConfigError

__all__ = ["chosen_names", "mean_of", "report_of"]


def mean_of(results: Sequence[object], name: str) -> float:
    """Return the mean of a figure over some results."""
    return float(np.mean([getattr(result, name) for result in results]))


def chosen_names(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Return the planners that an option names, each once.

    Parameters
    ----------
    option
        The option.
    text
        Names by comma, or ``all``.
    known
        All names.

    Raises
    ------
    ConfigError
        If a name is unknown, or none is given.

    Examples
    --------
    >>> chosen_names("--hold", "last,round,last", ("round", "yield", "last"))
    ['last', 'round']
    """
    names = list(known) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    unknown = [repr(name) for name in names if name not in known]
    if unknown or not names:
        raise ConfigError(
            f"{option} must name some of {', '.join(known)}, or be all; got {', '.join(unknown) or repr(text)}"
        )
    return list(dict.fromkeys(names))


def report_of(bench: str, rows: Sequence[dict[str, Any]], **more: object) -> dict[str, object]:
    """Return what ``--json`` prints: rows, and on which machine and by which versions they were made."""
    return {
        "bench": bench,
        "machine": {"system": platform.system(), "processor": platform.machine()},
        "versions": {"drlnb": drlnb.__version__, "python": platform.python_version(), "numpy": np.__version__},
        **more,
        "rows": [{**row, "bar": None, "holds": None, "binding": False, "origin": "simulated"} for row in rows],
    }

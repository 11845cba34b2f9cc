"""Write one line to the user: in a notebook to the cell's plain output, elsewhere to standard error."""

import logging
import sys

from drlnb.fleet.faces import faces

__all__ = ["note", "say"]

_LOG = logging.getLogger("drlnb")


def say(text: str) -> None:
    """Write what should be read now: a cell shows standard error in red, and this is no error."""
    stream = sys.stdout if faces.notebook() else sys.stderr
    stream.write(f"drlnb: {text}\n")
    stream.flush()


def note(text: str) -> None:
    """Write what a panel shows anyway: in a notebook it is only logged."""
    if faces.notebook():
        _LOG.info(text)
    else:
        say(text)

"""Call what a user has written inside a process that others use, too, and say in one line what was wrong with it."""

from collections.abc import Callable
from typing import TypeVar

import torch

from drlnb.records.errors import ConfigError

__all__ = ["told"]

_T = TypeVar("_T")


def told(what: str, call: Callable[..., _T], *args: object) -> _T:
    """Call something of the user's; say in one line what raised.

    Raises
    ------
    RuntimeError
        If it raised, or wanted to end this process, which others use, too.
    """
    try:
        return call(*args)
    except (torch.OutOfMemoryError, ConfigError):  # whoever called has more room to give; or it is a line of ours
        raise
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        raise RuntimeError(f"{what} raised {type(error).__name__}: {said}".rstrip(": ")) from error

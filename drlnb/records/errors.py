"""Define the errors of drlnb, one class per cause.

:class:`InputError` marks what the user typed wrong (exit code 2); everything else is the world's fault or ours.
"""

import difflib
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ConfigError",
    "EnvError",
    "InfeasibleSplit",
    "InputError",
    "InvalidTransition",
    "JournalError",
    "JournalFormatError",
    "LayoutMismatch",
    "LeaseLost",
    "MissingExtra",
    "NonFinite",
    "PeerError",
    "RunLocked",
    "SpecMismatch",
    "TrainingFailed",
    "UnsupportedSpace",
    "nearest",
    "words_of",
]


class InputError(Exception):
    """Mixed into each error that the caller can mend by asking for something else."""


class ConfigError(InputError, ValueError):
    """One or more settings are wrong; the message lists all of them."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class InfeasibleSplit(InputError, ValueError):
    """No shares within the members' bounds add up; the message lists the bounds and what would fit."""


class EnvError(InputError, RuntimeError):
    """An environment could not be made, or broke its own contract while it was probed."""


class UnsupportedSpace(EnvError):
    """The algorithm cannot serve this observation or action space."""


class MissingExtra(InputError, ImportError):
    """An optional package is needed; the message holds the pip line."""


class RunLocked(InputError, RuntimeError):
    """Another live run uses this run directory."""


class SpecMismatch(InputError, ValueError):
    """The run directory holds another run than the one asked for."""


class JournalError(InputError, ValueError):
    """A journal line cannot be read; the message names file and line."""


class JournalFormatError(JournalError):
    """Another version of drlnb wrote the journal."""


class CheckpointError(InputError, ValueError):
    """A checkpoint is missing, torn, or belongs to another task."""


class LayoutMismatch(CheckpointError):
    """Saved tensors belong to another network; the message names the first one that differs."""


class InvalidTransition(RuntimeError):
    """A machine got an event that its state forbids: a defect of ours."""

    def __init__(self, machine: str, state: str, event: object, story: Iterable[object] = ()) -> None:
        self.machine, self.state, self.event, self.story = machine, state, event, tuple(story)
        tail = "".join(f"\n    {record}" for record in self.story)
        super().__init__(f"{machine} in state {state} cannot take {event}{tail}")


class PeerError(ConnectionError):
    """A process that we depend on did not answer, answered with an error, or died."""

    def __init__(self, node: str, problem: str) -> None:
        self.node, self.what = node, problem
        super().__init__(f"{node}: {problem}")


class LeaseLost(RuntimeError):
    """A lease ended before its holder returned it: its fence, as people are shown it, and why it ended, in words."""

    def __init__(self, fence: object, reason: str) -> None:
        self.fence, self.reason = fence, reason
        super().__init__(f"lease {fence} is lost: {reason}")

    def __reduce__(self) -> tuple[type["LeaseLost"], tuple[object, str]]:
        return type(self), (self.fence, self.reason)


class NonFinite(RuntimeError):
    """A loss, gradient or reward is NaN or infinite; the update was refused."""


class TrainingFailed(RuntimeError):
    """A task ended in state ``failed``; the message holds the first cause."""


def nearest(name: str, known: Iterable[str], *, listed: bool = False) -> str:
    """Return a hint at the nearest known name, for a message about a wrong one; if none is near, nothing or all."""
    names = list(known)
    if near := difflib.get_close_matches(str(name), names, n=1):
        return f"; did you mean {near[0]!r}?"
    return f"; known are {', '.join(names)}" if listed else ""


def words_of(error: BaseException) -> str:
    """Return an error's text; that of a user's own may raise, too."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - it is foreign code
        return f"no words of its own, its __str__ raises {type(broken).__name__}"

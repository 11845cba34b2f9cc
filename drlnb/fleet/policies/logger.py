"""Keep the scalars that callbacks record."""

from collections.abc import Sequence
from typing import Protocol, cast

from drlnb.fleet.faces import say
from drlnb.records.errors import ConfigError

__all__ = ["Logger"]


class Theirs(Protocol):
    """What is called of a logger of Stable-Baselines3's."""

    def record(self, key: str, value: object, exclude: str | Sequence[str] | None = None) -> None: ...

    def record_mean(self, key: str, value: float | None, exclude: str | Sequence[str] | None = None) -> None: ...

    def dump(self, step: int = 0) -> None: ...


class Logger:
    """What ``self.logger`` is in a callback: scalars recorded here stand beside the round's own.

    They are shown with ``verbose=1`` and written by `tensorboard_log`, when the round ends in which they are recorded.
    """

    def __init__(self) -> None:
        #: Name -> value, of the round that goes on.
        self.name_to_value: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        #: A logger of Stable-Baselines3's, which gets everything instead; None: there is none.
        self.theirs: Theirs | None = None
        self._left_out: set[str] = set()

    def __getstate__(self) -> dict[str, object]:
        """Return what a copy gets: a logger of theirs holds open files."""
        return {**vars(self), "theirs": None}

    def __getattr__(self, name: str) -> object:
        """Return what a logger of theirs has beside; else AttributeError, with the way."""
        theirs = vars(self).get("theirs")
        if theirs is None:
            raise AttributeError(
                f"a model's logger has record, record_mean and dump, not {name!r}: tensorboard_log=... writes event "
                "files, model.set_logger(configure(...)) brings all of theirs"
            )
        return getattr(theirs, name)

    def follow(self, theirs: object) -> None:
        """Hand everything to a logger of Stable-Baselines3's from now on; ConfigError if it is none."""
        if not callable(getattr(theirs, "record", None)) or not callable(getattr(theirs, "dump", None)):
            raise ConfigError(f"logger must be what Stable-Baselines3's configure(...) returns, got {theirs!r}")
        self.theirs = cast(Theirs, theirs)

    def record(self, key: str, value: object, exclude: str | Sequence[str] | None = None) -> None:
        """Record a number; the last one of a round counts.

        What is no number is left out, which is said once: event files and tables hold numbers here.
        """
        if self.theirs is not None:
            self.theirs.record(key, value, exclude)
            return
        try:
            self.name_to_value[key] = float(value)  # type: ignore[arg-type]  # what it is is tried
        except (TypeError, ValueError):
            self.name_to_value.pop(key, None)
            if key not in self._left_out:
                self._left_out.add(key)
                say(f"logger.record({key!r}, ...) got no number but a {type(value).__name__}: it is written nowhere")

    def record_mean(self, key: str, value: float | None, exclude: str | Sequence[str] | None = None) -> None:
        """Record the mean of a round's numbers; None counts as nothing."""
        if self.theirs is not None:
            self.theirs.record_mean(key, value, exclude)
        if value is None or self.theirs is not None:
            return
        n = self._counts.get(key, 0)
        self.record(key, (self.name_to_value.get(key, 0.0) * n + float(value)) / (n + 1), exclude)
        self._counts[key] = n + 1

    def dump(self, step: int = 0) -> None:
        """Do nothing: a round's end writes what was recorded."""

    def drained(self) -> dict[str, float]:
        """Return what was recorded, and forget it."""
        values, self.name_to_value, self._counts = self.name_to_value, {}, {}
        return values

    def info(self, *args: object) -> None:
        """Say something in a line."""
        say(" ".join(map(str, args)))

    #: The same: there are no levels.
    log = debug = warn = error = info

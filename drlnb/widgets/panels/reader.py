"""Read one run's columns for one panel: what is new since the last look, and whether the run has just ended."""

from drlnb.fleet.run import Run
from drlnb.widgets.transport.story import FOLDS, Story

__all__ = ["Reader"]


class Reader:
    """What a panel has read of a run; :data:`~drlnb.widgets.transport.story.FOLDS` is held by who reads."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self._story = Story()
        #: The columns, and the version of them that was read last.
        self.fold, self._read = self._story.fold, 0
        self._n_defects = 0
        self._ended = False

    @property
    def n_waiting(self) -> float:
        """Rows that :meth:`take` would fold; infinite where it had to read files."""
        return self._story.n_waiting

    def follow(self, run: Run) -> None:
        """Read a run from now on."""
        with FOLDS:
            self._story.leave()
            self.run, self._story, self._ended = run, Story.of(run), False
            self._read = -1  # whatever was folded for others is new here

    def take(self) -> list[str] | None:
        """Fold the rows that wait, unless another panel of the run has done so; return new defects, None if idle."""
        self._story.take()
        if self._read == self._story.version:
            return None
        self._read = self._story.version
        if self.fold is not self._story.fold:
            self.fold, self._n_defects = self._story.fold, 0
        defects = self.fold.defects[self._n_defects :]
        self._n_defects += len(defects)
        return defects

    def has_just_ended(self) -> bool:
        """Whether the run has ended since the last call."""
        ended = self.run is not None and self.run.ended
        last, self._ended = ended and not self._ended, ended
        return last

    def leave(self) -> None:
        """Read no more."""
        self._story.leave()

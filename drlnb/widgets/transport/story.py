"""Fold one run's journal once, however many panels read it."""

import threading
import weakref
from typing import ClassVar

from drlnb.fleet.training import Training
from drlnb.views.folds.fold import Fold

__all__ = ["FOLDS", "Reader", "Story"]

#: Held while columns grow and while pictures are made of them.  One for all runs: the hub goes from panel to panel
#: anyway, and whoever asks for a picture meanwhile waits for one visit.
FOLDS = threading.RLock()


class Story:
    """One run's columns, shared by the panels that show it; :data:`FOLDS` is held by who takes or reads.

    Parameters
    ----------
    run
        The run; a story without one stays empty.
    """

    #: id of a run -> its story, as long as somebody reads it.
    _open: ClassVar["weakref.WeakValueDictionary[int, Story]"] = weakref.WeakValueDictionary()

    def __init__(self, run: Training | None = None) -> None:
        self.run = run
        self.fold = Fold(details=False)
        #: Grows with every row.
        self.version = 0
        self._tap = None if run is None else run.watch.feed.tap()
        self._n_readers = 0

    @classmethod
    def of(cls, run: Training) -> "Story":
        """Return the story of a run, and count one more who reads it."""
        with FOLDS:
            # A story holds its run, so the run's id is its own as long as the story is there.
            story = cls._open.get(id(run))
            if story is None:
                story = cls._open[id(run)] = cls(run)
            story._n_readers += 1
            return story

    def leave(self) -> None:
        """Read it no longer; the last one to leave ends the listening."""
        with FOLDS:
            self._n_readers -= 1
            if self._tap is not None and self._n_readers <= 0:
                self._tap.close()
                self._open.pop(id(self.run), None)

    @property
    def n_waiting(self) -> float:
        """Rows that :meth:`take` would fold; infinite where it had to read files."""
        return 0 if self._tap is None else self._tap.n_waiting

    def take(self) -> None:
        """Fold the rows that wait."""
        if self._tap is None or self.run is None:
            return
        anew, rows = self._tap.drain()
        if anew:
            specs = self.run.specs.values()
            groups = {s.name: s.group for s in specs if s.group}
            self.fold = Fold(tasks=self.run.specs, groups=groups, details=False)  # no panel shows them
        self.fold.feed(rows)
        self.version += anew or bool(rows)


class Reader:
    """What a panel has read of a run; :data:`FOLDS` is held by who reads."""

    def __init__(self) -> None:
        self.run: Training | None = None
        self.story = Story()
        self.fold = self.story.fold
        #: What was read last.
        self._read: tuple[int, bool, bool] | None = (0, False, False)
        self._n_defects = 0
        self._ended = False

    def follow(self, run: Training) -> None:
        """Read a run from now on."""
        with FOLDS:
            self.story.leave()
            self.run, self.story, self._ended = run, Story.of(run), False
            self._read = None  # whatever was folded for others is new here

    def take(self) -> list[str] | None:
        """Fold the rows that wait, unless another panel of the run has done so; return new defects, None if idle.

        That the run has ended, or is watched no more, is news, too: its pictures say so, and no row may tell of it.
        """
        self.story.take()
        run = self.run
        read = (self.story.version, run is not None and run.ended, run is not None and run.watch.closed)
        if self._read == read:
            return None
        self._read = read
        if self.fold is not self.story.fold:
            self.fold, self._n_defects = self.story.fold, 0
        defects = self.fold.defects[self._n_defects :]
        self._n_defects += len(defects)
        return defects

    def has_just_ended(self) -> bool:
        """Whether the run has ended since the last call."""
        ended = self.run is not None and self.run.ended
        last, self._ended = ended and not self._ended, ended
        return last

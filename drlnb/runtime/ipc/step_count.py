"""Count a child's steps where its agent can read them once the child is gone: eight bytes that both have mapped."""

import contextlib
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

__all__ = ["StepCount"]

#: What the count is while nothing is counted: nothing runs that could be told, or environments are made.
_RESTING, _MAKING = -2, -1


class StepCount:
    """The steps of a collector's environments since it was woken.

    Parameters
    ----------
    file
        Descriptor of a file of eight bytes; -1: nobody else reads it.
    """

    def __init__(self, file: int = -1) -> None:
        self._memory = mmap.mmap(file, 8)
        self._cell: memoryview | list[int] = memoryview(self._memory).cast("q")

    @classmethod
    @contextlib.contextmanager
    def shared(cls) -> Iterator[tuple[Self, str]]:
        """Return a new count, and the path by which a child finds it; the path is gone after the block."""
        with tempfile.NamedTemporaryFile(prefix="drlnb-steps-") as file:
            file.write(bytes(8))
            file.flush()
            count = cls(file.fileno())
            count._cell[0] = _MAKING
            yield count, file.name

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the count whose other end an agent has."""
        with Path(path).open("r+b") as file:
            return cls(file.fileno())

    def begin(self) -> None:
        """Count from 0 on."""
        self._cell[0] = 0

    def step(self) -> None:
        """Count a step of all environments."""
        self._cell[0] += 1

    def rest(self) -> None:
        """Count nothing until the next beginning."""
        self._cell[0] = _RESTING

    def close(self) -> None:
        """Close the file, and keep the count as it is."""
        if isinstance(self._cell, memoryview):
            n = self._cell[0]
            self._cell.release()
            self._cell = [n]
            self._memory.close()

    @property
    def where(self) -> str:
        """In words where the environments were when the child ended; empty while nothing is counted."""
        n = self._cell[0]
        return {_RESTING: "", _MAKING: "while its environments were made"}.get(n, f"in step {n + 1} since it was woken")

"""Keep what the members of a gang save: in a folder of each gang, a file of each step and member.

A job goes on from the newest step that all members of one gang have saved.  Each gang has a folder of its own, so that
what a member of a former one may still write is never mixed with it.
"""

import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drlnb.records.errors import ConfigError
from drlnb.runtime.ipc.pickling import pack_value, unpack

__all__ = ["ResumePoint", "load", "newest_step", "resume_point", "save"]

#: Name of a gang's folder: its number, and the members that it has.
_GANG = re.compile(r"gang-(\d+)-of-(\d+)")
_FILE = re.compile(r"step-(\d+)-rank-(\d+)")


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a gang begins."""

    #: Folder of the gang, and the one that holds the step which it goes on from.
    saves_to: Path
    loads_from: Path
    #: 0: from the beginning.
    step: int = 0


def _gangs(root: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield number, members and folder of each gang, the newest first."""
    folders = {path: _GANG.fullmatch(path.name) for path in (root.iterdir() if root.is_dir() else ())}
    found = [(int(match[1]), int(match[2]), path) for path, match in folders.items() if match]
    yield from sorted(found, reverse=True)


def newest_step(folder: Path, size: int) -> int:
    """Return the newest step that all members have saved; 0 if there is none."""
    names = [_FILE.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    n_saved = Counter(int(name[1]) for name in names if name and int(name[2]) < size)
    return max((step for step, n in n_saved.items() if n == size), default=0)


def resume_point(root: Path, size: int) -> ResumePoint:
    """Return where the next gang of a job begins.

    Raises
    ------
    ConfigError
        If the newest step is one of a gang of another size.
    OSError
        If the folder cannot be read.
    """
    gangs = list(_gangs(root))
    saves_to = root / f"gang-{gangs[0][0] + 1 if gangs else 1}-of-{size}"
    for _, n, folder in gangs:
        if step := newest_step(folder, n):
            if n != size:
                raise ConfigError(f"{root} holds what {n} members have saved, the job has {size}: give another folder")
            return ResumePoint(saves_to, folder, step)
    return ResumePoint(saves_to, saves_to)


def save(folder: Path, step: int, rank: int, size: int, payload: object) -> None:
    """Write a member's file whole or not at all; remove its older ones once all members have saved a newer step."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{uuid.uuid4().hex}.part"
    try:
        with beside.open("xb") as file:
            file.write(pack_value(payload))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / f"step-{step}-rank-{rank}")
    finally:
        beside.unlink(missing_ok=True)
    newest = newest_step(folder, size)
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match and int(match[1]) < newest and int(match[2]) == rank:
            path.unlink(missing_ok=True)


def load(point: ResumePoint, rank: int) -> object:
    """Return what a member had saved.

    Raises
    ------
    ConfigError
        If its file is not there.
    """
    path = point.loads_from / f"step-{point.step}-rank-{rank}"
    try:
        return unpack(path.read_bytes())
    except OSError as error:
        said = f"{path} cannot be read ({error.strerror}): use a folder that all workers and this process share"
    raise ConfigError(said)

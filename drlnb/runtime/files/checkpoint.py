"""Keep a task's state on disk so that a half-written one never loads.

``checkpoints/<task>/<n_rounds>/{meta.json, *.safetensors}``, beside them ``LATEST`` and ``BEST``, text files with a
folder's name.  A new one is written to a temporary folder, synced, renamed, then named in LATEST; ``meta.json``
holds each file's size and CRC-32.  What the files are: :mod:`drlnb.rl.checkpoints.files`.  The file ``ATTEMPT`` holds
the number of the attempt that may write here: a master that was stopped for a while and comes back cannot.

A file of an earlier checkpoint may be part of a later one, as ``../<n_rounds>/<file>``: it stays as long as one that is
kept names it.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from drlnb.records.errors import CheckpointError
from drlnb.rl.checkpoints.files import ENVS
from drlnb.rl.pickled import holds_code
from drlnb.runtime.protocol import Payload, Plain

__all__ = ["META", "Checkpoint", "SupersededError", "claim", "latest", "load", "meta", "parse", "put", "write"]

#: The file that describes the others.
META = "meta.json"
#: Version of the layout; a reader refuses another one.
_FORMAT = 2
#: Checkpoints kept beside the newest one.
_KEEP = 2


class SupersededError(Exception):
    """A later attempt of the task has begun; what this one would write is nobody's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that has been read: its facts and the files' bytes."""

    facts: Plain
    blobs: Mapping[str, bytes]
    path: Path


def meta(
    facts: Mapping[str, object], blobs: Mapping[str, Payload | np.ndarray], earlier: Mapping[str, object] | None = None
) -> bytes:
    """Return the content of ``meta.json``: the facts, size and CRC-32 of each file, and those of `earlier` ones."""
    sums = {**{name: _sum(blob) for name, blob in blobs.items()}, **(earlier or {})}
    return json.dumps({"format": _FORMAT, "files": sums, "facts": facts}).encode()


def _sum(blob: Payload | np.ndarray) -> tuple[int, int]:
    view = _view(blob)
    return view.nbytes, zlib.crc32(view)


def _view(blob: Payload | np.ndarray) -> memoryview:
    return memoryview(blob.data if isinstance(blob, np.ndarray) else blob).cast("B")


def claim(folder: Path, attempt: int) -> None:
    """Keep every earlier attempt from writing here; what one has written before is whole.

    Parameters
    ----------
    folder
        ``OUT/checkpoints/<task>``; made if it is not there.
    attempt
        Of the task.

    Raises
    ------
    SupersededError
        If a later attempt has claimed it.
    OSError
        If the disk refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _mine(folder, attempt):
        pass


@contextlib.contextmanager
def _mine(folder: Path, attempt: int) -> Iterator[None]:
    """Keep every other attempt out; raise if a later one has been here."""
    with (folder / "ATTEMPT").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or its process ends
        file.seek(0)
        text = file.read().strip()
        latest_attempt = int(text) if text.isdigit() else 0
        if latest_attempt > attempt:
            raise SupersededError(f"attempt {latest_attempt} has begun, this is attempt {attempt}")
        if latest_attempt < attempt:
            file.truncate(0)
            file.write(str(attempt))
            file.flush()
        yield


def write(
    folder: Path,
    *,
    n_rounds: int,
    facts: Mapping[str, object],
    blobs: Mapping[str, Payload | np.ndarray],
    best: bool = False,
    attempt: int | None = None,
    earlier: Sequence[str] = (),
) -> int:
    """Write a checkpoint of a task; return its bytes.

    Parameters
    ----------
    folder
        ``OUT/checkpoints/<task>``.
    n_rounds
        Rounds finished; the name of the checkpoint.
    facts
        Plain data.
    blobs
        File name -> bytes-like.
    best
        It is the best one so far, and kept until a better one comes.
    attempt
        Whose; None: nobody else writes here.
    earlier
        Files of earlier checkpoints that it needs: ``../<n_rounds>/<file>``.

    Raises
    ------
    OSError
        If the disk refuses, or an earlier file is gone; what was there before is whole.
    SupersededError
        If a later attempt has claimed the folder; what was there before is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"tmp-{n_rounds}-{os.getpid()}"
    final = folder / str(n_rounds)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        sums = {name: _sums(folder / name[3:]) for name in earlier}
        files = {**blobs, META: meta(facts, blobs, sums)}
        for name, blob in files.items():
            put(temporary / name, blob, private=name == ENVS or (name == META and holds_code(facts)))
        with contextlib.nullcontext() if attempt is None else _mine(folder, attempt):
            shutil.rmtree(final, ignore_errors=True)  # an earlier attempt's, of the same round
            temporary.replace(final)
            for name in ("LATEST", "BEST") if best else ("LATEST",):
                (folder / f"{name}.tmp").unlink(missing_ok=True)
                put(folder / f"{name}.tmp", str(n_rounds).encode())
                (folder / f"{name}.tmp").replace(folder / name)
    except (OSError, SupersededError):
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _tidy(folder, keep=n_rounds)
    return sum(_sum(blob)[0] for blob in files.values())


def _create(path: Path, *, private: bool) -> BinaryIO:
    """Open a new file, which others may read as the umask has it; `private`: nobody may, for code lies in it."""
    return open(path, "xb", opener=partial(os.open, mode=0o600 if private else 0o666))


def _sums(file: Path) -> object:
    """Return size and checksum of a file of an earlier checkpoint."""
    sums = _files(file.parent).get(file.name)
    if sums is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    return sums


def put(path: Path, blob: Payload | np.ndarray, *, private: bool = False) -> None:
    """Write a new file, and wait until it is on the disk; `private`: nobody else may read it, for code lies in it."""
    with _create(path, private=private) as file:
        file.write(_view(blob))
        file.flush()
        os.fsync(file.fileno())


def _tidy(folder: Path, keep: int) -> None:
    named = {str(keep), _named(folder, "BEST")}
    paths = _newest_first(folder)
    others = [path for path in paths if path.name not in named][_KEEP:]
    needed = {name[3:] for path in paths if path not in others for name in _files(path) if name.startswith("../")}
    for path in (*others, *folder.glob("tmp-*")):
        files = {path / META, *(folder / name for name in needed if name.startswith(f"{path.name}/"))}
        if len(files) == 1:
            shutil.rmtree(path, ignore_errors=True)
        for file in set(path.glob("*")) - files:
            file.unlink(missing_ok=True)


def _files(path: Path) -> Plain:
    """Return size and checksum of each file that a checkpoint names, whole or not; of none if it is not there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        files: Plain = json.loads((path / META).read_bytes())["files"]
        return files
    return {}


def _newest_first(folder: Path) -> list[Path]:
    """Return the checkpoints of a task; what is in them may not be whole."""
    numbered = (path for path in folder.iterdir() if path.is_dir() and path.name.isdigit())
    return sorted(numbered, key=lambda path: int(path.name), reverse=True)


def _named(folder: Path, name: str) -> str:
    """Return the folder that LATEST or BEST names; empty if there is no such file."""
    path = folder / name
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def parse(read: Callable[[str], bytes], path: Path) -> Checkpoint:
    """Read a checkpoint from wherever its files are.

    Parameters
    ----------
    read
        File name -> its bytes; may raise OSError or KeyError.
    path
        For messages.

    Raises
    ------
    CheckpointError
        If a file is missing, torn, or of another format.
    """
    try:
        content = json.loads(read(META))
        if content["format"] != _FORMAT:
            raise CheckpointError(f"{path}: format {content['format']}, this version reads {_FORMAT}")
        blobs = {}
        for name, sums in content["files"].items():
            blob = read(name)
            if _sum(blob) != tuple(sums):
                raise CheckpointError(f"{path / name}: torn ({len(blob)} of {sums[0]} bytes, or another checksum)")
            blobs[name] = blob
    except CheckpointError:
        raise
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not a whole checkpoint ({error})") from None
    return Checkpoint(facts=content["facts"], blobs=blobs, path=path)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises
    ------
    CheckpointError
        If a file is missing, torn, or of another format.
    """
    return parse(lambda name: (path / name).read_bytes(), path)


def latest(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint of a task, ``None`` if there is none at all.

    LATEST is tried first, then older ones: killed between the files and LATEST, the older one loads.

    Raises
    ------
    CheckpointError
        If there are checkpoints but none is whole.
    """
    if not folder.is_dir():
        return None
    first = _named(folder, "LATEST")
    problems = []
    for path in sorted(_newest_first(folder), key=lambda path: path.name != first):
        try:
            return load(path)
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointError("; ".join(problems))
    return None

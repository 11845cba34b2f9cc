"""How is a task's state kept on disk so that a half-written one never loads?

``checkpoints/<task>/<n_rounds>/{manifest.json, *.bin}`` and ``LATEST``, a text file with the folder's name.  A new one
is written to a temporary folder, synced, renamed, and only then named in LATEST; the manifest holds each file's CRC-32.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drlnb.records.errors import CheckpointError

__all__ = ["Checkpoint", "latest", "load", "write"]

#: Version of the layout; a reader refuses another one.
_FORMAT = 1
#: Checkpoints kept beside the newest one.
_KEEP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One that has been read: the manifest's facts and the files' bytes."""

    facts: Mapping[str, Any]
    blobs: Mapping[str, bytes]
    path: Path


def write(folder: Path, *, n_rounds: int, facts: Mapping[str, Any], blobs: Mapping[str, Any]) -> int:
    """Write a checkpoint of a task; return its bytes.

    Parameters
    ----------
    folder
        ``OUT/checkpoints/<task>``.
    n_rounds
        Rounds finished; the name of the checkpoint.
    facts
        Plain data for the manifest.
    blobs
        File name -> bytes-like.

    Raises
    ------
    OSError
        If the disk refuses; what was there before is whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"tmp-{n_rounds}-{os.getpid()}"
    final = folder / str(n_rounds)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        files = {name: _put(temporary / name, blob) for name, blob in blobs.items()}
        manifest = json.dumps({"format": _FORMAT, "n_rounds": n_rounds, "files": files, "facts": facts}).encode()
        _put(temporary / "manifest.json", manifest)
        shutil.rmtree(final, ignore_errors=True)  # an earlier attempt's, of the same round
        temporary.replace(final)
        _put(folder / "LATEST.tmp", str(n_rounds).encode())
        (folder / "LATEST.tmp").replace(folder / "LATEST")
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _tidy(folder, keep=n_rounds)
    return sum(size for size, _ in files.values()) + len(manifest)


def _put(path: Path, blob: Any) -> tuple[int, int]:
    view = memoryview(blob).cast("B")
    with path.open("wb") as file:
        file.write(view)
        file.flush()
        os.fsync(file.fileno())
    return view.nbytes, zlib.crc32(view)


def _tidy(folder: Path, keep: int) -> None:
    numbered = sorted((int(p.name), p) for p in folder.iterdir() if p.is_dir() and p.name.isdigit())
    for n_rounds, path in [row for row in numbered if row[0] != keep][: -_KEEP or None]:
        del n_rounds
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """Read one checkpoint.

    Raises
    ------
    CheckpointError
        If a file is missing, torn, or of another format.
    """
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"{path}: format {manifest['format']}, this version reads {_FORMAT}")
        blobs = {}
        for name, (size, crc) in manifest["files"].items():
            blob = (path / name).read_bytes()
            if len(blob) != size or zlib.crc32(blob) != crc:
                raise CheckpointError(f"{path / name}: torn ({len(blob)} of {size} bytes, or another checksum)")
            blobs[name] = blob
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: not a whole checkpoint ({error})") from None
    return Checkpoint(facts=manifest["facts"], blobs=blobs, path=path)


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
    numbered = sorted((p for p in folder.iterdir() if p.is_dir() and p.name.isdigit()), key=lambda p: -int(p.name))
    named = folder / "LATEST"
    if named.is_file():
        first = folder / named.read_text(encoding="utf-8").strip()
        numbered.sort(key=lambda p: p != first)
    problems = []
    for path in numbered:
        try:
            return load(path)
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise CheckpointError("; ".join(problems))
    return None

"""Read and write a run directory.

    run.json       the spec: tasks, planners, settings, versions, hosts, created; written once
    status.json    state of each task, replaced as a whole
    LOCK           who runs it now: epoch, address, process and machine of the scheduler; renewed while masters live
    journal/  metrics/  checkpoints/  logs/
    fit/           of supervised work: its program and its data set, by their content

Every file is replaced by temp and rename, so a reader never sees half of one.
"""

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from drlnb.records.errors import ConfigError, JournalError, RunLocked
from drlnb.records.journal import read_stream
from drlnb.records.round import ENDS, EndTask
from drlnb.rl.pickled import holds_code
from drlnb.runtime.files.checkpoint import put
from drlnb.runtime.files.lock import Lock, judged
from drlnb.runtime.protocol import Plain

__all__ = ["FIT", "RunDir"]

#: The folder of supervised work alone.
FIT = "fit"
_FOLDERS = ("journal", "metrics", "checkpoints", "logs")
_FILES = ("run.json", "status.json", "LOCK", "report.html")
#: Where trackers write that were given no other place.
_TRACKS = ("tensorboard", "wandb", "mlruns")


def _write_json(path: Path, value: Mapping[str, object], *, new: bool = False) -> None:
    """Write a file whole or not at all; `new`: raise FileExistsError if it is there."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        put(beside, json.dumps(value, indent=1, default=dict).encode() + b"\n", private=holds_code(value))
        if new:
            _name_new(beside, path)
        else:
            beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _name_new(beside: Path, path: Path) -> None:
    """Give a whole file its name; FileExistsError if another one has it."""
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this disk: the name is taken first, so that only one of two gets it
        path.touch(exist_ok=False)
        beside.replace(path)
    else:
        beside.unlink()


def _text(path: Path) -> str:
    """Return what a file holds; OSError for what is no file: a pipe of that name would never answer."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file")
    return path.read_text(encoding="utf-8")


def _read_json(path: Path) -> Plain | None:
    try:
        content: Plain = json.loads(_text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not what drlnb wrote: {error}") from None
    return content


class RunDir:
    """The files of one run.

    Parameters
    ----------
    path
        The directory; nothing is made or read yet.
    """

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path) or "\0" in str(path):
            raise ConfigError(f"a run directory must be a path without NUL, got {path!r}")
        try:
            self.path = Path(path).expanduser().absolute()
        except RuntimeError:
            raise ConfigError(f"a run directory must be a path, got {str(path)!r}: there is no such user") from None
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            way = "set LC_ALL=C.UTF-8, or PYTHONUTF8=1"
            raise ConfigError(f"{str(self.path)!a} cannot be read in this locale, and travels nowhere: {way}") from None
        self.journal = self.path / "journal"
        self.metrics = self.path / "metrics"
        self.checkpoints = self.path / "checkpoints"
        #: Whether a run that was here before goes on.
        self.resumed = False

    def __repr__(self) -> str:
        return f"RunDir({str(self.path)!r})"

    # ------------------------------------------------------------------ spec and status
    def read_spec(self) -> Plain:
        """Return what ``run.json`` holds.

        Raises
        ------
        ConfigError
            If there is no run here, or the file was broken by someone.
        """
        spec = _read_json(self.path / "run.json")
        if spec is None:
            raise ConfigError(f"{self.path} holds no run of drlnb (no run.json)")
        tasks = (
            spec.get("tasks") if isinstance(spec, dict) and spec.get("run") and isinstance(spec["run"], str) else None
        )
        named = isinstance(tasks, list) and all(isinstance(task, dict) and task.get("name") for task in tasks)
        if not tasks or not named or not all(isinstance(task["name"], str) for task in tasks):
            raise ConfigError(f"{self.path / 'run.json'} is not what drlnb wrote: it lacks run, tasks or their names")
        return dict(spec)

    def write_spec(self, spec: Mapping[str, object]) -> None:
        """Replace ``run.json``: once at the start, and when a run goes on with another budget."""
        _write_json(self.path / "run.json", spec)

    def read_status(self) -> Plain:
        """Return what ``status.json`` holds, ``{}`` if there is none."""
        status: Plain | None = _read_json(self.path / "status.json")
        if status is None:
            return {}
        if not isinstance(status, dict) or not isinstance(status.get("tasks", {}), dict):
            raise ConfigError(f"{self.path / 'status.json'} is not what drlnb wrote: it must hold tasks by name")
        return status

    def write_status(self, status: Mapping[str, object]) -> None:
        """Replace ``status.json``: ``{"tasks": {name: {"state": ..., ...}}, ...}``."""
        _write_json(self.path / "status.json", status)

    def scheduling(self) -> dict[str, Plain]:
        """Return each task's settings of scheduling that were changed while it ran; tasks without any are left out."""
        rows = self.read_status().get("tasks", {})
        return {str(name): dict(row["scheduling"]) for name, row in rows.items() if row.get("scheduling")}

    def streams(self) -> dict[str, int]:
        """Return the streams that the run has written, each with the least bytes that its file must have."""
        sizes = self.read_status().get("streams", {})
        return {str(name): n for name, n in sizes.items() if isinstance(n, int)} if isinstance(sizes, dict) else {}

    def lost(self) -> list[str]:
        """Return in words which streams are not whole any more."""
        sizes = Counter[str]()  # with the files that a stream has filled
        for path in self.journal.glob("*.jsonl"):
            sizes[path.stem.partition("~")[0]] += path.stat().st_size
        there = {name: (sizes.get(name, 0), n) for name, n in self.streams().items()}
        return [f"{name}: {size:,} of at least {n:,} bytes are there" for name, (size, n) in there.items() if size < n]

    def states(self) -> dict[str, str]:
        """Return each task's state: ``done``, ``stopped``, ``failed``, or ``interrupted`` where no end is recorded."""
        rows = self.read_status().get("tasks", {})
        ends = {str(task["name"]): rows.get(task["name"], {}).get("state", "") for task in self.read_spec()["tasks"]}
        return {name: state if state in ENDS else self._last_end(name) for name, state in ends.items()}

    def _last_end(self, task: str) -> str:
        """Return how the newest attempt of a task ended, by its own journal (status.json may be another host's)."""
        attempts = self.attempts(task)
        if not attempts:
            return "interrupted"
        try:
            ends = read_stream(attempts[max(attempts)], tail=True).of(EndTask)
        except JournalError:
            return "interrupted"
        return ends[-1].state if ends else "interrupted"

    def attempts(self, task: str) -> dict[int, Path]:
        """Return the journal of each attempt of a task."""
        journals = (
            (path.stem.removeprefix(f"task-{task}-a"), path) for path in self.journal.glob(f"task-{task}-a*.jsonl")
        )
        return {int(attempt): path for attempt, path in journals if attempt.isdigit()}

    # ------------------------------------------------------------------ lock
    def read_lock(self) -> Lock | None:
        """Return who runs it, None if nobody does; one that cannot be read names no run."""
        path = self.path / "LOCK"
        try:
            return Lock.parse(_text(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            said = f"{path} cannot be read, so somebody may run it: ask its owner, or delete that file if nobody does"
            return Lock(run="", epoch=0, address="", said=said)

    def write_lock(self, lock: Lock) -> None:
        """Record who runs it."""
        _write_json(self.path / "LOCK", lock.to_plain())

    def renew_lock(self, run: str, epoch: int) -> Lock | None:
        """Show that a run's master lives; return who has taken the directory over, None if nobody has."""
        lock = self.read_lock()
        if lock is not None and lock.run and (lock.run, lock.epoch) != (run, epoch):
            return lock
        with contextlib.suppress(OSError):  # it is gone at the end of the run; of a disk that fails others speak
            os.utime(self.path / "LOCK")
        return None

    def remove_lock(self, epoch: int) -> None:
        """Remove the lock if it is still ours."""
        lock = self.read_lock()
        if lock is not None and lock.run and lock.epoch == epoch:
            (self.path / "LOCK").unlink(missing_ok=True)

    def live_lock(self) -> Lock | None:
        """Return the lock if its run goes on, or may go on; its `said` tells why, and what to do."""
        lock = self.read_lock()
        said = "" if lock is None else lock.said or judged(lock, self.path / "LOCK")
        return replace(lock, said=said) if lock is not None and said else None

    # ------------------------------------------------------------------ make and remove
    def create(self, spec: Mapping[str, object]) -> None:
        """Make the directory and its ``run.json``.

        Raises
        ------
        ConfigError
            If it cannot be written.
        RunLocked
            If another process made a run here at the same moment.
        """
        try:
            for folder in _FOLDERS:
                (self.path / folder).mkdir(parents=True, exist_ok=True)
            _write_json(self.path / "run.json", spec, new=True)
        except FileExistsError:
            raise RunLocked(f"{self.path}: another run was started here at the same moment") from None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from None

    def add(self, files: Mapping[str, bytes]) -> None:
        """Write files of supervised work, which are named by their content, in place of those that are not among them.

        Nobody else may read them: they hold code, and perhaps data that is not for everybody.

        Raises
        ------
        ConfigError
            If they cannot be written.
        """
        for name, content in files.items():
            path = self.path / FIT / name
            beside = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
            try:
                path.parent.mkdir(exist_ok=True)
                if not path.exists():
                    put(beside, content, private=True)
                    beside.replace(path)
            except OSError as error:
                beside.unlink(missing_ok=True)
                raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
        for path in (self.path / FIT).glob("*.pickle") if files else ():
            if path.name not in files:
                path.unlink(missing_ok=True)

    def foreign(self) -> Path | None:
        """Return a file that drlnb did not write here, None if there is none."""
        return next((path for path in self.files() if not _is_ours(path.relative_to(self.path))), None)

    def files(self, folder: Path | None = None) -> Iterator[Path]:
        """Yield every file inside, and folders that are empty and not ours."""
        for path in sorted((folder or self.path).iterdir()):
            if path.is_dir() and not path.is_symlink():
                inside = list(self.files(path))
                known = path.relative_to(self.path).parts[0] in (*_FOLDERS, FIT, *_TRACKS)
                yield from inside if inside or known else [path]
            else:
                yield path

    def remove(self) -> None:
        """Delete the run's files and folders, if nothing else is among them.

        Raises
        ------
        ConfigError
            If a file inside is not ours; nothing is deleted then.
        """
        stranger = self.foreign()
        if stranger is not None:
            raise ConfigError(f"{stranger} was not written by drlnb; move it away before {self.path} is overwritten")
        for folder in (*_FOLDERS, FIT, *_TRACKS):
            if (self.path / folder).exists():
                shutil.rmtree(self.path / folder)
        for path in self.path.iterdir():
            path.unlink()


def _is_ours(path: Path) -> bool:
    parts, name = path.parts, path.name
    if len(parts) == 1:
        return name in _FILES or (name.endswith((".part", ".tmp")) and name.startswith(_FILES))
    if parts[0] in _TRACKS:
        return parts[0] != "tensorboard" or name.startswith("events.out.tfevents.")
    if parts[0] == "journal":
        return name.endswith(".jsonl")
    if parts[0] == "metrics":
        return name.endswith((".csv", ".part"))
    if parts[0] == FIT:
        return ".pickle" in name
    if parts[0] == "logs":
        return ".log" in name
    if parts[0] == "checkpoints" and len(parts) == 3:
        return name.startswith(("LATEST", "BEST", "ATTEMPT"))
    return parts[0] == "checkpoints" and len(parts) == 4 and (parts[2].isdigit() or parts[2].startswith("tmp-"))

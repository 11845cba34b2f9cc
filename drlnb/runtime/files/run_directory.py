"""Read and write a run directory.

    run.json       the spec: tasks, planners, settings, versions, hosts, created; written once
    status.json    state of each task, replaced as a whole
    LOCK           who runs it now: epoch, address and process of the scheduler
    journal/  metrics/  checkpoints/  logs/

Every file is replaced by temp and rename, so a reader never sees half of one.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from drlnb.records.errors import ConfigError, JournalError, RunLocked
from drlnb.records.journal import read_stream
from drlnb.records.round import EndTask
from drlnb.runtime.protocol import Plain

__all__ = ["Lock", "RunDir", "goes_on"]

#: Seconds that a scheduler has to answer.
_HELLO_S = 2.0

_FOLDERS = ("journal", "metrics", "checkpoints", "logs")
_FILES = ("run.json", "status.json", "LOCK")
_ENDS = ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Who runs a directory's run now."""

    run: str
    #: Start of the broker, in nanoseconds.
    epoch: int
    #: Address of its scheduler.
    address: str
    #: Process id of the scheduler, 0 if not known, and the name of its host.
    pid: int = 0
    host: str = ""


def goes_on(lock: Lock, timeout_s: float = _HELLO_S) -> bool:
    """Ask a lock's scheduler whether its run goes on there, under the same broker; false without an answer in time."""
    answer: list[bool] = []

    async def ask() -> None:
        from distributed.core import rpc  # heavy, and only needed where a lock was found

        async with rpc(lock.address, timeout=timeout_s) as scheduler:
            hello, runs = await scheduler.drlnb_hello(), await scheduler.drlnb_runs()
        running = {row["run"] for row in runs if row["state"] == "running"}
        answer.append(hello["epoch"] == lock.epoch and lock.run in running)

    def run() -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, RuntimeError):  # also where no broker lives
            asyncio.run(asyncio.wait_for(ask(), timeout_s))

    # A thread of its own: the caller may sit in a notebook's running loop.
    thread = threading.Thread(target=run, name="drlnb-hello", daemon=True)
    thread.start()
    thread.join(timeout_s + 1.0)
    return answer == [True]


def _write_json(path: Path, value: object, *, new: bool = False) -> None:
    """Write a file whole or not at all; `new`: raise FileExistsError if it is there."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, default=dict)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(name, path)
            os.unlink(name)  # noqa: PTH108
        else:
            os.replace(name, path)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _read_json(path: Path) -> Plain | None:
    try:
        content: Plain = json.loads(path.read_text(encoding="utf-8"))
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
        self.path = Path(path).expanduser().absolute()
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
        if not isinstance(spec, dict) or not {"run", "tasks"} <= spec.keys():
            raise ConfigError(f"{self.path / 'run.json'} is not what drlnb wrote: it lacks run or tasks")
        return spec

    def write_spec(self, spec: Mapping[str, object]) -> None:
        """Replace ``run.json``: once at the start, and when a run goes on with another budget."""
        _write_json(self.path / "run.json", spec)

    def read_status(self) -> Plain:
        """Return what ``status.json`` holds, ``{}`` if there is none."""
        return _read_json(self.path / "status.json") or {}

    def write_status(self, status: Mapping[str, object]) -> None:
        """Replace ``status.json``: ``{"tasks": {name: {"state": ..., ...}}, ...}``."""
        _write_json(self.path / "status.json", status)

    def scheduling(self) -> dict[str, Plain]:
        """Return each task's settings of scheduling that were changed while it ran; tasks without any are left out."""
        rows = self.read_status().get("tasks", {})
        return {str(name): dict(row["scheduling"]) for name, row in rows.items() if row.get("scheduling")}

    def states(self) -> dict[str, str]:
        """Return each task's state: ``done``, ``stopped``, ``failed``, or ``interrupted`` where no end is recorded."""
        rows = self.read_status().get("tasks", {})
        ends = {str(task["name"]): rows.get(task["name"], {}).get("state", "") for task in self.read_spec()["tasks"]}
        return {name: state if state in _ENDS else self._last_end(name) for name, state in ends.items()}

    def _last_end(self, task: str) -> str:
        """Return how the newest attempt of a task ended, by its own journal (status.json may be another host's)."""
        attempts = self.attempts(task)
        if not attempts:
            return "interrupted"
        try:
            ends = read_stream(attempts[max(attempts)]).of(EndTask)
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
        """Return who runs it, None if nobody does (or the file is torn)."""
        try:
            return Lock(**json.loads((self.path / "LOCK").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write_lock(self, lock: Lock) -> None:
        """Record who runs it."""
        _write_json(self.path / "LOCK", asdict(lock))

    def remove_lock(self, epoch: int) -> None:
        """Remove the lock if it is still ours."""
        lock = self.read_lock()
        if lock is not None and lock.epoch == epoch:
            (self.path / "LOCK").unlink(missing_ok=True)

    def live_lock(self) -> Lock | None:
        """Return the lock if its scheduler lives, still has the same broker, and the run goes on there."""
        lock = self.read_lock()
        if lock is None or (lock.pid and lock.host == socket.gethostname() and not psutil.pid_exists(lock.pid)):
            return None
        # Behind TLS it cannot be asked without its certificates, and its process lives or is elsewhere.
        return lock if lock.address.startswith("tls:") or goes_on(lock) else None

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

    def foreign(self) -> Path | None:
        """Return a file that drlnb did not write here, None if there is none."""
        return next((path for path in self.files() if not _is_ours(path.relative_to(self.path))), None)

    def files(self, folder: Path | None = None) -> Iterator[Path]:
        """Yield every file inside, and folders that are empty and not ours."""
        for path in sorted((folder or self.path).iterdir()):
            if path.is_dir() and not path.is_symlink():
                inside = list(self.files(path))
                known = path.relative_to(self.path).parts[0] in _FOLDERS
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
        for folder in _FOLDERS:
            if (self.path / folder).exists():
                shutil.rmtree(self.path / folder)
        for path in self.path.iterdir():
            path.unlink()


def _is_ours(path: Path) -> bool:
    parts, name = path.parts, path.name
    if len(parts) == 1:
        return name in _FILES or (name.endswith((".part", ".tmp")) and name.startswith(_FILES))
    if parts[0] == "journal":
        return name.endswith(".jsonl")
    if parts[0] == "metrics":
        return name.endswith((".csv", ".part"))
    if parts[0] == "logs":
        return ".log" in name
    if parts[0] == "checkpoints" and len(parts) == 3:
        return name.startswith(("LATEST", "BEST", "ATTEMPT"))
    return parts[0] == "checkpoints" and len(parts) == 4 and (parts[2].isdigit() or parts[2].startswith("tmp-"))

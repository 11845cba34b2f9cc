"""Open a rig: a learner and hosts in processes of their own, on shaped links or not; none of it outlives the block."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.distribution.hub import Spec
from drlnb.runtime.ipc.start_modes import child_environment, python, tail
from drlnb.runtime.protocol import Plain

__all__ = ["NoRig", "Rig", "open_rig"]

#: Longest wait for an answer, in seconds: a version has 300.
_ANSWER_S = 330.0


class NoRig(RuntimeError):
    """A rig cannot be made here."""


@dataclass(frozen=True, slots=True)
class Rig:
    """A rig, seen from outside."""

    process: "subprocess.Popen[str]"
    log: Path

    def ask(self, op: str, **message: object) -> Plain:
        """Have the learner carry out a request of :class:`~benchmarks.distribution.learner.Learner`.

        Raises
        ------
        RuntimeError
            If it cannot, or does not answer in time; the message says why.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and said why
            self.process.stdin.write(json.dumps({"op": op, **message}) + "\n")
            self.process.stdin.flush()
        answered, _, _ = select.select([self.process.stdout], [], [], _ANSWER_S)
        line = self.process.stdout.readline() if answered else ""
        reply: Plain = json.loads(line) if line else {"refused": f"the rig has ended: {tail(self.log, 500)}"}
        if "refused" in reply:
            raise RuntimeError(f"{op}: {reply['refused']}")
        return reply


@contextlib.contextmanager
def open_rig(spec: Spec) -> Iterator[Rig]:
    """Start a rig and wait until its hosts are up.

    Whatever ends this process ends the rig too: its processes watch their end of its standard input.

    Raises
    ------
    NoRig
        If it cannot be made here; the message says why.
    """
    with tempfile.TemporaryDirectory(prefix="drlnb-bench-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                python("benchmarks.distribution.hub", json.dumps(asdict(spec))),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=child_environment(TMPDIR=folder),
                start_new_session=True,  # Ctrl-C is the bench's
            )
        with process:
            try:
                rig = Rig(process, log)
                try:
                    rig.ask("ready")
                except RuntimeError as error:
                    raise NoRig(str(error)) from None
                yield rig
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

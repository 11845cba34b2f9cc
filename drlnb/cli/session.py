"""Follow a training from its start to the prompt: progress, Ctrl-C, the summary, the exit code.

Ctrl-C while everything is being started: all is taken down again.  Once while it trains: stop within seconds, with a
checkpoint.  Twice: kill now.  While the summary is made: skip it.  SIGTERM, and SIGHUP of a terminal that is closed,
count as one Ctrl-C.
"""

import contextlib
import json
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Self, TextIO, TypeAlias

from drlnb.cli.option_names import by_options
from drlnb.cli.progress import Live, summary_lines
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.plain import Plain
from drlnb.fleet.training import Training
from drlnb.fleet.trainings import STOP_S
from drlnb.records.errors import PeerError

__all__ = ["Session"]

#: What ``signal.signal`` takes and returns.
_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
_DONE, _FAILED, _STOPPED = 0, 1, 130

_STOPPING = (
    "stopping: each task writes a checkpoint, once it has finished its round if that is soon; Ctrl-C again to stop now"
)
#: Seconds between two looks at the tasks.
_LOOK_S = 0.25


class Session:
    """One training in the terminal.

    Parameters
    ----------
    as_json
        The last line of standard output is the summary as JSON, all else goes to standard error.
    debug
        Dask logs, too.
    """

    def __init__(self, *, as_json: bool, debug: bool) -> None:
        self.human: TextIO = sys.stderr if as_json else sys.stdout
        self._as_json = as_json
        #: The fleet that it trains on: nothing of it stays behind.
        self.fleet: Fleet | None = None
        self._phase = "starting"
        self._n_signals = 0
        self._former: dict[int, _Handler] = {}
        self._debug = debug
        if not debug:
            import distributed  # noqa: F401 - it sets its loggers' levels when it is imported

            for name in ("distributed", "distributed.client"):
                logging.getLogger(name).setLevel(logging.CRITICAL)

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
                continue  # nohup
            with contextlib.suppress(ValueError):  # not the main thread: a test
                self._former[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._phase = "killing"
        try:
            if self.fleet is not None:
                self.fleet.kill()
        finally:
            for signum, handler in self._former.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        del signum, frame
        self._n_signals += 1
        if self._phase in {"starting", "summing up"} or (self._phase == "training" and self._n_signals > 1):
            raise KeyboardInterrupt
        # While it closes or is being killed, a signal would only leave something behind.

    def write(self, text: str) -> None:
        """Write a line for the user."""
        print(text, file=self.human, flush=True)

    def follow(self, training: Training) -> int:
        """Show a training until it has ended, then its summary; return the exit code."""
        live = Live(self.human)
        self._phase = "training"
        try:
            self._watch(training, live)
        except KeyboardInterrupt:
            self._phase = "killing"
            live.write("killing: what was done since the last checkpoint is lost")
            training.fleet.kill()
            return self._interrupted(training)
        except OSError:  # nobody reads what it says (`| head`, a terminal that was closed): as Ctrl-C once
            self._phase = "closing"
            with contextlib.suppress(PeerError):
                training.stop()
                training.watch.settle(STOP_S)
            training.fleet.close()
            raise
        self._phase = "closing"
        training.fleet.close()
        return self._report(training)

    def _watch(self, training: Training, live: Live) -> None:
        asked = ended = False
        shown: set[str] = set()
        while not ended:
            ended = training.watch.settle(_LOOK_S)
            live.show(training.tasks)
            for notice in training.notices:
                if notice not in shown:
                    shown.add(notice)
                    live.write(f"drlnb: {by_options(notice)}")
            if self._n_signals and not asked and not ended:
                asked = True
                live.write(_STOPPING)
                with contextlib.suppress(PeerError):  # the training itself reports a cluster that is gone
                    training.stop()

    def _report(self, training: Training) -> int:
        tasks = training.tasks
        summary = self._summary(training)
        self.write(f"run directory: {training.out}")
        for task in tasks.values():
            if task.state == "failed":
                first, _, detail = task.failure.strip().partition("\n")
                text = task.failure.strip() if self._debug or not detail else f"{first} (with --debug: the traceback)"
                print(f"drlnb: task {task.name} failed: {by_options(text)}", file=sys.stderr)
        states = {task.state for task in tasks.values()}
        if self._as_json and summary is not None:
            print(json.dumps(summary), flush=True)
        if "failed" in states:
            return _FAILED
        return _DONE if states == {"done"} else self._interrupted(training)

    def _summary(self, training: Training) -> Plain | None:
        """Write the summary and return it; None if a signal has come meanwhile."""
        summary = None
        try:
            self._phase = "summing up"
            summary = training.watch.summary()
            self.write("\n".join(summary_lines(summary, training.tasks)))
        except KeyboardInterrupt:
            self.write("the summary was skipped")
        finally:
            self._phase = "closing"
        return summary

    def _interrupted(self, training: Training) -> int:
        print(f"drlnb: stopped; go on with: drlnb resume {training.out}", file=sys.stderr, flush=True)
        return _STOPPED

"""Call callbacks for one task of a run, by the rows of its journal."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from drlnb.fleet.callbacks.base import BaseCallback, ConvertCallback, as_callback, end_round, stops, wants_steps
from drlnb.fleet.callbacks.events import Evaluated, Written
from drlnb.fleet.callbacks.foreign import Foreign
from drlnb.fleet.faces import say
from drlnb.fleet.policies.files import load_model
from drlnb.fleet.policies.policy import Model
from drlnb.fleet.policies.tensors import save_with_ring
from drlnb.fleet.training import Training
from drlnb.fleet.trainings import STOP_S
from drlnb.fleet.watch import known_rl
from drlnb.records.base import Record
from drlnb.records.episodes import success_rate
from drlnb.records.errors import CheckpointError, ConfigError
from drlnb.records.round import CheckpointWritten, EvaluationFinished, MetricsRecorded, WriteCheckpoint
from drlnb.views.folds.entries import Handlers, split_stream

__all__ = ["RunSession", "listen", "start_listening"]

#: Pause between two looks at the journal's rows, in seconds: callbacks come once per round.
_LOOK_S = 0.05


class RunSession:
    """One task of a run on a fleet, and its callback, which is initialised."""

    def __init__(self, run: Training, task: str, callback: BaseCallback) -> None:
        self.run, self.task, self.callback = run, task, callback
        self._folder = run.out / "checkpoints" / task
        self._n_timesteps = self._round = self._evaluated = 0
        #: Round after which a checkpoint was asked for.
        self._asked = -1
        #: Version -> the command that wrote its newest checkpoint.
        self._commands: dict[int, WriteCheckpoint] = {}
        self._reported: set[tuple[int, str]] = set()
        self._stopping = False

    def checkpoint(self) -> None:
        """Ask for a checkpoint at the next boundary; once per round, however many of its steps want one."""
        if self._asked < self._round:
            self._asked = self._round
            self.run.checkpoint(self.task)

    def save(self, version: int, path: str | Path, ring: Path | None = None) -> bool:
        """Save the parameters of a version, if a checkpoint of them is on disk."""
        with contextlib.suppress(CheckpointError):
            save_with_ring(path, *load_model(self._folder / str(version - 1), trust=True), ring)
            return True
        return False

    def follow(self) -> None:
        """Call the callbacks until the run has ended; stop it if one returns False, or raises."""
        tap = self.run.watch.feed.tap()
        if _hears_steps(self.callback):
            say(
                "steps are made in other processes: _on_step is called for all steps of a round when it has ended, "
                "without infos, rewards and dones; learn(..., local=True) calls it as each is made"
            )
        try:
            self.callback.on_training_start()
            while True:
                ended = self.run.ended
                _, entries = tap.drain()
                for entry in entries:
                    self._handle(*entry)
                if ended and not entries:
                    break
                if not ended:
                    self.run.watch.settle(_LOOK_S)
            self.callback.on_training_end()
        except BaseException:  # the callback's own error, or Ctrl-C: no callback is left, so nothing shall go on
            self.run.stop(self.task)
            if len(self.run.specs) == 1:  # other tasks go on
                self.run.watch.settle(STOP_S)
            raise
        finally:
            tap.close()

    def _handle(self, stream: str, record: Record) -> None:
        named = split_stream(stream)
        handler = _HANDLERS.get(type(record))
        if named is None or named[0] != self.task or handler is None:
            return
        if stops(handler(self, record)) and not self._stopping:
            self._stopping = True
            self.run.stop(self.task)

    def _metrics(self, record: MetricsRecorded) -> bool | None:
        if record.round <= self._round:
            return None  # made once more after a failure
        self._round, self._n_timesteps = record.round, record.n_timesteps
        return end_round(self.callback, record.metrics)

    def _evaluation(self, record: EvaluationFinished) -> bool | None:
        if record.failure or record.version <= self._evaluated:
            return None
        self._evaluated = record.version
        return self.callback.on_evaluation(
            Evaluated(
                n_timesteps=self._n_timesteps,
                version=self._evaluated,
                mean_reward=record.mean_reward,
                std_reward=record.std_reward,
                deterministic=record.deterministic,
                episodes=tuple((float(r), int(n)) for r, n, *_ in record.episodes),
                success_rate=success_rate(record.episodes),
            )
        )

    def _commanded(self, record: WriteCheckpoint) -> None:
        self._commands[record.version] = record

    def _written(self, record: CheckpointWritten) -> bool | None:
        command = self._commands.pop(record.version, None)
        if record.failure or command is None or (record.version, command.reason) in self._reported:
            return None
        self._reported.add((record.version, command.reason))
        written = Written(n_timesteps=command.n_timesteps, version=record.version, reason=command.reason)
        return self.callback.on_checkpoint(written)


_HANDLERS: Handlers = {
    MetricsRecorded: RunSession._metrics,
    EvaluationFinished: RunSession._evaluation,
    WriteCheckpoint: RunSession._commanded,
    CheckpointWritten: RunSession._written,
}


def _hears_steps(callback: BaseCallback) -> bool:
    """Return whether code of the user's is called for each step."""
    own = isinstance(callback, ConvertCallback | Foreign) or not type(callback).__module__.startswith("drlnb.")
    return (own and wants_steps(callback)) or any(map(_hears_steps, callback.children))


def listen(run: Training, callback: object, *, task: str | None = None) -> threading.Thread:
    """Call a callback for one task of a run, from its first round on, until the run has ended.

    The callback is called in a thread of its own.  False from it stops its task; if it raises, its task is stopped, and
    what it raised is written in a line.  Its ``model`` knows the task; ``run.load(task)`` has the newest parameters.

    Parameters
    ----------
    run
        What ``fleet.train`` returned.
    callback
        As of ``learn``; one that needs evaluations must be known when training begins: a model's ``learn`` or
        ``submit`` takes it.
    task
        Name of the task; may be left out where the run has one.

    Returns
    -------
    threading.Thread
        Ends with the run; a daemon.

    Raises
    ------
    ConfigError
        If there is no such task, or the callback is none, or needs evaluations.
    """
    spec = known_rl(run.specs, task)
    called = as_callback(callback)
    model = Model(spec)
    called.init_callback(model)
    if wanted := called.settings(spec.n_envs):
        raise ConfigError(
            f"a run that has begun cannot be given {', '.join(sorted(wanted))}: hand the callback to a model's learn "
            "or submit"
        )
    return start_listening(run, spec.name, model, called)


def start_listening(
    run: Training, task: str, model: Model, callback: BaseCallback, at_end: Callable[[], None] | None = None
) -> threading.Thread:
    """Start the thread; `at_end` is called when it ends, however that is.

    Parameters
    ----------
    run, task
        The run and one of its tasks.
    model
        What the callback gets as its ``model``.
    callback
        One, or a list of them as one.
    at_end
        Called in the thread.
    """

    def follow() -> None:
        try:
            session = RunSession(run, task, callback)
            callback.init_callback(model, session)
            session.follow()
        except Exception as error:  # noqa: BLE001 - a callback is foreign code, and nobody waits for this thread
            say(f"a callback of {task} raised {type(error).__name__}: {error}; the task was stopped")
        finally:
            if at_end is not None:
                at_end()

    thread = threading.Thread(target=follow, name=f"drlnb callbacks of {run.id}", daemon=True)
    thread.start()
    return thread

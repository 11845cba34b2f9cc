"""How does a training reach its callbacks?  In this process round by round, or by the rows of a run's journal."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drlnb.fleet.callbacks.base import BaseCallback, Evaluated, Written
from drlnb.fleet.policies.files import load_model, save_model
from drlnb.records.base import Record
from drlnb.records.errors import CheckpointError
from drlnb.records.round import CheckpointWritten, EvaluationFinished, MetricsRecorded, WriteCheckpoint
from drlnb.records.spec import TaskSpec
from drlnb.rl.checkpoints.trained import Trained
from drlnb.rl.collecting.evaluation import evaluate_parameters
from drlnb.rl.local.loop import LocalLoop
from drlnb.views.folds.entries import Handlers, split_stream

__all__ = ["LocalSession", "RunSession"]

#: Pause between two looks at the journal's rows, in seconds: callbacks come once per round.
_LOOK_S = 0.05
#: Longest wait for the checkpoint of a run whose callback raised, in seconds.
_STOP_S = 60.0


class LocalSession:
    """A training in this process.

    Parameters
    ----------
    spec
        The task.
    trained
        Where to go on from; None: from the beginning.
    callback
        Its callbacks, initialised.
    settings
        What they ask for, see :meth:`drlnb.fleet.callbacks.base.BaseCallback.settings`.
    """

    def __init__(
        self, spec: TaskSpec, trained: Trained | None, callback: BaseCallback, settings: Mapping[str, Any]
    ) -> None:
        self.spec, self.callback, self._settings = spec, callback, settings
        self._loop = LocalLoop(spec, trained)
        self._every = int(settings.get("eval_freq", 0))
        self._asked = False

    def checkpoint(self) -> None:
        """Tell the callbacks of a checkpoint at the end of this round: the state is at hand then."""
        self._asked = True

    def save(self, version: int, path: str | Path) -> bool:
        """Save the present parameters if they are of that version."""
        if version != self._loop.n_rounds + 1:
            return False
        save_model(path, self.spec, self._loop.trained())
        return True

    def follow(self) -> Trained:
        """Train to the end, or until a callback says False; return the state."""
        try:
            self.callback.on_training_start()
            while self._loop.n_timesteps < self.spec.total_timesteps and self._round():
                pass
            self.callback.on_training_end()
            return self.trained()
        finally:
            self._loop.close()

    def trained(self, *, envs: bool = True) -> Trained:
        """Return the state at the last boundary between rounds; `envs`: with the environments."""
        return self._loop.trained(envs=envs)

    @property
    def n_timesteps(self) -> int:
        """Environment steps of the budget so far."""
        return self._loop.n_timesteps

    def _round(self) -> bool:
        loop, before = self._loop, self._loop.n_timesteps
        metrics = loop.round()
        if loop.episodes_lost:
            metrics["resume/episodes_lost"], loop.episodes_lost = loop.episodes_lost, 0
        go_on = self.callback.heard_round(metrics)
        if self._every and loop.n_timesteps // self._every > before // self._every:
            go_on = self.callback.on_evaluation(self._evaluated()) is not False and go_on
        if self._asked:
            self._asked = False
            told = Written(n_timesteps=loop.n_timesteps, version=loop.n_rounds + 1, reason="checkpoint")
            go_on = self.callback.on_checkpoint(told) is not False and go_on
        return go_on

    def _evaluated(self) -> Evaluated:
        n, deterministic = self._settings["eval_episodes"], self._settings["eval_deterministic"]
        found = evaluate_parameters(self.spec, self._loop.parameters, n_episodes=n, deterministic=deterministic)
        return Evaluated(
            n_timesteps=self._loop.n_timesteps,
            version=self._loop.n_rounds + 1,
            mean_reward=found.mean,
            std_reward=found.std,
            deterministic=deterministic,
            episodes=tuple(zip(found.returns, found.lengths, strict=True)),
        )


class RunSession:
    """A run on a fleet, of one task.

    Parameters
    ----------
    run
        The run.
    task
        Name of the task.
    callback
        Its callbacks, initialised.
    """

    def __init__(self, run: Any, task: str, callback: BaseCallback) -> None:
        self.run, self.task, self.callback = run, task, callback
        self._folder: Path = run.out / "checkpoints" / task
        self._spec: TaskSpec = run.specs[task]
        self._n_timesteps = self._round = self._evaluated = 0
        #: Version -> the command that wrote its newest checkpoint.
        self._commands: dict[int, WriteCheckpoint] = {}
        self._told: set[tuple[int, str]] = set()
        self._stopping = False

    def checkpoint(self) -> None:
        """Ask for a checkpoint at the next boundary."""
        self.run.checkpoint(self.task)

    def save(self, version: int, path: str | Path) -> bool:
        """Save the parameters of a version, if a checkpoint of them is on disk."""
        with contextlib.suppress(CheckpointError):
            save_model(path, *load_model(self._folder / str(version - 1), trust=True))
            return True
        return False

    def follow(self) -> None:
        """Tell the callbacks what happens until the run has ended; stop it if one says False, or raises."""
        tap = self.run.watch.feed.tap()
        try:
            self.callback.on_training_start()
            while True:
                ended = self.run.ended
                _, entries = tap.drain()
                for entry in entries:
                    self._hear(*entry)
                if ended and not entries:
                    break
                if not ended:
                    self.run.watch.settle(_LOOK_S)
            self.callback.on_training_end()
        except BaseException:  # the callback's own error, or Ctrl-C: nobody listens any more, so nothing shall go on
            self.run.stop(self.task)
            if len(self.run.specs) == 1:  # other tasks go on
                self.run.watch.settle(_STOP_S)
            raise
        finally:
            tap.close()

    def _hear(self, stream: str, record: Record) -> None:
        named = split_stream(stream)
        tell = _TELLS.get(type(record))
        if named is None or named[0] != self.task or tell is None:
            return
        if tell(self, record) is False and not self._stopping:
            self._stopping = True
            self.run.stop(self.task)

    def _metrics(self, record: MetricsRecorded) -> bool | None:
        if record.round <= self._round:
            return None  # made once more after a failure
        self._round, self._n_timesteps = record.round, record.n_timesteps
        return self.callback.heard_round(record.metrics)

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
                episodes=tuple((float(r), int(n)) for r, n in record.episodes),
            )
        )

    def _commanded(self, record: WriteCheckpoint) -> None:
        self._commands[record.version] = record

    def _written(self, record: CheckpointWritten) -> bool | None:
        command = self._commands.pop(record.version, None)
        if record.failure or command is None or (record.version, command.reason) in self._told:
            return None
        self._told.add((record.version, command.reason))
        written = Written(n_timesteps=command.n_timesteps, version=record.version, reason=command.reason)
        return self.callback.on_checkpoint(written)


_TELLS: Handlers = {
    MetricsRecorded: RunSession._metrics,
    EvaluationFinished: RunSession._evaluation,
    WriteCheckpoint: RunSession._commanded,
    CheckpointWritten: RunSession._written,
}

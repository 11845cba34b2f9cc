"""Send a run's scalars to TensorBoard, Weights & Biases, MLflow or a sink of the user's own."""

import threading
from collections.abc import Sequence

from drlnb.fleet.rows.row_feed import Rows
from drlnb.records.episodes import success_rate
from drlnb.records.errors import ConfigError
from drlnb.records.round import EvaluationFinished, MetricsRecorded
from drlnb.rl.tracking.sink_threads import Feed
from drlnb.rl.tracking.sinks import Recorder, RunFacts, Sink, evaluation_scalars, sinks_of
from drlnb.views.folds.entries import newest

__all__ = ["Tracking", "Trackings"]


class Tracking:
    """Sinks that were opened together, fed by the handle that watches a run; in this process, never in a Dask worker.

    Each is opened at once, in a thread of its own, and gets the run's rows from the first one, whenever it begins.
    """

    def __init__(self, sinks: Sequence[Sink], rows: Rows, facts: RunFacts) -> None:
        self._feed = Feed(sinks, facts)
        self._tap = rows.tap()
        self._attempts: dict[str, int] = {}
        #: Steps of each task's latest row.
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()  # the user's thread records, the watching thread feeds
        self._own: dict[str, Recorder] = {task: Recorder() for task in facts.tasks}

    @property
    def failures(self) -> tuple[str, ...]:
        """One line per sink that does not write (all of) what it was given."""
        return self._feed.failures

    def record(self, key: str, value: float | None, *, task: str | None = None, mean: bool = False) -> None:
        """Add a scalar of the user's own to the next row of a task, as of :meth:`drlnb.Training.record`."""
        with self._lock:
            for recorder in self._own.values() if task is None else [self._own[task]]:
                if mean:
                    recorder.record_mean(key, value)
                elif value is not None:
                    recorder.record(key, value)

    def feed(self) -> None:
        """Hand on the metrics among the rows that have come since the last time."""
        for task, record in newest(self._tap.drain()[1], self._attempts):
            if task not in self._own:
                continue
            if isinstance(record, MetricsRecorded):
                self._last[task] = record.n_timesteps
                with self._lock:
                    own = self._own[task].dump()
                self._feed.put(task, record.n_timesteps, {**record.metrics, **own})
            elif isinstance(record, EvaluationFinished) and not record.failure:
                rate, how = success_rate(record.episodes), record.deterministic
                scalars = evaluation_scalars(record.mean_reward, rate, deterministic=how)
                self._feed.put(task, self._last.get(task, 0), scalars, kind=next(iter(scalars)))

    def close(self) -> None:
        """Write what the sinks still have, and end them."""
        self._tap.close()
        self._feed.close()


class Trackings:
    """All trackings of one run's handle: what follows its rows, and what every sink is given of the run."""

    def __init__(self, rows: Rows, facts: RunFacts) -> None:
        self._rows, self._facts = rows, facts
        self._open: list[Tracking] = []
        self._closed: list[Tracking] = []
        self._lock = threading.Lock()

    @property
    def failures(self) -> tuple[str, ...]:
        """One line per sink that does not write (all of) what it was given."""
        return tuple(line for tracking in [*self._closed, *self._open] for line in tracking.failures)

    @property
    def active(self) -> bool:
        """Whether sinks are open."""
        return bool(self._open)

    def begin(self, track: str | Sink | Sequence[str | Sink] | None) -> None:
        """Open the sinks of :func:`drlnb.rl.tracking.sinks.sinks_of` and hand on what has been recorded so far.

        Raises
        ------
        ConfigError, MissingExtra
            As of :func:`drlnb.rl.tracking.sinks.sinks_of`; nothing is opened then.
        """
        sinks = sinks_of(track)
        if not sinks:
            raise ConfigError("track needs at least one sink: tensorboard, wandb, mlflow or an object")
        tracking = Tracking(sinks, self._rows, self._facts)
        with self._lock:
            self._open.append(tracking)
        self.feed()

    def feed(self) -> None:
        """Hand on what has come since the last time."""
        with self._lock:
            for tracking in self._open:
                tracking.feed()

    def record(self, key: str, value: float | None, *, task: str | None = None, mean: bool = False) -> None:
        """Add a scalar of the user's own to the next row; as of :meth:`Tracking.record`.

        Raises
        ------
        ConfigError
            If nothing tracks the run, so that it would be lost.
        """
        listening = list(self._open)
        if not listening:
            raise ConfigError(
                f"nothing tracks run {self._facts.run_id}, so {key!r} would be lost: call run.track(...) first"
            )
        for tracking in listening:
            tracking.record(key, value, task=task, mean=mean)

    def close(self) -> None:
        """Hand on the last rows, and end all sinks; another :meth:`begin` may follow."""
        self.feed()
        with self._lock:
            for tracking in self._open:
                tracking.close()
            self._closed += self._open
            self._open = []

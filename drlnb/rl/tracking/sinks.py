"""Write a run's scalars to TensorBoard, Weights & Biases, MLflow, or any object with three methods.

A sink runs in the process that called ``train`` or ``learn``, never in a Dask worker.  It is opened once per run, given
the scalars of every round in order, and closed.  The libraries (extra ``track``) do the writing; what they
write is decided here.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, MissingExtra

__all__ = [
    "MLflow",
    "Recorder",
    "RunFacts",
    "Sink",
    "TensorBoard",
    "WandB",
    "evaluation_scalars",
    "numbers",
    "sinks_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a sink gets of a run before its first scalar."""

    run_id: str
    #: The run's directory; a sink of files writes below it unless it was given a folder.
    out: Path
    #: Task -> its spec as plain data (``RlWork.to_plain``): environment, algorithm, seed, hyper-parameters.
    tasks: Mapping[str, Facts] = field(default_factory=dict)


class Sink(Protocol):
    """Write scalars.  Its methods are called by one thread at a time; what they raise ends this sink, not the run."""

    def open(self, facts: RunFacts) -> None:
        """Begin; called once, before any scalar."""

    def scalars(self, task: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write a task's scalars at an environment step; steps never fall, an evaluation may repeat one."""

    def close(self) -> None:
        """End; called once, also after an error of another method."""


class Recorder:
    """A user's own scalars between two rows: :meth:`record` keeps the last value, :meth:`record_mean` the mean.

    Examples
    --------
    >>> own = Recorder()
    >>> own.record("mine/last", 1.0); own.record("mine/last", 2.0)
    >>> own.record_mean("mine/mean", 1.0); own.record_mean("mine/mean", 2.0)
    >>> own.dump(), own.dump()
    ({'mine/last': 2.0, 'mine/mean': 1.5}, {})
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def record(self, key: str, value: float) -> None:
        """Keep the value; an earlier one since the last row is forgotten."""
        self._values[key] = float(value)
        self._counts.pop(key, None)

    def record_mean(self, key: str, value: float | None) -> None:
        """Add the value to the mean since the last row; None is ignored."""
        if value is None:
            return
        n = self._counts.get(key, 0)
        mean = self._values[key] if n else 0.0
        self._values[key] = mean + (float(value) - mean) / (n + 1)
        self._counts[key] = n + 1

    def dump(self) -> dict[str, float]:
        """Return what was recorded, and clear it."""
        values = self._values
        self._values, self._counts = {}, {}
        return values


def evaluation_scalars(mean_reward: float, success_rate: float | None, *, deterministic: bool) -> dict[str, float]:
    """Return an evaluation's mean return, first, and success rate, under Stable-Baselines3's names."""
    behind = "" if deterministic else "_stochastic"
    rate = {} if success_rate is None else {f"eval/success_rate{behind}": success_rate}
    return {f"eval/mean_reward{behind}": mean_reward, **rate}


def numbers(metrics: Facts) -> dict[str, float]:
    """Return what is a number in a row of metrics, as floats; nan stays (it means "undefined", not "missing")."""
    given = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
    return {key: float(value) for key, value in given.items() if not isinstance(value, bool)}


#: What is shown of a task beside its hyper-parameters.
_SHOWN = ("env", "algo", "seed", "total_timesteps", "n_envs", "n_collectors", "n_learners")


def _settings(spec: Facts) -> Facts:
    """Return a task's settings for display: hyper-parameters beside what else defines it, no blobs."""
    return {**{key: spec[key] for key in _SHOWN if key in spec}, **spec.get("hyperparameters", {})}


#: A writer, run or client of a library that may not be installed: its types are not known here.
_Opened = Any


class _PerTask:
    """A sink that opens something for each task; :class:`.MissingExtra` names the package that it needs."""

    def __init__(self, module: str, name: str) -> None:
        if find_spec(module) is None:
            raise MissingExtra(f'{name} needs {module}; install it with: pip install "drlnb[track]"')
        self._opened: dict[str, _Opened] = {}
        #: Ends what was opened, all of it, whatever raises on the way.
        self._ends = ExitStack()

    def close(self) -> None:
        """End what was opened."""
        self._ends.close()


class TensorBoard(_PerTask):
    """Event files by ``torch.utils.tensorboard``, a folder per task; needs the package ``tensorboard``.

    Parameters
    ----------
    folder
        Where; None: ``OUT/tensorboard``.
    alone
        There is one task only, and its files are in `folder` itself.
    """

    def __init__(self, folder: str | Path | None = None, *, alone: bool = False) -> None:
        super().__init__("tensorboard", "TensorBoard")
        self._folder, self._alone = folder, alone

    def open(self, facts: RunFacts) -> None:
        """Open a writer per task, and write its settings down as text."""
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(self._folder or facts.out / "tensorboard")
        for task, spec in facts.tasks.items():
            writer = self._opened[task] = SummaryWriter(str(folder if self._alone else folder / task))
            self._ends.callback(writer.close)
            table = "\n".join(f"|{key}|{value}|" for key, value in _settings(spec).items())
            writer.add_text("settings", f"|setting|value|\n|-|-|\n{table}")

    def scalars(self, task: str, step: int, metrics: Mapping[str, float]) -> None:
        """Add the scalars at their step."""
        writer = self._opened[task]
        for key, value in metrics.items():
            writer.add_scalar(key, value, step)
        writer.flush()


class WandB(_PerTask):
    """Runs of Weights & Biases, one per task, grouped by our run; needs the package ``wandb``.

    Parameters
    ----------
    project
        Where they appear.
    mode
        ``online``, ``offline`` (files below `folder`, to be sent by ``wandb sync``) or ``disabled``; None: what the
        environment variable ``WANDB_MODE`` holds, else ``offline``: nothing leaves this machine unless it is asked for.
    folder
        Where the files are; None: ``OUT`` (the library makes ``OUT/wandb``).
    """

    def __init__(self, project: str = "drlnb", mode: str | None = None, folder: str | Path | None = None) -> None:
        super().__init__("wandb", "Weights & Biases")
        self._project, self._mode, self._folder = project, mode, folder

    def open(self, facts: RunFacts) -> None:
        """Begin a run per task."""
        import wandb

        folder = Path(self._folder or facts.out)
        folder.mkdir(parents=True, exist_ok=True)
        for task, spec in facts.tasks.items():
            run = self._opened[task] = wandb.init(
                project=self._project,
                name=task,
                group=facts.run_id,
                dir=str(folder),
                mode=self._mode or os.environ.get("WANDB_MODE", "offline"),
                config=_settings(spec),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
            self._ends.callback(run.finish)

    def scalars(self, task: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log the scalars at their step."""
        self._opened[task].log(dict(metrics), step=step)


class MLflow(_PerTask):
    """Runs of MLflow (or ``mlflow-skinny``), one per task, by its client: no active run of the user's is touched.

    Parameters
    ----------
    experiment
        Its name; made if it is new.
    uri
        Tracking server or store; None: the environment variable ``MLFLOW_TRACKING_URI``, else files in
        ``OUT/mlruns``, for which this process opts in to MLflow's file store.
    """

    def __init__(self, experiment: str = "drlnb", uri: str | None = None) -> None:
        super().__init__("mlflow", "MLflow")
        self._experiment, self._uri = experiment, uri
        self._client: _Opened = None

    def open(self, facts: RunFacts) -> None:
        """Begin a run per task, with its settings as parameters."""
        from mlflow.tracking import MlflowClient

        uri = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or (facts.out / "mlruns").resolve().as_uri()
        if uri.startswith("file:") or "://" not in uri:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow 3 refuses its own file store
        client = self._client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known is not None else client.create_experiment(self._experiment)
        for task, spec in facts.tasks.items():
            run = client.create_run(experiment, run_name=task, tags={"drlnb.run": facts.run_id, "drlnb.task": task})
            self._opened[task] = run.info.run_id
            self._ends.callback(client.set_terminated, run.info.run_id)
            for key, value in _settings(spec).items():
                client.log_param(run.info.run_id, key, value)

    def scalars(self, task: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log the scalars at their step."""
        from time import time

        from mlflow.entities import Metric

        now_ms = int(time() * 1000)
        rows = [Metric(key, value, now_ms, step) for key, value in metrics.items()]
        self._client.log_batch(self._opened[task], metrics=rows)


#: What ``track`` may name.
NAMES: Mapping[str, type[TensorBoard | WandB | MLflow]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def sinks_of(track: "str | Sink | Sequence[str | Sink] | None") -> list[Sink]:
    """Return the sinks that ``track`` asks for.

    Parameters
    ----------
    track
        ``tensorboard``, ``wandb``, ``mlflow``, an object with ``open``, ``scalars`` and ``close``, or several.

    Raises
    ------
    ConfigError
        If something else is asked for; the message lists all of it.
    MissingExtra
        If a library is not installed.
    """
    listed: Sequence[Any] = [] if track is None else track if isinstance(track, list | tuple) else [track]
    problems = [problem for item in listed if (problem := _problem(item))]
    if problems:
        raise ConfigError(problems)
    return [NAMES[item]() if isinstance(item, str) else item for item in listed]


def _problem(item: object) -> str | None:
    if isinstance(item, str):
        return None if item in NAMES else f"track takes {', '.join(NAMES)} or an object, got {item!r}"
    missing = [name for name in ("open", "scalars", "close") if not callable(getattr(item, name, None))]
    return f"track: {item!r} has no {', '.join(missing)}" if missing else None

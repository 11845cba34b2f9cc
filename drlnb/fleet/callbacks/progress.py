"""Show how far a training is, in tables or in one line that is kept up to date, and log its scalars for TensorBoard.

Event files of `tensorboard_log` lie as Stable-Baselines3 lays them out, one folder per budget: ``FOLDER/NAME_1``,
``FOLDER/NAME_2`` and so on; a budget that goes on (``reset_num_timesteps=False``) goes on in the newest.  The library
writes, in a thread of its own, fed by the rows that callbacks get.
"""

import glob
import math
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, as_callback
from drlnb.fleet.callbacks.events import Evaluated, Metrics
from drlnb.fleet.faces import leave, redraw, say, show
from drlnb.fleet.plain import COUNT
from drlnb.records.errors import ConfigError
from drlnb.rl.tracking.sink_threads import Feed
from drlnb.rl.tracking.sinks import RunFacts, TensorBoard, evaluation_scalars

if TYPE_CHECKING:
    from drlnb.fleet.policies.logger import Logger

__all__ = [
    "LogEveryNTimesteps",
    "ProgressLine",
    "ProgressTable",
    "TensorBoardLog",
    "TheirLog",
    "budget_folder",
    "callbacks_of",
    "event_files",
    "table",
]

#: Letters of a bar; longest name and value in a table.
_BAR, _WIDEST = 20, 36
#: Seconds between two looks of a bar: rounds of milliseconds would flood a notebook with messages.
_REDRAW_S = 0.1


class Interval:
    """Says when scalars are due: each `every`-th round, of a DQN, whose rounds are some steps, that many episodes.

    Episodes are counted by the mean length of the latest hundred.
    """

    def __init__(self, every: int | None) -> None:
        self._every = None if every is None else COUNT.read("log_interval", every)
        self._n_rounds = self._n_timesteps = 0

    def due(self, algo: str, metrics: Metrics) -> bool:
        """Return whether they are due after a round."""
        self._n_rounds += 1
        if self._every is None or algo != "dqn":
            return self._every is not None and self._n_rounds % self._every == 0
        now, length = int(metrics["time/total_timesteps"]), metrics.get("rollout/ep_len_mean", math.inf)
        if now - self._n_timesteps < self._every * length:
            return False
        self._n_timesteps = now
        return True


class ProgressTable(BaseCallback):
    """Print the scalars of each `every`-th round as Stable-Baselines3 does with ``verbose=1``."""

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self._interval = Interval(every)

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Print the round's scalars, and what callbacks have recorded."""
        if self._interval.due(self.model.spec.algo, metrics):
            show(table({**metrics, **self.logger.name_to_value}))
        return None


class TheirLog(BaseCallback):
    """Have a logger of Stable-Baselines3's write the scalars of each `every`-th round, and of evaluations."""

    def __init__(self, every: int | None) -> None:
        super().__init__()
        self._interval = Interval(every)

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Write the round's scalars, beside what callbacks have recorded with it."""
        if self._interval.due(self.model.spec.algo, metrics):
            self._write(metrics)
            self.logger.theirs.dump(int(metrics["time/total_timesteps"]))
        return None

    def on_evaluation(self, evaluation: Evaluated) -> bool | None:
        """Record how it went; a round's end writes it."""
        rate, how = evaluation.success_rate, evaluation.deterministic
        self._write(evaluation_scalars(evaluation.mean_reward, rate, deterministic=how))
        return None

    def _write(self, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self.logger.theirs.record(name, value)


class LogEveryNTimesteps(BaseCallback):
    """Print the scalars of the round that is the first to end after each `n_steps` steps, for ``verbose=1``."""

    def __init__(self, n_steps: int) -> None:
        super().__init__()
        self._n_steps, self._printed = COUNT.read("n_steps", n_steps), 0

    def _init_callback(self) -> None:
        self._printed = self.num_timesteps

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Print the round's scalars if they are due."""
        before, now = self._printed, self.num_timesteps
        if self.model.verbose and now // self._n_steps > before // self._n_steps:
            self._printed = now
            show(table({**metrics, **self.logger.name_to_value}))
        return None


class ProgressLine(BaseCallback):
    """Keep a line up to date that shows how far training is."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn_s = -math.inf

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Show the round's counters, unless a line has been drawn just now."""
        if time.monotonic() - self._drawn_s >= _REDRAW_S:
            self._draw(metrics)
        return None

    def on_training_end(self) -> None:
        """Leave the last line standing."""
        if self.metrics:
            self._draw(self.metrics)
            leave()

    def _draw(self, metrics: Metrics) -> None:
        total = self.model.spec.total_timesteps
        share = min(1.0, metrics["time/total_timesteps"] / total)
        bar = "#" * round(share * _BAR)
        redraw(f"{share:4.0%} [{bar:<{_BAR}}] {words(metrics, total)}")
        self._drawn_s = time.monotonic()


def words(metrics: Metrics, total_timesteps: int) -> str:
    """Return a round's counters in words.

    Examples
    --------
    >>> words({"time/total_timesteps": 2048, "time/fps": 1024.0, "rollout/ep_rew_mean": 21.5}, 4096)
    '2,048 of 4,096 steps, mean return 21.5, 1,024 steps/s, 0:02 left'
    """
    done, fps = int(metrics["time/total_timesteps"]), float(metrics["time/fps"])
    parts = [f"{done:,} of {total_timesteps:,} steps"]
    if "rollout/ep_rew_mean" in metrics:
        parts.append(f"mean return {metrics['rollout/ep_rew_mean']:.1f}")
    parts.append(f"{fps:,.0f} steps/s")
    if fps > 0:
        left_s = round(max(0, total_timesteps - done) / fps)
        parts.append(f"{left_s // 60}:{left_s % 60:02d} left")
    return ", ".join(parts)


def table(scalars: Mapping[str, float]) -> str:
    """Return scalars as a table in the manner of Stable-Baselines3: one part for each word before the slash.

    Examples
    --------
    >>> print(table({"time/fps": 1016.0, "train/loss": 0.01234}))
    --------------------
    | time/   |        |
    |    fps  | 1016   |
    | train/  |        |
    |    loss | 0.0123 |
    --------------------
    """
    rows: list[tuple[str, str]] = []
    part = ""
    for name in sorted(scalars):
        head, slash, rest = name.partition("/")
        if slash and head != part:
            rows.append((f"{head}/", ""))
        part = head if slash else ""
        rows.append((f"   {rest}" if slash else name, _number(scalars[name])))
    left, right = (max(len(row[side][:_WIDEST]) for row in rows) for side in (0, 1))
    left, right = left + 1, right + 1
    line = "-" * (left + right + 5)
    body = [f"| {name[:_WIDEST]:<{left}}| {value[:_WIDEST]:<{right}}|" for name, value in rows]
    return "\n".join([line, *body, line])


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:<8.3g}".strip()


def budget_folder(folder: str | Path, name: str, *, anew: bool) -> Path:
    """Return where a budget's event files go.

    Parameters
    ----------
    folder
        That of `tensorboard_log`.
    name
        That of `tb_log_name`.
    anew
        The next free number, else the newest that is there.
    """
    taken = [
        re.fullmatch(rf"{re.escape(name)}_(\d+)", path.name) for path in Path(folder).glob(f"{glob.escape(name)}_*")
    ]
    newest = max((int(match[1]) for match in taken if match), default=0)
    return Path(folder) / f"{name}_{newest + 1 if anew or not newest else newest}"


class TensorBoardLog(BaseCallback):
    """Writes a training's scalars as event files.

    Parameters
    ----------
    folder
        Of this budget.

    Raises
    ------
    MissingExtra
        If the package ``tensorboard`` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._sink = TensorBoard(folder, alone=True)
        self._feed: Feed | None = None

    def on_training_start(self) -> None:
        """Open the files."""
        spec = self.model.spec
        facts = RunFacts(run_id=self._folder.name, out=self._folder, tasks={spec.name: spec.to_plain()})
        self._feed = Feed([self._sink], facts)

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Write a round's scalars at its steps."""
        if self._feed is not None:
            scalars = {**metrics, **self.logger.name_to_value}
            self._feed.put(self.model.spec.name, self.num_timesteps, scalars)
        return None

    def on_evaluation(self, evaluation: Evaluated) -> bool | None:
        """Write an evaluation's mean return, length and success rate, under Stable-Baselines3's names."""
        rate, how = evaluation.success_rate, evaluation.deterministic
        scalars = evaluation_scalars(evaluation.mean_reward, rate, deterministic=how)
        name, lengths = next(iter(scalars)), [n for _, n in evaluation.episodes]
        scalars["eval/mean_ep_length"] = sum(lengths) / max(len(lengths), 1)
        if self._feed is not None:
            self._feed.put(self.model.spec.name, evaluation.n_timesteps, scalars, name)
        return None

    def close(self) -> None:
        """End the files, also after an error; what went wrong is written in a line."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
            for failure in feed.failures:
                say(f"tensorboard_log: {failure}")


class Shown(Protocol):
    """What a model says of where its scalars go."""

    verbose: int
    tensorboard_log: str | Path | None

    @property
    def logger(self) -> "Logger":
        """Where callbacks record."""

    @property
    def num_timesteps(self) -> int:
        """Steps that it has learnt from."""


def event_files(model: Shown, name: str | None, *, reset_num_timesteps: bool) -> TensorBoardLog | None:
    """Return the callback that writes event files; None where nobody asked for them."""
    if model.logger.theirs is not None:
        return None  # it writes what it was configured for, as there
    if model.tensorboard_log is None:
        if name is not None:
            raise ConfigError(
                f"tb_log_name={name!r} needs tensorboard_log, the folder that it is in: give it to the model"
            )
        return None
    anew = reset_num_timesteps or model.num_timesteps == 0
    return TensorBoardLog(budget_folder(model.tensorboard_log, name or type(model).__name__, anew=anew))


def callbacks_of(
    model: Shown,
    callback: object,
    log_interval: int | None,
    log: TensorBoardLog | None,
    *,
    progress_bar: bool = False,
) -> CallbackList:
    """Return the user's callbacks, and behind them those that write and show what they have recorded."""
    own: list[BaseCallback] = [] if log is None else [log]
    if log_interval is not None:
        COUNT.read("log_interval", log_interval)
    if model.logger.theirs is not None:
        own.append(TheirLog(log_interval))
    elif model.verbose and log_interval is not None:
        own.append(ProgressTable(log_interval))
    if progress_bar:
        own.append(ProgressLine())
    return CallbackList(own if callback is None else [as_callback(callback), *own])

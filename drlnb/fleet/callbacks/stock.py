"""Save, evaluate, and stop by what evaluations show: ready-made callbacks under Stable-Baselines3's names."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drlnb.fleet.callbacks.base import BaseCallback, EventCallback, as_callback, hear_steps, report, wants_steps
from drlnb.fleet.callbacks.events import Evaluated, Metrics, Written
from drlnb.fleet.plain import COUNT
from drlnb.fleet.tasks.arguments import moved
from drlnb.records.errors import ConfigError
from drlnb.records.settings import count
from drlnb.records.spec import SOURCE_KEYS, RlWork

__all__ = [
    "CheckpointCallback",
    "EvalCallback",
    "EveryNTimesteps",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
]


class EveryNTimesteps(EventCallback):
    """Call another callback's ``_on_step`` after each `n_steps` environment steps, when their round has ended.

    Parameters
    ----------
    n_steps, callback
        Steps over all environments, and what is called.
    """

    def __init__(self, n_steps: int, callback: object) -> None:
        super().__init__(callback)
        self.n_steps = COUNT.read("n_steps", n_steps)
        self.last_time_trigger = 0

    def _init_callback(self) -> None:
        self.last_time_trigger = self.num_timesteps

    def _on_step(self) -> bool:
        if self.num_timesteps - self.last_time_trigger < self.n_steps:
            return True
        self.last_time_trigger = self.num_timesteps
        return self._on_event()


class CheckpointCallback(BaseCallback):
    """Save the model now and then, as ``SAVE_PATH/NAME_PREFIX_<steps>_steps.zip``.

    The steps in the name are those that the saved parameters were trained for; on a cluster that may be a round or two
    after the one that asked.  Whole checkpoints, from which training goes on exactly, lie in the run's directory.

    Parameters
    ----------
    save_freq
        Steps of each environment (Stable-Baselines3's calls of ``_on_step``), at least 1; inside another callback how
        many of its calls.
    save_path
        Folder.
    name_prefix
        Beginning of the files' names.
    save_replay_buffer
        Save a DQN's replay ring, too, as ``SAVE_PATH/NAME_PREFIX_replay_buffer_<steps>_steps.safetensors``.
    save_vecnormalize
        Either: a saved model holds its normaliser.
    verbose
        1: say which file was written.
    """

    def __init__(
        self,
        save_freq: int,
        save_path: str | Path,
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        del save_vecnormalize
        self.save_freq = COUNT.read("save_freq", save_freq)
        self.save_path, self.name_prefix, self.save_replay_buffer = Path(save_path), name_prefix, save_replay_buffer
        #: Steps, or the parent's calls, so far.
        self._seen = 0
        #: Environment steps at each request whose checkpoint has not come yet.
        self._asked: list[int] = []

    def _init_callback(self) -> None:
        self._seen, self._asked = 0 if self.parent else self.num_timesteps, []

    def _on_step(self) -> bool:
        every = self.save_freq if self.parent else self.save_freq * self.model.n_envs
        before, self._seen = self._seen, self._seen + 1 if self.parent else self.num_timesteps
        if self._seen // every > before // every:
            self._asked.append(self.num_timesteps)
            self.session.checkpoint()
        return True

    def on_checkpoint(self, checkpoint: Written) -> bool | None:
        """Copy the checkpoint that was asked for."""
        waiting = [asked for asked in self._asked if asked > checkpoint.n_timesteps]
        if checkpoint.reason == "checkpoint" and len(waiting) < len(self._asked):  # others ask, too
            self._asked = waiting
            path = self.save_path / f"{self.name_prefix}_{checkpoint.n_timesteps}_steps.zip"
            ring = path.with_name(f"{self.name_prefix}_replay_buffer_{checkpoint.n_timesteps}_steps.safetensors")
            if self.session.save(checkpoint.version, path, ring if self.save_replay_buffer else None):
                report(self, f"saved {path}")
        return None


class EvalCallback(EventCallback):
    """Evaluate while training: whole episodes with frozen statistics, raw rewards, and seeds of their own.

    Acting waits for the evaluation, which is played in a collector's process at the end of the first round after it is
    due, so the curve does not depend on timing.

    Parameters
    ----------
    eval_env
        Where evaluation plays: an id, a class, a function, or an environment that was made, with the same spaces; the
        task's `env_wrappers` go around it.  None: another copy of the environment that is trained on.
    callback_on_new_best, callback_after_eval
        Callbacks whose ``_on_step`` is called then; False stops the training.
    n_eval_episodes
        Episodes of each evaluation, fixed per environment copy beforehand.
    eval_freq
        Steps of each environment (Stable-Baselines3's calls of ``_on_step``) between two evaluations.
    log_path
        Folder (or file) of ``evaluations.npz`` with ``timesteps``, ``results`` and ``ep_lengths``.
    best_model_save_path
        Folder of ``best_model.zip``.
    deterministic
        The most likely actions (``eval/mean_reward``), or samples (``eval/mean_reward_stochastic``).
    render
        Must be False: see :func:`drlnb.rl.record_episode`.
    verbose
        1: say each result in a line.
    warn
        Either: there is no monitor that could be missing.

    Attributes
    ----------
    best_mean_reward, last_mean_reward
        Mean returns, in raw reward units; ``-inf`` before the first evaluation.

    Notes
    -----
    A subclass whose ``_on_step`` reads them, as to prune a trial, is called for the steps of a round when the
    evaluation that is due in it has been played.
    """

    TOGETHER = True

    def __init__(
        self,
        eval_env: object = None,
        callback_on_new_best: object = None,
        callback_after_eval: object = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10000,
        log_path: str | Path | None = None,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
    ) -> None:
        super().__init__(callback_after_eval, verbose)
        del warn
        if render:
            raise ConfigError("render must be False: drlnb.rl.record_episode(model, env) records an episode")
        self.callback_on_new_best = None if callback_on_new_best is None else as_callback(callback_on_new_best)
        if self.callback_on_new_best is not None:
            self.children = (self.callback_on_new_best, *self.children)
        self.eval_env = eval_env
        self.n_eval_episodes = COUNT.read("n_eval_episodes", n_eval_episodes)
        self.eval_freq = COUNT.read("eval_freq", eval_freq)
        self.deterministic = bool(deterministic)
        self.log_path = None if log_path is None else _npz(Path(log_path))
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.best_mean_reward = self.last_mean_reward = -math.inf
        self.evaluations: list[Evaluated] = []
        self._best_version = 0
        #: The steps of a round are told when its evaluation has been played.
        self._waiting = False

    def _init_callback(self) -> None:
        self._waiting = False
        if self.parent is not None:
            raise ConfigError("EvalCallback stands beside other callbacks, not in one: its eval_freq says when")

    def settings(self, n_envs: int) -> dict[str, object]:
        """Return how often, how many episodes, how, whether the best is kept, and where if it is elsewhere.

        Raises
        ------
        EnvError, ValueError
            If `eval_env` cannot be made, or has other spaces.
        """
        return {
            "eval_freq": self.eval_freq * n_envs,
            "eval_episodes": self.n_eval_episodes,
            "eval_deterministic": self.deterministic,
            "eval_keep_best": self.best_model_save_path is not None,
            **({} if self.eval_env is None else _elsewhere(self.model.spec, self.eval_env)),
        }

    def on_round_end(self, metrics: Metrics) -> bool | None:
        """Have a subclass wait for the evaluation that is due before it hears of the round's steps."""
        every, n = self.eval_freq * self.model.n_envs, len(self._counted) * self.model.n_envs
        self._waiting = wants_steps(self) and self.num_timesteps // every > (self.num_timesteps - n) // every
        self._heard = self._waiting  # they come later
        return super().on_round_end(metrics)

    def on_evaluation(self, evaluation: Evaluated) -> bool | None:
        """Keep the result, save a new best, and call the other callbacks."""
        if evaluation.deterministic != self.deterministic:
            return None  # the last one of a run is deterministic, whatever this one asked for
        self.evaluations.append(evaluation)
        self.last_mean_reward = evaluation.mean_reward
        mean, std, n = evaluation.mean_reward, evaluation.std_reward, len(evaluation.episodes)
        rate = "" if evaluation.success_rate is None else f", {evaluation.success_rate:.0%} succeeded"
        report(self, f"evaluation at {evaluation.n_timesteps:,} steps: {mean:.2f} +/- {std:.2f} ({n} episodes{rate})")
        if self.log_path is not None:
            _write_evaluations(self.log_path, self.evaluations)
        go_on = True
        if mean > self.best_mean_reward:
            self.best_mean_reward, self._best_version = mean, evaluation.version
            _save_best(self, evaluation.version)
            if self.callback_on_new_best is not None:
                go_on = self.callback_on_new_best.on_step()
        go_on = self._on_event() and go_on
        if self._waiting:
            self._waiting = False
            go_on = hear_steps(self) and go_on
        return go_on

    def on_checkpoint(self, checkpoint: Written) -> bool | None:
        """Copy the checkpoint of the best parameters."""
        if checkpoint.version == self._best_version:
            _save_best(self, checkpoint.version)
        return super().on_checkpoint(checkpoint)


def _save_best(callback: EvalCallback, version: int) -> None:
    """Copy a version's parameters as the best ones, where they are wanted and at hand."""
    if callback.best_model_save_path is None:
        return
    path = callback.best_model_save_path / "best_model.zip"
    if callback.session.save(version, path):
        report(callback, f"new best mean return {callback.best_mean_reward:.2f}: saved {path}")
        callback._best_version = 0


def _elsewhere(spec: RlWork, env: object) -> dict[str, object]:
    there, _ = moved(spec, env)
    sources = [{key: getattr(each, key) for key in SOURCE_KEYS} for each in (spec, there)]
    return {} if sources[0] == sources[1] else {"eval_source": sources[1]}


def _write_evaluations(path: Path, evaluations: Sequence[Evaluated]) -> None:
    """Write Stable-Baselines3's ``evaluations.npz``."""
    longest = max(len(evaluation.episodes) for evaluation in evaluations)
    table = np.full((len(evaluations), longest, 2), np.nan)  # the last one of a run has more episodes
    for row, evaluation in zip(table, evaluations, strict=True):
        row[: len(evaluation.episodes)] = evaluation.episodes
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = [evaluation.n_timesteps for evaluation in evaluations]
    np.savez(path, timesteps=steps, results=table[..., 0], ep_lengths=table[..., 1])


class StopTrainingOnRewardThreshold(BaseCallback):
    """Stop when the best mean return of the evaluations reaches a threshold.

    To be given to :class:`EvalCallback` as ``callback_on_new_best``.

    Parameters
    ----------
    reward_threshold
        In raw reward units.
    verbose
        1: say why.
    """

    parent: EvalCallback

    def __init__(self, reward_threshold: float, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.reward_threshold = float(reward_threshold)

    def _init_callback(self) -> None:
        _needs_evaluations(self, "callback_on_new_best")

    def _on_step(self) -> bool:
        best = self.parent.best_mean_reward
        if best < self.reward_threshold:
            return True
        report(self, f"stopping: mean return {best:.2f} has reached {self.reward_threshold:.2f}")
        return False


class StopTrainingOnNoModelImprovement(BaseCallback):
    """Stop after several evaluations in a row that brought no new best one.

    To be given to :class:`EvalCallback` as ``callback_after_eval``.

    Parameters
    ----------
    max_no_improvement_evals
        Evaluations in a row without a new best that are still borne.
    min_evals
        Evaluations before the counting begins.
    verbose
        1: say why.
    """

    parent: EvalCallback

    def __init__(self, max_no_improvement_evals: int, min_evals: int = 0, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.max_no_improvement_evals = count(0).read("max_no_improvement_evals", max_no_improvement_evals)
        self.min_evals = count(0).read("min_evals", min_evals)
        self.last_best_mean_reward = -math.inf
        self.no_improvement_evals = 0
        self._n_evals = 0

    def _init_callback(self) -> None:
        _needs_evaluations(self, "callback_after_eval")

    def _on_step(self) -> bool:
        self._n_evals += 1
        best, before = self.parent.best_mean_reward, self.last_best_mean_reward
        self.last_best_mean_reward = best
        if self._n_evals <= self.min_evals:
            return True
        self.no_improvement_evals = 0 if best > before else self.no_improvement_evals + 1
        if self.no_improvement_evals <= self.max_no_improvement_evals:
            return True
        report(self, f"stopping: no new best mean return in the last {self.no_improvement_evals} evaluations")
        return False


def _needs_evaluations(callback: BaseCallback, where: str) -> None:
    if not isinstance(callback.parent, EvalCallback):
        name = type(callback).__name__
        raise ConfigError(f"{name} belongs into an EvalCallback: EvalCallback({where}={name}(...))")


def _npz(path: Path) -> Path:
    """Return Stable-Baselines3's file for a folder, or the file itself."""
    return path if path.suffix == ".npz" else path / "evaluations.npz"

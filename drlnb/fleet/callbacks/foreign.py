"""Take callbacks of Stable-Baselines3: those that are here, too, become ours, others are called as they are there."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drlnb.fleet.callbacks.base import BaseCallback, CallbackList, ConvertCallback
from drlnb.fleet.callbacks.progress import LogEveryNTimesteps
from drlnb.fleet.callbacks.stock import (
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)

__all__ = ["Foreign", "ours_of"]


class Foreign(BaseCallback):
    """A callback of Stable-Baselines3's, or of a class derived from one, called as it is there.

    Parameters
    ----------
    theirs
        It gets the model, and `locals` of this process's steps; on a cluster a round's calls come together.
    """

    #: Which model it is: one that can learn.
    model: Any

    def __init__(self, theirs: Any) -> None:
        super().__init__(int(theirs.verbose))
        self.theirs = theirs

    def _init_callback(self) -> None:
        if self.parent is not None:  # of ours: theirs, which it was given to, never hears of anything
            self.theirs.parent = self.parent
        with warnings.catch_warnings():  # environments of ours are of no type of theirs, whatever they evaluate in
            warnings.filterwarnings("ignore", "Training and eval env are not of the same type")
            self.theirs.init_callback(self.model)

    def _on_training_start(self) -> None:
        self.locals["total_timesteps"] = self.model.spec.total_timesteps
        self.theirs.on_training_start(self.locals, self.globals)

    def _on_rollout_start(self) -> None:
        self.theirs.on_rollout_start()

    def _on_step(self) -> bool:
        return bool(self.theirs.on_step())

    def _on_rollout_end(self) -> None:
        self.theirs.on_rollout_end()

    def _on_training_end(self) -> None:
        self.theirs.on_training_end()


def ours_of(theirs: Any) -> BaseCallback:
    """Return a callback of ours that does what one of theirs does."""
    make = _OURS.get(type(theirs).__name__) if type(theirs).__module__.startswith("stable_baselines3.") else None
    return Foreign(theirs) if make is None else make(theirs)


def _evaluation(theirs: Any) -> EvalCallback:
    log_path = theirs.log_path  # they have put the file's name behind the folder

    def show(*_: object) -> None:
        """Put the results into theirs: scripts read them of the object that they have made."""
        theirs.best_mean_reward, theirs.last_mean_reward = ours.best_mean_reward, ours.last_mean_reward

    ours = EvalCallback(
        theirs.eval_env,
        callback_on_new_best=theirs.callback_on_new_best,
        callback_after_eval=[show, theirs.callback],
        n_eval_episodes=theirs.n_eval_episodes,
        eval_freq=theirs.eval_freq,
        log_path=None if log_path is None else Path(log_path).parent,
        best_model_save_path=theirs.best_model_save_path,
        deterministic=theirs.deterministic,
        render=theirs.render,
        verbose=theirs.verbose,
    )
    return ours


def _named(kind: Callable[..., BaseCallback], *names: str) -> Callable[[Any], BaseCallback]:
    """Return what makes a callback of ours from attributes of theirs that have the names of its arguments."""
    return lambda theirs: kind(**{name: getattr(theirs, name) for name in (*names, "verbose")})


#: Class of theirs -> what makes ours.
_OURS: Mapping[str, Callable[[Any], BaseCallback]] = {
    "EvalCallback": _evaluation,
    "CheckpointCallback": _named(
        CheckpointCallback, "save_freq", "save_path", "name_prefix", "save_replay_buffer", "save_vecnormalize"
    ),
    "StopTrainingOnRewardThreshold": _named(StopTrainingOnRewardThreshold, "reward_threshold"),
    "StopTrainingOnNoModelImprovement": _named(
        StopTrainingOnNoModelImprovement, "max_no_improvement_evals", "min_evals"
    ),
    "EveryNTimesteps": lambda theirs: EveryNTimesteps(theirs.n_steps, theirs.callback),
    "LogEveryNTimesteps": lambda theirs: LogEveryNTimesteps(theirs.n_steps),
    "CallbackList": lambda theirs: CallbackList(theirs.callbacks),
    "ConvertCallback": lambda theirs: ConvertCallback(theirs.callback, theirs.verbose),
}

"""How does a person use what was trained?"""

from pathlib import Path
from typing import Any

import numpy as np

from drlnb.records.errors import CheckpointError
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms import make_actor
from drlnb.runtime import checkpoint

__all__ = ["Model", "load_model"]


class Model:
    """A trained policy.

    Parameters
    ----------
    spec
        The task that it was trained on, with its spaces.
    parameters
        What the learner published; uint8.
    """

    def __init__(self, spec: TaskSpec, parameters: "np.ndarray[Any, np.dtype[np.uint8]]") -> None:
        self.spec = spec
        self._actor = make_actor(spec)
        self._actor.load(parameters)

    def __repr__(self) -> str:
        return f"Model({self.spec.name!r}, env={self.spec.env!r})"

    def predict(self, obs: Any, deterministic: bool = True) -> tuple[Any, None]:
        """Return the action for one observation or a batch of them, in Stable-Baselines3's manner.

        Parameters
        ----------
        obs
            Raw observation, shape ``(*obs)``, or ``(B, *obs)``.
        deterministic
            The most likely action instead of a sample.

        Returns
        -------
        tuple
            The action as the environment takes it, or an array of them; and None, the missing recurrent state.
        """
        return self._actor.predict(obs, deterministic=deterministic)


def load_model(spec: TaskSpec, folder: Path) -> Model:
    """Return the policy of a task's newest whole checkpoint.

    Parameters
    ----------
    spec
        The task, with its spaces.
    folder
        ``OUT/checkpoints/<task>``.

    Raises
    ------
    CheckpointError
        If there is none, or it holds no parameters of this task.
    """
    found = checkpoint.latest(folder)
    if found is None:
        raise CheckpointError(f"task {spec.name} has no checkpoint in {folder} yet")
    try:
        return Model(spec, np.frombuffer(found.blobs["published.bin"], np.uint8))
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{found.path}: no parameters of task {spec.name} ({error})") from None

"""Act as DQN does: greedily on the action values, at random every now and then.

Exploration takes the same block of Gumbel noise that a sampled policy takes.  Of several Gumbel deviates, which one is
the largest does not depend on how large it is: the place of the largest is a random action, its size decides
whether that action is taken.  So each environment explores by draws of its own, and no further stream is needed.
"""

import numpy as np

from drlnb.records.spec import RlWork
from drlnb.rl.acting.actors import Actor
from drlnb.rl.settings.dqn import DqnSettings

__all__ = ["DqnActor"]

#: Largest number below 1: with an epsilon of 1 every action is random.
_BELOW_ONE = float(np.nextafter(1.0, 0.0))


class DqnActor(Actor):
    """The epsilon-greedy policy of one task, in numpy for an MLP; see :class:`drlnb.rl.acting.actors.Actor`."""

    def __init__(self, spec: RlWork) -> None:
        super().__init__(spec)
        self._settings = DqnSettings.from_mapping(spec.hyperparameters)
        self._n_envs, self._total = spec.n_envs, spec.total_timesteps
        #: Environment steps of the task before this round, and vector steps chosen in it.
        self._began, self._chosen = 0, 0

    def at(self, progress_remaining: float, round: int) -> None:
        """Begin a round of training, with that share of the budget in ``[0, 1]`` still to come."""
        del round
        self._began, self._chosen = int(np.rint((1.0 - progress_remaining) * self._total)), 0

    def _epsilon(self, first: int, n_steps: int) -> np.ndarray:
        """Return the probability of a random action at some vector steps of the round, counted from 0."""
        steps = self._began + self._n_envs * np.arange(first, first + n_steps)
        return self._settings.epsilon(steps, self._total)

    def choose(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return a collector's actions, shape ``(R,)``, for action values and Gumbel noise ``(R, A)``.

        Each call is the round's next vector step.
        """
        epsilon = self._epsilon(self._chosen, 1)[0]
        self._chosen += 1
        return _choose(outputs, noise, epsilon)

    def log_prob(self, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return log-probabilities, float32, shape ``(T, R)``, of the round's actions under values ``(T, R, A)``."""
        epsilon = self._epsilon(0, len(outputs))[:, None]
        greedy = actions == outputs.argmax(axis=-1)
        with np.errstate(divide="ignore"):  # log 0 = -inf is meant: an action that had no chance
            log_p: np.ndarray = np.log(epsilon / outputs.shape[-1] + (1.0 - epsilon) * greedy)
        return log_p.astype(np.float32)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return actions outside of training: at the final epsilon, or the best ones where the noise is 0."""
        return _choose(outputs, noise, self._settings.exploration_final_eps)


def _choose(outputs: np.ndarray, noise: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the noise's favourite where its size falls below epsilon, else the best action; shape ``(R,)``.

    The largest of A standard Gumbel deviates has the distribution function ``exp(-A exp(-x))``.
    """
    best: np.ndarray = outputs.argmax(axis=-1)
    if epsilon <= 0.0 or not noise.any():
        return best
    largest = noise.max(axis=-1).astype(np.float64)
    uniform = np.minimum(-np.expm1(-noise.shape[-1] * np.exp(-largest)), _BELOW_ONE)
    return np.where(uniform < epsilon, noise.argmax(axis=-1), best)

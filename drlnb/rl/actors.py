"""How does a policy act without torch?  A few matrix products in numpy.

For the handful of rows that one collector steps, numpy's forward pass takes a third of torch's time, and a collector
process starts ten times faster when it never imports torch.
"""

from typing import Any

import numpy as np

from drlnb.records.spec import TaskSpec
from drlnb.rl.layout import HEADER_BYTES, layout_of
from drlnb.rl.normalise import Moments, normalise
from drlnb.rl.seeding import EXPLORE, generator

__all__ = ["NumpyActor", "bounds"]

_LOG_2PI = float(np.log(2.0 * np.pi))


def bounds(space: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat lower and upper bounds of a plain box space, float64; None becomes infinity.

    The lists hold one number per element, or one for all.
    """
    size = int(np.prod(space["shape"]))
    low = np.array([-np.inf if v is None else v for v in space["low"]], np.float64)
    high = np.array([np.inf if v is None else v for v in space["high"]], np.float64)
    return np.broadcast_to(low, (size,)), np.broadcast_to(high, (size,))


class NumpyActor:
    """The policy of one task, in numpy.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.layout = layout_of(spec)
        self._obs_shape = tuple((spec.observation_space or {})["shape"])
        action_space = dict(spec.action_space or {})
        self._start = int(action_space.get("start", 0))
        self._action_shape = tuple(action_space.get("shape", ()))
        self._action_dtype = np.dtype(action_space.get("dtype", "int64"))
        if not self.layout.discrete:
            self._low, self._high = bounds(action_space)
        self._relu = self.layout.activation == "relu"
        self._towers: list[tuple[np.ndarray, np.ndarray]] = []
        self._rng = generator(spec.seed, EXPLORE)

    def load(self, parameters: np.ndarray) -> None:
        """Take over a published buffer; it is copied, so the caller may reuse it.

        Parameters
        ----------
        parameters
            What :meth:`drlnb.rl.learner.Learner.published` returned; uint8, shape ``(published_bytes,)``.

        Raises
        ------
        ValueError
            If the buffer was made for another layout.
        """
        layout = self.layout
        layout.check(parameters)
        raw = np.array(parameters)  # own and aligned, whatever the network handed over
        statistics = raw[HEADER_BYTES : HEADER_BYTES + 8 * layout.n_statistics].view(np.float64)
        flat = raw[layout.policy_offset :].view(np.float32)
        if layout.norm_obs:
            obs = Moments(statistics[0], statistics[4 : 4 + layout.obs_width], statistics[4 + layout.obs_width :])
            self._mean, self._var = obs.mean, obs.var
        tensors = {e.name: flat[e.start : e.stop].reshape(e.shape) for e in layout.entries if e.stop <= layout.n_policy}
        self._towers = [
            (np.ascontiguousarray(tensor.T), tensors[name.replace("weight", "bias")])
            for name, tensor in tensors.items()  # in the order of the layers: tower first, head last
            if name.endswith("weight")
        ]
        if not layout.discrete:
            self._log_std = tensors["log_std"]
            self._std = np.exp(self._log_std)

    def forward(self, obs: np.ndarray) -> np.ndarray:
        """Return logits or means, float32, shape ``(B, action_width)``, of raw observations ``(B, *obs)``."""
        x = obs.reshape(len(obs), -1)
        x = normalise(x, self._mean, self._var) if self.layout.norm_obs else x.astype(np.float32, copy=False)
        for weight, bias in self._towers[:-1]:
            x = x @ weight
            x += bias
            if self._relu:
                np.maximum(x, 0.0, out=x)
            else:
                np.tanh(x, out=x)
        weight, bias = self._towers[-1]
        outputs: np.ndarray = x @ weight
        outputs += bias
        return outputs

    def choose(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return actions for network outputs ``(B, p)`` and noise ``(B, p)``: Gumbel or standard normal."""
        discrete = self.layout.discrete
        actions: np.ndarray = (outputs + noise).argmax(axis=-1) if discrete else outputs + self._std * noise
        return actions

    def log_prob(self, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return log-probabilities, float32, shape ``(...)``, of unclipped actions under outputs ``(..., p)``."""
        log_p: np.ndarray
        if self.layout.discrete:
            shifted = outputs - outputs.max(axis=-1, keepdims=True)
            chosen = np.take_along_axis(shifted, actions[..., None], axis=-1)[..., 0]
            log_p = chosen - np.log(np.exp(shifted).sum(axis=-1))
        else:
            z = (actions - outputs) / self._std
            constant = self._log_std.sum() + np.float32(0.5 * _LOG_2PI * self.layout.action_width)
            log_p = np.float32(-0.5) * np.square(z).sum(axis=-1) - constant
        return log_p

    def act(self, obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unclipped actions and their log-probabilities.

        Parameters
        ----------
        obs
            Raw observations, shape ``(B, *obs)``.
        noise
            float32, shape ``(B, action_width)``: Gumbel for discrete actions, else standard normal.

        Returns
        -------
        tuple of ndarray
            Discrete actions from 0, shape ``(B,)``, or float32 ``(B, d)``; log-probabilities ``(B,)`` float32.
        """
        outputs = self.forward(obs)
        actions = self.choose(outputs, noise)
        return actions, self.log_prob(outputs, actions)

    def to_env(self, actions: np.ndarray) -> Any:
        """Return what the environments take: whole numbers from the space's start, or clipped arrays."""
        if self.layout.discrete:
            return (actions + self._start).tolist()
        clipped = np.clip(actions, self._low, self._high).astype(self._action_dtype)
        return clipped.reshape(len(actions), *self._action_shape)

    def predict(self, obs: Any, deterministic: bool = False) -> tuple[Any, None]:
        """Return the action for one observation or a batch of them, in Stable-Baselines3's manner.

        Parameters
        ----------
        obs
            Raw observation, shape ``(*obs)``, or ``(B, *obs)``.
        deterministic
            The most likely action instead of a sample (of this actor's own stream).

        Returns
        -------
        tuple
            The action as the environment takes it, or an array of them; and None, the missing recurrent state.
        """
        rows = np.asarray(obs)
        single = rows.shape == self._obs_shape
        outputs = self.forward(rows[None] if single else rows)
        shape = outputs.shape
        noise: np.ndarray
        if deterministic:
            noise = np.zeros(shape, np.float32)
        elif self.layout.discrete:
            noise = self._rng.gumbel(size=shape).astype(np.float32)
        else:
            noise = self._rng.standard_normal(shape, np.float32)
        actions = np.asarray(self.to_env(self.choose(outputs, noise)))
        return (actions[0] if single else actions), None

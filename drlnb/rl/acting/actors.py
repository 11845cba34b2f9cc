"""Act without torch: a few matrix products in numpy.

For the handful of rows that one collector steps, numpy's forward pass takes a third of torch's time, and a collector
process starts ten times faster when it never imports torch.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from drlnb.records.spec import RlWork
from drlnb.rl.envs.masks import masked, read_masks, uses_masks
from drlnb.rl.heads import bounds
from drlnb.rl.networks.activations import NUMPY
from drlnb.rl.networks.layout import layout_of
from drlnb.rl.networks.policies import check_spaces, is_module
from drlnb.rl.normalise import split_statistics
from drlnb.rl.rows import as_rows, form_of, normalised_rows
from drlnb.rl.seeding import EXPLORE, generator

__all__ = ["Actor", "NumpyMlp"]


class NumpyMlp:
    """A tower of dense layers, in numpy.

    Parameters
    ----------
    activation
        One of :data:`drlnb.rl.networks.activations.NUMPY`.
    scaled
        Observations are images and are divided by 255.
    features
        The last hidden layer's outputs follow the outputs.
    """

    def __init__(self, activation: str, *, scaled: bool = False, features: bool = False) -> None:
        self._activation, self._scaled, self._features = activation, scaled, features
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Load weights and biases, named ``*.weight`` and ``*.bias``, in the order of the layers."""
        self._layers = [
            (np.ascontiguousarray(tensor.T), tensors[name.removesuffix("weight") + "bias"])
            for name, tensor in tensors.items()
            if name.endswith("weight")
        ]

    def forward(self, obs: np.ndarray) -> np.ndarray:
        """Return outputs, float32, shape ``(B, width)``, of observations ``(B, *obs)``."""
        x = obs.reshape(len(obs), -1).astype(np.float32, copy=False)
        if self._scaled:
            x = x / np.float32(255.0)
        activate = NUMPY[self._activation]  # not kept: a function of no name cannot be pickled, and models are
        for weight, bias in self._layers[:-1]:
            x = x @ weight
            x += bias
            x = activate(x)
        weight, bias = self._layers[-1]
        outputs: np.ndarray = x @ weight
        outputs += bias
        return np.concatenate((outputs, x), axis=1) if self._features else outputs


class Actor:
    """The acting side of one task: parameters in, actions out.

    An algorithm that acts in another way overrides :meth:`at`, :meth:`choose`, :meth:`log_prob`, :meth:`sample` and
    :meth:`extras`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    ConfigError, UnsupportedSpace
        If the algorithm or its policy does not fit the spaces, or a setting is wrong.
    """

    def __init__(self, spec: RlWork) -> None:
        check_spaces(spec)
        self._masks = uses_masks(spec)
        if is_module(spec):
            from drlnb.rl.acting.torch_actor import TorchNetwork  # torch, which an MLP's collector never loads

            self._network: NumpyMlp | TorchNetwork = TorchNetwork(spec)
            self.layout = self._network.layout
        else:
            self.layout = layout = layout_of(spec)
            self._network = NumpyMlp(layout.activation, scaled=layout.scaled, features=layout.head.kind == "sde")
        self.head = self.layout.head
        self._obs_space = dict(spec.observation_space or {})
        self._form = form_of(spec.observation_space)
        space = dict(spec.action_space or {})
        self._start = np.asarray(space.get("start", 0))
        self._action_shape = tuple(space.get("shape", ()))
        self._action_dtype = np.dtype(space.get("dtype", "int64"))
        if self.head.continuous:
            self._low, self._high = bounds(space)
        self._log_std: np.ndarray = np.empty(0, np.float32)
        self._std: np.ndarray = self._log_std
        self._rng = generator(spec.seed, EXPLORE)

    def load(self, parameters: np.ndarray) -> None:
        """Load a published buffer; parts of it are acted with in place, so it must stay as it is until the next one.

        Parameters
        ----------
        parameters
            What :meth:`drlnb.rl.algorithms.learner.Learner.published` returned; uint8, shape ``(published_bytes,)``.

        Raises
        ------
        ValueError
            If the buffer was made for another layout.
        """
        layout = self.layout
        layout.check(parameters)
        #: Of observations and of discounted returns, as published.
        self.statistics = split_statistics(layout.statistics(parameters))
        flat = parameters[layout.policy_offset :].view(np.float32)
        tensors = {e.name: flat[e.start : e.stop].reshape(e.shape) for e in layout.entries if e.stop <= layout.n_policy}
        self._log_std = tensors.pop("log_std", np.empty(0, np.float32))
        self._std = self.head.std(self._log_std) if self.head.continuous else self._log_std
        self._network.load(tensors)

    def at(self, progress_remaining: float, round: int) -> None:
        """Begin a round of training; nothing depends on where it stands here.

        Parameters
        ----------
        progress_remaining
            Which fraction of the budget was left when the round began, in ``[0, 1]``.
        round
            Number of the round, at least 0.
        """

    def forward(self, obs: np.ndarray) -> np.ndarray:
        """Return outputs, float32, shape ``(B, width)``, of raw observations ``(B, *obs)``."""
        if self.layout.norm_obs:
            obs = normalised_rows(self._form, obs, self.statistics[0].mean, self.statistics[0].var)
        return self.respond(obs)

    def respond(self, seen: np.ndarray) -> np.ndarray:
        """Return outputs as :meth:`forward` does, of observations that are normalised already if the task's are."""
        return self._network.forward(seen)

    def choose(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return a collector's actions for outputs and noise ``(R, width)``: row i is the task's environment i."""
        return self.head.choose(outputs, noise, self._std)

    def log_prob(self, outputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return log-probabilities, float32, shape ``(..., R)``, of a collector's unclipped actions.

        `outputs` have the shape ``(..., R, width)``; row i is the task's environment i.
        """
        return self.head.log_prob(outputs, actions, self._log_std)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return actions outside a collector, where rows belong to no environment; noise 0: the most likely ones."""
        return self.head.choose(outputs, noise, self._std)

    def extras(self, rows: slice | list[int]) -> dict[str, np.ndarray]:
        """Return arrays that ride in the fragment beside the samples; none here.

        Parameters
        ----------
        rows
            Index of the collector's environments among the task's: a slice or a list.
        """
        return {}

    def to_env(self, actions: np.ndarray) -> np.ndarray | list[int]:
        """Return what the environments take: whole numbers from the space's start, or arrays of its shape."""
        kind = self.head.kind
        if kind == "discrete":
            return (actions + self._start).tolist()
        if self.head.squashed:
            actions = self._low + 0.5 * (np.tanh(actions) + 1.0) * (self._high - self._low)
        elif self.head.continuous:
            actions = np.clip(actions, self._low, self._high)
        elif kind == "multidiscrete":
            actions = actions + self._start
        return actions.astype(self._action_dtype).reshape(len(actions), *self._action_shape)

    def predict(self, obs: object, deterministic: bool = False, action_masks: object = None) -> tuple[np.ndarray, None]:
        """Return the action for one observation or a batch of them, in Stable-Baselines3's manner.

        :meth:`drlnb.PPO.predict` tells a user all of it.

        Parameters
        ----------
        obs
            Raw observation, shape ``(*obs)``, or ``(B, *obs)`` (of each key).
        deterministic
            The most likely action; else a sample of this actor's own stream.
        action_masks
            Truth values of the choices, shape ``(width,)`` or ``(B, width)``; None: everything is allowed.
        """
        rows, single = as_rows(self._obs_space, obs)
        outputs = self.forward(rows)
        if action_masks is not None:
            outputs = masked(outputs, self._allowed(action_masks, len(rows), single))
        shape = len(outputs), self.head.noise_width
        noise = np.zeros(shape, np.float32) if deterministic else self.head.draw(self._rng, shape)
        actions = np.asarray(self.to_env(self.sample(outputs, noise)))
        return (actions[0] if single else actions), None

    def _allowed(self, given: object, n: int, single: bool) -> np.ndarray:
        """Return masks for `n` observations, bool, shape ``(n, width)``."""
        if not self._masks:
            raise ValueError("action_masks are for a policy that was trained with use_masking=True")
        masks = list(given) if isinstance(given, Iterable) else [given]
        rows = [masks] if single and not isinstance(masks[0], Sequence | np.ndarray) else masks
        if len(rows) != n:
            raise ValueError(f"action_masks must hold {n} masks, one per observation, got {len(rows)}")
        return np.stack([read_masks(row, self.head) for row in rows])

"""Interpret a network's outputs, one head per action space: which noise, which action, how likely it was.

All in numpy, for actors; :func:`drlnb.rl.algorithms.ppo.evaluate` does the same in torch, and a test holds both equal.
Noise of zero gives the most likely action.

=============  =========================  ==========================  =============================================
kind           outputs ``(..., width)``   noise                       action
=============  =========================  ==========================  =============================================
discrete       logits                     Gumbel                      ``(...)`` int64, from 0
multidiscrete  logits, side by side       Gumbel                      ``(..., d)`` int64, each from 0
multibinary    logits of 1                logistic                    ``(..., d)`` int64, 0 or 1
box            means                      standard normal             ``(..., d)`` float32, unclipped
sde            means, then L features     standard normal, ``L d``    ``(..., d)`` float32, unclipped
=============  =========================  ==========================  =============================================

``sde`` is generalised state-dependent exploration (gSDE; Raffin et al. 2021, arXiv 2005.05719), of boxes, as
Stable-Baselines3 has it: ``a = mean + h E`` with the policy's last features h and a matrix E of deviates with standard
deviations ``exp(log_std)``, shape ``(L, d)``, drawn now and then; so the variance of an action is
``h^2 exp(log_std)^2 + 1e-6``.  No gradient goes through h.  With `squashed` the environment gets ``tanh(a)`` within its
bounds; fragments hold a itself, whose log-probability is that of the squashed action.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Literal

import numpy as np

from drlnb.records.base import Facts

__all__ = ["SDE_EPSILON", "Head", "Noise", "bounds", "log_softmax"]

#: Distributions that acting noise is drawn from.
Noise = Literal["gumbel", "logistic", "normal"]

#: Added to the variance of state-dependent exploration, and to what a logarithm is taken of: Stable-Baselines3's
#: ``epsilon``.
SDE_EPSILON = 1e-6
#: Deviations of a head that has none.
_NONE = np.empty(0, np.float32)
_LOG_2PI = float(np.log(2.0 * np.pi))
#: Kind of head -> which noise it takes; those of choices: Gumbel.
_NOISE: dict[str, Noise] = {"multibinary": "logistic", "box": "normal", "sde": "normal"}


def bounds(space: Facts) -> tuple[np.ndarray, np.ndarray]:
    """Return the flat lower and upper bounds of a plain box space, float64; None becomes infinity.

    The lists hold one number per element, or one for all.
    """
    size = int(np.prod(space["shape"]))
    low = np.array([-np.inf if v is None else v for v in space["low"]], np.float64)
    high = np.array([np.inf if v is None else v for v in space["high"]], np.float64)
    return np.broadcast_to(low, (size,)), np.broadcast_to(high, (size,))


@dataclass(frozen=True, slots=True)
class Head:
    """The distribution over one action space."""

    kind: Literal["discrete", "multidiscrete", "multibinary", "box", "sde"]
    #: Outputs of the network.
    width: int
    #: Multidiscrete: how many choices each decision has; sde: dimensions d and features L; else empty.
    sizes: tuple[int, ...] = ()
    #: sde: deviations above 1 are ``1 + log(1 + log_std)``, Stable-Baselines3's ``use_expln``; else ``exp(log_std)``.
    expln: bool = False
    #: sde: actions go through tanh, Stable-Baselines3's ``squash_output``.
    squashed: bool = False

    @classmethod
    def of(cls, action_space: Facts) -> "Head":
        """Return the head of a plain action space, see :func:`drlnb.rl.envs.make.describe`.

        Raises
        ------
        ValueError
            If the space has no head.
        """
        kind = action_space["kind"]
        if kind == "discrete":
            return cls("discrete", int(action_space["n"]))
        if kind == "multidiscrete":
            sizes = tuple(int(n) for n in action_space["nvec"])
            return cls("multidiscrete", sum(sizes), sizes)
        if kind in ("multibinary", "box"):
            return cls(kind, prod(action_space["shape"]))
        raise ValueError(f"actions must be discrete, multidiscrete, multibinary or box, got {kind!r}")

    def exploring(self, n_features: int, *, expln: bool = False, squashed: bool = False) -> "Head":
        """Return this box's head with state-dependent exploration on that many features."""
        sizes = self.width, n_features
        return Head("sde", self.width + n_features, sizes, expln=expln, squashed=squashed)

    def std(self, log_std: np.ndarray) -> np.ndarray:
        """Return standard deviations for their logarithms: ``(width,)``, or ``(L, d)`` also for ``(L, 1)``."""
        if self.kind != "sde":
            return np.exp(log_std)
        std: np.ndarray = np.exp(log_std)
        if self.expln:
            std = np.where(log_std > 0.0, np.log1p(np.maximum(log_std, 0.0) + SDE_EPSILON) + 1.0, std)
        return np.broadcast_to(std.astype(np.float32), self.sizes[::-1])

    @property
    def continuous(self) -> bool:
        """Actions are numbers within bounds."""
        return self.kind in {"box", "sde"}

    @property
    def noise_width(self) -> int:
        """How many deviates :meth:`choose` takes for an action."""
        return self.sizes[0] * self.sizes[1] if self.kind == "sde" else self.width

    @property
    def noise(self) -> Noise:
        """Which noise :meth:`choose` takes."""
        return _NOISE.get(self.kind, "gumbel")

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action in a fragment: ``()`` or ``(d,)``."""
        if self.kind == "discrete":
            return ()
        if self.kind == "sde":
            return self.sizes[:1]
        return (len(self.sizes) if self.sizes else self.width,)

    @property
    def action_dtype(self) -> type[np.generic]:
        """Type of actions in a fragment."""
        return np.float32 if self.continuous else np.int64

    def parts(self) -> list[slice]:
        """Return where each decision's logits are; multidiscrete only."""
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]

    def choose(self, outputs: np.ndarray, noise: np.ndarray, std: np.ndarray = _NONE) -> np.ndarray:
        """Return actions for outputs ``(..., width)`` and noise ``(..., noise_width)``.

        `std` is for boxes ``(width,)``, and for state-dependent exploration ``(L, d)``.
        """
        if self.kind == "box":
            return outputs + std * noise
        if self.kind == "sde":
            d, n = self.sizes
            matrices = noise.reshape(*noise.shape[:-1], n, d) * std
            return outputs[..., :d] + (outputs[..., None, d:] @ matrices)[..., 0, :]
        perturbed = outputs + noise
        if self.kind == "discrete":
            return perturbed.argmax(axis=-1)
        if self.kind == "multibinary":
            return (perturbed > 0.0).astype(np.int64)
        return np.stack([perturbed[..., part].argmax(axis=-1) for part in self.parts()], axis=-1)

    def log_prob(self, outputs: np.ndarray, actions: np.ndarray, log_std: np.ndarray = _NONE) -> np.ndarray:
        """Return log-probabilities, float32, shape ``(...)``, of unclipped actions under outputs ``(..., width)``."""
        if self.kind == "discrete":
            return _categorical(outputs, actions)
        if self.kind == "box":
            z = (actions - outputs) / np.exp(log_std)
            constant = log_std.sum() + np.float32(0.5 * _LOG_2PI * self.width)
            return np.float32(-0.5) * np.square(z).sum(axis=-1) - constant
        if self.kind == "sde":
            d = self.sizes[0]
            variance = np.square(outputs[..., d:]) @ np.square(self.std(log_std)) + np.float32(SDE_EPSILON)
            error = np.square(actions - outputs[..., :d])
            terms = np.float32(-0.5) * (error / variance + np.log(variance) + np.float32(_LOG_2PI))
            if self.squashed:
                terms = terms - np.log(1.0 - np.square(np.tanh(actions)) + np.float32(SDE_EPSILON))
            return terms.sum(axis=-1)
        if self.kind == "multibinary":
            return -np.logaddexp(np.float32(0.0), (1 - 2 * actions).astype(np.float32) * outputs).sum(axis=-1)
        terms = [_categorical(outputs[..., part], actions[..., d]) for d, part in enumerate(self.parts())]
        return sum(terms[1:], terms[0])

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return noise of this head from a generator, float32, of `shape` (its last axis is `noise_width`)."""
        if self.noise == "gumbel":
            return rng.gumbel(size=shape).astype(np.float32)
        if self.noise == "logistic":
            return rng.logistic(size=shape).astype(np.float32)
        return rng.standard_normal(shape, np.float32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities of all choices, which lie along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _categorical(logits: np.ndarray, actions: np.ndarray) -> np.ndarray:
    chosen: np.ndarray = np.take_along_axis(log_softmax(logits), actions[..., None], axis=-1)
    return chosen[..., 0]

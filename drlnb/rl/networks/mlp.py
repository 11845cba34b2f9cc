"""Compute the two towers of an MLP, from weights drawn as Stable-Baselines3 draws them.

``MlpPolicy``: separate towers for policy and value, Stable-Baselines3's initialisation: orthogonal with gain sqrt 2 in
the towers, 0.01 at the policy head, 1 at the value head, biases 0.  Parameters are views of one flat tensor.
"""

from collections.abc import Callable, Mapping
from math import sqrt

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from drlnb.rl.networks.layout import Layout
from drlnb.rl.plain import Facts

__all__ = ["dense", "initial", "tower", "views"]


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # makes the distribution uniform (Saxe et al. 2013)
    return gain * (q if rows >= columns else q.T)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    bound = 1.0 / sqrt(shape[-1])  # torch.nn.Linear's default
    return rng.uniform(-bound, bound, shape)


def initial(layout: Layout, rng: np.random.Generator, policy_kwargs: Facts) -> np.ndarray:
    """Return the starting values of the flat vector, float32, shape ``(n_total,)``.

    Parameters
    ----------
    layout
        The task's layout.
    rng
        Generator of the INIT stream.
    policy_kwargs
        ``ortho_init`` (True) and ``log_std_init`` (0) are read.
    """
    flat = np.zeros(layout.n_total, np.float32)
    orthogonal = bool(policy_kwargs.get("ortho_init", True))
    gains = {"action.weight": 0.01, "value.weight": 1.0}
    for entry in layout.entries:
        if entry.name == "log_std":
            flat[entry.start : entry.stop] = float(policy_kwargs.get("log_std_init", 0.0))
        elif entry.name.endswith("weight"):
            gain = gains.get(entry.name, sqrt(2.0))
            value = _orthogonal(rng, entry.shape, gain) if orthogonal else _uniform(rng, entry.shape)
            flat[entry.start : entry.stop] = value.ravel()
    return flat


def views(flat: Tensor, layout: Layout) -> dict[str, Tensor]:
    """Return each entry as a view of the flat tensor."""
    return {entry.name: flat[entry.start : entry.stop].view(entry.shape) for entry in layout.entries}


def dense(
    tensors: Mapping[str, Tensor],
    prefix: str,
    head: str,
    x: Tensor,
    activate: Callable[[Tensor], Tensor],
    *,
    features: bool = False,
) -> Tensor:
    """Return a tower's output for inputs `x`, shape ``(B, obs_width)`` -> ``(B, n_out)``.

    With `features` the last hidden layer's outputs follow: ``(B, n_out + L)``.
    """
    number = 0
    while f"{prefix}.{number}.weight" in tensors:
        x = activate(linear(x, tensors[f"{prefix}.{number}.weight"], tensors[f"{prefix}.{number}.bias"]))
        number += 1
    outputs = linear(x, tensors[f"{head}.weight"], tensors[f"{head}.bias"])
    return torch.cat((outputs, x), 1) if features else outputs


def tower(tensors: Mapping[str, Tensor], prefix: str, head: str, x: Tensor, *, relu: bool) -> Tensor:
    """Return a tower's output for ReLU or tanh, see :func:`dense`."""
    return dense(tensors, prefix, head, x, torch.relu if relu else torch.tanh)

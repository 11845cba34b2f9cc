"""Compute policies and values on a device: two faces of one flat parameter tensor.

An MLP's towers are views of it; a module's parameters are re-pointed to views, so that a step on the flat tensor is a
step on the module.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from drlnb.records.spec import TaskSpec
from drlnb.rl.networks.activations import BY_HAND
from drlnb.rl.networks.layout import Layout, layout_of
from drlnb.rl.networks.mlp import dense, initial, views
from drlnb.rl.networks.modules import attach, build, check, module_layout
from drlnb.rl.networks.policies import check_exploration, check_policy, is_module, spaces_of
from drlnb.rl.networks.trained_state import Kept
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.rows import form_of, normalised_rows
from drlnb.rl.seeding import INIT, generator

__all__ = ["ActorCritic", "MlpTowers", "ModuleNetworks", "make_networks"]

#: Rows of one forward pass without gradients: images of a whole round would not fit.
_CHUNK = 512


class ActorCritic(Protocol):
    """Policy and value function of one task."""

    kept: Kept
    layout: Layout

    def rows(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays as rows that the networks take."""

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``(B, width)`` and values ``(B,)``; gradients are recorded."""

    def values(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``; no gradient is recorded."""

    def log_std(self) -> Tensor | None:
        """Return the log deviations of a box, a leaf; None for other actions."""


class MlpTowers:
    """Two towers, see :mod:`drlnb.rl.networks.mlp`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    """

    def __init__(self, spec: TaskSpec, device: torch.device) -> None:
        self.layout = layout_of(spec)
        kwargs = dict(spec.hyperparameters.get("policy_kwargs") or {})
        start = initial(self.layout, generator(spec.seed, INIT), kwargs)
        self.kept = Kept(self.layout, start, device, kwargs.get("optimizer_kwargs"))
        self.leaves = self.kept.adam.leaves(views, self.layout)
        #: The same tensors; no gradient is recorded for these.
        self.tensors = views(self.kept.adam.flat, self.layout)
        self.grads = views(self.kept.adam.grad, self.layout)
        self._activate = getattr(functional, self.layout.activation, None) or getattr(torch, self.layout.activation)

    @property
    def by_hand(self) -> bool:
        """Whether gradients are written out for this network and these actions."""
        return self.layout.activation in BY_HAND and self.layout.head.kind in {"discrete", "box"}

    def rows(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays as float32 rows ``(B, obs_width)``, normalised if the task is."""
        return self.kept.rows(parts)

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``(B, width)`` and values ``(B,)``; gradients are recorded."""
        outputs = dense(self.leaves, "pi", "action", obs, self._activate, features=self.layout.head.kind == "sde")
        return outputs, dense(self.leaves, "vf", "value", obs, self._activate)[:, 0]

    def values(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``; no gradient is recorded."""
        if self.layout.activation in BY_HAND:
            relu = self.layout.activation == "relu"
            return mlp_gradient.forward(self.tensors, "vf", "value", obs, relu=relu)[-1][:, 0]
        return dense(self.tensors, "vf", "value", obs, self._activate)[:, 0]

    def log_std(self) -> Tensor | None:
        """Return the log deviations of a box, a leaf; None for other actions."""
        return self.leaves.get("log_std")


class ModuleNetworks:
    """A torch module, see :mod:`drlnb.rl.networks.modules`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.

    Raises
    ------
    ConfigError
        If the module cannot be built or breaks its contract.
    """

    by_hand = False

    def __init__(self, spec: TaskSpec, device: torch.device) -> None:
        self._module = build(spec, device)
        check(self._module, spec)
        self.layout = module_layout(spec, self._module)
        kwargs = spec.hyperparameters.get("policy_kwargs") or {}
        start = np.zeros(self.layout.n_total, np.float32)  # the module brings its own
        self.kept = Kept(self.layout, start, device, kwargs.get("optimizer_kwargs"))
        adam = self.kept.adam
        places, grads = views(adam.flat, self.layout), views(adam.grad, self.layout)
        attach(self._module, places, grads)
        self._log_std: Tensor | None = None
        if "log_std" in places:
            places["log_std"].fill_(float(kwargs.get("log_std_init", 0.0)))
            self._log_std = places["log_std"].detach().requires_grad_()
            self._log_std.grad = grads["log_std"]
        self._obs_shape = tuple((spec.observation_space or {})["shape"])
        self._form = form_of(spec.observation_space)

    def rows(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays as rows ``(B, *obs)``: integers as they are, floats as float32."""
        rows = np.concatenate([np.asarray(part).reshape(-1, *self._obs_shape) for part in parts])
        if self.layout.norm_obs:
            rows = normalised_rows(self._form, rows, self.kept.obs_moments.mean, self.kept.obs_moments.var)
        return rows.astype(np.float32) if rows.dtype == np.float64 else rows

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``(B, width)`` and values ``(B,)``; gradients are recorded."""
        return self._module.both(obs)

    def values(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``; no gradient is recorded."""
        with torch.no_grad():
            return torch.cat([self._module.critic(part) for part in obs.split(_CHUNK)])

    def log_std(self) -> Tensor | None:
        """Return the log deviations of a box, a leaf; None for other actions."""
        return self._log_std


def make_networks(spec: TaskSpec, device: torch.device) -> MlpTowers | ModuleNetworks:
    """Return the networks of a task with their starting weights.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    ConfigError
        If a module cannot be built or breaks its contract.
    """
    spaces_of(spec)
    check_policy(spec)
    check_exploration(spec)
    return ModuleNetworks(spec, device) if is_module(spec) else MlpTowers(spec, device)

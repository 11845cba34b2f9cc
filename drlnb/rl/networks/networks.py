"""Compute outputs and values of a task's networks on a device: two faces of one flat parameter tensor.

An MLP's towers are views of it; a module's parameters are re-pointed to views, so that a step on the flat tensor is a
step on the module.  PPO and GPF have a policy and a value function; DQN has action values, and a target network whose
parameters lie in a flat tensor of their own.

``MlpPolicy`` has separate towers for policy and value, and Stable-Baselines3's initialisation: orthogonal with gain
sqrt 2 in the towers, 0.01 at the policy head, 1 at the value head, biases 0; with ``ortho_init=False``, and of action
values, torch's own for linear layers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import sqrt

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import linear

from drlnb.records.base import Facts
from drlnb.records.spec import RlWork
from drlnb.rl.networks.activations import BY_HAND
from drlnb.rl.networks.layout import PI, VF, Layout, Q, Tower, layout_of
from drlnb.rl.networks.modules import attach, build, module_layout
from drlnb.rl.networks.own_optimizer import own_optimizer
from drlnb.rl.networks.policies import check_spaces, is_module, spaces_of
from drlnb.rl.networks.same_bits import own_draws, seed_all
from drlnb.rl.networks.trained_state import FlatAdam, Kept, views
from drlnb.rl.networks.trial import check
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.seeding import INIT, NETWORK, generator, reset_seed

__all__ = ["MlpTowers", "ModuleNetworks", "Networks", "dense", "initial", "make_networks"]

#: Rows of one forward pass without gradients: images of a whole round would not fit.
_CHUNK = 512


def _orthogonal(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> np.ndarray:
    rows, columns = shape
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q *= np.sign(np.diag(r))  # makes the distribution uniform (Saxe et al. 2013)
    return gain * (q if rows >= columns else q.T)


def initial(layout: Layout, rng: np.random.Generator, policy_kwargs: Facts, *, q_values: bool = False) -> np.ndarray:
    """Return the starting values of the flat vector, float32, shape ``(n_total,)``.

    Parameters
    ----------
    layout
        The task's layout.
    rng
        Generator of the INIT stream.
    policy_kwargs
        ``ortho_init`` (True; without it weights and biases are drawn as torch does for linear layers) and
        ``log_std_init`` (0) are read.
    q_values
        As without ``ortho_init``.
    """
    flat = np.zeros(layout.n_total, np.float32)
    orthogonal = bool(policy_kwargs.get("ortho_init", True)) and not q_values
    gains = {"action.weight": 0.01, "value.weight": 1.0}
    bound = 1.0
    for entry in layout.entries:
        values = flat[entry.start : entry.stop]
        weight = entry.name.endswith("weight")
        if weight:  # its bias follows and has the same bound
            bound = 1.0 / sqrt(entry.shape[1])
        if entry.name == "log_std":
            values[:] = float(policy_kwargs.get("log_std_init", 0.0))
        elif not orthogonal:
            values[:] = rng.uniform(-bound, bound, len(values))
        elif weight:
            values[:] = _orthogonal(rng, entry.shape, gains.get(entry.name, sqrt(2.0))).ravel()
    return flat


def dense(
    tensors: Mapping[str, Tensor],
    tower: Tower,
    x: Tensor,
    activate: Callable[[Tensor], Tensor],
    *,
    features: bool = False,
) -> Tensor:
    """Return a tower's output for inputs `x`, shape ``(B, obs_width)`` -> ``(B, n_out)``.

    With `features` the last hidden layer's outputs follow: ``(B, n_out + L)``.
    """
    (prefix, head), number = tower, 0
    while f"{prefix}.{number}.weight" in tensors:
        x = activate(linear(x, tensors[f"{prefix}.{number}.weight"], tensors[f"{prefix}.{number}.bias"]))
        number += 1
    outputs = linear(x, tensors[f"{head}.weight"], tensors[f"{head}.bias"])
    return torch.cat((outputs, x), 1) if features else outputs


class MlpTowers:
    """Towers of dense layers of one task, with its spaces filled in: views of one flat tensor on a device."""

    #: Whether gradient steps compute otherwise than what acts.
    has_modes = False

    def __init__(self, spec: RlWork, device: torch.device) -> None:
        self.layout = layout_of(spec)
        kwargs = spec.hyperparameters.get("policy_kwargs") or {}
        start = initial(self.layout, generator(spec.seed, INIT), kwargs, q_values=spec.algo == "dqn")
        self.kept = _kept(spec, self.layout, start, device)
        adam = self.kept.adam
        self._leaves = adam.leaves(self.layout)
        #: The same tensors; no gradient is recorded for these.
        self.tensors = views(adam.flat, self.layout)
        self.grads = views(adam.grad, self.layout)
        self._target = {} if adam.target is None else views(adam.target, self.layout)
        #: Log deviations of a box, a leaf; None for other actions.
        self.log_std = self._leaves.get("log_std")
        name = self.layout.activation
        self._activate, self._relu = getattr(functional, name, None) or getattr(torch, name), name == "relu"
        #: Whether gradients are written out for this network and these actions.
        self.by_hand = name in BY_HAND and self.layout.head.kind in {"discrete", "box"}

    def rows(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays as float32 rows ``(B, obs_width)``."""
        rows = np.concatenate([part.reshape(len(part), self.layout.obs_width) for part in parts])
        rows = rows.astype(np.float32, copy=False)
        return rows / np.float32(255.0) if self.layout.scaled else rows

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``(B, width)`` and values ``(B,)``; gradients are recorded."""
        outputs = dense(self._leaves, PI, obs, self._activate, features=self.layout.head.kind == "sde")
        return outputs, dense(self._leaves, VF, obs, self._activate)[:, 0]

    def values(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``; no gradient is recorded."""
        if self.layout.activation in BY_HAND:
            return self.forward(VF, obs)[-1][:, 0]
        return dense(self.tensors, VF, obs, self._activate)[:, 0]

    def q_values(self, obs: Tensor) -> Tensor:
        """Return action values ``(B, A)``; gradients are recorded if wanted."""
        return dense(self._leaves, Q, obs, self._activate)

    def acting_values(self, obs: Tensor) -> Tensor:
        """Return action values ``(B, A)`` as actors compute them."""
        return self.q_values(obs)

    def target_values(self, obs: Tensor) -> Tensor:
        """Return the target network's action values ``(B, A)``."""
        return dense(self._target, Q, obs, self._activate)

    def training(self) -> AbstractContextManager[object]:
        """Make a round's gradient steps in the body."""
        return nullcontext()

    def step(self, number: int) -> None:
        """Begin a gradient step, or begin it again."""

    def forward(self, tower: Tower, obs: Tensor) -> list[Tensor]:
        """Return a tower's inputs layer by layer, and its output last; see :mod:`.mlp_gradient`."""
        return mlp_gradient.forward(self.tensors, tower, obs, relu=self._relu)

    def backward(self, tower: Tower, layers: list[Tensor], d_out: Tensor) -> None:
        """Write the gradients of a tower that :meth:`forward` went through, for that of its output."""
        mlp_gradient.backward(self.tensors, self.grads, tower, layers, d_out, relu=self._relu)


class ModuleNetworks:
    """A torch module, see :mod:`drlnb.rl.networks.modules`; for DQN a second one is the target network.

    It is in training mode while a round's gradient steps are made, and in evaluation mode else: as it acts, and as it
    values what was seen.  What it draws in a step is keyed by the round and the step.  Its buffers lie behind the
    parameters in the flat tensor.
    """

    by_hand = False

    def __init__(self, spec: RlWork, device: torch.device) -> None:
        #: What computes outputs and values; its hooks see what autograd saves.
        self.module = self._target = build(spec, device)
        self.has_modes = check(self.module, spec)
        self._seed = spec.seed
        self.layout = module_layout(spec, self.module)
        self.kept = _kept(spec, self.layout, np.zeros(self.layout.n_total, np.float32), device)
        adam = self.kept.adam  # its zeros become the module's own starting weights
        self._places = views(adam.flat, self.layout)
        attach(self.module, self._places, views(adam.grad, self.layout))
        if adam.target is not None:
            self._target = build(spec, device).requires_grad_(False)
            attach(self._target, views(adam.target, self.layout))
        #: Log deviations of a box, a leaf; None for other actions.
        self.log_std = adam.leaves(self.layout).get("log_std")
        if self.log_std is not None:
            kwargs = spec.hyperparameters.get("policy_kwargs") or {}
            self.log_std.data.fill_(float(kwargs.get("log_std_init", 0.0)))
        self._obs_shape = tuple((spec.observation_space or {})["shape"])

    def rows(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """Return observations of several arrays as rows ``(B, *obs)``: integers as they are, floats as float32."""
        rows = np.concatenate([np.asarray(part).reshape(-1, *self._obs_shape) for part in parts])
        return rows.astype(np.float32) if rows.dtype == np.float64 else rows

    def both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs ``(B, width)`` and values ``(B,)``; gradients are recorded."""
        return self.module.both(obs)

    def values(self, obs: Tensor) -> Tensor:
        """Return values ``(B,)``; no gradient is recorded."""
        with torch.no_grad():
            return torch.cat([self.module.critic(part) for part in obs.split(_CHUNK)])

    def q_values(self, obs: Tensor) -> Tensor:
        """Return action values ``(B, A)``; gradients are recorded if wanted."""
        return self.module.actor(obs)

    def acting_values(self, obs: Tensor) -> Tensor:
        """Return action values ``(B, A)`` as actors compute them."""
        before = self.module.training
        self.module.eval()
        try:
            return self.module.actor(obs)
        finally:
            self.module.train(before)

    def target_values(self, obs: Tensor) -> Tensor:
        """Return the target network's action values ``(B, A)``."""
        return self._target.actor(obs)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Make a round's gradient steps in the body: in training mode, with random numbers of their own."""
        with own_draws() if self.has_modes else nullcontext():
            self.module.train()
            try:
                yield
            finally:
                self.module.eval()
                attach(self.module, self._places)  # where it has put other tensors in place of its own

    def step(self, number: int) -> None:
        """Begin a gradient step, or begin it again: what is drawn depends on the round and this number alone."""
        seed_all(reset_seed(self._seed, NETWORK, self.kept.round, number), self.kept.device)


#: What a task's learner trains.
Networks = MlpTowers | ModuleNetworks


def _kept(spec: RlWork, layout: Layout, start: np.ndarray, device: torch.device) -> Kept:
    dqn, kwargs = spec.algo == "dqn", spec.hyperparameters.get("policy_kwargs") or {}
    given, kind = kwargs.get("optimizer_kwargs"), kwargs.get("optimizer_class", "Adam")
    arguments = {} if dqn and given is None else given
    flat, make, n = torch.from_numpy(start).to(device), own_optimizer(spec), layout.n_trained
    entries = [entry for entry in layout.entries if entry.stop <= n]
    return Kept(layout, FlatAdam(flat, arguments, kind=kind, target=dqn, n_trained=n, make=make, entries=entries))


def make_networks(spec: RlWork, device: torch.device) -> Networks:
    """Return the networks of a task with their starting weights; :class:`.Learner` lists what is refused."""
    spaces_of(spec)
    check_spaces(spec)
    return ModuleNetworks(spec, device) if is_module(spec) else MlpTowers(spec, device)

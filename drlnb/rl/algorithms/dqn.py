"""Learn by deep Q-learning: the round's minibatches come as one block from the replay ring, steps run in turn.

A round is `train_freq` vector steps, then the gradient steps that they allow.  The target network moves first, by as
many updates as fell into the round's steps: k updates towards a network that stands still are one update with
``1 - (1 - tau)^k``.  Parameters, gradient and Adam's moments are one flat tensor each.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.rounds import Column, Notify, RoundLearner
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import HEAD, TOWER, Layout, dqn_layout
from drlnb.rl.networks.mlp import tower, views
from drlnb.rl.networks.policies import check_discrete, check_policy, is_module
from drlnb.rl.networks.trained_state import Kept
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.dqn_losses import dqn_loss, huber_gradient, td_target
from drlnb.rl.objectives.samples import Rows as _Rows
from drlnb.rl.plain import Facts
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.seeding import INIT, generator
from drlnb.rl.settings.dqn import DqnSettings

if TYPE_CHECKING:
    from drlnb.rl.networks.q_modules import QModules

__all__ = ["ADAM_EPS", "DqnLearner", "Rows"]

#: torch's default, which Stable-Baselines3 leaves for DQN.
ADAM_EPS = 1e-8


@dataclass(frozen=True, slots=True)
class Rows(_Rows):
    """Transitions on the device; first axis: samples."""

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    #: float32: 1 after a true end.
    terminated: Tensor


def initial(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    """Return the starting values of the flat vector, float32, shape ``(n_total,)``: torch's own for linear layers."""
    flat = np.zeros(layout.n_total, np.float32)
    bound = 1.0
    for entry in layout.entries:
        if entry.name.endswith("weight"):  # its bias follows and has the same bound
            bound = 1.0 / sqrt(entry.shape[1])
        flat[entry.start : entry.stop] = rng.uniform(-bound, bound, entry.stop - entry.start)
    return flat


class DqnLearner(RoundLearner[DqnSettings]):
    """Deep Q-learning; see :class:`drlnb.rl.algorithms.protocol.Learner`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    by_hand
        Gradients of an MLP written out (:mod:`drlnb.rl.objectives.mlp_gradient`) instead of autograd: faster, but
        nothing is recorded that a hook on saved tensors could see.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    UnsupportedSpace
        If the actions are not discrete.
    ConfigError
        If a setting is wrong, or a network of the user's own breaks its contract.
    """

    columns = ("loss", "grad_norm")

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        settings = DqnSettings.from_mapping(spec.hyperparameters)
        check_discrete(spec)
        check_policy(spec)
        self._modules = _make_modules(spec, torch.device(device)) if is_module(spec) else None
        layout = dqn_layout(spec) if self._modules is None else self._modules.layout
        start = np.zeros(layout.n_total, np.float32)
        if self._modules is None:  # a module brings its own weights
            start = initial(layout, generator(spec.seed, INIT))
        super().__init__(spec, settings, Kept(layout, start, torch.device(device), {"eps": ADAM_EPS}, target=True))
        assert self.kept.target is not None
        #: Parameters of the target network; flat, like the trained ones.
        self.target = self.kept.target
        if self._modules is not None:
            self._modules.attach(self.adam, self.target)
        self._leaves = self.adam.leaves(views, layout)
        self._tensors, self._target_tensors = views(self.adam.flat, layout), views(self.target, layout)
        self._part = torch.zeros_like(self.adam.flat)
        self._part_grads = views(self._part, layout)
        self._gradient = self._explicit if by_hand and self._modules is None else self._autograd
        self._relu = layout.activation == "relu"
        #: Of the staged block.
        self._header: Facts = {}

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Move the round's block of minibatches to the device, as :class:`.Replay` draws it.

        Returns
        -------
        float
            Seconds spent.

        Raises
        ------
        ValueError
            If this round has a block already.
        """
        started = time.perf_counter()
        if self._staged:
            raise ValueError(f"worker {worker} staged a second block of minibatches in round {self.kept.round}")
        self._staged[0], self._header = self._columns(fragment)[0], fragment.header
        self.kept.n_timesteps = int(fragment.header["n_timesteps"])
        return time.perf_counter() - started

    def _columns(self, fragment: Fragment) -> list[Column]:
        """Return the block's tensors, first axis minibatches: all are moved at once."""
        arrays = {name: fragment.arrays[name] for name in ("obs", "next_obs", "action", "reward")}
        arrays["terminated"] = fragment.arrays["terminated"].astype(np.float32)
        if self._modules is None:
            for name in ("obs", "next_obs"):
                flat = arrays[name].reshape(*arrays["action"].shape, self.layout.obs_width).astype(np.float32)
                arrays[name] = flat / np.float32(255.0) if self.layout.scaled else flat
        return [{name: self._tensor(array) for name, array in arrays.items()}]

    def _update(self, notify: Notify) -> tuple[np.ndarray, int]:
        self._move_target(int(self._header["n_target_updates"]))
        self.adam.learning_rate = parse_schedule(self.settings.learning_rate)(self.progress)
        block = Rows(**self._staged[0])
        table = torch.zeros((len(block), 2), device=self.device)
        for step in range(len(block)):
            table[step, 0] = self.gradient((block.part(step),))
            self.adam.step(self.settings.max_grad_norm, norm_out=table[step, 1])
            notify(step + 1, len(block))
        return table.cpu().numpy(), len(block)

    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        loss, norm = table.mean(axis=0, dtype=np.float64).tolist()
        return {
            "train/loss": loss,
            "train/grad_norm": norm,
            "train/learning_rate": self.adam.learning_rate,
            "train/n_updates": self.kept.n_updates,
            **self._header["metrics"],
        }

    def _move_target(self, n_updates: int) -> None:
        if n_updates:
            weight = 1.0 - (1.0 - self.settings.tau) ** n_updates
            if weight == 1.0:
                self.target.copy_(self.adam.flat)
            else:
                self.target.mul_(1.0 - weight).add_(self.adam.flat, alpha=weight)

    def gradient(self, parts: Sequence[Rows]) -> Tensor:
        """Leave a minibatch's gradient in the flat buffer, summed over its parts in turn; return its loss.

        The parts may be of any sizes: each counts by its samples, so the sum is the whole minibatch's mean.
        """
        n_total = sum(map(len, parts))
        losses = [self._gradient(rows, n_total, first=number == 0) for number, rows in enumerate(parts)]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _q(self, obs: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the trained network's values ``(B, A)``."""
        if self._modules is not None:
            return self._modules.online(obs)
        return tower(tensors, TOWER, HEAD, obs, relu=self._relu)

    def _q_target(self, obs: Tensor) -> Tensor:
        """Return the target network's values ``(B, A)``."""
        if self._modules is not None:
            return self._modules.target(obs)
        return tower(self._target_tensors, TOWER, HEAD, obs, relu=self._relu)

    def _targets(self, rows: Rows) -> Tensor:
        with torch.no_grad():
            following = self._q_target(rows.next_obs)
            online = self._q(rows.next_obs, self._tensors) if self.settings.double_q else None
            return td_target(rows.reward, rows.terminated, following, self.settings.gamma, next_q_online=online)

    def _explicit(self, rows: Rows, n_total: int, *, first: bool) -> Tensor:
        """Put (or add) a part's gradient into the flat buffer, by hand; return its share of the loss."""
        grads, layers = self._part_grads, mlp_gradient.forward(self._tensors, TOWER, HEAD, rows.obs, relu=self._relu)
        d_q, loss = huber_gradient(layers[-1], rows.action, self._targets(rows), n_total=n_total)
        mlp_gradient.backward(self._tensors, grads, TOWER, HEAD, layers, d_q, relu=self._relu)
        if first:
            self.adam.grad.copy_(self._part)
        else:
            self.adam.grad.add_(self._part)
        return loss

    def _autograd(self, rows: Rows, n_total: int, *, first: bool) -> Tensor:
        """Put (or add) a part's gradient into the flat buffer; return its share of the loss."""
        if first:
            self.adam.zero_grad()
        q = self._q(rows.obs, self._leaves)
        loss = dqn_loss(q, rows.action, self._targets(rows), n_total=n_total)
        loss.backward()
        return loss.detach()


def _make_modules(spec: TaskSpec, device: torch.device) -> "QModules":
    from drlnb.rl.networks.q_modules import QModules  # here, so that an MLP does not load what it does not need

    return QModules(spec, device)

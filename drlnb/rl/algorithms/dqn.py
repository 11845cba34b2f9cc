"""Learn by deep Q-learning: the round's minibatches come as one block from the replay ring, steps run in turn.

A round is `train_freq` vector steps, then the gradient steps that they allow.  The target network moves first, by as
many updates as fell into the round's steps: k updates towards a network that stands still are one update with
``1 - (1 - tau)^k``.  Parameters, gradient and Adam's moments are one flat tensor each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from drlnb.records.base import Facts
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.learner import Column, Learner, Notify, computed, on_device
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import Q
from drlnb.rl.objectives.losses import dqn_loss, huber_gradient, td_target
from drlnb.rl.objectives.samples import Rows as _Rows
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.settings.dqn import DqnSettings

__all__ = ["DqnLearner", "Rows"]


@dataclass(frozen=True, slots=True)
class Rows(_Rows):
    """Transitions on the device; first axis: samples."""

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    #: float32: 1 after a true end.
    terminated: Tensor


class DqnLearner(Learner):
    """Deep Q-learning; see :class:`drlnb.rl.algorithms.learner.Learner`."""

    settings: DqnSettings
    columns = ("loss", "grad_norm")

    def __init__(self, spec: RlWork, *, device: str = "cpu", by_hand: bool = True) -> None:
        super().__init__(spec, device=device, by_hand=by_hand)
        assert self.adam.target is not None
        #: Parameters of the target network; flat, like the trained ones.
        self.target = self.adam.target
        #: Of the staged block.
        self._header: Facts = {}

    def _columns(self, fragment: Fragment) -> list[Column]:
        """Return the tensors of the block that :class:`.Replay` drew, first axis minibatches: all are moved at once."""
        self._header = fragment.header
        self.kept.n_timesteps = int(fragment.header["n_timesteps"])
        arrays = {name: fragment.arrays[name] for name in ("obs", "next_obs", "action", "reward")}
        arrays["terminated"] = fragment.arrays["terminated"].astype(np.float32)
        for name in ("obs", "next_obs"):
            rows = self.networks.rows(arrays[name])
            arrays[name] = rows.reshape(*arrays["action"].shape, *rows.shape[1:])
        return [{name: on_device(array, self.device) for name, array in arrays.items()}]

    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        self._move_target(int(self._header["n_target_updates"]))
        self.adam.learning_rate = parse_schedule(self.settings.learning_rate)(self.progress)
        block = Rows(**columns[0])
        table = torch.zeros((len(block), 2), device=self.device)
        for step in range(len(block)):
            rows = block.part(step)
            table[step, 0] = computed(self, step, len(rows), partial(self.gradient, rows))
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
            weight, n = 1.0 - (1.0 - self.settings.tau) ** n_updates, self.layout.n_trained
            if weight == 1.0:
                self.target.copy_(self.adam.flat)
            else:
                self.target[:n].mul_(1.0 - weight).add_(self.adam.flat[:n], alpha=weight)
                self.target[n:] = self.adam.flat[n:]  # statistics of batch normalisation are copied, whatever tau

    def gradient(self, rows: Rows) -> Tensor:
        """Leave a minibatch's gradient in the flat buffer; return its loss."""
        networks, settings, towers = self.networks, self.settings, self._towers
        with torch.no_grad():
            following = networks.target_values(rows.next_obs)
            online = networks.acting_values(rows.next_obs) if settings.double_q else None
            targets = td_target(rows.reward, rows.terminated, following, settings.gamma, next_q_online=online)
        if towers is not None:
            layers = towers.forward(Q, rows.obs)
            d_q, loss = huber_gradient(layers[-1], rows.action, targets)
            towers.backward(Q, layers, d_q)
            return loss
        self.adam.zero_grad()
        loss = dqn_loss(networks.q_values(rows.obs), rows.action, targets)
        loss.backward()
        return loss.detach()

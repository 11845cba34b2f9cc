"""Learn by deep Q-learning: the round's minibatches come as one block from the replay ring, steps run in turn.

A round is `train_freq` vector steps, then the gradient steps that they allow.  The target network moves first, by as
many updates as fell into the round's steps: k updates towards a network that stands still are one update with
``1 - (1 - tau)^k``.  Parameters, gradient and Adam's moments are one flat tensor each.
"""

import time
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.dqn_gradient import DqnGradient, QNetworks, QTowers, Rows
from drlnb.rl.algorithms.rounds import Column, Notify, RoundLearner, on_device
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import Layout, dqn_layout
from drlnb.rl.networks.policies import check_discrete, check_policy, is_module
from drlnb.rl.networks.trained_state import Kept
from drlnb.rl.plain import Facts
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.seeding import INIT, generator
from drlnb.rl.settings.dqn import DqnSettings

if TYPE_CHECKING:
    from drlnb.rl.networks.q_modules import QModules

__all__ = ["ADAM_EPS", "DqnLearner"]

#: torch's default, which Stable-Baselines3 leaves for DQN.
ADAM_EPS = 1e-8


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
        modules = _make_modules(spec, torch.device(device)) if is_module(spec) else None
        layout = dqn_layout(spec) if modules is None else modules.layout
        start = np.zeros(layout.n_total, np.float32)
        if modules is None:  # a module brings its own weights
            start = initial(layout, generator(spec.seed, INIT))
        super().__init__(spec, settings, Kept(layout, start, torch.device(device), {"eps": ADAM_EPS}, target=True))
        assert self.kept.target is not None
        #: Parameters of the target network; flat, like the trained ones.
        self.target = self.kept.target
        if modules is not None:
            modules.attach(self.adam, self.target)
        self._networks: QNetworks = modules or QTowers(layout, self.adam, self.target)
        self._gradient = DqnGradient(self._networks, self.adam, by_hand=by_hand)
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
        if isinstance(self._networks, QTowers):
            for name in ("obs", "next_obs"):
                flat = arrays[name].reshape(*arrays["action"].shape, self.layout.obs_width).astype(np.float32)
                arrays[name] = flat / np.float32(255.0) if self.layout.scaled else flat
        return [{name: on_device(array, self.device) for name, array in arrays.items()}]

    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        self._move_target(int(self._header["n_target_updates"]))
        self.adam.learning_rate = parse_schedule(self.settings.learning_rate)(self.progress)
        block = Rows(**columns[0])
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
        losses = [self._gradient(rows, self.settings, n_total, first=number == 0) for number, rows in enumerate(parts)]
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


def _make_modules(spec: TaskSpec, device: torch.device) -> "QModules":
    from drlnb.rl.networks.q_modules import QModules  # here, so that an MLP does not load what it does not need

    return QModules(spec, device)

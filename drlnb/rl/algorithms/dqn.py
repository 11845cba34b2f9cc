"""How does DQN learn from a round?  The round's minibatches come as one block from the replay ring; steps run in turn.

A round is `train_freq` vector steps, then the gradient steps that they allow.  The target network moves first, by as
many updates as fell into the round's steps: k updates towards a network that stands still are one update with
``1 - (1 - tau)^k``.  Parameters, gradient and Adam's moments are one flat tensor each.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.dqn_actor import HEAD, TOWER, check_discrete, dqn_layout
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.flat import FlatAdam
from drlnb.rl.networks.layout import Layout, check_policy, is_module
from drlnb.rl.networks.mlp import tower, views
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.dqn_losses import dqn_loss, huber_gradient, td_target
from drlnb.rl.schedules import parse_schedule, progress_remaining
from drlnb.rl.seeding import INIT, generator
from drlnb.rl.settings.dqn import DqnSettings

if TYPE_CHECKING:
    from drlnb.rl.networks.q_modules import QModules

__all__ = ["ADAM_EPS", "DqnLearner", "Rows"]

#: torch's default, which Stable-Baselines3 leaves for DQN.
ADAM_EPS = 1e-8


@dataclass(frozen=True, slots=True)
class Rows:
    """Transitions on the device; first axis: samples."""

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    #: float32: 1 after a true end.
    terminated: Tensor

    def part(self, index: slice) -> "Rows":
        """Return some of the transitions."""
        return Rows(*(getattr(self, name)[index] for name in self.__slots__))


def initial(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    """Return the starting values of the flat vector, float32, shape ``(n_total,)``: torch's own for linear layers."""
    flat = np.zeros(layout.n_total, np.float32)
    bound = 1.0
    for entry in layout.entries:
        if entry.name.endswith("weight"):  # its bias follows and has the same bound
            bound = 1.0 / sqrt(entry.shape[1])
        flat[entry.start : entry.stop] = rng.uniform(-bound, bound, entry.stop - entry.start)
    return flat


class DqnLearner:
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

    compute: Literal["epochs", "stream"] = "epochs"

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        self.spec = spec
        self.settings = DqnSettings.from_mapping(spec.hyperparameters)
        self.device = torch.device(device)
        check_discrete(spec)
        check_policy(spec)
        self._modules = self._make_modules() if is_module(spec) else None
        self.layout = dqn_layout(spec) if self._modules is None else self._modules.layout
        start = np.zeros(self.layout.n_total, np.float32)
        if self._modules is None:  # a module brings its own weights
            start = initial(self.layout, generator(spec.seed, INIT))
        self.adam = FlatAdam(torch.from_numpy(start).to(self.device), eps=ADAM_EPS)
        #: Parameters of the target network; flat, like the trained ones.
        self.target = self.adam.flat.clone()
        if self._modules is not None:
            self._modules.attach(self.adam, self.target)
        self._leaves = self.adam.leaves(views, self.layout)
        self._tensors = views(self.adam.flat, self.layout)
        self._target_tensors = views(self.target, self.layout)
        self._part = torch.zeros_like(self.adam.flat)
        self._part_grads = views(self._part, self.layout)
        self._gradient = self._explicit if by_hand and self._modules is None else self._autograd
        self._learning_rate = parse_schedule(self.settings.learning_rate)
        self._relu = self.layout.activation == "relu"
        self._round = self._n_timesteps = self._n_updates = 0
        self._live: dict[str, Any] = {}
        self._staged: Fragment | None = None

    def _make_modules(self) -> "QModules":
        from drlnb.rl.networks.q_modules import QModules  # here, so that an MLP does not load what it does not need

        return QModules(self.spec, self.device)

    def set(self, name: str, value: Any) -> None:
        """Change one of the settings in ``DqnSettings.LIVE``, from the next round on.

        Raises
        ------
        ConfigError
            If the setting cannot change while training, or the value is wrong.
        """
        if name not in DqnSettings.LIVE:
            raise ConfigError(f"{name} cannot change while training; these can: {', '.join(sorted(DqnSettings.LIVE))}")
        if problem := DqnSettings.check_value(name, value):
            raise ConfigError(problem)
        self._live[name] = value

    # ---------------------------------------------------------------------------------------------- a round

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and forget what was staged; see :meth:`drlnb.rl.algorithms.protocol.Learner.begin`."""
        self._staged = None
        if self._live:
            self.settings = replace(self.settings, **self._live)
            self._learning_rate = parse_schedule(self.settings.learning_rate)
        self._round, self._n_timesteps = round, n_timesteps

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Take in the round's block of minibatches, as :class:`drlnb.rl.algorithms.replay.Replay` draws it.

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
        if self._staged is not None:
            raise ValueError(f"worker {worker} staged a second block of minibatches in round {self._round}")
        self._staged = fragment
        self._n_timesteps = int(fragment.header["n_timesteps"])
        return time.perf_counter() - started

    def finish(self, on_minibatch: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Move the target network, then run the gradient steps; see :meth:`.Learner.finish`."""
        if self._staged is None:
            raise ValueError(f"round {self._round} has no staged block of minibatches")
        header, batches = self._staged.header, self._batches(self._staged.arrays)
        saved, target = self.adam.copy_state(), self.target.clone()
        try:
            self._move_target(int(header["n_target_updates"]))
            table = self._steps(batches, on_minibatch)
            self._check_finite(table)
        except BaseException:  # a revoked lease or Ctrl-C too: the round must be repeatable from where it began
            self.adam.load_state(saved)
            self.target.copy_(target)
            raise
        self._n_updates += len(batches)
        self._staged = None
        loss, norm = table.mean(axis=0, dtype=np.float64).tolist()
        return {
            "train/loss": loss,
            "train/grad_norm": norm,
            "train/learning_rate": self.adam.learning_rate,
            "train/n_updates": self._n_updates,
            **header["metrics"],
        }

    def _batches(self, arrays: Mapping[str, np.ndarray]) -> list[Rows]:
        """Return the minibatches on the device: all are moved at once."""
        n_batches, batch_size = arrays["action"].shape
        obs, next_obs = arrays["obs"], arrays["next_obs"]
        if self._modules is None:
            shape = (n_batches, batch_size, self.layout.obs_width)
            obs, next_obs = (array.reshape(shape).astype(np.float32) for array in (obs, next_obs))
            if self.layout.scaled:
                obs, next_obs = obs / np.float32(255.0), next_obs / np.float32(255.0)
        rest = arrays["action"], arrays["reward"], arrays["terminated"].astype(np.float32)
        moved = [torch.from_numpy(np.array(array)).to(self.device) for array in (obs, next_obs, *rest)]
        return [Rows(*(tensor[number] for tensor in moved)) for number in range(n_batches)]

    def _move_target(self, n_updates: int) -> None:
        if n_updates:
            weight = 1.0 - (1.0 - self.settings.tau) ** n_updates
            if weight == 1.0:
                self.target.copy_(self.adam.flat)
            else:
                self.target.mul_(1.0 - weight).add_(self.adam.flat, alpha=weight)

    def _steps(self, batches: list[Rows], on_minibatch: Callable[[int, int], None] | None) -> np.ndarray:
        """Run the gradient steps; return loss and gradient norm of each, shape ``(n, 2)``."""
        progress = progress_remaining(self._n_timesteps, self.spec.total_timesteps)
        self.adam.learning_rate = self._learning_rate(progress)
        table = torch.zeros((len(batches), 2), device=self.device)
        for step, rows in enumerate(batches):
            table[step, 0] = self.gradient((rows,))
            self.adam.step(self.settings.max_grad_norm, norm_out=table[step, 1])
            if on_minibatch is not None:
                on_minibatch(step + 1, len(batches))
        measured: np.ndarray = table.cpu().numpy()
        return measured

    def gradient(self, parts: Sequence[Rows]) -> Tensor:
        """Leave a minibatch's gradient in the flat buffer, summed over its parts in turn; return its loss.

        The parts may be of any sizes: each counts by its samples, so the sum is the whole minibatch's mean.
        """
        n_total = sum(len(rows.action) for rows in parts)
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

    def _check_finite(self, table: np.ndarray) -> None:
        for column, name in enumerate(("loss", "grad_norm")):
            bad = np.flatnonzero(~np.isfinite(table[:, column]))
            if len(bad):
                at = f"gradient step {bad[0]} of round {self._round}"
                raise NonFinite(f"{name} is {table[bad[0], column]} at {at}; update refused")

    # ------------------------------------------------------------------------------------- what goes out and in

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.algorithms.protocol.Learner.published`."""
        layout = self.layout
        buffer = np.zeros(layout.published_bytes, np.uint8)
        buffer[:32] = np.frombuffer(layout.sha, np.uint8)
        buffer[layout.policy_offset :] = self.adam.flat.cpu().numpy().view(np.uint8)
        return buffer

    def state(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.protocol.Learner.state`."""
        tensors, adam_step = self.adam.copy_state()
        meta = {
            "algo": self.spec.algo,
            "layout": self.layout.sha.hex(),
            "round": self._round,
            "n_timesteps": self._n_timesteps,
            "n_updates": self._n_updates,
            "adam_step": adam_step,
            "live": dict(self._live),
        }
        return meta, torch.cat((tensors, self.target[None])).cpu().numpy().ravel().view(np.uint8)

    def restore(self, meta: Mapping[str, Any], buffer: np.ndarray) -> None:
        """Go on from :meth:`state`; see :meth:`drlnb.rl.algorithms.protocol.Learner.restore`."""
        layout = self.layout
        if meta["layout"] != layout.sha.hex():
            raise ValueError(f"state has layout {meta['layout'][:12]}, this task needs {layout.sha.hex()[:12]}")
        size = 16 * layout.n_total
        if buffer.shape != (size,):
            raise ValueError(f"state must hold {size} bytes, got shape {buffer.shape}")
        tensors = torch.from_numpy(np.array(buffer).view(np.float32).reshape(4, -1)).to(self.device)
        self.adam.load_state((tensors[:3], float(meta["adam_step"])))
        self.target.copy_(tensors[3])
        self._round, self._n_timesteps = int(meta["round"]), int(meta["n_timesteps"])
        self._n_updates = int(meta["n_updates"])
        self._live = dict(meta.get("live", {}))
        self._staged = None

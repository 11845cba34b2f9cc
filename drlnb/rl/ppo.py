"""How does PPO learn from a round?  Fragments are prepared as they arrive, then the epochs run.

Prepared means: observations normalised with the statistics that the actors used, values of
each environment's steps in one forward pass, advantages.  The epochs run when all are there, on the samples in the
order of the environments, so neither arrival order nor the split over collectors matters.  Parameters, gradient and
Adam's moments are one flat tensor each: publishing, clipping and stepping are single operations.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.rl import explicit
from drlnb.rl.advantages import gae
from drlnb.rl.flat import FlatAdam
from drlnb.rl.fragments import Fragment
from drlnb.rl.layout import HEADER_BYTES, layout_of
from drlnb.rl.losses import STATISTICS, categorical, gaussian, normalised_advantages, ppo_loss
from drlnb.rl.networks import initial, tower, views
from drlnb.rl.normalise import Moments, normalise, scale
from drlnb.rl.ppo_settings import PpoSettings
from drlnb.rl.schedules import parse_schedule, progress_remaining
from drlnb.rl.seeding import INIT, SHUFFLE, generator

__all__ = ["PpoLearner", "minibatches"]

#: Columns of the statistics table: the loss's, then the gradient's norm.
_COLUMNS = (*STATISTICS, "grad_norm")


@dataclass(frozen=True, slots=True)
class _Column:
    """One environment's prepared samples; all arrays have the length T of its fragment."""

    obs: np.ndarray
    action: np.ndarray
    log_prob: np.ndarray
    advantage: np.ndarray
    value: np.ndarray
    obs_moments: np.ndarray | None
    return_moments: np.ndarray | None


@dataclass(frozen=True, slots=True)
class _Batch:
    """The round's samples on the device; first axis: environments in order, each in time order."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value: Tensor
    returns: Tensor

    def rows(self, index: Tensor) -> "_Batch":
        return _Batch(*(getattr(self, name)[index] for name in self.__slots__))


def minibatches(n_samples: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the bounds of an epoch's minibatches; a last one of a single sample joins its neighbour.

    Examples
    --------
    >>> minibatches(9, 4), minibatches(10, 4)
    ([(0, 4), (4, 9)], [(0, 4), (4, 8), (8, 10)])
    """
    starts = list(range(0, n_samples, batch_size))
    if len(starts) > 1 and n_samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_samples], strict=True))


class PpoLearner:
    """Proximal policy optimisation for MLP policies; see :class:`drlnb.rl.learner.Learner`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    by_hand
        Gradients written out (:mod:`drlnb.rl.explicit`) instead of autograd: twice as fast, but nothing
        is recorded that a hook on saved tensors could see.
    """

    compute: Literal["epochs", "stream"] = "epochs"

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        self.spec = spec
        self.settings = PpoSettings.from_mapping(spec.hyperparameters)
        self.layout = layout_of(spec)
        self.device = torch.device(device)
        start = initial(self.layout, generator(spec.seed, INIT), self.settings.policy_kwargs)
        self.adam = FlatAdam(torch.from_numpy(start).to(self.device))
        self._tensors = self.adam.leaves(views, self.layout)
        self._values_only = views(self.adam.flat, self.layout)  # no gradient is recorded for these
        self._grads = views(self.adam.grad, self.layout)
        self._gradient = self._explicit if by_hand else self._autograd
        weights = [1.0, self.settings.vf_coef, -self.settings.ent_coef, 0.0, 0.0]
        self._weights = torch.tensor(weights, device=self.device)
        self._learning_rate = parse_schedule(self.settings.learning_rate)
        self._clip_range = parse_schedule(self.settings.clip_range)
        vf = self.settings.clip_range_vf
        self._clip_range_vf = None if vf is None else parse_schedule(vf)
        self._obs_moments = Moments.start(self.layout.obs_width)
        self._return_moments = Moments.start(1)
        self._relu = self.layout.activation == "relu"
        self._round = self._n_timesteps = self._n_updates = 0
        self._staged: dict[int, _Column] = {}

    # ---------------------------------------------------------------------------------------------- a round

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and forget what was staged; see :meth:`drlnb.rl.learner.Learner.begin`."""
        self._staged.clear()
        self._round, self._n_timesteps = round, n_timesteps

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Prepare one fragment's samples; see :meth:`drlnb.rl.learner.Learner.stage`."""
        started = time.perf_counter()
        indices = [int(i) for i in fragment.header["env_indices"]]
        twice = sorted(self._staged.keys() & set(indices))
        if twice:
            raise ValueError(f"worker {worker} staged environments {twice} again in round {self._round}")
        arrays, settings = fragment.arrays, self.settings
        obs, values, next_values = self._values(arrays)
        rewards = arrays["reward"]
        if self.layout.norm_reward:
            rewards = scale(rewards, self._return_moments.var.item())
        ends = arrays["terminated"], arrays["truncated"]
        advantages = gae(rewards, values, next_values, *ends, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
        moments = arrays.get("obs_moments"), arrays.get("return_moments")
        for column, index in enumerate(indices):
            self._staged[index] = _Column(
                obs=obs[column],
                action=np.array(arrays["action"][:, column]),
                log_prob=np.array(arrays["log_prob"][:, column]),
                advantage=advantages[:, column].astype(np.float32),
                value=values[:, column],
                obs_moments=None if moments[0] is None else np.array(moments[0][column]),
                return_moments=None if moments[1] is None else np.array(moments[1][column]),
            )
        return time.perf_counter() - started

    def _values(self, arrays: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Return normalised observations per column, V(obs) and what follows each step; ``(T, n)``.

        Each environment has a forward pass of its own (T + 1 rows, then its final observations), whose shape does not
        depend on the split over collectors: equal shapes give equal bits.
        """
        n_steps, n = arrays["reward"].shape
        values = np.empty((n_steps, n), np.float32)
        next_values = np.empty((n_steps, n), np.float32)
        observations = []
        final_at = arrays["final_at"]
        for column in range(n):
            cut = final_at[:, 1] == column
            parts = (arrays["obs"][:, column], arrays["last_obs"][column][None], arrays["final_obs"][cut])
            rows = np.concatenate([part.reshape(len(part), self.layout.obs_width) for part in parts])
            if self.layout.norm_obs:
                rows = normalise(rows, self._obs_moments.mean, self._obs_moments.var)
            rows = rows.astype(np.float32, copy=False)
            x = torch.from_numpy(rows).to(self.device)
            found = explicit.forward(self._values_only, "vf", "value", x, relu=self._relu)[-1][:, 0].cpu().numpy()
            values[:, column] = found[:n_steps]
            next_values[:, column] = found[1 : n_steps + 1]
            next_values[final_at[cut, 0], column] = found[n_steps + 1 :]
            observations.append(rows[:n_steps])
        return observations, values, next_values

    def finish(self, on_minibatch: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Run the epochs, then merge the normaliser; see :meth:`drlnb.rl.learner.Learner.finish`."""
        if not self._staged:
            raise ValueError(f"round {self._round} has no staged fragment")
        columns = [self._staged[index] for index in sorted(self._staged)]
        batch = self._batch(columns)
        saved = self.adam.copy_state()
        try:
            table, n_epochs = self._epochs(batch, on_minibatch)
            self._check_finite(table)
        except BaseException:  # a revoked lease or Ctrl-C too: the round must be repeatable from where it began
            self.adam.load_state(saved)
            raise
        self._n_updates += n_epochs
        for column in columns:
            if column.obs_moments is not None:
                self._obs_moments = self._obs_moments.merge(_unpacked(column.obs_moments))
            if column.return_moments is not None:
                self._return_moments = self._return_moments.merge(_unpacked(column.return_moments))
        self._staged.clear()
        return self._metrics(batch, table, n_epochs)

    def _batch(self, columns: list[_Column]) -> _Batch:
        joined = [
            np.concatenate([getattr(c, name) for c in columns])
            for name in ("obs", "action", "log_prob", "advantage", "value")
        ]
        obs, action, log_prob, advantage, value = (torch.from_numpy(a).to(self.device) for a in joined)
        return _Batch(obs, action, log_prob, advantage, value, advantage + value)

    def _epochs(self, batch: _Batch, on_minibatch: Callable[[int, int], None] | None) -> tuple[np.ndarray, int]:
        """Run the gradient steps; return the statistics, one row per step, and the number of epochs."""
        settings, n_samples = self.settings, len(batch.obs)
        progress = progress_remaining(self._n_timesteps, self.spec.total_timesteps)
        self.adam.learning_rate = self._learning_rate(progress)
        clip = self._clip_range(progress)
        clip_vf = None if self._clip_range_vf is None else self._clip_range_vf(progress)
        bounds = minibatches(n_samples, settings.batch_size)
        n_all = settings.n_epochs * len(bounds)
        table = torch.zeros((n_all, len(_COLUMNS)), device=self.device)
        step = 0
        for epoch in range(settings.n_epochs):
            order = None
            if len(bounds) > 1:  # keyed, so nothing is lost by not drawing it when one minibatch holds all
                rng = generator(self.spec.seed, SHUFFLE, self._round, epoch)
                order = torch.from_numpy(rng.permutation(n_samples)).to(self.device)
            for start, stop in bounds:
                rows = batch if order is None else batch.rows(order[start:stop])
                self._gradient(rows, clip, clip_vf, table[step])
                self.adam.step(settings.max_grad_norm, norm_out=table[step, -1])
                step += 1
                if on_minibatch is not None:
                    on_minibatch(step, n_all)
            if settings.target_kl is not None and epoch + 1 < settings.n_epochs:
                kl = table[step - len(bounds) : step, _COLUMNS.index("approx_kl")].mean().item()
                if kl > 1.5 * settings.target_kl:
                    break
        return table[:step].cpu().numpy(), step // len(bounds)

    def _explicit(self, rows: _Batch, clip: float, clip_vf: float | None, out: Tensor) -> None:
        """Leave the minibatch's gradient in the flat buffer and its statistics in `out`, by hand."""
        settings, tensors, grads, relu = self.settings, self._values_only, self._grads, self._relu
        pi = explicit.forward(tensors, "pi", "action", rows.obs, relu=relu)
        actions = rows.action[:, None] if self.layout.discrete else rows.action
        if self.layout.discrete:
            log_probs = torch.log_softmax(pi[-1], 1)
            log_p = log_probs.gather(1, actions)[:, 0]
            entropy = torch.sum(log_probs.exp() * log_probs, 1).neg_()
        else:
            log_p, entropy = explicit.gaussian_log_prob(pi[-1], tensors["log_std"], actions)
        d_log_p, measured = explicit.surrogate(
            log_p, rows.log_prob, rows.advantage, clip, normalize=settings.normalize_advantage
        )
        if self.layout.discrete:
            d_pi = explicit.categorical_gradient(log_probs, actions, d_log_p, entropy, settings.ent_coef)
        else:
            spread, d_spread = tensors["log_std"], grads["log_std"]
            d_pi = explicit.gaussian_gradient(pi[-1], spread, actions, d_log_p, settings.ent_coef, d_log_std=d_spread)
        explicit.backward(tensors, grads, "pi", "action", pi, d_pi, relu=relu)
        vf = explicit.forward(tensors, "vf", "value", rows.obs, relu=relu)
        error = vf[-1][:, 0] - rows.returns
        if clip_vf is not None:
            change = vf[-1][:, 0] - rows.value
            error = rows.value + change.clamp(-clip_vf, clip_vf) - rows.returns
        d_value = error * (2.0 * settings.vf_coef / len(error))
        if clip_vf is not None:
            d_value *= change.abs() <= clip_vf
        explicit.backward(tensors, grads, "vf", "value", vf, d_value[:, None], relu=relu)
        means = torch.stack((measured[0], error * error, entropy, *measured[1:])).mean(1)
        torch.dot(means, self._weights, out=out[0])
        out[1 : len(STATISTICS)] = means

    def _autograd(self, rows: _Batch, clip: float, clip_vf: float | None, out: Tensor) -> None:
        """Leave the minibatch's gradient in the flat buffer and its statistics in `out`."""
        settings, tensors = self.settings, self._tensors
        outputs = tower(tensors, "pi", "action", rows.obs, relu=self._relu)
        if self.layout.discrete:
            log_p, entropy = categorical(outputs, rows.action)
        else:
            log_p, entropy = gaussian(outputs, tensors["log_std"], rows.action)
        values = tower(tensors, "vf", "value", rows.obs, relu=self._relu)[:, 0]
        if clip_vf is not None:
            values = rows.value + (values - rows.value).clamp(-clip_vf, clip_vf)
        advantages = normalised_advantages(rows.advantage) if settings.normalize_advantage else rows.advantage
        loss, statistics = ppo_loss(
            log_p,
            rows.log_prob,
            advantages,
            entropy,
            torch.square(rows.returns - values).mean(),
            clip_range=clip,
            ent_coef=settings.ent_coef,
            vf_coef=settings.vf_coef,
        )
        self.adam.zero_grad()
        loss.backward()
        out[: len(STATISTICS)] = statistics

    def _check_finite(self, table: np.ndarray) -> None:
        for name in ("loss", "grad_norm"):
            bad = np.flatnonzero(~np.isfinite(table[:, _COLUMNS.index(name)]))
            if len(bad):
                value = table[bad[0], _COLUMNS.index(name)]
                raise NonFinite(f"{name} is {value} at gradient step {bad[0]} of round {self._round}; update refused")

    def _metrics(self, batch: _Batch, table: np.ndarray, n_epochs: int) -> dict[str, float]:
        progress = progress_remaining(self._n_timesteps, self.spec.total_timesteps)
        mean = dict(zip(_COLUMNS, table.mean(axis=0, dtype=np.float64).tolist(), strict=True))
        last_epoch = table[-(len(table) // n_epochs) :]
        returns, values = batch.returns.cpu().numpy(), batch.value.cpu().numpy()
        spread = float(np.var(returns))
        metrics = {
            "train/approx_kl": float(last_epoch[:, _COLUMNS.index("approx_kl")].mean()),
            "train/clip_fraction": mean["clip_fraction"],
            "train/clip_range": self._clip_range(progress),
            "train/entropy": mean["entropy"],
            "train/entropy_loss": -mean["entropy"],
            "train/explained_variance": 1.0 - float(np.var(returns - values)) / spread if spread else float("nan"),
            "train/grad_norm": mean["grad_norm"],
            "train/learning_rate": self._learning_rate(progress),
            "train/loss": float(table[-1, 0]),
            "train/n_updates": self._n_updates,
            "train/policy_gradient_loss": mean["policy_gradient_loss"],
            "train/value_loss": mean["value_loss"],
        }
        if self._clip_range_vf is not None:
            metrics["train/clip_range_vf"] = self._clip_range_vf(progress)
        if not self.layout.discrete:
            metrics["train/std"] = self._values_only["log_std"].exp().mean().item()
        return metrics

    # ------------------------------------------------------------------------------------- what goes out and in

    def _statistics(self) -> np.ndarray:
        obs, returns = self._obs_moments, self._return_moments
        head = [obs.n, returns.n, returns.mean.item(), returns.m2.item()]
        return np.concatenate((head, obs.mean, obs.m2)) if self.layout.norm_obs else np.array(head)

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.learner.Learner.published`."""
        layout = self.layout
        buffer = np.zeros(layout.published_bytes, np.uint8)
        buffer[:32] = np.frombuffer(layout.sha, np.uint8)
        buffer[HEADER_BYTES : HEADER_BYTES + 8 * layout.n_statistics] = self._statistics().view(np.uint8)
        buffer[layout.policy_offset :] = self.adam.flat[: layout.n_policy].cpu().numpy().view(np.uint8)
        return buffer

    def state(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.learner.Learner.state`."""
        tensors, adam_step = self.adam.copy_state()
        meta = {
            "algo": self.spec.algo,
            "layout": self.layout.sha.hex(),
            "round": self._round,
            "n_timesteps": self._n_timesteps,
            "n_updates": self._n_updates,
            "adam_step": adam_step,
        }
        parts = [tensors.cpu().numpy().ravel().view(np.uint8), self._statistics().view(np.uint8)]
        return meta, np.concatenate(parts)

    def restore(self, meta: Mapping[str, Any], buffer: np.ndarray) -> None:
        """Go on from :meth:`state`; see :meth:`drlnb.rl.learner.Learner.restore`."""
        layout = self.layout
        if meta["layout"] != layout.sha.hex():
            raise ValueError(f"state has layout {meta['layout'][:12]}, this task needs {layout.sha.hex()[:12]}")
        split, size = 12 * layout.n_total, 12 * layout.n_total + 8 * layout.n_statistics
        if buffer.shape != (size,):
            raise ValueError(f"state must hold {size} bytes, got shape {buffer.shape}")
        raw = np.array(buffer)
        tensors = torch.from_numpy(raw[:split].view(np.float32).reshape(3, -1))
        self.adam.load_state((tensors.to(self.device), float(meta["adam_step"])))
        statistics = np.array(raw[split:]).view(np.float64)
        self._return_moments = Moments(statistics[1].item(), statistics[2:3].copy(), statistics[3:4].copy())
        if layout.norm_obs:
            width = layout.obs_width
            self._obs_moments = Moments(statistics[0].item(), statistics[4 : 4 + width], statistics[4 + width :])
        self._round, self._n_timesteps = int(meta["round"]), int(meta["n_timesteps"])
        self._n_updates = int(meta["n_updates"])
        self._staged.clear()


def _unpacked(row: np.ndarray) -> Moments:
    width = (len(row) - 1) // 2
    return Moments(row[0].item(), row[1 : 1 + width], row[1 + width :])

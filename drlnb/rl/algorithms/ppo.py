"""How does PPO learn from a round?  Fragments are prepared as they arrive, then the epochs run.

Prepared means: observations normalised with the statistics that the actors used, values of
each environment's steps in one forward pass, advantages.  The epochs run when all are there, on the samples in the
order of the environments, so neither arrival order nor the split over collectors matters.  Parameters, gradient and
Adam's moments are one flat tensor each: publishing, clipping and stepping are single operations.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.ppo_gradient import Batch, PpoGradient, Terms
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.actor_critic import make_networks
from drlnb.rl.objectives.advantages import gae
from drlnb.rl.objectives.losses import STATISTICS, normalised_advantages
from drlnb.rl.objectives.weighted_sum import StreamedPart, combine, weighted_sum
from drlnb.rl.schedules import parse_schedule, progress_remaining
from drlnb.rl.seeding import SHUFFLE, generator
from drlnb.rl.settings.ppo import PpoSettings

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
    action_mask: np.ndarray | None
    obs_moments: np.ndarray | None
    return_moments: np.ndarray | None


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
    """Proximal policy optimisation; see :class:`drlnb.rl.algorithms.protocol.Learner`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    by_hand
        Gradients written out (:mod:`drlnb.rl.objectives.mlp_gradient`) instead of autograd, where an MLP has them:
        twice as fast, but nothing is recorded that a hook on saved tensors could see.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    ConfigError
        If a hyper-parameter is wrong, or a network of the user's own breaks its contract.
    """

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        self.spec = spec
        self.settings = PpoSettings.from_mapping(spec.hyperparameters)
        self.device = torch.device(device)
        self._networks = make_networks(spec, self.device)
        self.layout, self.kept = self._networks.layout, self._networks.kept
        self.adam = self.kept.adam
        self._gradient = PpoGradient(self._networks, by_hand=by_hand)
        self._live: dict[str, Any] = {}
        self._read_schedules()
        self._staged: dict[int, _Column] = {}
        self._streamed: dict[int, tuple[StreamedPart, Tensor]] = {}

    def _read_schedules(self) -> None:
        settings = self.settings
        self._learning_rate = parse_schedule(settings.learning_rate)
        self._clip_range = parse_schedule(settings.clip_range)
        vf = settings.clip_range_vf
        self._clip_range_vf = None if vf is None else parse_schedule(vf)

    @property
    def compute(self) -> Literal["epochs", "stream"]:
        """``stream`` with one pass over the whole round as one batch, else ``epochs``."""
        settings = self.settings
        whole = settings.batch_size >= settings.n_steps * self.spec.n_envs
        return "stream" if settings.n_epochs == 1 and whole else "epochs"

    def set(self, name: str, value: Any) -> None:
        """Change a setting from the next round on.

        Parameters
        ----------
        name
            One of :attr:`drlnb.rl.settings.ppo.PpoSettings.LIVE`.
        value
            As at the start.

        Raises
        ------
        ConfigError
            If the setting cannot change while training, or the value is wrong.
        """
        if name not in PpoSettings.LIVE:
            known = ", ".join(sorted(PpoSettings.LIVE))
            raise ConfigError(f"{name} cannot change while training; these can: {known}")
        problem = PpoSettings.check_value(name, value)
        if problem:
            raise ConfigError(problem)
        self._live[name] = value

    # ---------------------------------------------------------------------------------------------- a round

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and forget what was staged; see :meth:`drlnb.rl.algorithms.protocol.Learner.begin`."""
        self._staged.clear()
        self._streamed.clear()
        if self._live:
            self.settings = replace(self.settings, **self._live)
            self._read_schedules()
        self.kept.round, self.kept.n_timesteps = round, n_timesteps

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Prepare one fragment's samples; see :meth:`drlnb.rl.algorithms.protocol.Learner.stage`.

        With ``compute == "stream"`` the worker's gradient is computed here, at its arrival.
        """
        started = time.perf_counter()
        indices = [int(i) for i in fragment.header["env_indices"]]
        twice = sorted(self._staged.keys() & set(indices))
        if twice:
            raise ValueError(f"worker {worker} staged environments {twice} again in round {self.kept.round}")
        arrays, settings = fragment.arrays, self.settings
        obs, values, next_values = self._values(arrays)
        rewards = self.kept.rewards(arrays["reward"])
        ends = arrays["terminated"], arrays["truncated"]
        advantages = gae(rewards, values, next_values, *ends, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
        named = {name: arrays.get(name) for name in ("obs_moments", "return_moments")}
        mask = arrays.get("action_mask")
        columns = [
            _Column(
                obs=obs[column],
                action=np.array(arrays["action"][:, column]),
                log_prob=np.array(arrays["log_prob"][:, column]),
                advantage=advantages[:, column].astype(np.float32),
                value=values[:, column],
                action_mask=None if mask is None else np.array(mask[:, column]),
                **{name: None if array is None else np.array(array[column]) for name, array in named.items()},
            )
            for column in range(len(indices))
        ]
        self._staged.update(zip(indices, columns, strict=True))
        if self.compute == "stream":
            self._streamed[worker] = self._at_arrival(self._batch(columns))
        return time.perf_counter() - started

    def _values(self, arrays: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Return rows of observations per column, V(obs) and what follows each step; ``(T, n)``.

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
            rows = self._networks.rows((
                arrays["obs"][:, column],
                arrays["last_obs"][column][None],
                arrays["final_obs"][cut],
            ))
            found = self._networks.values(torch.from_numpy(rows).to(self.device)).cpu().numpy()
            values[:, column] = found[:n_steps]
            next_values[:, column] = found[1 : n_steps + 1]
            next_values[final_at[cut, 0], column] = found[n_steps + 1 :]
            observations.append(rows[:n_steps])
        return observations, values, next_values

    def finish(self, on_minibatch: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Run the epochs, then merge the normaliser; see :meth:`drlnb.rl.algorithms.protocol.Learner.finish`."""
        if not self._staged:
            raise ValueError(f"round {self.kept.round} has no staged fragment")
        columns = [self._staged[index] for index in sorted(self._staged)]
        batch = self._batch(columns)
        saved = self.adam.copy_state()
        try:
            run = self._stream if self.compute == "stream" else self._epochs
            table, n_epochs = run(batch, on_minibatch)
            self._check_finite(table)
        except BaseException:  # a revoked lease or Ctrl-C too: the round must be repeatable from where it began
            self.adam.load_state(saved)
            raise
        self.kept.n_updates += n_epochs
        for column in columns:
            self.kept.merge(column.obs_moments, column.return_moments)
        self._staged.clear()
        self._streamed.clear()
        return self._metrics(batch, table, n_epochs)

    def _batch(self, columns: Sequence[_Column]) -> Batch:
        joined = [
            np.concatenate([getattr(c, name) for c in columns])
            for name in ("obs", "action", "log_prob", "advantage", "value")
        ]
        obs, action, log_prob, advantage, value = (torch.from_numpy(a).to(self.device) for a in joined)
        masks = [column.action_mask for column in columns if column.action_mask is not None]
        forbidden = torch.from_numpy(~np.concatenate(masks)).to(self.device) if masks else None
        return Batch(obs, action, log_prob, advantage, value, advantage + value, forbidden)

    def _terms(self) -> Terms:
        """Return weights and limits where the schedules stand now, and let Adam know its step size."""
        progress = progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps)
        self.adam.learning_rate = self._learning_rate(progress)
        return Terms(
            clip=self._clip_range(progress),
            clip_vf=None if self._clip_range_vf is None else self._clip_range_vf(progress),
            ent_coef=self.settings.ent_coef,
            vf_coef=self.settings.vf_coef,
        )

    def gradient(self, parts: Sequence[Batch], out: Tensor | None = None) -> Tensor:
        """Return the gradient of the parts' mean loss, computed serially: that of the concatenated batch.

        Parameters
        ----------
        parts
            Samples of the workers, of any sizes; advantages are normalised over all of them together.
        out
            Gets the statistics; shape ``(7,)``.

        Returns
        -------
        Tensor
            The flat gradient buffer; shape ``(n_total,)``, overwritten by the next call.
        """
        table = torch.zeros(len(_COLUMNS), device=self.device) if out is None else out
        normalise, terms = self.settings.normalize_advantage, self._terms()
        if len(parts) == 1:
            advantages = normalised_advantages(parts[0].advantage) if normalise else parts[0].advantage
            self._gradient(parts[0], advantages, terms, table)
        else:
            joined = torch.cat([part.advantage for part in parts])
            joined = normalised_advantages(joined) if normalise else joined
            split = joined.split([len(part.obs) for part in parts])
            self._gradient.of_parts(parts, split, terms, table)
        return self.adam.grad

    # ------------------------------------------------------------------------------------------------- epochs

    def _epochs(self, batch: Batch, on_minibatch: Callable[[int, int], None] | None) -> tuple[np.ndarray, int]:
        """Run the gradient steps; return the statistics, one row per step, and the number of epochs."""
        settings, n_samples, terms = self.settings, len(batch.obs), self._terms()
        normalise = settings.normalize_advantage
        bounds = minibatches(n_samples, settings.batch_size)
        n_all = settings.n_epochs * len(bounds)
        table = torch.zeros((n_all, len(_COLUMNS)), device=self.device)
        step = 0
        for epoch in range(settings.n_epochs):
            order = None
            if len(bounds) > 1:  # keyed, so nothing is lost by not drawing it when one minibatch holds all
                rng = generator(self.spec.seed, SHUFFLE, self.kept.round, epoch)
                order = torch.from_numpy(rng.permutation(n_samples)).to(self.device)
            for start, stop in bounds:
                rows = batch if order is None else batch.rows(order[start:stop])
                advantages = normalised_advantages(rows.advantage) if normalise else rows.advantage
                self._gradient(rows, advantages, terms, table[step])
                self.adam.step(settings.max_grad_norm, norm_out=table[step, -1])
                step += 1
                if on_minibatch is not None:
                    on_minibatch(step, n_all)
            if settings.target_kl is not None and epoch + 1 < settings.n_epochs:
                kl = table[step - len(bounds) : step, _COLUMNS.index("approx_kl")].mean().item()
                if kl > 1.5 * settings.target_kl:
                    break
        return table[:step].cpu().numpy(), step // len(bounds)

    # ------------------------------------------------------------------------------------------------- stream

    def _at_arrival(self, batch: Batch) -> tuple[StreamedPart, Tensor]:
        """Return one worker's gradients and their statistics: with raw and unit advantages, and of the rest.

        On the first pass the ratio is 1, so nothing is clipped and the loss is linear in the advantages.
        """
        policy = Terms(clip=inf, clip_vf=None, ent_coef=0.0, vf_coef=0.0)
        rest = replace(policy, ent_coef=self.settings.ent_coef, vf_coef=self.settings.vf_coef)
        table = torch.zeros((3, len(_COLUMNS)), device=self.device)
        ones, zeros = torch.ones_like(batch.advantage), torch.zeros_like(batch.advantage)
        gradients = []
        for row, (advantages, terms) in enumerate(((batch.advantage, policy), (ones, policy), (zeros, rest))):
            self._gradient(batch, advantages, terms, table[row])
            gradients.append(self.adam.grad.clone())
        return StreamedPart(len(batch.obs), *gradients), table

    def _stream(self, batch: Batch, on_minibatch: Callable[[int, int], None] | None) -> tuple[np.ndarray, int]:
        """Take the round's one step from the gradients of the arrivals; return its statistics and 1."""
        workers = sorted(self._streamed) if self.spec.deterministic else list(self._streamed)
        parts = [self._streamed[worker][0] for worker in workers]
        means = weighted_sum((self._streamed[worker][1] for worker in workers), [part.n_samples for part in parts])
        mean, spread = 0.0, 1.0
        if self.settings.normalize_advantage and len(batch.advantage) > 1:
            mean, spread = batch.advantage.mean().item(), batch.advantage.std().item() + 1e-8
        self._terms()
        self.adam.grad.copy_(combine(parts, mean, spread))
        table = torch.zeros((1, len(_COLUMNS)), device=self.device)
        table[0, 1] = (means[0, 1] - mean * means[1, 1]) / spread
        table[0, 2 : len(STATISTICS)] = means[2, 2 : len(STATISTICS)]
        table[0, 0] = table[0, 1] + self.settings.vf_coef * table[0, 2] - self.settings.ent_coef * table[0, 3]
        self.adam.step(self.settings.max_grad_norm, norm_out=table[0, -1])
        if on_minibatch is not None:
            on_minibatch(1, 1)
        return table.cpu().numpy(), 1

    def _check_finite(self, table: np.ndarray) -> None:
        for name in ("loss", "grad_norm"):
            bad = np.flatnonzero(~np.isfinite(table[:, _COLUMNS.index(name)]))
            if len(bad):
                value = table[bad[0], _COLUMNS.index(name)]
                raise NonFinite(
                    f"{name} is {value} at gradient step {bad[0]} of round {self.kept.round}; update refused"
                )

    def _metrics(self, batch: Batch, table: np.ndarray, n_epochs: int) -> dict[str, float]:
        progress = progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps)
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
            "train/n_updates": self.kept.n_updates,
            "train/policy_gradient_loss": mean["policy_gradient_loss"],
            "train/value_loss": mean["value_loss"],
        }
        if self._clip_range_vf is not None:
            metrics["train/clip_range_vf"] = self._clip_range_vf(progress)
        log_std = self._networks.log_std()
        if log_std is not None:
            metrics["train/std"] = log_std.detach().exp().mean().item()
        return metrics

    # ------------------------------------------------------------------------------------- what goes out and in

    def published(self) -> np.ndarray:
        """Return what actors need; see :meth:`drlnb.rl.algorithms.protocol.Learner.published`."""
        return self.kept.published()

    def state(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.protocol.Learner.state`."""
        meta, buffer = self.kept.state()
        return {**meta, "live": dict(self._live)}, buffer

    def restore(self, meta: Mapping[str, Any], buffer: np.ndarray) -> None:
        """Go on from :meth:`state`; see :meth:`drlnb.rl.algorithms.protocol.Learner.restore`."""
        self.kept.restore(meta, buffer)
        self._live = dict(meta.get("live", {}))
        self._staged.clear()
        self._streamed.clear()

"""How does GPF learn from a round?  Targets are set as fragments arrive; then Q is fitted, and the policy follows.

What is minimised is in :mod:`drlnb.rl.objectives.gpf_losses`.  Targets: on policy the return of generalised advantage
estimation,
for Q and V alike; for late fragments, and where every sample is judged by the target member, V-trace for V and Retrace
for Q.  The loss is a plain mean over samples, so with one pass over the whole round each environment's gradient is
computed when its fragment arrives, and their sum is exact (``compute`` is ``stream``).  Sums run in the order of the
environments: neither arrival order nor the split over collectors matters.
"""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms import gpf_actor
from drlnb.rl.algorithms.gpf_actor import check_discrete, pack_family
from drlnb.rl.algorithms.ppo import minibatches
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.actor_critic import MlpTowers, make_networks
from drlnb.rl.networks.mlp import views
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.advantages import gae
from drlnb.rl.objectives.gpf_losses import GPF_STATISTICS, Coefficients, Samples, gpf_gradient, gpf_loss
from drlnb.rl.objectives.traces import retrace, vtrace
from drlnb.rl.schedules import parse_schedule, progress_remaining
from drlnb.rl.seeding import EXPLORE, SHUFFLE, generator
from drlnb.rl.settings.gpf import GpfSettings

__all__ = ["GpfLearner"]

#: Columns of the statistics table: the loss's, then the gradient's norm.
_COLUMNS = (*GPF_STATISTICS, "grad_norm")
#: Entropy below which a policy has collapsed, in nats, and the first part of the budget in which that is a fault.
_COLLAPSED, _EARLY = 0.01, 0.1


@dataclass(frozen=True, slots=True)
class _Column:
    """One environment's share of the round."""

    samples: Samples
    obs_moments: np.ndarray | None
    return_moments: np.ndarray | None
    #: Sums over the samples: gradient ``(n_total,)`` and statistics; only while streaming.
    sums: tuple[Tensor, Tensor] | None


class GpfLearner:
    """The generalised policy family for discrete actions; see :class:`drlnb.rl.algorithms.protocol.Learner`.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    by_hand
        Gradients of an MLP written out instead of autograd: faster, but nothing is recorded that a hook could see.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    ConfigError
        If a setting is wrong, the actions are not discrete, or a network of the user's own breaks its contract.

    Warns
    -----
    UserWarning
        When the policy collapses in the first tenth of the budget (``train/collapsed``).
    """

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        self.spec = spec
        self.settings = settings = GpfSettings.from_mapping(spec.hyperparameters)
        check_discrete(spec)
        self.device = torch.device(device)
        self._networks = make_networks(spec, self.device)
        self.layout, self.kept = self._networks.layout, self._networks.kept
        self.adam = self.kept.adam
        self._part = torch.zeros_like(self.adam.flat)
        self._part_grads = views(self._part, self.layout)
        self._gradient = self._explicit if by_hand and self._networks.by_hand else self._autograd
        self._coefficients = Coefficients(q_coef=settings.q_coef, vf_coef=settings.vf_coef, pg_coef=settings.pg_coef)
        #: Remaining progress in the version that acted in this round.
        self._acted = 1.0
        self._live: dict[str, Any] = {}
        self._staged: dict[int, _Column] = {}

    @property
    def compute(self) -> Literal["epochs", "stream"]:
        """``stream`` with one pass over the whole round, else ``epochs``."""
        settings = self.settings
        whole = settings.batch_size is None or settings.batch_size >= settings.n_steps * self.spec.n_envs
        return "stream" if settings.n_epochs == 1 and whole else "epochs"

    def set(self, name: str, value: Any) -> None:
        """Change one of the settings in ``GpfSettings.LIVE``: learning from the next round on, acting with its version.

        Raises
        ------
        ConfigError
            If the setting cannot change while training, or the value is wrong.
        """
        if name not in GpfSettings.LIVE:
            raise ConfigError(f"{name} cannot change while training; these can: {', '.join(sorted(GpfSettings.LIVE))}")
        if problem := GpfSettings.check_value(name, value):
            raise ConfigError(problem)
        self._live[name] = value

    # ---------------------------------------------------------------------------------------------- a round

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and forget what was staged; see :meth:`drlnb.rl.algorithms.protocol.Learner.begin`."""
        self._staged.clear()
        self.settings = replace(self.settings, **self._live)
        if round != self.kept.round:  # a round that is begun again was acted in with the same version
            self._acted = progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps)
        self.kept.round, self.kept.n_timesteps = round, n_timesteps

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Set a fragment's targets; streaming, compute its gradient; see :meth:`.Learner.stage`."""
        started = time.perf_counter()
        indices = [int(i) for i in fragment.header["env_indices"]]
        twice = sorted(self._staged.keys() & set(indices))
        if twice:
            raise ValueError(f"worker {worker} staged environments {twice} again in round {self.kept.round}")
        late = int(fragment.header["round"]) < self.kept.round
        arrays = fragment.arrays
        for column, index in enumerate(indices):
            samples = self._prepare(arrays, column, late=late)
            sums = None
            if self.compute == "stream":
                statistics = self.gradient([self._with_fresh(samples, {index: len(samples.obs)}, 0)], n_total=1)
                sums = self.adam.grad.clone(), statistics
            obs_moments, return_moments = (
                np.array(arrays[name][column]) if name in arrays else None for name in ("obs_moments", "return_moments")
            )
            self._staged[index] = _Column(samples, obs_moments, return_moments, sums)
        return time.perf_counter() - started

    def _prepare(self, arrays: Mapping[str, np.ndarray], column: int, *, late: bool) -> Samples:
        """Return one environment's samples with their targets.

        Each environment has forward passes of its own, whose shape does not depend on the split over collectors: equal
        shapes give equal bits.
        """
        settings, n_steps = self.settings, len(arrays["reward"])
        cut = arrays["final_at"][:, 1] == column
        rows = self._networks.rows((
            arrays["obs"][:, column],
            arrays["last_obs"][column][None],
            arrays["final_obs"][cut],
        ))
        x = torch.from_numpy(rows).to(self.device)
        found = self._networks.values(x).cpu().numpy()
        values, next_values = found[:n_steps], found[1 : n_steps + 1].copy()
        next_values[arrays["final_at"][cut, 0]] = found[n_steps + 1 :]
        rewards = self.kept.rewards(arrays["reward"][:, column])
        if settings.reward_scale is not None:
            rewards = rewards * np.float32(settings.reward_scale)
        ends = arrays["terminated"][:, column], arrays["truncated"][:, column]
        judge = arrays["strategy"][column]
        if settings.expectation == "target":
            judge = settings.strategies(self._acted)[0]
        gamma, decay = settings.gamma, settings.gae_lambda
        if late or settings.expectation == "target":
            ratios, q = self._judged(x[:n_steps], arrays, column, judge, values)
            v_target, _ = vtrace(rewards, values, next_values, ratios, *ends, gamma=gamma, gae_lambda=decay)
            q_target = retrace(rewards, next_values, q, ratios, *ends, gamma=gamma, gae_lambda=decay)
        else:
            q_target = v_target = values + gae(rewards, values, next_values, *ends, gamma=gamma, gae_lambda=decay)
        told = (
            arrays["action"][:, column],
            arrays["log_prob"][:, column],
            np.broadcast_to(judge if settings.is_mixed else judge[1:2], (n_steps, 3 if settings.is_mixed else 1)),
            q_target.astype(np.float32),
            v_target.astype(np.float32),
            values,
            np.empty((n_steps, 0), np.float32),
        )
        return Samples(x[:n_steps], *(torch.from_numpy(np.array(array)).to(self.device) for array in told))

    def _judged(
        self, x: Tensor, arrays: Mapping[str, np.ndarray], column: int, judge: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ``pi/mu`` of the taken actions under the judging member, and their Q; both ``(T,)``."""
        with torch.no_grad():
            advantages = self._networks.both(x)[0].cpu().numpy()
        log_pi = gpf_actor.log_strategy(advantages, judge[None])
        taken = arrays["action"][:, column, None]
        log_p, advantage = (np.take_along_axis(rows, taken, 1)[:, 0] for rows in (log_pi, advantages))
        q = advantage - (np.exp(log_pi) * advantages).sum(1) + values
        return np.exp(log_p - arrays["log_prob"][:, column]), q

    def finish(self, on_minibatch: Callable[[int, int], None] | None = None) -> dict[str, float]:
        """Run the round's gradient steps, then merge the normaliser; see :meth:`.Learner.finish`."""
        if not self._staged:
            raise ValueError(f"round {self.kept.round} has no staged fragment")
        columns = {index: self._staged[index] for index in sorted(self._staged)}
        saved = self.adam.copy_state()
        progress = progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps)
        self.adam.learning_rate = parse_schedule(self.settings.learning_rate)(progress)
        try:
            run = self._streamed if self.compute == "stream" else self._epochs
            table, n_epochs = run(columns, on_minibatch)
            self._check_finite(table)
        except BaseException:  # a revoked lease or Ctrl-C too: the round must be repeatable from where it began
            self.adam.load_state(saved)
            raise
        self.kept.n_updates += n_epochs
        for column in columns.values():
            self.kept.merge(column.obs_moments, column.return_moments)
        self._staged.clear()
        return self._metrics(list(columns.values()), table, table[-(len(table) // n_epochs) :])

    def _streamed(
        self, columns: Mapping[int, _Column], on_minibatch: Callable[[int, int], None] | None
    ) -> tuple[np.ndarray, int]:
        """Add up the gradients of the environments in their order, and take the step; return its statistics and 1."""
        n_samples = sum(len(column.samples.obs) for column in columns.values())
        row = torch.zeros((1, len(_COLUMNS)), device=self.device)
        self.adam.zero_grad()
        for column in columns.values():
            assert column.sums is not None
            self.adam.grad += column.sums[0]
            row[0, :-1] += column.sums[1]
        self.adam.grad /= n_samples
        row /= n_samples
        self.adam.step(self.settings.max_grad_norm, norm_out=row[0, -1])
        if on_minibatch is not None:
            on_minibatch(1, 1)
        return row.cpu().numpy(), 1

    def _epochs(
        self, columns: Mapping[int, _Column], on_minibatch: Callable[[int, int], None] | None
    ) -> tuple[np.ndarray, int]:
        """Run the gradient steps; return the statistics, one row per step, and the number of epochs."""
        settings, seed = self.settings, self.spec.seed
        lengths = {index: len(column.samples.obs) for index, column in columns.items()}
        samples = Samples.join([column.samples for column in columns.values()])
        n_samples = len(samples.obs)
        bounds = minibatches(n_samples, settings.batch_size or n_samples)
        table = torch.zeros((settings.n_epochs * len(bounds), len(_COLUMNS)), device=self.device)
        step = 0
        for epoch in range(settings.n_epochs):
            epoch_samples = self._with_fresh(samples, lengths, epoch)
            order = None
            if len(bounds) > 1:  # keyed, so nothing is lost by not drawing it when one minibatch holds all
                drawn = generator(seed, SHUFFLE, self.kept.round, epoch).permutation(n_samples)
                order = torch.from_numpy(drawn).to(self.device)
            for start, stop in bounds:
                rows = epoch_samples if order is None else epoch_samples.part(order[start:stop])
                table[step, :-1] = self.gradient([rows])
                self.adam.step(settings.max_grad_norm, norm_out=table[step, -1])
                step += 1
                if on_minibatch is not None:
                    on_minibatch(step, len(table))
            if settings.target_kl is not None:
                kl = table[step - len(bounds) : step, _COLUMNS.index("approx_kl")].mean().item()
                if kl > 1.5 * settings.target_kl:
                    break
        return table[:step].cpu().numpy(), step // len(bounds)

    def _with_fresh(self, samples: Samples, lengths: Mapping[int, int], epoch: int) -> Samples:
        """Return the samples with deviates for fresh actions, keyed by environment: no split or order matters."""
        width = self.settings.n_action_samples
        if width is None:
            return samples
        key = self.spec.seed, EXPLORE, self.kept.round, epoch
        drawn = [generator(*key, index).random((n, width), np.float32) for index, n in lengths.items()]
        return replace(samples, fresh=torch.from_numpy(np.concatenate(drawn)).to(self.device))

    def gradient(self, parts: Sequence[Samples], n_total: int | None = None) -> Tensor:
        """Leave the gradient of all parts in the flat buffer, computed one after the other; return the statistics.

        Parameters
        ----------
        parts
            Of any sizes: each counts by its samples, so the sum is the concatenated batch's mean.
        n_total
            Samples that the mean is over; None: those of all parts.

        Returns
        -------
        Tensor
            The values of :data:`drlnb.rl.objectives.gpf_losses.GPF_STATISTICS`; shape ``(7,)``.
        """
        n = n_total or sum(len(samples.obs) for samples in parts)
        self.adam.zero_grad()
        return torch.stack([self._gradient(samples, n) for samples in parts]).sum(0)

    def _explicit(self, rows: Samples, n_total: int) -> Tensor:
        """Add a part's gradient to the flat buffer, by hand; return its share of the statistics."""
        assert isinstance(self._networks, MlpTowers)
        tensors, relu = self._networks.tensors, self.layout.activation == "relu"
        pi = mlp_gradient.forward(tensors, "pi", "action", rows.obs, relu=relu)
        vf = mlp_gradient.forward(tensors, "vf", "value", rows.obs, relu=relu)
        d_advantages, d_values, statistics = gpf_gradient(
            pi[-1], vf[-1][:, 0], *_told(rows), coefficients=self._coefficients, fresh=rows.fresh, n_total=n_total
        )
        towers = ("pi", "action", pi, d_advantages), ("vf", "value", vf, d_values[:, None])
        for prefix, head, layers, d_out in towers:
            mlp_gradient.backward(tensors, self._part_grads, prefix, head, layers, d_out, relu=relu)
        self.adam.grad += self._part
        return statistics

    def _autograd(self, rows: Samples, n_total: int) -> Tensor:
        """Add a part's gradient to the flat buffer; return its share of the statistics."""
        advantages, values = self._networks.both(rows.obs)
        loss, statistics = gpf_loss(
            advantages, values, *_told(rows), coefficients=self._coefficients, fresh=rows.fresh, n_total=n_total
        )
        loss.backward()
        return statistics

    def _check_finite(self, table: np.ndarray) -> None:
        for name in ("loss", "grad_norm"):
            bad = np.flatnonzero(~np.isfinite(table[:, _COLUMNS.index(name)]))
            if len(bad):
                at = f"gradient step {bad[0]} of round {self.kept.round}"
                raise NonFinite(f"{name} is {table[bad[0], _COLUMNS.index(name)]} at {at}; update refused")

    def _metrics(self, columns: Sequence[_Column], table: np.ndarray, last_epoch: np.ndarray) -> dict[str, float]:
        settings, total = self.settings, self.spec.total_timesteps
        mean = dict(zip(_COLUMNS, table.mean(axis=0, dtype=np.float64).tolist(), strict=True))
        samples = Samples.join([column.samples for column in columns])
        targets, values = samples.v_target.cpu().numpy(), samples.value.cpu().numpy()
        spread = float(np.var(targets))
        collapsed = mean["entropy"] < _COLLAPSED and self.kept.n_timesteps <= _EARLY * total
        if collapsed:
            warnings.warn(
                f"{self.spec.name}: entropy {mean['entropy']:.2g} after {self.kept.n_timesteps} steps, the policy has "
                "collapsed; raise tau1 or scale the rewards down (reward_scale)",
                stacklevel=3,
            )
        told = {name: mean[name] for name in ("q_loss", "value_loss", "entropy", "q_gap", "grad_norm")}
        if settings.pg_coef:
            told["policy_gradient_loss"] = mean["policy_gradient_loss"]
        told |= {
            "approx_kl": float(last_epoch[:, _COLUMNS.index("approx_kl")].mean()),
            "collapsed": float(collapsed),
            "entropy_loss": -mean["entropy"],
            "explained_variance": 1.0 - float(np.var(targets - values)) / spread if spread else float("nan"),
            "learning_rate": self.adam.learning_rate,
            "loss": float(table[-1, 0]),
            "n_updates": self.kept.n_updates,
            "tau": float(settings.strategies(self._acted)[0, 1]),
        }
        return {f"train/{name}": told[name] for name in sorted(told)}

    # ------------------------------------------------------------------------------------- what goes out and in

    def published(self) -> np.ndarray:
        """Return what actors need, temperatures too; see :meth:`drlnb.rl.algorithms.protocol.Learner.published`."""
        buffer = self.kept.published()
        pack_family(buffer, self.settings, progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps))
        return buffer

    def state(self) -> tuple[dict[str, Any], np.ndarray]:
        """Return everything needed to go on exactly; see :meth:`drlnb.rl.algorithms.protocol.Learner.state`."""
        meta, buffer = self.kept.state()
        return {**meta, "live": dict(self._live)}, buffer

    def restore(self, meta: Mapping[str, Any], buffer: np.ndarray) -> None:
        """Go on from :meth:`state`; see :meth:`drlnb.rl.algorithms.protocol.Learner.restore`."""
        self.kept.restore(meta, buffer)
        self._live = dict(meta.get("live", {}))
        self.settings = replace(self.settings, **self._live)
        self._staged.clear()


def _told(rows: Samples) -> tuple[Tensor, ...]:
    return rows.action, rows.log_prob, rows.strategy, rows.q_target, rows.v_target

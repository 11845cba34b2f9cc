"""Learn by the generalised policy family: set targets as fragments arrive, then fit Q, and the policy follows.

What is minimised is in :mod:`drlnb.rl.objectives.gpf_losses`.  Targets: on policy the return of generalised advantage
estimation, for Q and V alike; for late fragments, and where every sample is judged by the target member, V-trace for V
and Retrace for Q.  The loss is a plain mean over samples, so with one pass over the whole round each environment's
gradient is computed when its fragment arrives, and their sum is exact (``compute`` is ``stream``).  Sums run in the
order of the environments: neither arrival order nor the split over collectors matters.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms import gpf_actor
from drlnb.rl.algorithms.gpf_actor import pack_family
from drlnb.rl.algorithms.learner import Column, Learner, Notify
from drlnb.rl.algorithms.on_policy import round_metrics, run_epochs, staged_columns, staged_values
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.layout import PI, VF
from drlnb.rl.networks.networks import Networks
from drlnb.rl.objectives.advantages import gae
from drlnb.rl.objectives.gpf_losses import GPF_STATISTICS, Coefficients, Samples, gpf_gradient, gpf_loss
from drlnb.rl.objectives.traces import retrace, vtrace
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.seeding import EXPLORE, generator
from drlnb.rl.settings.gpf import GpfSettings

__all__ = ["GpfLearner", "with_expectation"]

#: Entropy below which a policy has collapsed, in nats, and the first part of the budget in which that is a fault.
_COLLAPSED, _EARLY = 0.01, 0.1


class GpfLearner(Learner):
    """The generalised policy family for discrete actions; see :class:`drlnb.rl.algorithms.learner.Learner`.

    Warns
    -----
    UserWarning
        When the policy collapses in the first tenth of the budget (``train/collapsed``).
    """

    settings: GpfSettings
    columns = (*GPF_STATISTICS, "grad_norm")

    def __init__(self, spec: RlWork, *, device: str = "cpu", by_hand: bool = True) -> None:
        super().__init__(spec, device=device, by_hand=by_hand)
        weights = self.settings
        self._coefficients = Coefficients(q_coef=weights.q_coef, vf_coef=weights.vf_coef, pg_coef=weights.pg_coef)
        #: Remaining progress in the version that acted in this round.
        self._acted = 1.0

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and drop what was staged; see :meth:`drlnb.rl.algorithms.learner.Learner.begin`."""
        if round != self.kept.round:  # a round that is begun again was acted in with the same version
            self._acted = self.progress
        super().begin(round, n_timesteps)

    def _columns(self, fragment: Fragment) -> list[Column]:
        """Return the samples with their targets."""
        arrays, settings = fragment.arrays, self.settings
        observations, values, next_values = staged_values(self.networks, arrays)
        rewards, ends = arrays["reward"], (arrays["terminated"], arrays["truncated"])
        if settings.reward_scale is not None:
            rewards = rewards * np.float32(settings.reward_scale)
        judge, gamma, decay = arrays["strategy"], settings.gamma, settings.gae_lambda
        if settings.expectation == "target":
            judge = np.broadcast_to(settings.strategies(self._acted)[0], judge.shape)
        if settings.expectation == "target" or int(fragment.header["round"]) < self.kept.round:
            means = settings.expectation == "samples"
            ratios, q = _judged(self.networks, observations, arrays, judge, values, means=means)
            v_target, _ = vtrace(rewards, values, next_values, ratios, *ends, gamma=gamma, gae_lambda=decay)
            q_target = retrace(rewards, next_values, q, ratios, *ends, gamma=gamma, gae_lambda=decay)
        else:
            q_target = v_target = values + gae(rewards, values, next_values, *ends, gamma=gamma, gae_lambda=decay)
        strategy = judge if settings.is_mixed else judge[:, 1:2]
        steps = {
            "action": arrays["action"],
            "log_prob": arrays["log_prob"],
            "strategy": np.broadcast_to(strategy, (len(values), *strategy.shape)),
            "q_target": q_target.astype(np.float32),
            "v_target": v_target.astype(np.float32),
            "value": values,
        }
        return staged_columns(observations, steps, self.device)

    # ---------------------------------------------------------------------------------------- the round's steps

    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        self.adam.learning_rate = parse_schedule(self.settings.learning_rate)(self.progress)
        if self.compute == "stream":
            return self._stream(columns, notify)
        lengths = {index: len(self._staged[index]["action"]) for index in sorted(self._staged)}
        samples = Samples.join(columns)

        def gradient(rows: Samples, out: Tensor, own: slice | None) -> None:
            out[:-1] = self.gradient(rows if own is None else rows.part(own))

        return run_epochs(self, lambda epoch: with_expectation(self, samples, lengths, epoch), gradient, notify)

    def _at_arrival(self, indices: Sequence[int], columns: Sequence[Column]) -> None:
        """Keep each environment's gradient and statistics, summed over its samples."""
        for index, column in zip(indices, columns, strict=True):
            samples = Samples.join([column])
            rows = with_expectation(self, samples, {index: len(samples)}, 0)
            column["statistics"] = self.around(len(samples), partial(self.gradient, rows, n_total=1))
            column["gradient"] = self.adam.grad.clone()

    def _stream(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        """Add up the gradients of the environments in their order, and take the step; return its statistics and 1."""
        n_samples = sum(len(column["action"]) for column in columns)
        row = torch.zeros((1, len(self.columns)), device=self.device)
        self.adam.zero_grad()
        for column in columns:
            self.adam.grad += column["gradient"]
            row[0, :-1] += column["statistics"]
        self.adam.grad /= n_samples
        row /= n_samples
        self.adam.step(self.settings.max_grad_norm, norm_out=row[0, -1])
        notify(1, 1)
        return row.cpu().numpy(), 1

    def gradient(self, rows: Samples, n_total: int | None = None) -> Tensor:
        """Leave the gradient of some samples in the flat buffer; return their statistics.

        Parameters
        ----------
        rows
            The samples.
        n_total
            Samples that the mean is over; None: these.

        Returns
        -------
        Tensor
            The values of :data:`drlnb.rl.objectives.gpf_losses.GPF_STATISTICS`; shape ``(7,)``.
        """
        weights, towers = self._coefficients, self._towers
        if towers is None:
            self.adam.zero_grad()
            loss, statistics = gpf_loss(*self.networks.both(rows.obs), rows, coefficients=weights, n_total=n_total)
            loss.backward()
            return statistics
        pi, vf = towers.forward(PI, rows.obs), towers.forward(VF, rows.obs)
        d_pi, d_vf, statistics = gpf_gradient(pi[-1], vf[-1][:, 0], rows, coefficients=weights, n_total=n_total)
        towers.backward(PI, pi, d_pi)
        towers.backward(VF, vf, d_vf[:, None])
        return statistics

    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        own = ("q_loss", "q_gap", "policy_gradient_loss")[: 3 if self.settings.pg_coef else 2]
        metrics = round_metrics(self, columns, "v_target", table, n_updates, own)
        metrics["tau"] = float(self.settings.strategies(self._acted)[0, 1])
        collapsed = metrics["entropy"] < _COLLAPSED and self.kept.n_timesteps <= _EARLY * self.spec.total_timesteps
        metrics["collapsed"] = float(collapsed)
        if collapsed:
            warnings.warn(
                f"{self.spec.name}: entropy {metrics['entropy']:.2g} after {self.kept.n_timesteps} steps, the policy "
                "has collapsed; raise tau1 or scale the rewards down (reward_scale)",
                stacklevel=4,
            )
        return {f"train/{name}": metrics[name] for name in sorted(metrics)}

    def published(self) -> np.ndarray:
        """Return what actors need, temperatures too; see :meth:`drlnb.rl.algorithms.learner.Learner.published`."""
        buffer = super().published()
        pack_family(buffer, self.settings, self.progress)
        return buffer


def _judged(
    networks: Networks,
    observations: Sequence[Tensor],
    arrays: Mapping[str, np.ndarray],
    judge: np.ndarray,
    values: np.ndarray,
    *,
    means: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``pi/mu`` of the taken actions under the judging member, and their Q; both ``(T, n)``."""
    with torch.no_grad():
        advantages = np.stack([networks.both(obs)[0].cpu().numpy() for obs in observations], 1)
    log_pi, taken = gpf_actor.log_strategy(advantages, judge), arrays["action"][:, :, None]
    log_p, advantage = (np.take_along_axis(rows, taken, 2)[:, :, 0] for rows in (log_pi, advantages))
    expected = advantage.mean(0) if means else (np.exp(log_pi) * advantages).sum(2)
    q = advantage - expected + values
    return np.exp(log_p - arrays["log_prob"]), q


def with_expectation(learner: GpfLearner, samples: Samples, lengths: Mapping[int, int], epoch: int) -> Samples:
    """Return the samples with what their expectations of A need: deviates for fresh actions, or their sequences.

    Parameters
    ----------
    learner
        Its settings say which; None: the exact sum needs neither.
    samples
        In the order of `lengths`.
    lengths
        Environment -> its samples; deviates are keyed by it: no split or order matters.
    epoch
        From 0.
    """
    settings, device = learner.settings, learner.device
    if settings.expectation == "samples":
        owner = np.repeat(np.arange(len(lengths)), list(lengths.values()))
        return replace(samples, sequence=torch.from_numpy(owner).to(device))
    width = settings.n_action_samples
    if width is None:
        return samples
    key = learner.spec.seed, EXPLORE, learner.kept.round, epoch
    drawn = [generator(*key, index).random((n, width), np.float32) for index, n in lengths.items()]
    return replace(samples, fresh=torch.from_numpy(np.concatenate(drawn)).to(device))

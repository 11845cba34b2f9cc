"""Learn by proximal policy optimisation: prepare fragments as they arrive, then run the epochs.

Prepared means: observations normalised with the statistics that the actors used, values of each environment's steps in
one forward pass, advantages.  The epochs run when all are there, on the samples in the order of the environments, so
neither arrival order nor the split over collectors matters.  Parameters, gradient and Adam's moments are one flat
tensor each: publishing, clipping and stepping are single operations.

With one pass over the whole round (``compute`` is ``stream``) each worker's gradient is computed when its fragment
arrives.  A mean over all samples is the sum over workers of ``n_i / n`` times the mean over worker i's samples, so
nothing is lost by never joining the batches (the leasing patent, paragraph 12).  What is not a mean needs a second sum:
advantages that are normalised over the whole batch, ``(A - m) / s``, are known only when all workers have arrived, but
the gradient is linear in them: with ``G1 = sum A g`` and ``G0 = sum g`` it is ``(G1 - m G0) / (n s)``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import inf, log, pi
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from drlnb.rl.algorithms.learner import Column, Learner, Notify
from drlnb.rl.algorithms.on_policy import round_metrics, run_epochs, staged_columns, staged_values
from drlnb.rl.envs.masks import FORBIDDEN
from drlnb.rl.fragments import Fragment
from drlnb.rl.heads import SDE_EPSILON, Head
from drlnb.rl.networks.layout import PI, VF
from drlnb.rl.networks.networks import MlpTowers
from drlnb.rl.objectives import mlp_gradient
from drlnb.rl.objectives.advantages import gae
from drlnb.rl.objectives.losses import STATISTICS, normalised_advantages, ppo_loss
from drlnb.rl.objectives.samples import Rows
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.settings.ppo import PpoSettings

__all__ = ["Batch", "PpoLearner", "Terms", "evaluate"]


@dataclass(frozen=True, slots=True)
class Batch(Rows):
    """Samples on the device; first axis: environments in order, each in time order."""

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value: Tensor
    returns: Tensor
    #: Forbidden choices, bool, shape ``(B, width)``; None: there are none.
    forbidden: Tensor | None = None


class Terms(NamedTuple):
    """Weights and limits of the loss, as they are in one round; dimensionless."""

    clip: float
    clip_vf: float | None
    ent_coef: float
    vf_coef: float


class PpoLearner(Learner):
    """Proximal policy optimisation; see :class:`drlnb.rl.algorithms.learner.Learner`."""

    settings: PpoSettings
    columns = (*STATISTICS, "grad_norm")

    def _columns(self, fragment: Fragment) -> list[Column]:
        arrays, settings = fragment.arrays, self.settings
        observations, values, next_values = staged_values(self.networks, arrays)
        rewards, ends = arrays["reward"], (arrays["terminated"], arrays["truncated"])
        advantages = gae(rewards, values, next_values, *ends, gamma=settings.gamma, gae_lambda=settings.gae_lambda)
        steps = {"action": arrays["action"], "log_prob": arrays["log_prob"], "value": values}
        steps["advantage"] = advantages.astype(np.float32)
        steps["returns"] = steps["advantage"] + values
        if "action_mask" in arrays:
            steps["forbidden"] = ~arrays["action_mask"]
        return staged_columns(observations, steps, self.device)

    def _terms(self) -> Terms:
        """Return weights and limits where the schedules stand now, and set Adam's step size."""
        settings, progress = self.settings, self.progress
        self.adam.learning_rate = parse_schedule(settings.learning_rate)(progress)
        vf = settings.clip_range_vf
        return Terms(
            clip=parse_schedule(settings.clip_range)(progress),
            clip_vf=None if vf is None else parse_schedule(vf)(progress),
            ent_coef=settings.ent_coef,
            vf_coef=settings.vf_coef,
        )

    def gradient(self, rows: Batch, out: Tensor, advantages: Tensor | None = None, terms: Terms | None = None) -> None:
        """Leave the gradient of the mean loss in the flat buffer and the statistics in `out`.

        Parameters
        ----------
        rows
            The samples.
        out
            Gets the values of :data:`drlnb.rl.objectives.losses.STATISTICS`; shape ``(6,)`` or longer.
        advantages
            As they enter the loss, shape ``(B,)``; None: the samples' own, normalised over them if the task's are.
        terms
            Weights and limits; None: those of this round.
        """
        if advantages is None:
            normal = self.settings.normalize_advantage
            advantages = normalised_advantages(rows.advantage) if normal else rows.advantage
        if self._towers is not None:
            self._explicit(self._towers, rows, advantages, terms or self._terms(), out)
        else:
            self._autograd(rows, advantages, terms or self._terms(), out)

    def _explicit(self, towers: MlpTowers, rows: Batch, advantages: Tensor, terms: Terms, out: Tensor) -> None:
        discrete = self.layout.head.kind == "discrete"
        pi = towers.forward(PI, rows.obs)
        if rows.forbidden is not None:
            pi[-1].masked_fill_(rows.forbidden, FORBIDDEN)
        actions = rows.action[:, None] if discrete else rows.action
        if discrete:
            log_probs = torch.log_softmax(pi[-1], 1)
            log_p = log_probs.gather(1, actions)[:, 0]
            entropy = torch.sum(log_probs.exp() * log_probs, 1).neg_()
        else:
            log_p, entropy = mlp_gradient.gaussian_log_prob(pi[-1], towers.tensors["log_std"], actions)
        d_log_p, measured = mlp_gradient.surrogate(log_p, rows.log_prob, advantages, terms.clip)
        if discrete:
            d_pi = mlp_gradient.categorical_gradient(log_probs, actions, d_log_p, entropy, terms.ent_coef)
        else:
            spread, d_spread = towers.tensors["log_std"], towers.grads["log_std"]
            d_pi = mlp_gradient.gaussian_gradient(pi[-1], spread, actions, d_log_p, terms.ent_coef, d_log_std=d_spread)
        towers.backward(PI, pi, d_pi)
        vf = towers.forward(VF, rows.obs)
        error = vf[-1][:, 0] - rows.returns
        if terms.clip_vf is not None:
            change = vf[-1][:, 0] - rows.value
            error = rows.value + change.clamp(-terms.clip_vf, terms.clip_vf) - rows.returns
        d_value = error * (2.0 * terms.vf_coef / len(error))
        if terms.clip_vf is not None:
            d_value *= change.abs() <= terms.clip_vf
        towers.backward(VF, vf, d_value[:, None])
        means = torch.stack((measured[0], error * error, entropy, *measured[1:])).mean(1)
        out[0] = means[0] + terms.vf_coef * means[1] - terms.ent_coef * means[2]
        out[1 : len(STATISTICS)] = means

    def _autograd(self, rows: Batch, advantages: Tensor, terms: Terms, out: Tensor) -> None:
        outputs, values = self.networks.both(rows.obs)
        if rows.forbidden is not None:
            outputs = outputs.masked_fill(rows.forbidden, FORBIDDEN)
        log_p, entropy = evaluate(self.layout.head, outputs, rows.action, self.networks.log_std)
        if terms.clip_vf is not None:
            values = rows.value + (values - rows.value).clamp(-terms.clip_vf, terms.clip_vf)
        value_loss = torch.square(rows.returns - values).mean()
        weights = {"clip_range": terms.clip, "ent_coef": terms.ent_coef, "vf_coef": terms.vf_coef}
        loss, statistics = ppo_loss(log_p, rows.log_prob, advantages, entropy, value_loss, **weights)
        self.adam.zero_grad()
        loss.backward()
        out[: len(STATISTICS)] = statistics

    # ---------------------------------------------------------------------------------------- the round's steps

    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        batch, terms = Batch.join(columns), self._terms()
        if self.compute == "stream":
            return self._stream(columns, batch, notify)

        def gradient(rows: Batch, out: Tensor, own: slice | None) -> None:
            if own is None:
                self.gradient(rows, out, terms=terms)
                return
            # Those of the whole minibatch, whoever computes its samples.
            normal = self.settings.normalize_advantage
            advantages = normalised_advantages(rows.advantage) if normal else rows.advantage
            self.gradient(rows.part(own), out, advantages[own], terms)

        return run_epochs(self, lambda epoch: batch, gradient, notify)

    def _at_arrival(self, indices: Sequence[int], columns: Sequence[Column]) -> None:
        """Keep a worker's gradients and their statistics: with raw and unit advantages, and of the rest.

        On the first pass the ratio is 1, so nothing is clipped and the loss is linear in the advantages.  They lie in
        the column of the worker's first environment.
        """
        batch = Batch.join(columns)
        policy = Terms(clip=inf, clip_vf=None, ent_coef=0.0, vf_coef=0.0)
        rest = policy._replace(ent_coef=self.settings.ent_coef, vf_coef=self.settings.vf_coef)
        table = torch.zeros((3, len(self.columns)), device=self.device)
        ones, zeros = torch.ones_like(batch.advantage), torch.zeros_like(batch.advantage)
        streamed = {"raw": (batch.advantage, policy), "unit": (ones, policy), "rest": (zeros, rest)}
        for row, (name, (advantages, terms)) in enumerate(streamed.items()):
            self.around(len(batch), partial(self.gradient, batch, table[row], advantages, terms))
            columns[0][name] = self.adam.grad.clone()
        columns[0] |= {"statistics": table, "n_samples": torch.tensor(len(batch))}

    def _stream(self, columns: Sequence[Column], batch: Batch, notify: Notify) -> tuple[np.ndarray, int]:
        """Make the round's one step from the gradients of the arrivals; return its statistics and 1."""
        arrived = columns if self.spec.deterministic else self._staged.values()
        first = [column for column in arrived if "raw" in column]
        sizes = [int(column["n_samples"]) for column in first]
        names = ("raw", "unit", "rest", "statistics")
        raw, unit, rest, means = (_weighted_sum((column[name] for column in first), sizes) for name in names)
        mean, spread = 0.0, 1.0
        if self.settings.normalize_advantage and len(batch) > 1:
            mean, spread = batch.advantage.mean().item(), batch.advantage.std().item() + 1e-8
        self.adam.grad.copy_((raw - mean * unit if mean else raw) / spread + rest)
        row = means[2]
        row[1] = (means[0, 1] - mean * means[1, 1]) / spread
        row[0] = row[1] + self.settings.vf_coef * row[2] - self.settings.ent_coef * row[3]
        self.adam.step(self.settings.max_grad_norm, norm_out=row[-1])
        notify(1, 1)
        return row[None].cpu().numpy(), 1

    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        metrics = round_metrics(self, columns, "returns", table, n_updates, ("clip_fraction", "policy_gradient_loss"))
        terms, log_std = self._terms(), self.networks.log_std
        metrics["clip_range"] = terms.clip
        if terms.clip_vf is not None:
            metrics["clip_range_vf"] = terms.clip_vf
        if log_std is not None:
            metrics["std"] = log_std.detach().exp().mean().item()
        return {f"train/{name}": metrics[name] for name in sorted(metrics)}


def _weighted_sum(means: Iterable[Tensor], sizes: Sequence[int]) -> Tensor:
    """Return ``sum_i n_i / n mean_i``, of the shape of each mean; summed in the order given."""
    n = sum(sizes)
    return reduce(torch.add, (mean * (size / n) for mean, size in zip(means, sizes, strict=True)))


def evaluate(head: Head, outputs: Tensor, actions: Tensor, log_std: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the actions, shape ``(B,)``, and the mean entropy: :mod:`drlnb.rl.heads` in torch.

    Building a ``torch.distributions`` object costs more than the forward pass of a small network.  Legend: B samples,
    W outputs, D dimensions or decisions.

    Parameters
    ----------
    head
        Of the action space.
    outputs
        Logits or means; shape ``(B, W)``.
    actions
        As a fragment holds them: ``(B,)`` int64, or ``(B, D)``; boxes unclipped.
    log_std
        Of a box, shape ``(W,)``; of state-dependent exploration, ``(L, d)`` or ``(L, 1)``.
    """
    if head.kind == "discrete":
        return _categorical(outputs, actions)
    if head.kind == "box":
        assert log_std is not None
        return _gaussian(outputs, log_std, actions)
    if head.kind == "sde":
        assert log_std is not None
        return _by_state(head, outputs, log_std, actions)
    if head.kind == "multibinary":
        log_p = -softplus((1.0 - 2.0 * actions) * outputs).sum(1)
        probs = torch.sigmoid(outputs)
        return log_p, (softplus(outputs) - probs * outputs).sum(1).mean()
    terms = [_categorical(outputs[:, part], actions[:, d]) for d, part in enumerate(head.parts())]
    return torch.stack([log_p for log_p, _ in terms]).sum(0), torch.stack([entropy for _, entropy in terms]).sum()


def _categorical(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the actions, shape ``(B,)``, and the mean entropy, for logits ``(B, A)``."""
    log_p = torch.log_softmax(logits, 1)
    return log_p.gather(1, actions[:, None])[:, 0], -(log_p.exp() * log_p).sum(1).mean()


def _by_state(head: Head, outputs: Tensor, log_std: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return both for state-dependent exploration; squashed actions have no entropy but the mean of their surprise."""
    d, n = head.sizes
    std = log_std.exp()
    if head.expln:
        std = torch.where(log_std > 0.0, (log_std.clamp(min=0.0) + SDE_EPSILON).log1p() + 1.0, std)
    variance = outputs[:, d:].detach().square() @ std.square().expand(n, d) + SDE_EPSILON
    spread = variance.log() + log(2.0 * pi)
    log_p = -0.5 * ((actions - outputs[:, :d]).square() / variance + spread).sum(1)
    if not head.squashed:
        return log_p, 0.5 * (spread + 1.0).sum(1).mean()
    log_p = log_p - (1.0 - actions.tanh().square() + SDE_EPSILON).log().sum(1)
    return log_p, -log_p.mean()


def _gaussian(mean: Tensor, log_std: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities, shape ``(B,)``, and the entropy, for means ``(B, d)`` and log deviations ``(d,)``."""
    z = (actions - mean) * torch.exp(-log_std)
    width = actions.shape[1]
    spread = log_std.sum()
    log_p = -0.5 * (z * z).sum(1) - spread - 0.5 * log(2.0 * pi) * width
    return log_p, spread + 0.5 * (1.0 + log(2.0 * pi)) * width

"""Learn by proximal policy optimisation: prepare fragments as they arrive, then run the epochs.

Prepared means: observations normalised with the statistics that the actors used, values of each environment's steps in
one forward pass, advantages.  The epochs run when all are there, on the samples in the order of the environments, so
neither arrival order nor the split over collectors matters.  Parameters, gradient and Adam's moments are one flat
tensor each: publishing, clipping and stepping are single operations.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import torch
from torch import Tensor

from drlnb.records.spec import TaskSpec
from drlnb.rl.algorithms.on_policy import round_metrics, run_epochs, staged_columns, staged_values
from drlnb.rl.algorithms.ppo_gradient import Batch, PpoGradient, Terms
from drlnb.rl.algorithms.rounds import Column, Notify, RoundLearner
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.actor_critic import make_networks
from drlnb.rl.objectives.advantages import gae
from drlnb.rl.objectives.losses import STATISTICS, normalised_advantages
from drlnb.rl.objectives.weighted_sum import StreamedPart, combine, weighted_sum
from drlnb.rl.schedules import parse_schedule
from drlnb.rl.settings.ppo import PpoSettings

__all__ = ["PpoLearner"]


class PpoLearner(RoundLearner[PpoSettings]):
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

    columns = (*STATISTICS, "grad_norm")

    def __init__(self, spec: TaskSpec, *, device: str = "cpu", by_hand: bool = True) -> None:
        self._networks = make_networks(spec, torch.device(device))
        super().__init__(spec, PpoSettings.from_mapping(spec.hyperparameters), self._networks.kept)
        self._gradient = PpoGradient(self._networks, by_hand=by_hand)

    def _columns(self, fragment: Fragment) -> list[Column]:
        arrays, settings = fragment.arrays, self.settings
        observations, values, next_values = staged_values(self._networks, arrays)
        rewards, ends = self.kept.rewards(arrays["reward"]), (arrays["terminated"], arrays["truncated"])
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

    def _advantages(self, raw: Tensor) -> Tensor:
        return normalised_advantages(raw) if self.settings.normalize_advantage else raw

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
        table = torch.zeros(len(self.columns), device=self.device) if out is None else out
        joined = self._advantages(torch.cat([part.advantage for part in parts]))
        self._gradient.of_parts(parts, joined.split([len(part) for part in parts]), self._terms(), table)
        return self.adam.grad

    # ---------------------------------------------------------------------------------------- the round's steps

    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        batch, terms = Batch.join(columns), self._terms()
        if self.compute == "stream":
            return self._stream(columns, batch, notify)

        def gradient(rows: Batch, out: Tensor) -> None:
            self._gradient(rows, self._advantages(rows.advantage), terms, out)

        return run_epochs(self, lambda epoch: batch, gradient, notify)

    def _at_arrival(self, indices: Sequence[int], columns: Sequence[Column]) -> None:
        """Keep a worker's gradients and their statistics: with raw and unit advantages, and of the rest.

        On the first pass the ratio is 1, so nothing is clipped and the loss is linear in the advantages.  They lie in
        the column of the worker's first environment.
        """
        batch = Batch.join(columns)
        policy = Terms(clip=inf, clip_vf=None, ent_coef=0.0, vf_coef=0.0)
        rest = replace(policy, ent_coef=self.settings.ent_coef, vf_coef=self.settings.vf_coef)
        table = torch.zeros((3, len(self.columns)), device=self.device)
        ones, zeros = torch.ones_like(batch.advantage), torch.zeros_like(batch.advantage)
        streamed = {"raw": (batch.advantage, policy), "unit": (ones, policy), "rest": (zeros, rest)}
        for row, (name, (advantages, terms)) in enumerate(streamed.items()):
            self._gradient(batch, advantages, terms, table[row])
            columns[0][name] = self.adam.grad.clone()
        columns[0] |= {"statistics": table, "n_samples": torch.tensor(len(batch))}

    def _stream(self, columns: Sequence[Column], batch: Batch, notify: Notify) -> tuple[np.ndarray, int]:
        """Make the round's one step from the gradients of the arrivals; return its statistics and 1."""
        arrived = columns if self.spec.deterministic else self._staged.values()
        first = [column for column in arrived if "raw" in column]
        parts = [StreamedPart(int(c["n_samples"]), c["raw"], c["unit"], c["rest"]) for c in first]
        means = weighted_sum((column["statistics"] for column in first), [part.n_samples for part in parts])
        mean, spread = 0.0, 1.0
        if self.settings.normalize_advantage and len(batch) > 1:
            mean, spread = batch.advantage.mean().item(), batch.advantage.std().item() + 1e-8
        self.adam.grad.copy_(combine(parts, mean, spread))
        table = torch.zeros((1, len(self.columns)), device=self.device)
        table[0, 1] = (means[0, 1] - mean * means[1, 1]) / spread
        table[0, 2 : len(STATISTICS)] = means[2, 2 : len(STATISTICS)]
        table[0, 0] = table[0, 1] + self.settings.vf_coef * table[0, 2] - self.settings.ent_coef * table[0, 3]
        self.adam.step(self.settings.max_grad_norm, norm_out=table[0, -1])
        notify(1, 1)
        return table.cpu().numpy(), 1

    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        returns, values = (torch.cat([c[name] for c in columns]).cpu().numpy() for name in ("returns", "value"))
        metrics, mean = round_metrics(self, table, n_updates, returns, values)
        terms, log_std = self._terms(), self._networks.log_std()
        metrics |= {"clip_fraction": mean["clip_fraction"], "clip_range": terms.clip}
        metrics["policy_gradient_loss"] = mean["policy_gradient_loss"]
        if terms.clip_vf is not None:
            metrics["clip_range_vf"] = terms.clip_vf
        if log_std is not None:
            metrics["std"] = log_std.detach().exp().mean().item()
        return {f"train/{name}": metrics[name] for name in sorted(metrics)}

"""Say how likely a policy's actions are, by ``torch.distributions`` under Stable-Baselines3's names.

Actions are the policy's own: choices as the environment counts them, boxes before they are cut to their bounds,
squashed ones within +-1.  :mod:`drlnb.rl.heads` says the same in numpy for actors; a test holds both equal.
"""

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Normal

from drlnb.rl.heads import SDE_EPSILON, Head

__all__ = ["Distribution", "squashed_back"]


class Distribution:
    """What a policy may do after some observations.

    Parameters
    ----------
    head
        Of the action space.
    outputs
        Of the policy's network, with forbidden choices lowered; shape ``(B, width)``.
    log_std
        Log deviations of a box; shape ``(d,)``, or ``(L, d)`` or ``(L, 1)`` where exploration depends on the state.
    start
        Number of the first choice of each decision.
    """

    #: The distribution in torch's words; of several decisions a list of them.
    distribution: Categorical | list[Categorical] | Bernoulli | Normal

    def __init__(self, head: Head, outputs: Tensor, log_std: Tensor | None, start: Tensor) -> None:
        self._head, self._start = head, start
        if head.kind == "discrete":
            self.distribution = Categorical(logits=outputs, validate_args=False)
        elif head.kind == "multidiscrete":
            parts = [outputs[:, part] for part in head.parts()]
            self.distribution = [Categorical(logits=part, validate_args=False) for part in parts]
        elif head.kind == "multibinary":
            self.distribution = Bernoulli(logits=outputs, validate_args=False)
        else:
            assert log_std is not None
            mean, std = _gaussian(head, outputs, log_std)
            self.distribution = Normal(mean, std, validate_args=False)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return log-probabilities ``(B,)`` of actions ``(B, ...)``."""
        known = self.distribution
        if isinstance(known, list):
            rows = actions.reshape(len(actions), -1) - self._start
            return torch.stack([each.log_prob(rows[:, d]) for d, each in enumerate(known)]).sum(0)
        if isinstance(known, Categorical):
            return known.log_prob(actions.reshape(-1) - self._start)
        rows = actions.reshape(len(actions), -1).float()
        if not self._head.squashed:
            return known.log_prob(rows).sum(1)
        before = squashed_back(rows)
        return (known.log_prob(before) - (1.0 - before.tanh().square() + SDE_EPSILON).log()).sum(1)

    def entropy(self) -> Tensor | None:
        """Return entropies ``(B,)``, in nats; None for squashed actions, which have no formula."""
        known = self.distribution
        if self._head.squashed:
            return None
        if isinstance(known, list):
            return torch.stack([each.entropy() for each in known]).sum(0)
        return known.entropy() if isinstance(known, Categorical) else known.entropy().sum(1)

    def mode(self) -> Tensor:
        """Return the most likely actions, shape ``(B,)`` or ``(B, d)``."""
        known = self.distribution
        if isinstance(known, list):
            return torch.stack([each.logits.argmax(1) for each in known], 1) + self._start
        if isinstance(known, Categorical):
            return known.logits.argmax(1) + self._start
        if isinstance(known, Bernoulli):
            return (known.logits > 0.0).float()
        return known.mean.tanh() if self._head.squashed else known.mean

    def sample(self) -> Tensor:
        """Return actions as :meth:`mode` does, drawn by torch's global generator.

        Exploration that depends on the state draws a new matrix for each row.
        """
        known = self.distribution
        if isinstance(known, list):
            return torch.stack([each.sample() for each in known], 1) + self._start
        if isinstance(known, Categorical):
            return known.sample() + self._start
        if isinstance(known, Bernoulli):
            return known.sample()
        drawn = known.rsample()
        return drawn.tanh() if self._head.squashed else drawn

    def get_actions(self, deterministic: bool = False) -> Tensor:
        """Return the most likely actions, or samples."""
        return self.mode() if deterministic else self.sample()


def squashed_back(actions: Tensor) -> Tensor:
    """Return what was squashed to actions within +-1, which are kept from the ends by one rounding step."""
    end = 1.0 - torch.finfo(actions.dtype).eps
    return actions.clamp(-end, end).atanh()


def _gaussian(head: Head, outputs: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    """Return means and deviations of a box's actions ``(B, d)``."""
    if head.kind == "box":
        return outputs, log_std.exp().expand_as(outputs)
    d, n = head.sizes
    std = log_std.exp()
    if head.expln:
        std = torch.where(log_std > 0.0, (log_std.clamp(min=0.0) + SDE_EPSILON).log1p() + 1.0, std)
    variance = outputs[:, d:].detach().square() @ std.square().expand(n, d)
    return outputs[:, :d], (variance + SDE_EPSILON).sqrt()

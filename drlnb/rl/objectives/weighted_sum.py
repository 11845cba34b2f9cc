"""Add up the gradients of several workers, each weighted by its samples: the whole batch's gradient.

A mean over all samples is the sum over workers of ``n_i / n`` times the mean over worker i's samples, so nothing is
lost by never joining the batches (seed 000, paragraph 12).  What is not a mean needs a second sum: advantages that are
normalised over the whole batch, ``(A - m) / s``, are known only when all workers have arrived, but the gradient is
linear in them: with ``G1 = sum A g`` and ``G0 = sum g`` it is ``(G1 - m G0) / (n s)``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

__all__ = ["StreamedPart", "combine", "weighted_sum"]


def weighted_sum(means: Iterable[Tensor], n_samples: Sequence[int]) -> Tensor:
    """Return ``sum_i n_i / n mean_i``, of the shape of each mean; summed in the order given.

    Examples
    --------
    >>> import torch
    >>> weighted_sum([torch.tensor([1.0]), torch.tensor([4.0])], [2, 1])
    tensor([2.])
    """
    n, total = sum(n_samples), None
    for mean, count in zip(means, n_samples, strict=True):
        share = mean * (count / n)
        total = share if total is None else total.add_(share)
    if total is None:
        raise ValueError("a sum of gradients needs at least one part")
    return total


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """What one worker's samples leave at arrival; gradients and statistics are means over its samples."""

    n_samples: int
    #: With raw advantages, no other term; shape ``(n_total,)``.
    raw: Tensor
    #: With advantages of 1, no other term.
    unit: Tensor
    #: Of the terms that do not depend on advantages.
    rest: Tensor


def combine(parts: Sequence[StreamedPart], mean: float, spread: float) -> Tensor:
    """Return the gradient of the whole batch for advantages ``(A - mean) / spread``; summed in the order given."""
    sizes = [part.n_samples for part in parts]
    policy = weighted_sum((part.raw for part in parts), sizes)
    if mean:
        policy = policy - mean * weighted_sum((part.unit for part in parts), sizes)
    return policy / spread + weighted_sum((part.rest for part in parts), sizes)

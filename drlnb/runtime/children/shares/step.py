"""Make one step of supervised work out of shares of its samples that several slots compute.

A member of a lease computes the gradient of its samples, and packs it as bytes.  The lease's lead makes the step of the
mean of such gradients, weighted by what each loss was divided by, and packs the parameters that the members need for
the next one.  What a forward pass leaves behind it in a member's module is undone there: statistics of batch
normalisation travel with the gradient, and anything else is refused.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from drlnb.records.errors import NonFinite
from drlnb.rl.networks.same_bits import same_kernels, seed_all
from drlnb.runtime.children.fit import FitLearner
from drlnb.runtime.children.shares.packed import gradient_of, pack_gradient, statistics_of, sums_of
from drlnb.runtime.ipc.tensors import bytes_of

__all__ = ["Gradient", "apply_gradients", "compute_share"]


class Gradient(NamedTuple):
    """The gradient of a share, or of its beginning."""

    #: As :func:`apply_gradients` takes it.
    packed: np.ndarray
    n_done: int
    #: What its loss was divided by.
    denominator: float
    loss: float
    #: Its squared norm.
    norm_sq: float


class _Mean:
    """A weighted mean of gradients and statistics, in the order in which they are added; one alone stays as it is."""

    def __init__(self) -> None:
        self.weight = self.loss = 0.0
        self.gradients: list[Tensor | None] = []
        self.statistics: list[Tensor] = []

    def add(self, weight: float, loss: float, gradients: Sequence[Tensor | None], statistics: Sequence[Tensor]) -> None:
        """Add one; where a parameter has no gradient it is zero if another one has it."""
        self.weight += weight
        share = weight / self.weight if self.weight else 0.0
        self.loss += (loss - self.loss) * share if share else 0.0
        ours = self.gradients or [None] * len(gradients)
        self.gradients = [_towards(mean, part, share) for mean, part in zip(ours, gradients, strict=True)]
        if not self.statistics:
            self.statistics = [part.clone() for part in statistics]
        for mean, part in zip(self.statistics, statistics, strict=True):
            if mean.is_floating_point():
                mean.copy_(mean.to(_wide(mean)).lerp(part.to(_wide(mean)), share))
            else:  # each has counted the batch once
                torch.maximum(mean, part, out=mean)


def _towards(mean: Tensor | None, part: Tensor | None, share: float) -> Tensor | None:
    """Return a mean with a part of such a share in it, whose dtype holds sums."""
    if part is None:
        return None if mean is None else mean.mul_(1.0 - share)
    part = part.to(_wide(part))
    if mean is None:  # nobody else looks at the first one any more
        return part if share == 1.0 else part * share
    return mean.add_(part - mean, alpha=share)


def _wide(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which tensors of this one's are summed."""
    return torch.promote_types(tensor.dtype, torch.float32)


# ------------------------------------------------------------------ a member's share
def compute_share(
    learner: FitLearner, step: int, first: int, n: int, chunk: int, goes_on: Callable[[], bool]
) -> Gradient:
    """Compute the gradient of some samples of a step; the learner is as before afterwards.

    Parameters
    ----------
    learner
        With the parameters of the step.
    step, first, n, chunk
        As of :class:`~drlnb.records.columns.batching.ComputeShare`.
    goes_on
        Called between two chunks: whether the next one shall be computed.

    Raises
    ------
    NonFinite
        If a loss, or its gradient, is NaN or infinite.
    RuntimeError
        If a function of the program raises or returns what it must not, or several learners cannot share its steps.
    """
    mean, module, size, stop = _Mean(), learner.module, chunk or n, first + n
    n_done = 0
    with (
        learner.own(keep=False),
        same_kernels(learner.device, learner.spec.deterministic),
        _undone(module, "the module") as undo,
        _undone(learner.loss, "the loss") as undo_loss,
    ):
        (number,) = np.random.SeedSequence((learner.spec.seed, step, first)).generate_state(1)
        seed_all(int(number))
        while n_done < n and (not n_done or goes_on()):
            part = slice(first + n_done, min(first + n_done + size, stop))
            where = learner.where(step, part)
            loss, said = learner.gradient(step, part)
            _add(mean, module, float(loss), _denominator(said, where), where)
            undo_loss(where)
            undo(where)
            n_done = part.stop - first
    packed = pack_gradient(module, mean.loss, mean.gradients, mean.statistics)
    return Gradient(packed, n_done, mean.weight, mean.loss, _dot(mean.gradients, mean.gradients))


def _add(mean: _Mean, module: torch.nn.Module, loss: float, denominator: float, where: str) -> None:
    """Add the gradient that the parameters have; what counts no sample may be anything, and adds nothing then."""
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    for name, gradient in gradients.items():
        if gradient is not None and gradient.layout is not torch.strided:
            raise RuntimeError(
                f"{where}: the gradient of {name} is sparse, which several learners cannot sum: make it dense "
                "(sparse=False), or use n_learners=1"
            )
    given = list(gradients.values())
    finite = math.isfinite(loss) and math.isfinite(_dot(given, given))
    if denominator and not finite:
        what = "the gradient is not finite" if math.isfinite(loss) else f"loss is {loss}"
        raise NonFinite(f"{what} at {where}; update refused")
    mean.add(denominator, loss, given if finite else [None] * len(given), list(statistics_of(module).values()))


def _denominator(said: object, where: str) -> float:
    """Return what a loss was divided by, as a number; raise RuntimeError if it is none."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):
        if math.isfinite(number := float(said)) and number >= 0.0:  # type: ignore[arg-type]
            return number
    raise RuntimeError(
        f"{where}: beside its mean a loss must return what it was divided by, a number of at least 0, got {said!r:.80}"
    )


@contextlib.contextmanager
def _undone(module: object, name_of: str) -> Iterator[Callable[[str], None]]:
    """Undo at the end what forward and backward passes leave in a module, and when what is yielded is called.

    A loss may be none, and keeps nothing then.  What is yielded raises RuntimeError if something has changed that
    cannot be put together at the lead.
    """
    if not isinstance(module, torch.nn.Module):
        yield lambda where: None
        return
    before = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    sums = sums_of(module)

    def undo(where: str) -> None:
        now, statistics = dict(module.named_buffers()), statistics_of(module)
        after = {name: buffer for name, buffer in now.items() if name not in statistics}
        changed = [name for name, buffer in after.items() if name not in before or not _same(before[name], buffer)]
        changed += sorted(before.keys() - now.keys())
        changed += [name for name, total in sums_of(module).items() if sums.get(name) != total]
        if changed:
            raise RuntimeError(
                f"{where}: a forward pass changes {changed[0]} of {name_of}, and several learners can put together "
                "statistics of batch normalisation alone: use n_learners=1"
            )
        _put_back(module, before)

    try:
        yield undo
    finally:
        _put_back(module, before)


def _put_back(module: torch.nn.Module, before: Mapping[str, Tensor]) -> None:
    """Leave no gradient, and buffers as they were."""
    for parameter in module.parameters():
        parameter.grad = None
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in before and before[name].shape == buffer.shape:
                buffer.copy_(before[name])


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same bytes, those of NaN included."""
    alike = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
    return alike and torch.equal(bytes_of(one), bytes_of(other))


def _dot(ones: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> float:
    """Return the product of two gradients; in double precision only where it is beyond their own: that takes long."""
    pairs = [(one, other) for one, other in zip(ones, others, strict=True) if one is not None and other is not None]
    total = _sum_of_products(pairs)
    if not math.isfinite(total):
        total = _sum_of_products([(one.to(_double(one)), other.to(_double(other))) for one, other in pairs])
    return total


def _sum_of_products(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    products = [(one * other.conj()).real.sum().double() for one, other in pairs]
    return float(torch.stack(products).sum()) if products else 0.0


def _double(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float64)


# ------------------------------------------------------------------ the lead's step
def apply_gradients(
    learner: FitLearner, step: int, packed: Sequence[np.ndarray], denominators: Sequence[float]
) -> list[float]:
    """Make a step of the mean of gradients.

    Parameters
    ----------
    learner
        With the parameters of the step, and all that its optimiser keeps.
    step
        Its number.
    packed
        Gradients; each one's bytes, as :func:`compute_share` made them.
    denominators
        By what each one counts.

    Returns
    -------
    list of float
        Cosine of each gradient to the mean; 0.0 where one of them is zero.

    Raises
    ------
    NonFinite
        If no sample counts; nothing is changed.
    RuntimeError
        If the optimiser raises.
    """
    mean, module = _Mean(), learner.module
    for buffer, weight in zip(packed, denominators, strict=True):
        mean.add(weight, *gradient_of(buffer, module))
    if not mean.weight and all(each is None for each in mean.gradients):
        raise NonFinite(f"no sample of {learner.where(step)} counts: its loss was divided by 0; update refused")
    size_sq = _dot(mean.gradients, mean.gradients)
    cosines = []
    for buffer in packed:
        part = gradient_of(buffer, module)[1]
        size = math.sqrt(size_sq * _dot(part, part))
        cosines.append(_dot(part, mean.gradients) / size if size else 0.0)
    with torch.no_grad():
        for buffer, value in zip(statistics_of(module).values(), mean.statistics, strict=True):
            buffer.copy_(value)
    for parameter, gradient in zip(module.parameters(), mean.gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
    try:
        learner.step_with(mean.loss)
    finally:
        for parameter in module.parameters():
            parameter.grad = None
    return cosines

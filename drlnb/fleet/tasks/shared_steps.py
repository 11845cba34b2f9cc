"""Tell before a run begins whether steps that several learners share would be those of one.

A step's gradient is the mean of its parts' gradients, weighted by what each part's loss was divided by.  That is the
gradient of the whole batch if the loss is a mean over samples, or says what it was divided by, and if no layer mixes
samples.  Here that law is tried on some samples, with copies of module, loss and optimiser: closely of the loss, and
coarsely of its gradient, as hooks of parameters leave it.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from drlnb.fleet.plain import first_line
from drlnb.records.errors import ConfigError
from drlnb.records.settings import quoted

if TYPE_CHECKING:
    import torch

__all__ = ["MOST_TRIED", "refuse_unequal"]

#: Returns a module, its loss, what makes an optimiser, and with which arguments.
Copies = Callable[[], Sequence[Any]]

#: Most samples that are tried.
MOST_TRIED = 32
#: Largest relative difference by the coarsest type of numbers; of others so many of their steps.
_TOLERANCES, _STEPS = {"torch.float64": 1e-9, "torch.float32": 1e-4}, 4
#: The same of gradients: modules may compute them in half precision, whatever their parameters have.
_OF_GRADIENTS = 0.01
#: What to do where the law does not hold.
_WAYS_OUT = (
    "let loss return a mean over samples, or (loss, denominator) with what it was divided by, such as the tokens that "
    "count, and let no layer mix samples; or take n_learners=1"
)
#: What is refused where parameters shall be those of one learner.
_DRAWS = "draws random numbers, and several learners draw others than one; take n_learners=1, or exact=False"


def refuse_unequal(
    module: "torch.nn.Module", copies: Copies, read: Callable[[], Sequence[object]], *, exact: bool = False
) -> str:
    """Return in words what several learners would train otherwise than one; empty if that is the same.

    Module and loss are tried in evaluation mode, with numbers that differ from the parameters: a last layer of zeros
    would give every sample the same loss, and hide what the loss is divided by.

    Parameters
    ----------
    module
        In training mode; only looked at.
    copies
        Returns new copies of it, of its loss, and of what makes its optimiser with its arguments.
    read
        Returns the first samples of the training, at least 2.
    exact
        Refuse what is only said else, and whatever differs in training mode.

    Raises
    ------
    ConfigError
        If the loss of the samples, or its gradient, is not the weighted mean of their parts', or that cannot be
        tried; or they cannot be read.
    """
    norms = ", ".join(_norms_of_batches(module))
    if norms and exact:
        raise ConfigError(
            f"exact=True: {norms} normalises each learner's share by itself, which is not equal to one big batch; take "
            "n_learners=1, exact=False, or a layer such as GroupNorm"
        )
    before = _random_numbers()
    try:
        samples = read()
    except Exception as error:
        raise ConfigError(f"dataset cannot be read: {type(error).__name__}: {first_line(error)}") from error
    if exact and _random_numbers() != before:
        raise ConfigError(f"exact=True: the data set {_DRAWS}")
    if problem := _problem(_tried(copies, samples, training=False), len(samples)):
        raise ConfigError(problem)
    if exact and (problem := _inexact(_tried(copies, samples, training=True), len(samples))):
        raise ConfigError(problem)
    return norms and (
        f"{norms} normalises each learner's share by itself: not equal to one big batch (exact=True refuses it)"
    )


class _Law(NamedTuple):
    """The loss of some samples, and what their parts' losses come to."""

    whole: float
    parts: float
    holds: bool
    #: How far the gradient is from the mean of its parts, relative to the largest of them.
    off: float
    #: Random numbers were drawn for it.
    drew: bool


def _problem(law: _Law, n_samples: int) -> str:
    if not math.isfinite(law.whole):
        return (
            f"loss is {law.whole} for the first {n_samples} samples, so nobody can see whether several learners would "
            "train what one trains; take n_learners=1"
        )
    if law.holds and law.off <= _OF_GRADIENTS:
        return ""
    if law.drew:
        return (
            "module or loss draws random numbers in evaluation mode, so nobody can see whether several learners would "
            "train what one trains: let it draw them only while module.training is set, or take n_learners=1"
        )
    if law.holds:
        return (
            f"gradient of the first {n_samples} samples is {law.off:.0%} off the mean of two parts of them, so several "
            "learners would train something else than one: let loss treat each sample by itself, and have no hooks of "
            "parameters that clip; or take n_learners=1"
        )
    return (
        f"loss of the first {n_samples} samples is {law.whole:.6g}, but {law.parts:.6g} as the mean of two parts of "
        f"them, so several learners would train something else than one: {_WAYS_OUT}"
    )


def _inexact(law: _Law, n_samples: int) -> str:
    if law.drew:
        return f"exact=True: in training mode module or loss {_DRAWS}"
    if law.holds:
        return ""
    return (
        f"exact=True: in training mode the loss of the first {n_samples} samples is {law.whole:.6g}, but "
        f"{law.parts:.6g} as the mean of two parts of them; take n_learners=1, or exact=False"
    )


def _norms_of_batches(module: "torch.nn.Module") -> list[str]:
    """Return the names of layers that normalise a batch."""
    from torch.nn.modules import batchnorm, instancenorm

    return [
        name or type(layer).__name__
        for name, layer in module.named_modules()
        # The norms of instances have the same base, and each of their samples stays by itself.
        if isinstance(layer, batchnorm._NormBase) and not isinstance(layer, instancenorm._InstanceNorm)
        if layer.training
    ]


def _tried(copies: Copies, samples: Sequence[object], *, training: bool) -> _Law:
    """Try samples, and two unequal parts of them, with numbers that differ from the parameters if that can be."""
    first = -(-len(samples) // 3)
    for is_moved in (True, False):
        try:
            module, loss = _copies(copies, training=training)
            if is_moved:
                _move(module)
            before = _random_numbers()
            tried = [_loss(module, loss, part) for part in (samples, samples[:first], samples[first:])]
        except Exception as error:
            if is_moved:
                continue  # numbers that nobody has chosen may be none that it can have
            raise ConfigError(
                f"module and loss cannot be tried here on {len(samples)} samples, on the CPU and in "
                f"{'training' if training else 'evaluation'} mode, which n_learners above 1 needs: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error
        if math.isfinite(tried[0][0]):
            break
    (whole, _, gradient), *parts = tried
    counted = [(value, denominator) for value, denominator, _ in parts if denominator]
    divisor = math.fsum(denominator for _, denominator in counted)
    mean = math.fsum(value * denominator / divisor for value, denominator in counted)
    furthest = _tolerance(module) * max(abs(value) for value, _ in [*counted, (whole, 0.0)])
    return _Law(
        whole=whole,
        parts=mean,
        holds=abs(whole - mean) <= furthest,
        off=_off(gradient, [(each, denominator / divisor) for _, denominator, each in parts if denominator]),
        drew=_random_numbers() != before,
    )


def _off(whole: "torch.Tensor", parts: "Sequence[tuple[torch.Tensor, float]]") -> float:
    """Return how far a gradient is from the mean of parts with such weights, relative to the largest of all."""
    largest = max(float(each.norm()) for each in [whole, *[part for part, _ in parts]])
    rest = whole.clone()
    for part, weight in parts:
        rest.sub_(part, alpha=weight)
    return float(rest.norm()) / largest if 0 < largest < math.inf else 0.0


def _copies(copies: Copies, *, training: bool) -> "tuple[torch.nn.Module, Callable[..., object]]":
    """Return copies on the CPU, in evaluation mode unless they are to be as in training."""
    import torch

    module, loss, optimizer, kwargs = copies()
    optimizer(module.parameters(), **kwargs)  # it may freeze some, or leave hooks there
    for part in (module, loss):
        if isinstance(part, torch.nn.Module):
            part.cpu()
            if not training:
                part.eval()
    return module, loss


def _move(module: "torch.nn.Module") -> None:
    """Move each parameter by a tenth of its size, those of zeros by a tenth."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point() and parameter.numel():
                size = float(parameter.double().square().mean().sqrt()) or 1.0
                parameter.add_(torch.randn_like(parameter), alpha=0.1 * size)


def _loss(
    module: "torch.nn.Module", loss: Callable[..., object], samples: Sequence[object]
) -> "tuple[float, float, torch.Tensor]":
    """Return the loss of some samples, by what it was divided, and its gradient as one vector."""
    import torch
    from torch.utils.data import default_collate

    inputs, targets = default_collate(list(samples))
    said = loss(module(inputs), targets)
    value, denominator = said if isinstance(said, tuple) and len(said) == 2 else (said, len(samples))
    if not (isinstance(value, torch.Tensor) and value.ndim == 0):
        shape = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else quoted(value)
        raise TypeError(f"loss must return a tensor without axes, such as a mean, got {shape}")
    if not (math.isfinite(divisor := float(denominator)) and divisor >= 0):
        raise TypeError(f"the denominator of loss must be a number from 0 on, got {quoted(denominator)}")
    return float(value.detach()), divisor, _gradient(module, value)


def _gradient(module: "torch.nn.Module", value: "torch.Tensor") -> "torch.Tensor":
    """Return the gradient of a loss as one vector; nothing is left of it in the module."""
    import torch

    module.zero_grad()
    value.backward()
    flat = [torch.zeros(0, dtype=torch.float64)]
    for parameter in module.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
        real = torch.view_as_real(gradient) if gradient.is_complex() else gradient
        flat.append(real.double().flatten())
    module.zero_grad()
    return torch.cat(flat)


def _tolerance(module: "torch.nn.Module") -> float:
    """Return the largest relative difference that rounding may make."""
    import torch

    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    coarsest = max(kinds or {torch.get_default_dtype()}, key=lambda kind: torch.finfo(kind).eps)
    return _TOLERANCES.get(str(coarsest), _STEPS * float(torch.finfo(coarsest).eps))


def _random_numbers() -> tuple[object, ...]:
    """Return the state of the random numbers that modules draw from, to be compared."""
    import numpy as np
    import torch

    _, keys, *of_numpy = np.random.get_state()  # noqa: NPY002 - users draw from it
    return bytes(torch.get_rng_state().tolist()), random.getstate(), bytes(np.asarray(keys)), of_numpy

"""Know by what PyTorch's own losses divide, where that is not the number of samples."""

from collections.abc import Callable
from functools import partial
from inspect import signature

import torch
from torch import Tensor, nn

__all__ = ["Divided", "divided"]

#: Losses whose mean is over what counts: by a target's class, and not at all where it is to be ignored.
_MODULES = (nn.CrossEntropyLoss, nn.NLLLoss)
_FUNCTIONS = (nn.functional.cross_entropy, nn.functional.nll_loss)


class Divided(nn.Module):
    """Returns a loss, and by what it was divided.

    Parameters
    ----------
    loss
        A loss of torch's.
    weight
        Of each class; None: all have 1.
    ignore_index
        Class of targets that do not count.
    """

    weight: Tensor | None

    def __init__(self, loss: Callable[..., Tensor], weight: Tensor | None, ignore_index: int) -> None:
        super().__init__()
        self.loss, self.ignore_index = loss, ignore_index
        self.register_buffer("weight", weight)

    def forward(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean, and the sum of the weights that it was divided by."""
        loss = self.loss(output, target)
        if target.is_floating_point():  # probabilities of classes: weights do not divide, and nothing is ignored
            return loss, torch.tensor(float(len(target)))
        counted = target[target != self.ignore_index]
        return loss, torch.tensor(float(counted.numel())) if self.weight is None else self.weight[counted].sum()


def divided(loss: Callable[..., object]) -> Callable[..., object]:
    """Return a loss, with what it divides by beside it if it is a mean of torch's over what counts.

    Examples
    --------
    >>> loss = divided(partial(nn.functional.cross_entropy, ignore_index=1))
    >>> value, denominator = loss(torch.zeros(3, 2), torch.tensor([0, 1, 0]))
    >>> round(value.item(), 3), denominator.item()
    (0.693, 2.0)
    """
    known: dict[str, object] = {}
    if type(loss) in _MODULES:
        known = vars(loss) | dict(loss.named_buffers())  # type: ignore[attr-defined]  # it is a module
    elif (isinstance(loss, partial) and loss.func in _FUNCTIONS and not loss.args) or loss in _FUNCTIONS:
        function = loss.func if isinstance(loss, partial) else loss
        known = {name: each.default for name, each in signature(function).parameters.items()}
        known |= loss.keywords if isinstance(loss, partial) else {}
    if known.get("reduction") != "mean" or known.get("reduce") is not None or known.get("size_average") is not None:
        return loss
    return Divided(loss, known.get("weight"), known["ignore_index"])  # type: ignore[arg-type]  # torch checks both

"""See whether what a block is called with, or saves, is written between its forward pass and its backward pass.

A block is made again from what it was called with *then*, and what it saved is what plain PyTorch would read *now*.  A
tensor's counter tells of most writes; of others, such as ``x.data.add_(y)``, a look at a thousand of its bytes.
"""

import torch

from drlnb.runtime.swapping.looks import look
from drlnb.runtime.swapping.saved import Guard, storage_of
from drlnb.runtime.swapping.squeeze import tensors_in
from drlnb.runtime.swapping.tape import Tape
from drlnb.runtime.swapping.torch_private import StorageRef, storage_number

__all__ = ["Former", "whole"]


class Former:
    """A tensor as it is at a moment; it is not kept.

    Parameters
    ----------
    tensor
        One of :func:`whole`.
    tape
        Looks at the last contents of its storage.
    """

    __slots__ = ("_guard", "_look", "_number", "_ref", "_tape")

    def __init__(self, tensor: torch.Tensor, tape: Tape) -> None:
        storage = tensor.untyped_storage()
        self._tape, self._guard, self._look = tape, Guard(tensor), look(storage)
        #: While it lives, no other storage gets the number.
        self._number, self._ref = storage_number(storage), StorageRef(storage)
        tape.looks.ask(self._number, storage)

    @property
    def is_unwritten(self) -> bool:
        """Whether it is as it was, and was not given other data, as far as anybody can say."""
        if not self._guard.is_unwritten or self._guard.original.with_other_data is not None:
            return False
        last = self._tape.looks.last(self._number)
        return last is None or torch.equal(last, self._look)


def whole(value: object) -> list[torch.Tensor]:
    """Return the tensors in what a module takes or returns, but for those that are more than bytes of their own."""
    return [each for each in tensors_in(value) if storage_of(each) is not None]

"""Hold samples as tensors of equal length: take parts of them, join columns to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

__all__ = ["Rows"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Base of an algorithm's samples: a frozen dataclass of tensors on the device, first axis samples, or None."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def part(self, index: Tensor | slice | int) -> Self:
        """Return some of the samples, in the order of `index`."""
        values = (getattr(self, f.name) for f in fields(self))
        return type(self)(*(None if value is None else value[index] for value in values))

    @classmethod
    def join(cls, columns: Sequence[Mapping[str, Tensor]]) -> Self:
        """Return the samples of several columns one after the other; a column maps names of fields to tensors."""
        names = [f.name for f in fields(cls) if f.name in columns[0]]
        return cls(**{name: torch.cat([column[name] for column in columns]) for name in names})

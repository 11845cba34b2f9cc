"""Take what an optimiser keeps apart into tensors and plain data, and put it together again."""

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from drlnb.records.settings import quoted
from drlnb.runtime.ipc.training_state import OPTIMIZER

__all__ = ["put_together", "taken_apart"]

#: Name -> value; and the same of one group of parameters.
_Row: TypeAlias = dict[str, object]
#: What is before the names of tensors.
_STATE, _GROUP = OPTIMIZER, "group/"


def taken_apart(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], _Row, list[_Row]]:
    """Return the tensors of an optimiser, what else it keeps for its parameters, and the rest of its groups.

    Raises
    ------
    RuntimeError
        If it keeps something that would not be the same when it is read back.
    """
    saved = optimizer.state_dict()
    kept: _Row = {}
    for i, row in saved["state"].items():
        if not (isinstance(i, int) and isinstance(row, Mapping)):
            raise RuntimeError(f"the optimizer keeps {quoted(i)} in its state, which is no parameter: use its groups")
        kept |= {f"{i}/{name}": value for name, value in row.items()}
    tensors = {_STATE + key: value for key, value in kept.items() if isinstance(value, Tensor)}
    groups: list[_Row] = []
    for i, group in enumerate(saved["param_groups"]):  # a learning rate may be a tensor
        tensors |= {f"{_GROUP}{i}/{name}": value for name, value in group.items() if isinstance(value, Tensor)}
        groups.append({name: value for name, value in group.items() if not isinstance(value, Tensor)})
    numbers = {key: value for key, value in kept.items() if not isinstance(value, Tensor)}
    for number, each in enumerate((numbers, *groups)):
        for name, value in each.items():
            if not _is_plain(value, texts=number > 0):  # torch reads back no texts of a parameter
                raise RuntimeError(
                    f"the optimizer keeps {str(name).rpartition('/')[2]} = {quoted(value)}, which cannot be saved: let "
                    "it be a tensor, or numbers of Python, lists of them, or mappings from texts to them"
                )
    return tensors, numbers, groups


def _is_plain(value: object, *, texts: bool) -> bool:
    """Return whether a value is the same after it was written as JSON, but for tuples."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each, texts=texts) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(each, texts=texts) for each in value)
    return value is None or isinstance(value, bool | int | float) or (texts and isinstance(value, str))


def put_together(tensors: Mapping[str, Tensor], numbers: Mapping[str, object], groups: list[_Row]) -> _Row:
    """Return what ``load_state_dict`` of an optimiser takes.

    Parameters
    ----------
    tensors
        Those that :func:`taken_apart` has named, among others.
    numbers, groups
        As it returned them.
    """
    rows: dict[int, _Row] = {}
    for key, value in {**numbers, **_below(_STATE, tensors)}.items():
        i, _, name = key.partition("/")
        rows.setdefault(int(i), {})[name] = value
    return {
        "state": rows,
        "param_groups": [group | _below(f"{_GROUP}{i}/", tensors) for i, group in enumerate(groups)],
    }


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

"""Give supervised work its batches: read its data set once per process, and name the samples of each step.

The order of an epoch is a function of the task's seed and the epoch's number alone, so whoever knows a step can name
its samples: indices travel, data does not.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate

from drlnb.records.spec import FitWork
from drlnb.runtime.ipc.pickled_work import read_data

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["DataSets", "Indexed", "batch_of", "indices_of", "made_of", "n_samples_of", "on_device"]


class Indexed(Protocol):
    """A map-style data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> object: ...


class DataSets:
    """The data sets of one process's tasks: each is read, or made, once, and stays until its task has ended."""

    def __init__(self) -> None:
        #: Task -> file, what is in it, and the data set.
        self._kept: dict[str, tuple[Path, object, Indexed]] = {}

    def of(self, task: str, path: Path, seed: int) -> tuple[object, Indexed]:
        """Return what a task's file holds, and the data set that it is or makes.

        Raises
        ------
        ConfigError
            If the file cannot be read or rebuilt here.
        """
        if task not in self._kept or self._kept[task][0] != path:
            self.drop(task)  # before another one is read
            held = read_data(path)
            self._kept[task] = (path, held, made_of(held, seed))
        return self._kept[task][1:]

    def drop(self, task: str) -> None:
        """Drop a task's data set, if it has one."""
        self._kept.pop(task, None)


def made_of(held: object, seed: int) -> Indexed:
    """Return a data set itself, or what a function or class without arguments makes, from random numbers of a seed."""
    if isinstance(held, type) or not hasattr(held, "__getitem__"):
        torch.manual_seed(seed)
        return cast("Callable[[], Indexed]", held)()
    return cast("Indexed", held)


def indices_of(spec: FitWork, step: int) -> Sequence[int]:
    """Return the numbers of a step's samples in the data set.

    Parameters
    ----------
    spec
        The task.
    step
        Counted from 0 over all epochs.

    Returns
    -------
    sequence of int
        Shape ``(batch_size,)``, or less at the end of an epoch.
    """
    epoch, number = divmod(step, spec.epoch_steps)
    first = number * spec.batch_size
    return [int(index) for index in _order(spec.n_samples, spec.seed, epoch)[first : first + spec.batch_size]]


@lru_cache(maxsize=2)
def _order(n_samples: int, seed: int, epoch: int) -> "npt.NDArray[np.int64]":
    """Return the order of the samples in an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(n_samples)


def batch_of(dataset: Indexed, indices: Sequence[int]) -> object:
    """Return some samples as one batch, put together as PyTorch's ``DataLoader`` does.

    Parameters
    ----------
    dataset
        The data set; what it can read at once (``__getitems__``) it is asked for at once.
    indices
        Numbers of the samples.
    """
    if type(dataset) is TensorDataset:
        return dataset[torch.tensor(indices)]
    if several := getattr(dataset, "__getitems__", None):
        return default_collate(several(list(indices)))
    return default_collate([dataset[index] for index in indices])


def on_device(value: Any, device: torch.device) -> Any:
    """Return tensors, also those in tuples, lists and mappings, on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: on_device(part, device) for key, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [on_device(part, device) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # a named tuple, or a plain one
    return value


def n_samples_of(value: Any) -> int:
    """Return the samples of a batch: the length of its first tensor."""
    while isinstance(value, Mapping | tuple | list):
        value = next(iter(value.values() if isinstance(value, Mapping) else value), None)
    return len(value) if isinstance(value, torch.Tensor) and value.ndim else 1

"""Run a learner's round as all algorithms do: open, stage, finish or undo, publish, save.

What differs stays in an algorithm's own file: which columns a fragment becomes, the gradient steps, the metrics.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from drlnb.records.base import Facts
from drlnb.records.errors import ConfigError, NonFinite
from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import settings_of
from drlnb.rl.fragments import Fragment
from drlnb.rl.networks.networks import MlpTowers, Networks, make_networks
from drlnb.rl.networks.same_bits import same_kernels
from drlnb.rl.schedules import progress_remaining

__all__ = ["Around", "Column", "Learner", "Notify", "Shared", "computed", "on_device", "plainly"]

#: What is staged of one environment: tensors on the device by name, the first axis of samples is time.
Column = dict[str, Tensor]
#: Called after each gradient step with its number (from 1) and how many there will be at most.
Notify = Callable[[int, int], None]

_T = TypeVar("_T")

_MOMENTS = ("obs_moments", "return_moments")


class Around(Protocol):
    """Has a gradient computed from a number of samples, and may have it computed once more: it begins at zero."""

    def __call__(self, n_samples: int, compute: Callable[[], _T], /) -> _T:
        """Return what `compute` returns."""


class Shared(Protocol):
    """The gang that computes each minibatch together: every member has all samples, and makes every step."""

    def own(self, n_samples: int) -> tuple[int, int]:
        """Return which samples of a minibatch this member computes: from one on, and up to another one."""

    def add_up(self, gradient: Tensor, statistics: Tensor) -> None:
        """Replace this member's parts of two sums by the sums: the same bits at each member."""


def plainly(n_samples: int, compute: Callable[[], _T]) -> _T:
    """Compute a gradient with nothing around it."""
    return compute()


class Learner(ABC):
    """Hold a task's parameters and improve them, one round of experience at a time.

    Parameters
    ----------
    spec
        The task, with its spaces filled in.
    device
        A torch device.
    by_hand
        Gradients of an MLP written out (:mod:`drlnb.rl.objectives.mlp_gradient`) instead of autograd: twice as fast,
        but nothing is recorded that a hook on saved tensors could see.

    Raises
    ------
    ValueError
        If the spec holds no spaces.
    UnsupportedSpace
        If the algorithm cannot serve the actions.
    ConfigError
        If a setting is wrong, or a network of the user's own breaks its contract.
    """

    #: Names of the statistics of a gradient step; ``loss`` and ``grad_norm`` among them.
    columns: ClassVar[tuple[str, ...]]

    def __init__(self, spec: RlWork, *, device: str = "cpu", by_hand: bool = True) -> None:
        self.spec, self.settings = spec, settings_of(spec)
        self.networks: Networks = make_networks(spec, torch.device(device))
        #: The network whose steps autograd records; None: an MLP, whose gradient is written out.
        self.module: torch.nn.Module | None = getattr(self.networks, "module", None)
        self.kept = kept = self.networks.kept
        self.layout, self.adam, self.device = kept.layout, kept.adam, kept.device
        towers = self.networks if isinstance(self.networks, MlpTowers) and self.networks.by_hand else None
        self._towers = towers if by_hand else None
        #: Is put around each gradient.
        self.around: Around = plainly
        #: Computes a part of each minibatch elsewhere; None: all of it is computed here.
        self.shared: Shared | None = None
        self._live: dict[str, object] = {}
        #: Environment -> its share of the round.
        self._staged: dict[int, Column] = {}

    @property
    def compute(self) -> Literal["epochs", "stream"]:
        """``stream`` with one pass over the whole round as one batch, else ``epochs``.

        A network with modes sees the batch as a whole, or its statistics would be those of parts.
        """
        streams = self.settings.streams(self.spec.n_envs) and not self.networks.has_modes
        return "stream" if streams else "epochs"

    @property
    def progress(self) -> float:
        """Fraction of the budget that remains once this round is collected, in ``[0, 1]``."""
        return progress_remaining(self.kept.n_timesteps, self.spec.total_timesteps)

    def set(self, name: str, value: object) -> None:
        """Change a setting from the next round on.

        Parameters
        ----------
        name
            One of those that the algorithm's settings say may change.
        value
            As at the start.

        Raises
        ------
        ConfigError
            If the setting cannot change while training, or the value is wrong.
        """
        kind = type(self.settings)
        if name not in kind.live():
            raise ConfigError(f"{name} cannot change while training; these can: {', '.join(sorted(kind.live()))}")
        if problem := kind.check_value(name, value):
            raise ConfigError(problem)
        self._live[name] = value

    def begin(self, round: int, n_timesteps: int) -> None:
        """Open a round and drop what was staged.

        Parameters
        ----------
        round
            Number of the round, at least 0; part of the shuffles' keys.
        n_timesteps
            Environment steps done once this round is collected: schedules are read there.
        """
        self._staged.clear()
        self.settings = replace(self.settings, **self._live)
        self.kept.round, self.kept.n_timesteps = round, n_timesteps

    # ----------------------------------------------------------------------------------------------- in

    def stage(self, worker: int, fragment: Fragment) -> float:
        """Stage one fragment: normalise, values, advantages; any order of arrival gives the same result.

        With ``compute == "stream"`` their gradient is computed here, at the fragment's arrival.

        Returns
        -------
        float
            Seconds spent.

        Raises
        ------
        ValueError
            If one of the fragment's environments was staged in this round before.
        """
        started = time.perf_counter()
        # A block of minibatches is of no environment.
        indices = [int(i) for i in fragment.header.get("env_indices", (0,))]
        _refuse_twice(self._staged, indices, f"worker {worker} staged", self.kept.round)
        with same_kernels(self.device, self.spec.deterministic):
            columns = self._columns(fragment)
            for name in _MOMENTS:
                for number, row in enumerate(fragment.arrays.get(name, ())):
                    columns[number][name] = torch.from_numpy(np.array(row))
            if self.compute == "stream":
                self._at_arrival(indices, columns)
        self._staged.update(zip(indices, columns, strict=True))
        return time.perf_counter() - started

    @abstractmethod
    def _columns(self, fragment: Fragment) -> list[Column]:
        """Return the prepared samples of a fragment's environments, in its order."""

    def _at_arrival(self, indices: Sequence[int], columns: Sequence[Column]) -> None:
        """Compute a fragment's gradient and put it into its columns; only with ``compute == "stream"``."""
        raise NotImplementedError

    def export_partial(self, env_indices: Iterable[int]) -> Fragment:
        """Return what is staged of some environments, gradients computed at arrival included.

        With one pass over the whole round (``compute == "stream"``) each fragment's gradient is computed at its
        arrival, and the round's step is made of their sum in the order of the environments.  So a task can give its
        slot away between two fragments and go on elsewhere: the sum has the same bits.

        Parameters
        ----------
        env_indices
            Environments of one staged fragment, in its order.

        Returns
        -------
        Fragment
            Flat arrays under ``INDEX/NAME``, and a plain header with ``round`` and ``env_indices``.
        """
        indices = [int(index) for index in env_indices]
        staged = {f"{i}/{name}": tensor for i in indices for name, tensor in self._staged[i].items()}
        arrays = {key: tensor.cpu().numpy() for key, tensor in staged.items()}
        return Fragment({"round": self.kept.round, "env_indices": indices}, arrays)

    def import_partial(self, part: Fragment) -> None:
        """Stage what :meth:`export_partial` returned, here or on another learner with the same parameters.

        Raises
        ------
        ValueError
            If one of its environments is staged already.
        """
        _refuse_twice(self._staged, part.header["env_indices"], "a kept part holds", self.kept.round)
        for key, array in part.arrays.items():
            index, _, name = key.partition("/")
            self._staged.setdefault(int(index), {})[name] = on_device(array, self.device)

    # ------------------------------------------------------------------------------------------- the steps

    def finish(self, on_minibatch: Notify | None = None) -> dict[str, float]:
        """Run the round's gradient steps and merge the normaliser.

        Parameters
        ----------
        on_minibatch
            Called after each gradient step with its number (from 1) and how many there will be at most.  If it
            raises, the round's update is undone and the exception passes: the round may be finished again.

        Returns
        -------
        dict
            Metrics under Stable-Baselines3's names, see ``docs/reference/rl.md``.

        Raises
        ------
        NonFinite
            If a loss or gradient is NaN or infinite; parameters and optimiser are unchanged.
        ValueError
            If nothing was staged.
        """
        if not self._staged:
            raise ValueError(f"round {self.kept.round} has nothing staged")
        columns = [self._staged[index] for index in sorted(self._staged)]  # the order of arrival does not matter
        with same_kernels(self.device, self.spec.deterministic), self.kept.all_or_nothing():
            with self.networks.training():
                table, n_updates = self._update(columns, on_minibatch or (lambda done, total: None))
            _check_finite(table, self.columns, self.kept.round)
            self.kept.n_updates += n_updates
            for column in columns:
                self.kept.merge(column)
            metrics = self._metrics(columns, table, n_updates)
        self._staged.clear()
        return metrics

    @abstractmethod
    def _update(self, columns: Sequence[Column], notify: Notify) -> tuple[np.ndarray, int]:
        """Run the gradient steps; return their statistics, a row per step, and what ``n_updates`` grows by.

        The columns are in the order of their environments.
        """

    @abstractmethod
    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        """Return the round's metrics."""

    # ------------------------------------------------------------------------------------- what goes out and in

    def published(self) -> np.ndarray:
        """Return a fresh uint8 buffer with what actors need: policy parameters and normaliser statistics."""
        return self.kept.published()

    def state(self) -> tuple[Facts, np.ndarray]:
        """Return plain data and a uint8 buffer: everything needed to go on exactly, between rounds."""
        meta, buffer = self.kept.state()
        return {"algo": self.spec.algo, **meta, "live": dict(self._live)}, buffer

    def restore(self, meta: Facts, buffer: np.ndarray) -> None:
        """Go on from :meth:`state`.

        Raises
        ------
        ValueError
            If the state was made for another layout.
        """
        self.kept.restore(meta, buffer)
        self._live = dict(meta["live"])
        self.settings = replace(self.settings, **self._live)
        self._staged.clear()


def computed(learner: Learner, number: int, n_samples: int, compute: Callable[[], _T]) -> _T:
    """Have a minibatch's gradient computed, of so many samples; `number`: of the step in its round, from 0."""

    def begun() -> _T:
        learner.networks.step(number)
        return compute()

    return learner.around(n_samples, begun if learner.networks.has_modes else compute)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """Return a copy of an array on a device."""
    return torch.from_numpy(np.array(array)).to(device)


def _refuse_twice(staged: Mapping[int, Column], indices: Iterable[int], who: str, round: int) -> None:
    twice = sorted(staged.keys() & set(indices))
    if twice:
        raise ValueError(f"{who} environments {twice} again in round {round}")


def _check_finite(table: np.ndarray, columns: Sequence[str], round: int) -> None:
    for name in ("loss", "grad_norm"):
        values = table[:, columns.index(name)]
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise NonFinite(f"{name} is {values[bad[0]]} at gradient step {bad[0]} of round {round}; update refused")

"""Prepare values and run epochs for algorithms that learn from the round's own fragments: PPO and GPF."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from drlnb.rl.algorithms.learner import Column, Learner, Notify, on_device
from drlnb.rl.fragments import Fragment
from drlnb.rl.objectives.samples import Rows
from drlnb.rl.seeding import SHUFFLE, generator
from drlnb.rl.settings.checks import OnPolicySettings

__all__ = ["OnPolicyLearner", "minibatches"]

_Rows = TypeVar("_Rows", bound=Rows)


def minibatches(n_samples: int, batch_size: int) -> list[tuple[int, int]]:
    """Return the bounds of an epoch's minibatches; a last one of a single sample joins its neighbour.

    Examples
    --------
    >>> minibatches(9, 4), minibatches(10, 4)
    ([(0, 4), (4, 9)], [(0, 4), (4, 8), (8, 10)])
    """
    starts = list(range(0, n_samples, batch_size))
    if len(starts) > 1 and n_samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_samples], strict=True))


class OnPolicyLearner(Learner):
    """Improve a task's parameters by the fragments of each round alone."""

    settings: OnPolicySettings
    #: Name of the staged column that V is fitted to.
    value_target: ClassVar[str]

    def _values(self, arrays: Mapping[str, np.ndarray]) -> tuple[list[Tensor], np.ndarray, np.ndarray]:
        """Return rows of observations per environment, V(obs) and what follows each step; float32, shape ``(T, n)``.

        Each environment has a forward pass of its own (T + 1 rows, then its final observations), whose shape does not
        depend on the split over collectors: equal shapes give equal bits.
        """
        n_steps, n = arrays["reward"].shape
        values, next_values = np.empty((n_steps, n), np.float32), np.empty((n_steps, n), np.float32)
        observations = []
        for column in range(n):
            cut = arrays["final_at"][:, 1] == column
            parts = arrays["obs"][:, column], arrays["last_obs"][column][None], arrays["final_obs"][cut]
            rows = torch.from_numpy(self.networks.rows(parts)).to(self.device)
            estimates = self.networks.values(rows).cpu().numpy()
            values[:, column] = estimates[:n_steps]
            next_values[:, column] = estimates[1 : n_steps + 1]
            next_values[arrays["final_at"][cut, 0], column] = estimates[n_steps + 1 :]
            observations.append(rows[:n_steps])
        return observations, values, next_values

    def _staged_columns(
        self, fragment: Fragment, rows: Sequence[Tensor], steps: Mapping[str, np.ndarray]
    ) -> list[Column]:
        """Return what is staged of each environment: its rows, and its part of the arrays ``(T, n, ..)``."""
        columns: list[Column] = [{"obs": obs} for obs in rows]
        for number, column in enumerate(columns):
            column |= {name: on_device(array[:, number], self.device) for name, array in steps.items()}
        if self.compute == "stream":
            self._at_arrival(fragment.header["env_indices"], columns)
        return columns

    @abstractmethod
    def _at_arrival(self, indices: Sequence[int], columns: Sequence[Column]) -> None:
        """Compute a fragment's gradient and put it into its columns; only with ``compute == "stream"``."""

    def _epochs(
        self, samples_of: Callable[[int], _Rows], gradient: Callable[[_Rows, Tensor], None], notify: Notify
    ) -> tuple[np.ndarray, int]:
        """Run a round's gradient steps.

        Parameters
        ----------
        samples_of
            Epoch, from 0 -> the round's samples.
        gradient
            Leaves the gradient of a minibatch in the flat buffer, and the statistics in the row that it is given.
        notify
            Called after each step.

        Returns
        -------
        tuple
            The statistics, one row per step, and the number of epochs.
        """
        settings, samples = self.settings, samples_of(0)
        n_samples = len(samples)
        bounds = minibatches(n_samples, settings.batch_size or n_samples)
        table = torch.zeros((settings.n_epochs * len(bounds), len(self.columns)), device=self.device)
        step = 0
        for epoch in range(settings.n_epochs):
            samples = samples_of(epoch) if epoch else samples
            order = None
            if len(bounds) > 1:  # keyed, so nothing is lost by not drawing it when one minibatch holds all
                drawn = generator(self.spec.seed, SHUFFLE, self.kept.round, epoch).permutation(n_samples)
                order = torch.from_numpy(drawn).to(self.device)
            for start, stop in bounds:
                gradient(samples if order is None else samples.part(order[start:stop]), table[step])
                self.adam.step(settings.max_grad_norm, norm_out=table[step, -1])
                step += 1
                notify(step, len(table))
            if settings.target_kl is not None:
                kl = table[step - len(bounds) : step, self.columns.index("approx_kl")].mean().item()
                if kl > 1.5 * settings.target_kl:
                    break
        return table[:step].cpu().numpy(), step // len(bounds)

    def _one_step(self, statistics: Tensor, notify: Notify) -> tuple[np.ndarray, int]:
        """Take the round's only step, for the gradient in the flat buffer; complete its statistics."""
        self.adam.step(self.settings.max_grad_norm, norm_out=statistics[-1])
        notify(1, 1)
        return statistics[None].cpu().numpy(), 1

    def _metrics(self, columns: Sequence[Column], table: np.ndarray, n_updates: int) -> dict[str, float]:
        targets, values = (torch.cat([c[name] for c in columns]).cpu().numpy() for name in (self.value_target, "value"))
        mean = dict(zip(self.columns, table.mean(axis=0, dtype=np.float64).tolist(), strict=True))
        spread = float(np.var(targets))
        metrics = {
            "approx_kl": float(table[-(len(table) // n_updates) :, self.columns.index("approx_kl")].mean()),
            "entropy": mean["entropy"],
            "entropy_loss": -mean["entropy"],
            "explained_variance": 1.0 - float(np.var(targets - values)) / spread if spread else float("nan"),
            "grad_norm": mean["grad_norm"],
            "learning_rate": self.adam.learning_rate,
            "loss": float(table[-1, 0]),
            "n_updates": self.kept.n_updates,
            "value_loss": mean["value_loss"],
            **self._own_metrics(mean),
        }
        return {f"train/{name}": metrics[name] for name in sorted(metrics)}

    @abstractmethod
    def _own_metrics(self, mean: Mapping[str, float]) -> dict[str, float]:
        """Return what only this algorithm measures, given the mean of each statistic over the round's steps."""

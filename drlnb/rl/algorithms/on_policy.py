"""Prepare values and run epochs for algorithms that learn from the round's own fragments: PPO and GPF."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from drlnb.rl.algorithms.learner import Column, Learner, Notify, computed, on_device
from drlnb.rl.networks.networks import Networks
from drlnb.rl.objectives.samples import Rows
from drlnb.rl.seeding import SHUFFLE, generator
from drlnb.rl.settings.checks import OnPolicySettings

__all__ = ["minibatches", "round_metrics", "run_epochs", "staged_columns", "staged_values"]

_Rows = TypeVar("_Rows", bound=Rows)


def minibatches(n_samples: int, batch_size: int, *, joined: bool) -> list[tuple[int, int]]:
    """Return the bounds of an epoch's minibatches; with `joined` a last one of a single sample joins its neighbour.

    Examples
    --------
    >>> minibatches(9, 4, joined=True), minibatches(9, 4, joined=False)
    ([(0, 4), (4, 9)], [(0, 4), (4, 8), (8, 9)])
    """
    starts = list(range(0, n_samples, batch_size))
    if joined and len(starts) > 1 and n_samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], n_samples], strict=True))


def staged_values(networks: Networks, arrays: Mapping[str, np.ndarray]) -> tuple[list[Tensor], np.ndarray, np.ndarray]:
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
        rows = torch.from_numpy(networks.rows(parts)).to(networks.kept.device)
        estimates = networks.values(rows).cpu().numpy()
        values[:, column] = estimates[:n_steps]
        next_values[:, column] = estimates[1 : n_steps + 1]
        next_values[arrays["final_at"][cut, 0], column] = estimates[n_steps + 1 :]
        observations.append(rows[:n_steps])
    return observations, values, next_values


def staged_columns(rows: Sequence[Tensor], steps: Mapping[str, np.ndarray], device: torch.device) -> list[Column]:
    """Return what is staged of each environment: its rows, and its part of the arrays ``(T, n, ..)``."""
    return [
        {"obs": obs, **{name: on_device(array[:, column], device) for name, array in steps.items()}}
        for column, obs in enumerate(rows)
    ]


def run_epochs(
    learner: Learner,
    samples_of: Callable[[int], _Rows],
    gradient: Callable[[_Rows, Tensor, slice | None], None],
    notify: Notify,
) -> tuple[np.ndarray, int]:
    """Run a round's gradient steps.

    Parameters
    ----------
    learner
        Its settings fix the epochs and minibatches; its optimiser steps.
    samples_of
        Epoch, from 0 -> the round's samples.
    gradient
        Leaves the gradient of a minibatch in the flat buffer, and the statistics in the row that it is given; where a
        slice is given, the means over these of its samples.
    notify
        Called after each step.

    Returns
    -------
    tuple
        The statistics, one row per minibatch, and the number of epochs.  They end with the minibatch whose KL is too
        large, which makes no step.
    """
    settings, columns, samples = learner.settings, learner.columns, samples_of(0)
    assert isinstance(settings, OnPolicySettings)
    n_samples, kl = len(samples), columns.index("approx_kl")
    bounds, limit = _bounds(learner, n_samples), settings.target_kl
    table = torch.zeros((settings.n_epochs * len(bounds), len(columns)), device=learner.device)
    step = 0
    for epoch in range(settings.n_epochs):
        samples = samples_of(epoch) if epoch else samples
        order = None
        if len(bounds) > 1:  # keyed, so nothing is lost by not drawing it when one minibatch holds all
            drawn = generator(learner.spec.seed, SHUFFLE, learner.kept.round, epoch).permutation(n_samples)
            order = torch.from_numpy(drawn).to(learner.device)
        for start, stop in bounds:
            row = table[step]
            part = samples if order is None else samples.part(order[start:stop])
            _compute(learner, step, partial(gradient, part, row), len(part), row)
            step += 1
            if limit is not None and row[kl].item() > 1.5 * limit:
                row[-1] = torch.linalg.vector_norm(learner.adam.grad)
                return table[:step].cpu().numpy(), epoch + 1
            learner.adam.step(settings.max_grad_norm, norm_out=row[-1])
            notify(step, len(table))
    return table.cpu().numpy(), settings.n_epochs


def _compute(
    learner: Learner, step: int, gradient: Callable[[slice | None], None], n_samples: int, row: Tensor
) -> None:
    """Compute the gradient of a minibatch, or this member's part of it and then the sum over all members."""
    if (shared := learner.shared) is None:
        computed(learner, step, n_samples, partial(gradient, None))
        return
    start, stop = shared.own(n_samples)
    if stop > start:
        learner.around(stop - start, partial(gradient, slice(start, stop)))
    else:
        learner.adam.zero_grad()
    share = (stop - start) / n_samples
    learner.adam.grad *= share
    row *= share
    shared.add_up(learner.adam.grad, row)


def _bounds(learner: Learner, n_samples: int) -> list[tuple[int, int]]:
    settings = learner.settings
    assert isinstance(settings, OnPolicySettings)
    # One sample has no spread, and batch normalisation takes none.
    joined = learner.networks.has_modes or getattr(settings, "normalize_advantage", False)
    return minibatches(n_samples, settings.batch_size or n_samples, joined=joined)


def round_metrics(
    learner: Learner, staged: Sequence[Column], target: str, table: np.ndarray, n_epochs: int, own: Sequence[str]
) -> dict[str, float]:
    """Return a round's metrics without their prefix.

    Parameters
    ----------
    learner
        After its steps.
    staged, target
        The round's samples, and the name of what V was fitted to.
    table, n_epochs
        As of :func:`run_epochs`.
    own
        Statistics of this algorithm alone whose means are shown.
    """
    targets, values = (torch.cat([column[name] for column in staged]).cpu().numpy() for name in (target, "value"))
    columns, n_last = learner.columns, len(table) - (n_epochs - 1) * len(_bounds(learner, len(targets)))
    mean = dict(zip(columns, table.mean(axis=0, dtype=np.float64).tolist(), strict=True))
    spread = float(np.var(targets))
    return {
        **{name: mean[name] for name in ("entropy", "grad_norm", "value_loss", *own)},
        "approx_kl": float(table[-n_last:, columns.index("approx_kl")].mean()),
        "entropy_loss": -mean["entropy"],
        "explained_variance": 1.0 - float(np.var(targets - values)) / spread if spread else float("nan"),
        "learning_rate": learner.adam.learning_rate,
        "loss": float(table[-1, 0]),
        "n_updates": learner.kept.n_updates,
    }

"""Pretend gradients that a planner may look at: numbers of their own for norms, cosines and ages.

A share's gradient is the true one with the noise of its samples on it: for n samples its squared norm is
``1 + noise_scale / n``, in units of the true one's, and noise of different samples is orthogonal.  That is what
Gaussian gradients of very many parameters come to; of few ones the figures would scatter.
"""

import math
from collections.abc import Sequence
from typing import TypedDict

__all__ = ["Scalars", "gradient_scalars"]

_Figures = tuple[float | None, ...]


class Scalars(TypedDict):
    """What a report says of the gradients of a step; None of a member without one."""

    norms: _Figures
    cosines: _Figures
    ages_s: _Figures


def gradient_scalars(used: Sequence[int], ages_s: Sequence[float], noise_scale: float) -> Scalars:
    """Return what is said of the gradients of a step.

    Parameters
    ----------
    used
        Samples of each member that the step used, at least one above 0.
    ages_s
        Age of each one's gradient when it was done, in seconds.
    noise_scale
        Samples whose gradient has as much noise as signal.

    Examples
    --------
    >>> scalars = gradient_scalars([3, 0, 1], [0.5, 0.0, 0.2], 3.0)
    >>> [round(norm, 3) for norm in scalars["norms"] if norm], [round(cos, 3) for cos in scalars["cosines"] if cos]
    ([1.414, 2.0], [0.935, 0.661])
    """
    of_step = math.sqrt(1.0 + noise_scale / sum(used))
    norms = [math.sqrt(1.0 + noise_scale / n) if n else None for n in used]
    return {
        "norms": tuple(norms),
        "cosines": tuple([of_step / norm if norm else None for norm in norms]),
        "ages_s": tuple([age_s if n else None for n, age_s in zip(used, ages_s, strict=True)]),
    }

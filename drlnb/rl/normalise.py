"""Keep running mean and variance as moments that merge exactly.

A set is ``(n, mean, M2)`` with ``M2`` the sum of squared deviations, float64.  Two sets merge exactly (parallel
Welford; Chan, Golub and LeVeque 1979): with ``d = m_b - m_a`` and ``n = n_a + n_b``, the mean is ``m_a + d n_b / n``
and ``M2`` is ``S_a + S_b + d^2 n_a n_b / n``.  The start is Stable-Baselines3's: mean 0, variance 1, count 1e-4.

Within a round each environment goes on from the published set on its own (:class:`Running`, :func:`continued_var`), so
that what it shows is scaled from the first step on, and how the environments are split over collectors does not matter;
after the round the sets of all are merged.
"""

from dataclasses import dataclass

import numpy as np

__all__ = [
    "CLIP",
    "EPSILON",
    "START_COUNT",
    "Moments",
    "Running",
    "continued_var",
    "normalise",
    "scale",
    "split_statistics",
    "statistics_of",
]

#: Normalised values are clipped to +-CLIP (Stable-Baselines3's ``clip_obs`` and ``clip_reward``).
CLIP = 10.0
#: Added to the variance under the root (Stable-Baselines3's ``VecNormalize.epsilon``).
EPSILON = 1e-8
#: Weight of the start values, in samples.
START_COUNT = 1e-4


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations of a stream of rows."""

    #: Number of rows counted, a float because of the start weight.
    n: float
    #: Mean per feature; shape ``(d,)``, float64.
    mean: np.ndarray
    #: Sum of squared deviations per feature; shape ``(d,)``, float64.
    m2: np.ndarray

    @classmethod
    def start(cls, width: int) -> "Moments":
        """Return the moments before any data: mean 0, variance 1, count 1e-4; shape ``(width,)``."""
        return cls(START_COUNT, np.zeros(width), np.full(width, START_COUNT))

    @classmethod
    def of(cls, rows: np.ndarray) -> "Moments":
        """Return the moments of `rows`, shape ``(n, d)``, ``n >= 1``."""
        data = np.ascontiguousarray(rows, dtype=np.float64)
        mean = data.mean(axis=0)
        return cls(float(len(data)), mean, np.square(data - mean).sum(axis=0))

    @classmethod
    def from_row(cls, row: np.ndarray) -> "Moments":
        """Return the moments that :meth:`row` packed."""
        width = (len(row) - 1) // 2
        return cls(row[0].item(), row[1 : 1 + width], row[1 + width :])

    def row(self) -> np.ndarray:
        """Return count, means and sums as a fragment carries them; float64, shape ``(1 + 2 d,)``."""
        return np.concatenate(([self.n], self.mean, self.m2))

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of both streams together.

        Examples
        --------
        >>> import numpy as np
        >>> a, b = (Moments(2.0, np.array([m]), np.array([2.0])) for m in (1.0, 5.0))
        >>> both = a.merge(b)
        >>> both.n, both.mean[0].item(), both.m2[0].item()
        (4.0, 3.0, 20.0)
        """
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        return Moments(n, mean, self.m2 + other.m2 + np.square(delta) * (self.n * other.n / n))

    @property
    def var(self) -> np.ndarray:
        """Population variance per feature; shape ``(d,)``."""
        return self.m2 / self.n


class Running:
    """Moments of several streams that go on from the same ones, by a row of each at a time (Welford 1962).

    Parameters
    ----------
    start
        Where all of them begin; ``d`` features.
    n_streams
        How many.
    counted
        Which features have moments, bool, shape ``(d,)``; the others keep mean 0 and variance 1.  None: all.
    """

    def __init__(self, start: Moments, n_streams: int, counted: np.ndarray | None = None) -> None:
        self._n = start.n
        self._counted = np.ones(len(start.mean)) if counted is None else counted.astype(np.float64)
        #: Mean of each stream's features; shape ``(n_streams, d)``.
        self.mean = np.tile(start.mean, (n_streams, 1))
        self._m2 = np.tile(start.m2, (n_streams, 1))

    def count(self, rows: np.ndarray) -> None:
        """Count one row of each stream; shape ``(n_streams, d)``."""
        self._n += 1.0
        delta = (rows - self.mean) * self._counted
        self.mean += delta / self._n
        self._m2 += delta * (rows - self.mean) + (1.0 - self._counted)

    @property
    def var(self) -> np.ndarray:
        """Population variance of each stream's features; shape ``(n_streams, d)``."""
        return self._m2 / self._n


def continued_var(start: Moments, rows: np.ndarray) -> np.ndarray:
    """Return the variance after each row of streams that go on from the same moments, of the shape of `rows`.

    Parameters
    ----------
    start
        Of one feature.
    rows
        Time first, one column per stream; shape ``(T, n)``.
    """
    n = start.n + np.arange(1.0, len(rows) + 1.0)[:, None]
    shifted, before = rows - rows[0], start.mean - rows[0]  # relative to the first row: nothing large cancels
    total = start.n * before + np.cumsum(shifted, 0)
    squares = start.m2 + start.n * np.square(before) + np.cumsum(np.square(shifted), 0)
    variances: np.ndarray = (squares - np.square(total) / n) / n
    return variances


def statistics_of(obs: Moments, returns: Moments) -> np.ndarray:
    """Return the moments of observations and of discounted returns as one row; float64, shape ``(4 + 2 d,)``."""
    return np.concatenate(([obs.n, returns.n, returns.mean.item(), returns.m2.item()], obs.mean, obs.m2))


def split_statistics(row: np.ndarray) -> tuple[Moments, Moments]:
    """Return both moments that :func:`statistics_of` joined."""
    width = len(row) // 2 - 2
    obs = Moments(row[0].item(), row[4 : 4 + width].copy(), row[4 + width :].copy())
    return obs, Moments(row[1].item(), row[2:3].copy(), row[3:4].copy())


def normalise(rows: np.ndarray, mean: float | np.ndarray, var: float | np.ndarray) -> np.ndarray:
    """Return ``clip((rows - mean) / sqrt(var + 1e-8), -10, 10)`` as float32, of the shape of `rows`."""
    clipped: np.ndarray = np.clip((rows - mean) / np.sqrt(var + EPSILON), -CLIP, CLIP)
    return clipped.astype(np.float32)


def scale(rewards: np.ndarray, var: float | np.ndarray) -> np.ndarray:
    """Return ``clip(rewards / sqrt(var + 1e-8), -10, 10)`` as float32: no mean is taken off.

    `var` is the variance of the discounted returns, in reward units squared; one number, or one per reward.
    """
    return normalise(rewards, 0.0, var)

"""Weigh the samples of a split against its seconds: how fast training comes on, as in Pollux (OSDI 2021).

A gradient of n samples brings training on by ``n / (phi + n)`` of what a gradient without noise would, `phi` being the
gradient noise scale in samples.  Where gradients have no noise only the number of steps counts, where they are nothing
but noise only the number of samples.
"""

import math
from collections.abc import Mapping, Sequence

__all__ = ["Noise", "goodput_hz", "noise_after", "noise_scale"]

#: Weight of the latest split in the means.
_WEIGHT = 0.1


#: Moving means of the ``variance`` of a sample's gradient, and of the squared norm of the true one, its ``signal``;
#: empty: nothing is known.
Noise = Mapping[str, float]


def goodput_hz(n_used: int, n_units: int, duration_s: float, phi: float) -> float:
    """Return the samples per second that a split was worth, in splits that use all of their samples.

    Parameters
    ----------
    n_used, n_units
        Samples that were used, and those that were planned.
    duration_s
        Seconds of the split, above 0.
    phi
        Gradient noise scale in samples; infinite: nothing but noise.

    Examples
    --------
    >>> [round(goodput_hz(50, 100, 1.0, phi), 2) for phi in (0.0, 100.0, math.inf)]
    [100.0, 66.67, 50.0]
    """
    if not n_used:
        return 0.0
    worth = 1.0 if math.isinf(phi) else (phi + n_units) / (phi + n_used)
    return n_used / duration_s * worth


def noise_after(noise: Noise, sizes: Sequence[int], squares: Sequence[float], square: float) -> dict[str, float]:
    """Return the means after a split; those of before where fewer than two shares were used.

    Parameters
    ----------
    noise
        The means so far.
    sizes
        Samples of each share that was used, each at least 1.
    squares
        Squared norm of each share's mean gradient.
    square
        Squared norm of their mean, weighted by samples.
    """
    if len(sizes) < 2:
        return dict(noise)
    n = sum(sizes)
    spread = math.fsum(1 / size for size in sizes) / len(sizes) - 1 / n
    variance = (math.fsum(squares) / len(squares) - square) / spread
    signal = square - variance / n
    if not noise:
        return {"variance": variance, "signal": signal}
    return {
        "variance": noise["variance"] + _WEIGHT * (variance - noise["variance"]),
        "signal": noise["signal"] + _WEIGHT * (signal - noise["signal"]),
    }


def noise_scale(noise: Noise) -> float:
    """Return phi, in samples: 0 where nothing is known or no noise is seen, infinite where nothing else is."""
    if not noise or noise["variance"] <= 0:
        return 0.0
    return noise["variance"] / noise["signal"] if noise["signal"] > 0 else math.inf

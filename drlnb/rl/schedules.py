"""Compute what a setting is now: constant, or falling with the budget that remains.

A schedule is a number, a function of the progress that remains (sampled, so that it is plain data), or the zoo's
text ``lin_x``: `x` times the remaining progress ``p = max(0, 1 - done / total)``.  Stable-Baselines3's progress falls
below 0 in the last round; this one never does.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

__all__ = ["Schedule", "Scheduled", "parse_schedule", "progress_remaining", "sampled"]

#: Pieces that a function is sampled in.
_PIECES = 256

#: Remaining progress in [0, 1] -> value.
Schedule = Callable[[float], float]
#: A schedule as plain data: a number, ``lin_NUMBER``, or the points that :func:`sampled` returns.
Scheduled = float | str | Mapping[str, Sequence[Sequence[float]]]


def progress_remaining(n_timesteps: int, total_timesteps: int) -> float:
    """Return which fraction of the budget is left, in ``[0, 1]``.

    Examples
    --------
    >>> progress_remaining(25, 100), progress_remaining(128, 100)
    (0.75, 0.0)
    """
    return max(0.0, 1.0 - n_timesteps / total_timesteps)


def sampled(function: Schedule) -> dict[str, list[list[float]]]:
    """Return a function of the remaining progress as plain data: a line through 257 of its points.

    Points in the middle of a straight piece are left out, so a linear schedule is two points.  As data a schedule can
    be shown, compared and resumed, and loading it runs no code; between two points, 1/256 of the budget apart, the
    line stands for the function.

    Raises
    ------
    ValueError
        If the function raises, or a value is not a finite number >= 0.

    Examples
    --------
    >>> sampled(lambda progress: 0.25 * progress)
    {'points': [[0.0, 0.0], [1.0, 0.25]]}
    """
    points: list[list[float]] = []
    for i in range(_PIECES + 1):
        progress = i / _PIECES
        try:
            value = float(function(progress))
        except Exception as error:  # foreign code
            raise ValueError(f"a schedule raised at progress {progress}: {type(error).__name__}: {error}") from error
        if not 0.0 <= value < inf:
            raise ValueError(f"a schedule must return numbers >= 0, at progress {progress} it returned {value}")
        if len(points) > 1 and _on_line(points[-2], points[-1], [progress, value]):
            points.pop()
        points.append([progress, value])
    return {"points": points}


def _on_line(a: list[float], b: list[float], c: list[float]) -> bool:
    between = a[1] + (c[1] - a[1]) * (b[0] - a[0]) / (c[0] - a[0])
    return abs(between - b[1]) <= 1e-12 * max(abs(a[1]), abs(b[1]), abs(c[1]))


def _through(points: Sequence[Sequence[float]]) -> Schedule:
    rows = [(float(progress), float(value)) for progress, value in points]
    ascending = [row[0] for row in rows] == sorted({row[0] for row in rows})
    if not rows or not ascending or not all(0.0 <= value < inf for _, value in rows):
        raise ValueError(f"a schedule's points must ascend and hold numbers >= 0, got {points!r:.100}")

    places, values = zip(*rows, strict=True)
    return lambda progress: float(np.interp(progress, places, values))


def parse_schedule(value: object) -> Schedule:
    """Turn a number, ``lin_x`` or points into a function of the remaining progress.

    Parameters
    ----------
    value
        A finite number >= 0, ``lin_`` followed by one, or what :func:`sampled` returned.

    Returns
    -------
    callable
        Remaining progress in ``[0, 1]`` -> value in ``[0, x]``.

    Raises
    ------
    ValueError
        If the text is malformed or the number is negative or not finite.

    Examples
    --------
    >>> parse_schedule("lin_0.5")(0.5), parse_schedule(0.5)(0.5)
    (0.25, 0.5)
    """
    if isinstance(value, Mapping):
        if set(value) != {"points"}:
            raise ValueError(f"a schedule must be a number >= 0, lin_NUMBER or points, got {value!r:.100}")
        try:
            return _through(value["points"])
        except TypeError:
            raise ValueError(f"a schedule's points must be pairs of numbers, got {value!r:.100}") from None
    linear = isinstance(value, str)
    text = value.removeprefix("lin_") if isinstance(value, str) else value
    try:
        start = float(text)  # type: ignore[arg-type]  # what is no number is refused
    except (TypeError, ValueError):
        start = -1.0
    if isinstance(value, bool) or (linear and text == value) or not 0.0 <= start < inf:
        raise ValueError(f"a schedule must be a number >= 0 or lin_NUMBER, got {value!r}")
    if linear:
        return lambda progress: start * max(0.0, progress)
    return lambda progress: start

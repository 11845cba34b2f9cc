"""Which value has a setting now?  Constant, or falling with the budget that remains.

A schedule is a number, or the zoo's text ``lin_x``: `x` times the progress that remains,
``p = max(0, 1 - done / total)``.  Stable-Baselines3's progress falls below 0 in the last round; this one never does.
"""

from collections.abc import Callable

__all__ = ["Schedule", "parse_schedule", "progress_remaining"]

#: Remaining progress in [0, 1] -> value.
Schedule = Callable[[float], float]


def progress_remaining(n_timesteps: int, total_timesteps: int) -> float:
    """Return which fraction of the budget is left, in ``[0, 1]``.

    Examples
    --------
    >>> progress_remaining(25, 100), progress_remaining(128, 100)
    (0.75, 0.0)
    """
    return max(0.0, 1.0 - n_timesteps / total_timesteps)


def parse_schedule(value: float | str) -> Schedule:
    """Turn a number or ``lin_x`` into a function of the remaining progress.

    Parameters
    ----------
    value
        A finite number >= 0, or ``lin_`` followed by one.

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
    linear = isinstance(value, str)
    text = value.removeprefix("lin_") if isinstance(value, str) else value
    try:
        start = float(text)
    except (TypeError, ValueError):
        start = -1.0
    if isinstance(value, bool) or (isinstance(value, str) and text == value) or not 0.0 <= start < float("inf"):
        raise ValueError(f"a schedule must be a number >= 0 or lin_NUMBER, got {value!r}")
    if linear:
        return lambda progress: start * max(0.0, progress)
    return lambda progress: start

"""Write durations for people: in milliseconds below a second, without exponents."""

import math

__all__ = ["said_s"]


def said_s(seconds: float, digits: int = 3) -> str:
    """Write a duration in words: milliseconds below one second.

    Parameters
    ----------
    seconds
        The duration, in seconds.
    digits
        Significant digits, at least 1; whole numbers are never cut.

    Examples
    --------
    >>> said_s(1.43), said_s(0.038), said_s(0.0), said_s(1430.4), said_s(1.4367, 2)
    ('1.43 s', '38 ms', '0 s', '1430 s', '1.4 s')
    """
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    as_ms = f"{abs(seconds) * 1e3:.{digits}g}"
    if float(as_ms) < 1000:
        return f"{_plain(seconds * 1e3, digits)} ms"
    return f"{_plain(seconds, digits)} s"


def _plain(value: float, digits: int) -> str:
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text

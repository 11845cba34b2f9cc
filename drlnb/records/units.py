"""Write durations and sizes for people, and read sizes: milliseconds below a second, binary units, no exponents."""

import math
import re

__all__ = ["bytes_of", "said_bytes", "said_s"]

#: Letters before the B of a size, binary or decimal.
_PREFIXES = "KMGT"


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


def bytes_of(size: str | int) -> int:
    """Read a size in bytes: a number, or a text such as ``8GiB`` (binary), ``500 MB`` (decimal) or ``4096``.

    Raises
    ------
    ValueError
        If it cannot be read, or is not above 0.

    Examples
    --------
    >>> bytes_of("1.5KiB"), bytes_of("2 MB"), bytes_of(7)
    (1536, 2000000, 7)
    """
    match = re.fullmatch(rf"\s*([0-9.]+)\s*(?:([{_PREFIXES}])(i?))?B?\s*", str(size), re.IGNORECASE)
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match and number > 0:
        base = 1024 if match[3] else 1000
        return round(number * base ** (_PREFIXES.index(match[2].upper()) + 1 if match[2] else 0))
    raise ValueError(f"a size must be a number of bytes above 0, or a text such as 8GiB, got {size!r}")


def said_bytes(n_bytes: float) -> str:
    """Write a size with a binary unit.

    Examples
    --------
    >>> said_bytes(1536), said_bytes(3 << 30), said_bytes(12)
    ('1.5 KiB', '3.0 GiB', '12 B')
    """
    for power, prefix in reversed(list(enumerate(_PREFIXES, 1))):
        if n_bytes >= 1024**power:
            return f"{n_bytes / 1024**power:.1f} {prefix}iB"
    return f"{n_bytes:.0f} B"

"""Write durations for people, in milliseconds below a second, without exponents; write and read sizes such as 11GiB."""

import math
import re

__all__ = ["read_bytes", "said_bytes", "said_s"]

_SIZE = re.compile(r"([0-9]*\.?[0-9]+) *([kMGT]i?)?B?")
_POWERS = "kMGT"


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


def read_bytes(size: str | float) -> int:
    """Return a number of bytes.

    Parameters
    ----------
    size
        The number, or a text such as ``11GiB`` (1024s), ``8 GB`` (1000s) or ``512MiB``.

    Raises
    ------
    ValueError
        If it is no such text, or not above 0.

    Examples
    --------
    >>> read_bytes("1.5KiB"), read_bytes("2 GB")
    (1536, 2000000000)
    """
    match = _SIZE.fullmatch(str(size).strip().replace("K", "k"))
    if match is None:
        raise ValueError(f"a size must be a number of bytes such as 11GiB, got {size!r}")
    number, unit = match.groups(default="")
    n_bytes = float(number) * (1024 if unit.endswith("i") else 1000) ** (_POWERS.find(unit[:1]) + 1 if unit else 0)
    if not 1 <= n_bytes < 2**63:
        raise ValueError(f"a size must be from 1 byte to 2**63, got {size!r}")
    return int(n_bytes)


def said_bytes(n_bytes: float) -> str:
    """Write a size with a binary unit.

    Examples
    --------
    >>> said_bytes(1536), said_bytes(3 << 30), said_bytes(12)
    ('1.5 KiB', '3.0 GiB', '12 B')
    """
    for power in range(len(_POWERS), 0, -1):
        if n_bytes >= 1024**power:
            return f"{n_bytes / 1024**power:.1f} {_POWERS[power - 1].upper()}iB"
    return f"{n_bytes:.0f} B"


def _plain(value: float, digits: int) -> str:
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text

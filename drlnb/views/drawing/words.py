"""Put numbers and states into plain words; JavaScript's twin is tested against a golden file."""

import math

__all__ = [
    "axis_seconds",
    "cell",
    "count",
    "duration",
    "milliseconds",
    "number",
    "percent",
    "plural",
    "slots_busy",
    "titled",
]

#: What stands for a number that is not known.
UNKNOWN = "-"


def duration(seconds: float | None) -> str:
    """Return a duration in words; ``-`` if it is not known.

    Examples
    --------
    >>> duration(0.0042), duration(0.25), duration(12.34), duration(125), duration(7260), duration(None)
    ('4.2 ms', '250 ms', '12.3 s', '2 min 5 s', '2 h 1 min', '-')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return milliseconds(seconds)
    if seconds < 59.95:
        return f"{_fixed(seconds, 1)} s"
    whole = math.floor(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = math.floor(seconds / 60 + 0.5)
    return f"{minutes // 60} h {minutes % 60} min"


def milliseconds(seconds: float | None) -> str:
    """Return a short duration in milliseconds: one decimal below 10 ms.

    Examples
    --------
    >>> milliseconds(0.00312), milliseconds(0.0445), milliseconds(1.5)
    ('3.1 ms', '45 ms', '1500 ms')
    """
    if seconds is None or not math.isfinite(seconds * 1000):
        return UNKNOWN
    value = seconds * 1000
    return f"{_fixed(value, 1 if abs(value) < 9.95 else 0)} ms"


def _fixed(value: float, digits: int) -> str:
    """Round half up on the decimal digits, as JavaScript's twin does (neither banker's nor binary surprises)."""
    scale = 10**digits
    whole = math.floor(abs(value) * scale + 0.5 + 1e-9)
    sign = "-" if value < 0 and whole else ""
    if not digits:
        return f"{sign}{whole}"
    return f"{sign}{whole // scale}.{whole % scale:0{digits}d}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits, thousands kept whole.

    Examples
    --------
    >>> number(12345.6), number(475), number(-319.5166), number(0.01234), number(0.0), number(None)
    ('12346', '475', '-320', '0.0123', '0', '-')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places <= 0:
        return _fixed(value, 0)
    text = _fixed(value, min(places, 9))
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(frac: float | None) -> str:
    """Return a share of one in whole percent.

    Examples
    --------
    >>> percent(0.694), percent(1.0), percent(None)
    ('69 %', '100 %', '-')
    """
    return f"{_fixed(frac * 100, 0)} %" if frac is not None and math.isfinite(frac * 100) else UNKNOWN


def plural(n: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "task"), plural(3, "task")
    ('1 task', '3 tasks')
    """
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def count(n: int) -> str:
    """Return a whole number with commas between thousands.

    Examples
    --------
    >>> count(20480)
    '20,480'
    """
    return f"{n:,}"


def slots_busy(n_busy: int, n_slots: int) -> str:
    """Return how many slots are lent now.

    Examples
    --------
    >>> slots_busy(1, 1), slots_busy(0, 0)
    ('1 of 1 slots busy', 'no slots yet')
    """
    return f"{n_busy} of {n_slots} slots busy" if n_slots else "no slots yet"


def axis_seconds(seconds: float, step: float) -> str:
    """Return a tick of a time axis whose ticks are `step` seconds apart.

    Examples
    --------
    >>> axis_seconds(1.5, 0.5), axis_seconds(90.0, 30.0), axis_seconds(0.0, 10.0)
    ('1.5', '1:30', '0')
    """
    if step < 30 or seconds < 60:
        digits = min(12, max(0, -math.floor(math.log10(step)))) if step < 1 else 0
        return _fixed(seconds, digits)
    whole = math.floor(seconds + 0.5)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def titled(label: str, unit: str) -> str:
    """Return a label with its unit.

    Examples
    --------
    >>> titled("held", "ms"), titled("task", "")
    ('held (ms)', 'task')
    """
    return f"{label} ({unit})" if unit else label


def cell(value: float | str | None, digits: int) -> str:
    """Return a value of a table in words: text as it is, a number with so many significant digits.

    Examples
    --------
    >>> cell("done", 4), cell(0.12345, 4), cell(None, 4)
    ('done', '0.1235', '-')
    """
    return value if isinstance(value, str) else number(value, digits)

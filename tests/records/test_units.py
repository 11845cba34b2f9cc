"""Durations in a record's words: milliseconds below a second, no exponents."""

import pytest

from drlnb.records.units import said_s


@pytest.mark.parametrize(
    ("seconds", "digits", "text"),
    [
        (0.0384, 3, "38.4 ms"),
        (0.9994, 3, "999 ms"),
        (0.9996, 3, "1 s"),
        (0.994, 2, "994 ms"),
        (0.996, 2, "1 s"),
        (1.4349, 3, "1.43 s"),
        (61.25, 3, "61.2 s"),
        (123456.7, 3, "123457 s"),
        (4.2e-6, 3, "0.0042 ms"),
        (-0.5, 3, "-500 ms"),
        (float("nan"), 3, "nan s"),
        (0.123, 1, "123 ms"),
    ],
)
def test_durations(seconds, digits, text):
    """Significant digits, and whole numbers are kept whole."""
    assert said_s(seconds, digits) == text

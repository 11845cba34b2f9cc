"""What columns and numbers of a picture are written as."""

import pytest

from drlnb.views.drawing.view import meanings, table


@pytest.mark.parametrize(
    "line",
    [
        "held held | from grant to return",
        "held | held (s",
        "held:naem | held | a name",
        "held*x | held | times",
        "a held | b | c",
    ],
)
def test_a_line_that_cannot_be_read_is_told(line):
    """It was left out, and with it a column of every table; the line is in the message."""
    for read in (lambda text: table("bars", text), meanings):
        with pytest.raises(ValueError, match="not 'name:kind") as told:
            read(f"""
                first | first (s) | good,
                    and goes on
                {line}
                """)
        assert repr(line) in str(told.value)
    (column,) = table("bars", "\nfirst | first (s) | good,\n  and goes on")
    assert (column.definition, column.title) == ("good, and goes on", "first (s)")

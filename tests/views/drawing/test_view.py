"""What columns and numbers of a picture are written as."""

import pytest

from drlnb.views.drawing.view import Column, table


def test_a_column_of_no_known_kind_is_refused():
    """Read as a number, it would show indices: the message names the column, and what there is."""
    with pytest.raises(ValueError, match=r"column held is of one of the kinds number, fence, .* not 'naem'"):
        Column("held", "held", "a name", kind="naem")


def test_a_column_belongs_to_its_table():
    """What the page is told of it."""
    (column,) = table("bars", Column("held", "held", "from grant to return", unit="ms", factor=1000))
    assert column.title == "held (ms)"
    assert column.plain() == {
        "label": "held", "unit": "ms", "definition": "from grant to return", "source": "bars.held", "kind": "number",
        "factor": 1000,
    }  # fmt: skip

"""Work finds its lease, whichever of the two is heard of first."""

import math

import pytest

from drlnb.views.folds.grow import Fences, Grow


@pytest.mark.parametrize("first", ["lease", "work"])
def test_the_order_of_the_two_rows_does_not_matter(first):
    """A lease on two slots has two rows: work belongs to the first of them; other work stays without one."""
    fences, work = Fences(), Grow("lease")

    def grant():
        fences.granted((7, 1), 4)
        fences.granted((7, 1), 5)

    if first == "lease":
        grant()
    fences.worked((7, 1), work, work.append(math.nan))
    fences.worked((8, 1), work, work.append(math.nan))
    if first == "work":
        grant()
    assert work["lease"][0] == 4.0
    assert math.isnan(work["lease"][1])
    assert dict(fences.rows) == {(7, 1): [4, 5]}

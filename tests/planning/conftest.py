import pytest
from lease_indices import CheckedTable
from pool_words import slot_added

from drlnb.planning.leasing.settings import LeasingSettings


@pytest.fixture
def make_table():
    """Return a function that makes a table with slots, each on the node before its slash."""

    def make(slots=(), *, epoch=1, **settings):
        table = CheckedTable(LeasingSettings(**settings), epoch)
        for slot in slots:
            assert table.handle(slot_added(slot)) == ()
        return table

    return make

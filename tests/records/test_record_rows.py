"""Records become lines and come back."""

import importlib
import json
import pkgutil
from dataclasses import FrozenInstanceError, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drlnb.records
from drlnb.records.base import Command, Decision, Event, Record, record_types
from drlnb.records.columns.leasing import LeaseGranted, LeaseRenewed
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.ids import Fence
from tests.matches import like
from tests.strategies import fewer, records_of

for _module in pkgutil.walk_packages(drlnb.records.__path__, "drlnb.records."):
    importlib.import_module(_module.name)

#: Every class that can stand in a journal.
KINDS = sorted(
    (kind for kind in record_types().values() if kind not in {Record, Event, Decision, Command}
     and kind.__module__.startswith("drlnb.")),
    key=lambda kind: kind.__name__,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_survives_json(kind):
    """Row, JSON text and back give an equal record of the same class."""

    @fewer(4)
    @given(records_of(kind))
    def check(record):
        row = record.to_row()
        again = Record.from_row(json.loads(json.dumps(row)))
        assert again == record
        assert again.to_row() == row
        assert (row["k"], row["r"]) == (kind.letter, kind.__name__)

    check()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_is_documented_frozen_and_slotted(kind):
    """Whoever adds a class adds a docstring; events carry a time, and nothing can be changed later."""
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")
    assert (kind.letter == "e") == ("t" in {field.name for field in fields(kind)})
    assert not hasattr(kind, "__dict__") or "__dict__" not in dir(kind)
    record = DeadlinePassed(t=0.0, name="x")
    with pytest.raises(FrozenInstanceError):
        record.t = 1.0


def test_letters():
    """Events, decisions, commands, headers and notices are told apart by one letter."""
    assert {kind.letter for kind in KINDS} == {"e", "d", "c", "h", "n"}
    assert issubclass(SetDeadline, Command)


def test_unknown_class():
    """A journal of a newer version names what this one does not know."""
    with pytest.raises(ValueError, match="unknown record 'Nonsense'"):
        Record.from_row({"k": "e", "r": "Nonsense"})
    with pytest.raises(ValueError, match="unknown record None"):
        Record.from_row({})


def test_a_class_of_another_kind():
    """Asking for an event and getting a command is an error, too."""
    with pytest.raises(ValueError, match="unknown event 'SetDeadline'"):
        Event.from_row(SetDeadline(name="x", after_s=1.0).to_row())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "DeadlinePassed: .*'colour'"),
        ({"name": {"fence": 3}}, "DeadlinePassed: "),
    ],
)
def test_unknown_or_broken_fields(change, message):
    """The message names the class."""
    with pytest.raises(ValueError, match=message):
        Record.from_row(DeadlinePassed(t=0.0, name="x").to_row() | change)


def test_a_missing_field():
    """The message names class and field."""
    with pytest.raises(ValueError, match=r"DeadlinePassed: .*'name'"):
        Record.from_row({"k": "e", "r": "DeadlinePassed", "t": 0.0})


def test_a_name_can_be_taken_once():
    """Two records of one name in two files would be mixed up in a journal."""
    with pytest.raises(TypeError, match=r"record name LeaseGranted is taken by drlnb\.records\.columns\.leasing"):
        type("LeaseGranted", (Decision,), {"__module__": "elsewhere"})


def test_match_compares_the_named_fields_only():
    """It is equal to any record of exactly this class with these values."""
    fence = Fence(epoch=1, token=2)
    record = LeaseRenewed(t=1.0, fence=fence)
    assert record == like(LeaseRenewed, fence=fence)
    assert like(LeaseRenewed, fence=fence, t=1.0) == record
    assert record != like(LeaseRenewed, t=4.0)
    assert record != like(DeadlinePassed, t=1.0)
    assert hash(like(LeaseRenewed)) == hash(like(LeaseRenewed, t=2.0))


def test_match_refuses_a_field_that_is_not_there():
    """A misspelt field would make a test that cannot fail."""
    with pytest.raises(TypeError, match="LeaseGranted has no field 'waited'"):
        like(LeaseGranted, waited=1.0)


@given(*[st.tuples(st.integers(0, 5), st.integers(0, 5))] * 2)
def test_fences_are_ordered_as_pairs(a, b):
    """Epoch first, then token, as tuples are."""
    one, other = (Fence(epoch=pair[0], token=pair[1]) for pair in (a, b))
    assert (one < other, one == other, one >= other) == (a < b, a == b, a >= b)


def test_people_are_shown_the_token():
    """Nanoseconds do not survive JavaScript's numbers."""
    assert str(Fence(epoch=1_700_000_000_000_000_000, token=4)) == "#4"

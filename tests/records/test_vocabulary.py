"""A class of records is a dataclass because of its root; what some have in common is no record of its own."""

import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.records import base
from drlnb.records.base import Command, Decision, Event, Record, record_types, shared
from drlnb.records.columns.leasing import KeepGradient, LeaseExpired, LeaseReleased, RestoreGradients, RevokeLease
from drlnb.records.columns.warmup import CollectorLost, CollectorUnanswered, StopCollector, WakeCollector
from drlnb.records.common import DeadlinePassed, GradientWork, SetDeadline, SlotWork
from drlnb.records.ids import Fence
from drlnb.records.journal import Stream, StreamOpened
from drlnb.records.round import ComputeGradient, FinishRound, InitialiseParameters
from tests.matches import like
from tests.strategies import records_of

FENCE = Fence(epoch=1, token=2)


@pytest.fixture
def vocabulary():
    """Forget the classes that a test makes."""
    before = dict(record_types())
    yield
    for name in record_types().keys() - before.keys():
        del base._TYPES[name]


def test_a_subclass_needs_no_decorator(vocabulary):
    """It is frozen, slotted, keyword-only and registered; defaults and class variables are as in any dataclass."""

    class Rang(Event):
        """The bell rang."""

        n: int
        why: str = "test"

    rang = Rang(t=1.0, n=2)
    assert [field.name for field in fields(rang)] == ["t", "n", "why"]
    assert (rang.why, rang.letter, Rang.__slots__) == ("test", "e", ("n", "why"))
    assert not hasattr(rang, "__dict__")
    assert record_types()["Rang"] is Rang
    assert Record.from_row(rang.to_row()) == rang
    with pytest.raises(TypeError, match="positional"):
        Rang(1.0, 2)
    with pytest.raises(FrozenInstanceError):
        rang.n = 3
    assert (rang == replace(rang), rang == replace(rang, n=3), hash(rang) == hash(replace(rang))) == (True, False, True)


def test_a_name_is_given_once(vocabulary):
    """A second class of a name, from another module, would be read for the first."""

    def made(module):
        return type(Decision)("Doubled", (Decision,), {"__module__": module, "__annotations__": {}})

    first = made("drlnb.records.here")
    assert made("drlnb.records.here") is not first, "a module may be loaded again"
    with pytest.raises(TypeError, match=r"record name Doubled is taken by drlnb\.records\.here"):
        made("drlnb.records.there")


def test_what_records_have_in_common_is_not_read_from_a_journal(vocabulary):
    """A name that begins with an underscore is a root, and its fields come first."""

    class _Root(Command):
        """What two commands share."""

        who: str

    class Leaf(_Root):
        """One of them."""

        n: int = 0

    assert "_Root" not in record_types()
    assert [field.name for field in fields(Leaf)] == ["who", "n"]
    assert Leaf(who="x").to_row() == {"k": "c", "r": "Leaf", "who": "x", "n": 0}
    with pytest.raises(ValueError, match="unknown record '_Root'"):
        Record.from_row({"k": "c", "r": "_Root", "who": "x"})


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ((InitialiseParameters, RevokeLease, FinishRound), {"fence", "slot"}),
        (
            (ComputeGradient, RestoreGradients),
            {"fence", "slot", "round", "version", "after_timesteps", "settings", "slowed"},
        ),
        ((LeaseReleased, LeaseExpired), {"fence", "task", "slots", "held_s"}),
        ((StopCollector, WakeCollector), {"collector", "node", "round"}),
        ((CollectorLost, CollectorUnanswered), {"t", "collector", "node", "reason", "detail", "where"}),
    ],
)
def test_alike_records_say_the_same_of_what_they_share(kinds, names):
    """And none is a kind of another: whoever asks for one by its class does not get the other."""
    for kind in kinds:
        assert names <= {field.name for field in fields(kind)}
        assert not any(issubclass(kind, other) for other in kinds if other is not kind)
    roots = set(kinds[0].__mro__[1:]).intersection(*(kind.__mro__[1:] for kind in kinds))
    assert names == {field.name for root in roots if issubclass(root, Record) for field in fields(root)}


def test_work_on_a_gradient_is_work_on_a_slot():
    """Whatever is sent to an executor carries the lease."""
    assert issubclass(GradientWork, SlotWork)
    assert issubclass(ComputeGradient, GradientWork)
    assert not issubclass(FinishRound, GradientWork)
    assert not issubclass(KeepGradient, GradientWork), "what is fetched needs no version"


@pytest.mark.parametrize("kind", [ComputeGradient, LeaseReleased, CollectorUnanswered, StreamOpened])
def test_records_travel_between_processes(kind):
    """As pickles, too."""

    @given(records_of(kind))
    def check(record):
        assert pickle.loads(pickle.dumps(record)) == record

    check()


# ------------------------------------------------------------------ fields that two have
class Plain:
    """An object with some of a record's fields, and others."""

    def __init__(self, **values):
        vars(self).update(values)


def test_shared_fields_are_those_of_both():
    """By name, whatever the object is; what only one of them has is left out."""
    assert shared(Plain(name="x", other=1), SetDeadline) == {"name": "x"}
    assert shared(Plain(name="x", after_s=None), SetDeadline) == {"name": "x", "after_s": None}
    assert shared(DeadlinePassed(t=1.0, name="x"), SetDeadline) == {"name": "x"}
    assert shared(object(), SetDeadline) == {}


@given(records_of(CollectorUnanswered))
def test_a_loss_is_made_of_what_was_unanswered(unanswered):
    """Nothing of it is lost but what a loss does not have."""
    lost = CollectorLost(**shared(unanswered, CollectorLost))
    assert {field.name: getattr(unanswered, field.name) for field in fields(lost)} == shared(lost, CollectorLost)


@given(records_of(LeaseReleased), st.data())
def test_a_match_is_equal_where_its_fields_are(record, data):
    """Of the same class only; a field that there is not is a mistake of the test."""
    values = shared(record, LeaseReleased)
    names = data.draw(st.sets(st.sampled_from(sorted(values))))
    match = like(LeaseReleased, **{name: values[name] for name in names})
    assert match == record
    assert (match == replace(record, reason=record.reason + "!")) == ("reason" not in names)
    assert match != LeaseExpired(**shared(record, LeaseExpired) | {"silent_s": 0.0})
    with pytest.raises(TypeError, match="LeaseReleased has no field 'colour'"):
        like(LeaseReleased, colour="red")


# ------------------------------------------------------------------ streams
def stream(*records):
    header = StreamOpened(stream="s", machine="pool", config={}, origin="simulated", version="0")
    return Stream(header=header, records=records, torn=False, source="s")


def passed(t):
    return DeadlinePassed(t=t, name=f"{t:g}")


SET = [SetDeadline(name=str(i), after_s=1.0) for i in range(4)]


def test_answers_stand_after_their_events():
    """What comes before the first event is nobody's; an event without an answer has an empty one."""
    assert list(stream().answers()) == []
    assert list(stream(SET[0]).answers()) == []
    found = list(stream(SET[0], passed(1.0), SET[1], SET[2], passed(2.0), passed(3.0), SET[3]).answers())
    assert found == [(passed(1.0), (SET[1], SET[2])), (passed(2.0), ()), (passed(3.0), (SET[3],))]


def test_records_have_the_time_of_the_event_before_them():
    """An event has its own, what comes before the first one 0."""
    timed = stream(SET[0], passed(1.5), SET[1], passed(2.5), SET[2])
    assert list(timed.timed(SetDeadline)) == [(0.0, SET[0]), (1.5, SET[1]), (2.5, SET[2])]
    assert list(timed.timed(DeadlinePassed)) == [(1.5, passed(1.5)), (2.5, passed(2.5))]
    assert list(timed.timed(RevokeLease)) == []


def test_records_are_picked_by_their_classes():
    """In their order; a root picks all that it has."""
    mixed = stream(SET[0], passed(1.0), RevokeLease(fence=FENCE, slot="a", reason=""))
    assert mixed.of(SetDeadline) == (SET[0],)
    assert mixed.of(SetDeadline, DeadlinePassed) == (SET[0], passed(1.0))
    assert mixed.of(Command) == (SET[0], mixed.records[2])
    assert mixed.of(SlotWork) == (mixed.records[2],)
    assert mixed.of() == ()

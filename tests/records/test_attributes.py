"""Objects that users hold refuse attributes that nothing would read."""

import pytest

from drlnb.distribution.publisher import Publisher
from drlnb.fleet.cluster.user_lease import Lease
from drlnb.fleet.fleet import Fleet
from drlnb.fleet.playback import Recording
from drlnb.fleet.training import Training
from drlnb.runtime.swapping.client.swapper import Swapper
from drlnb.widgets.panels.frame import Panel


@pytest.mark.parametrize("kind", [Fleet, Training, Recording, Lease, Publisher, Swapper, Panel])
def test_an_attribute_that_nothing_reads_is_refused(kind):
    """It was accepted, and had no effect; methods are no attributes to be assigned."""
    held = object.__new__(kind)
    with pytest.raises(AttributeError, match=f"{kind.__name__} has no attribute 'foo'; it would have no effect"):
        held.foo = 1
    with pytest.raises(AttributeError, match=f"__init__|close of a {kind.__name__} cannot be assigned"):
        held.close = print
    held._own = 1


def test_a_name_that_is_near_is_told():
    """Slots are counted when the fleet is made."""
    with pytest.raises(AttributeError, match="Fleet has no attribute 'slot'; did you mean 'slots'"):
        object.__new__(Fleet).slot = 3


def test_what_the_class_has_set_is_not_set_again():
    """`fleet.slots = 8` would change what is shown, and nothing else; what the class changes itself goes on."""
    fleet = object.__new__(Fleet)
    fleet.slots, fleet.closed = (), False
    fleet.closed = True
    with pytest.raises(AttributeError, match="slots of a Fleet cannot be assigned"):
        fleet.slots = 8
    assert (fleet.slots, fleet.closed) == ((), True)


def test_a_subclass_of_the_users_own_has_what_its_body_names():
    """As often as it likes; other names are refused there, too."""

    class Mine(Fleet):
        notes: list[str]

    mine = object.__new__(Mine)
    mine.notes = ["a"]
    mine.notes = ["b"]
    assert mine.notes == ["b"]
    with pytest.raises(AttributeError, match="Mine has no attribute 'note'; did you mean 'notes'"):
        mine.note = 1


def test_a_property_with_a_setter_is_assigned_and_one_without_is_not():
    """Python's own words say which."""
    with pytest.raises(AttributeError, match="setter"):
        object.__new__(Training).status = "done"
    publisher = object.__new__(Publisher)
    publisher.plan = "chain"
    assert publisher.plan == "chain"

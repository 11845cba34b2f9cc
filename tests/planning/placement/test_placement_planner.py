import pytest

from drlnb.planning.placement import FirstPlacement, Placement, PlacementView, placement_planner


def test_home_is_the_first_slot_that_is_home_to_the_fewest():
    """Fewest homes before name; every live slot is allowed; collectors are spread."""
    view = PlacementView(
        homes={"n1/a": 0, "n0/b": 1, "n0/c": 0}, free_collectors={"n0": 1, "n1": 1}, node="n1", n_collectors=2
    )
    assert FirstPlacement().plan(view) == Placement(
        home="n0/c", allowed=("n0/b", "n0/c", "n1/a"), collector_nodes=("n1", "n0")
    )


def test_without_a_slot_there_is_no_home():
    """Collectors are placed all the same."""
    view = PlacementView(homes={}, free_collectors={"n0": 1}, node="n0", n_collectors=1)
    assert FirstPlacement().plan(view) == Placement(home=None, allowed=(), collector_nodes=("n0",))


def test_planners_are_found_by_name():
    """The name of a planner is what finds it; an unknown one is told the known ones."""
    assert placement_planner("first").name == "first"
    with pytest.raises(ValueError, match="placement must be one of first, got 'best'"):
        placement_planner("best")

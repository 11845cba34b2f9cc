import pytest

from drlnb.planning.distribution import Hop, Plan, Send, commands, distribution_planner, star
from drlnb.records.columns.distribution import SendChunk


def test_planners_are_found_by_name():
    """The name of a planner is what finds it; an unknown one is told the known ones."""
    planner = distribution_planner("star")
    assert planner.name == "star"
    assert planner.plan(["h0", "h1"], 8) == star(2, 8)
    with pytest.raises(ValueError, match="distribution must be one of star, got 'ring'"):
        distribution_planner("ring")


def test_commands_carry_their_whole_route():
    """Numbers become names, and children nested pairs."""
    plan = Plan(
        strategy="x",
        n_hosts=3,
        model_bytes=10,
        sends=(Send(0, 6, Hop(0, (Hop(1, (Hop(2),)),))), Send(6, 10, Hop(1, (Hop(0), Hop(2))))),
    )
    assert commands(plan, ["a", "b", "c"], version=4) == (
        SendChunk(version=4, start=0, stop=6, host="a", children=(("b", (("c", ()),)),)),
        SendChunk(version=4, start=6, stop=10, host="b", children=(("a", ()), ("c", ()))),
    )


def test_a_star_has_no_routes():
    """Each host gets everything and forwards nothing."""
    assert commands(star(2, 5), ("a", "b"), version=1) == (
        SendChunk(version=1, start=0, stop=5, host="a", children=()),
        SendChunk(version=1, start=0, stop=5, host="b", children=()),
    )


def test_each_host_needs_a_name():
    """Too few or too many names are a mistake."""
    with pytest.raises(ValueError, match="hosts must be 2 names, got 1"):
        commands(star(2, 5), ["a"], version=1)

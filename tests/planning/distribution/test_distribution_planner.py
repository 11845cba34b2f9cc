"""Which way a version takes to the hosts."""

from dataclasses import replace

import pytest
from plans import depth, egress, ingress

from drlnb.planning.distribution import DISTRIBUTION, DistributionView, Hop, Plan, Send, commands, star
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.distribution import SendChunk

VIEW = DistributionView(version=2, hosts=("a", "b", "c"), model_bytes=10)


def planned(name, view=VIEW):
    return DISTRIBUTION.ask(DISTRIBUTION.build(name), view)


def test_a_star_sends_to_each_host():
    """Three messages leave the learner, of the whole version each; nobody forwards."""
    assert planned("star") == star(3, 10)
    assert egress(planned("star")) == [30, 0, 0, 0]


def test_in_a_chain_each_host_forwards_to_the_next():
    """One message leaves the learner; the last host forwards nothing and waits three hops."""
    plan = planned("chain")
    assert plan.sends == (Send(0, 10, Hop(0, (Hop(1, (Hop(2),)),))),)
    assert egress(plan) == [10, 10, 10, 0]
    assert ingress(plan) == [0, 10, 10, 10]
    assert (depth(plan), plan.n_messages()) == (3, 3)


@pytest.mark.parametrize("name", DISTRIBUTION.names)
def test_without_hosts_nothing_is_sent(name):
    """An empty plan fits."""
    assert planned(name, replace(VIEW, hosts=())).sends == ()


def test_commands_carry_their_whole_route():
    """Numbers become names, and children nested pairs."""
    plan = Plan(
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


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("star", "a plan must be a Plan of sends, got 'star'"),
        (star(2, 10), "the plan must be of 3 hosts and 10 bytes, got 2 hosts and 10 bytes"),
        (star(3, 9), "the plan must be of 3 hosts and 10 bytes, got 3 hosts and 9 bytes"),
        (replace(star(3, 10), sends=star(3, 10).sends[:2]), "host 2 must get 10 bytes, got 0"),
        (replace(star(3, 10), sends=star(3, 10).sends * 2), r"host 0 must get byte 10 next, got \[0, 10\)"),
        (replace(star(3, 10), sends=star(4, 10).sends), r"host must be in 0..2, got 3"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, problem, monkeypatch):
    """Each host must get each byte once; the one that does not is named."""
    planner = DISTRIBUTION.build("star")
    monkeypatch.setattr(planner, "plan", lambda view: plan)
    with pytest.raises(PlannerFailed, match=f"distribution planner star: {problem}"):
        DISTRIBUTION.ask(planner, VIEW)


@pytest.mark.parametrize("name", DISTRIBUTION.names)
def test_a_plan_comes_back_from_the_journal(name):
    """From the commands that carried it out."""
    plan = planned(name)
    answer = Answer(commands(plan, VIEW.hosts, VIEW.version))
    assert DISTRIBUTION.recorded(VIEW, answer).sends == plan.sends
    assert DISTRIBUTION.recorded(VIEW, answer) is None

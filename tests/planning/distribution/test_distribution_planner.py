"""Which way a version takes to the hosts."""

from dataclasses import replace

import pytest

from drlnb.planning.distribution import (
    DISTRIBUTION,
    PRESETS,
    STRATEGIES,
    DistributionView,
    Link,
    command,
    multitree,
    relay,
    star,
    tree,
)
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.distribution import DistributionPlanned, SendParameters

VIEW = DistributionView(version=2, hosts=("a", "b", "c"), model_bytes=10)
LARGE = DistributionView(version=2, hosts=tuple(f"h{i}" for i in range(16)), model_bytes=20_000_000)


def planned(name, view=VIEW):
    return DISTRIBUTION.ask(DISTRIBUTION.build(name), view)


def routes(plan):
    return replace(plan, predicted_s=0.0)


def test_each_name_makes_its_construction():
    """With the numbers that are given."""
    assert routes(planned("star")) == star(3, 10)
    assert routes(planned("tree:k=2")) == tree(3, 10, 2)
    assert routes(planned("kary:k=2")) == tree(3, 10, 2, levels=0)
    assert routes(planned("relay:m=2")) == relay(3, 10, 2)
    assert routes(planned("relay:m=2,c=2")) == relay(3, 10, 2, 2)
    assert routes(planned("multitree:m=2,c=3")) == multitree(3, 10, 2, 3)
    assert planned("chain:c=1").routes == (((-1, 0), (0, 1), (1, 2)),)


def test_numbers_that_are_left_open_are_the_best():
    """By the closed form on the view's link: more relays where bytes cost, fewer where messages do."""
    slow = replace(LARGE, link=Link.of(12.5e6, latency_s=0.0, overhead_s=0.0))
    assert len(planned("relay", slow).routes) == 16
    dear = replace(LARGE, link=Link.of(1e12, latency_s=0.0, overhead_s=1.0))
    assert len(planned("relay", dear).routes) == 5, "as few as there can be of 4 MiB at most"


def test_the_relays_change_with_the_hosts():
    """The next epoch begins with another host."""
    first, second = planned("relay:m=4", LARGE), planned("relay:m=4", replace(LARGE, epoch=1))
    assert [route[0][1] for route in first.routes] == [0, 1, 2, 3]
    assert [route[0][1] for route in second.routes] == [4, 5, 6, 7]


def test_auto_is_as_fast_as_the_best():
    """On a fast and on a slow network."""
    for link in PRESETS.values():
        view = replace(LARGE, link=link)
        fastest = min(planned(name, view).predicted_s for name in STRATEGIES)
        assert planned("auto", view).predicted_s == fastest > 0


@pytest.mark.parametrize("name", DISTRIBUTION.names)
def test_without_hosts_nothing_is_sent(name):
    """An empty plan fits."""
    assert planned(name, replace(VIEW, hosts=())).sends == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relay:m=x", "distribution planner relay: m must be a whole number, got 'x'"),
        ("relay:k=2", "distribution planner relay takes m, c, got 'k'"),
        ("relay:m=-1", "distribution planner relay:m=-1: m must be >= 1, or 0 for the best, got -1"),
        ("multitree:m=1", "distribution planner multitree:m=1: m must be >= 2: with one tree, use chain"),
        (
            "tre",
            "distribution planner must be one of auto, star, tree, kary, binomial, chain, relay, multitree, got 'tre'",
        ),
    ],
)
def test_a_wrong_name_or_number_is_one_line(text, message):
    """Name, limit, value."""
    with pytest.raises(ValueError, match=message):
        DISTRIBUTION.build(text)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("star", "a plan must be a Plan of sends, got 'star'"),
        (star(2, 10), "the plan must be of 3 hosts and 10 bytes, got 2 hosts and 10 bytes"),
        (star(3, 9), "the plan must be of 3 hosts and 10 bytes, got 3 hosts and 9 bytes"),
        (replace(star(3, 10), sends=star(3, 10).sends[:2]), "host 2 must get 10 bytes, got 0"),
        (replace(star(3, 10), sends=star(3, 10).sends * 2), r"host 0 must get byte 10 next, got \[0, 10\)"),
        (replace(star(3, 10), routes=star(4, 10).routes), r"host must be in 0..2, got 3"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, problem, monkeypatch):
    """Each host must get each byte once; the one that does not is named."""
    planner = DISTRIBUTION.build("star")
    monkeypatch.setattr(planner, "plan", lambda view: plan)
    with pytest.raises(PlannerFailed, match=f"distribution planner star: {problem}"):
        DISTRIBUTION.ask(planner, VIEW)


def test_the_command_carries_the_whole_plan():
    """Host i of its routes is the view's; the journal gives the plan back, once."""
    plan = planned("relay:m=2")
    sent = command(plan, VIEW, 5.0)
    assert sent == SendParameters(
        version=2, source="", hosts=("a", "b", "c"), routes=plan.routes, sends=((0, 5, 0), (5, 10, 1)), n_in_flight=4,
        deadline_s=5.0,
    )  # fmt: skip
    said = DistributionPlanned(
        version=2, planner="p", hosts=VIEW.hosts, n_bytes=10, n_messages=6, digest="", predicted_s=plan.predicted_s
    )
    answer = Answer([said, sent])
    assert DISTRIBUTION.recorded(VIEW, answer) == plan
    assert DISTRIBUTION.recorded(VIEW, answer) is None

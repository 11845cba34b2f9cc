"""Which way a version takes to the hosts."""

from dataclasses import asdict, replace

import pytest

from drlnb.planning.distribution import (
    DISTRIBUTION,
    PRESETS,
    STRATEGIES,
    DistributionMachine,
    DistributionView,
    Link,
    command,
    forecast,
    multitree,
    relay,
    star,
    tree,
)
from drlnb.planning.registry import Answer, PlannerFailed
from drlnb.records.columns.distribution import (
    DistributionPlanned,
    HostCompleted,
    HostsChanged,
    LinkMeasured,
    PublishAsked,
    SendParameters,
)

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
    assert routes(planned("tree:k=2,levels=3")) == tree(3, 10, 2, levels=3)
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
        ("tree:levels=1", "distribution planner tree:levels=1: levels must be >= 2: with one level, use star"),
        (
            "tre",
            "distribution planner must be one of auto, star, tree, binomial, chain, relay, multitree, got 'tre'",
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


LINK = Link.of(1.17e9, latency_s=50e-6, overhead_s=50e-6)
N_HOSTS, SIZE = 16, 20_000_000


def versions(times, n=60):
    """Publish versions that take `times` of a plan's name times its closed form; return events and what was planned."""
    config = {"planner": "auto", "link": asdict(LINK)}
    machine, t, planned, events = DistributionMachine(config), 0.0, [], []
    hosts = tuple(f"h{i:02}" for i in range(N_HOSTS))

    def feed(event):
        events.append(event)
        out = machine.handle(event)
        machine.check()
        planned.extend(record for record in out if isinstance(record, DistributionPlanned))
        return out

    feed(HostsChanged(t=t, hosts=hosts))
    for version in range(1, n + 1):
        feed(PublishAsked(t=t, version=version, n_bytes=SIZE))
        t = round(t + planned[-1].predicted_s * times(planned[-1].plan), 6)
        for host in hosts:
            feed(HostCompleted(t=t, host=host, version=version, n_bytes=SIZE, publish_s=0.1))
    return config, events, planned


def test_auto_learns_what_kinds_of_plans_really_take():
    """Chunks take six times their form, whole shards 1.3: from the form's best, chunks, to whole shards for good."""
    chunked = lambda plan: "c=" in plan and not plan.endswith("c=1")  # noqa: E731
    _, _, planned = versions(lambda plan: 6.0 if chunked(plan) else 1.3)
    assert chunked(planned[0].plan)
    late = [each.plan for each in planned[20:]]
    assert sum(each.startswith("relay:m=16") for each in late) >= 0.8 * len(late), late
    told = next(each for each in reversed(planned) if each.plan == "relay:m=16")
    assert told.correction == pytest.approx(1.3, rel=0.01)
    whole = forecast("relay", N_HOSTS, SIZE, LINK, m=16, c=1).publish_s
    assert told.predicted_s == pytest.approx(whole, abs=1e-6), "the form itself stays what it is"


def test_a_machine_that_is_slow_for_every_plan_keeps_the_best():
    """Three times the form for all: others are tried now and then, the form's best is taken most of the time."""
    _, _, planned = versions(lambda plan: 3.0)
    assert sum(each.plan == planned[0].plan for each in planned[20:]) >= 0.6 * len(planned[20:])


def test_what_was_learned_is_a_function_of_the_events():
    """A fresh machine plans the same again, and a snapshot has it; none is left of a network measured anew."""
    config, events, planned = versions(lambda plan: 6.0 if "c=" in plan else 1.3, 12)
    fresh = DistributionMachine(config)
    again = [record for event in events for record in fresh.handle(event) if isinstance(record, DistributionPlanned)]
    assert again == planned
    took = fresh.state.publication.took
    assert len(took) >= 2
    other = DistributionMachine(config)
    other.restore(fresh.snapshot())
    assert other.state.publication.took == took
    fresh.handle(LinkMeasured(t=1e3, hosts=("h00",), figures={"overhead_s": 0.001}))
    assert fresh.state.publication.took == {}

"""What the cost model and the simulator are asked: names, bytes of plans, and what is refused."""

import pytest

from drlnb.fleet.whatif.distribution import compute, numbers_of, planner, simulate
from drlnb.planning.distribution import STRATEGIES, Link, relay
from drlnb.records.errors import ConfigError
from drlnb.sim.distribution.publish import simulate_publish

SIZE = 20_000_000
#: No latency, no processor time: a version takes one second through a card.
IDEAL = Link.of(float(SIZE), latency_s=0.0, overhead_s=0.0)
LINK = Link.of(1.17e9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 3), (16, 8), (16, 16), (20, 30)])
def test_bytes_of_relays_are_those_of_their_plan(n, m):
    """The shortcut for relays gives what the routes of the plan add up to, host by host."""
    sent = relay(n, 1001, m, 1, epoch=1).egress_bytes()
    assert compute(f"relay:m={m}", n, 1001, IDEAL).egress.tolist() == [b / 1001 for b in (sent[-1], *sent[:-1])]


def test_wrong_plans_are_refused_in_words():
    """Name, limit, value."""
    with pytest.raises(ValueError, match="m must be >= 2: with one tree, use chain"):
        compute("multitree:m=1", 8, SIZE, IDEAL)
    with pytest.raises(ValueError, match="must be one of auto, star, tree"):
        compute("swarm", 8, SIZE, IDEAL)


def test_names_of_planners_have_the_numbers_that_they_take():
    """Every name that is made can be planned, and 0 leaves a number to the planner."""
    assert planner("tree", 3, 8) == "tree:k=3,levels=8"
    assert planner("multitree", 0, 0) == "multitree"
    assert numbers_of("auto") == {}
    for name in STRATEGIES:
        assert compute(planner(name, 2, 2), 8, SIZE, IDEAL).plan.startswith(name)


@pytest.mark.parametrize(("plan", "n", "kill"), [("relay:m=8", 16, 8), ("star", 2, 2), ("chain", 4, 1)])
def test_there_must_be_such_a_relay(plan, n, kill):
    """The message has the limit and the value."""
    with pytest.raises(ConfigError, match=rf"relay must be from 0 to \d+ in .*, got {kill}"):
        simulate(plan, n, SIZE, LINK, kill=kill)


@pytest.mark.parametrize("plan", ["star", "tree:k=3", "chain:c=4", "relay:m=5", "multitree:m=3,c=4", "auto"])
def test_messages_add_up_to_what_the_simulator_reports(plan):
    """Every host gets one version, nothing is repair, and the seconds are those of the publisher."""
    done, published = simulate(plan, 9, SIZE, LINK), simulate_publish(plan, 9, SIZE, LINK)
    got = [done.messages["bytes"][done.messages["receiver"] == host].sum() for host in range(9)]
    assert got == [SIZE] * 9
    assert not done.messages["repair"].any()
    assert (done.publish_s, done.held_s.max()) == (published.publish_s, published.held_s)
    assert done.egress.sum() == pytest.approx(9)
    assert compute(plan, 9, SIZE, LINK).egress == pytest.approx(done.egress)

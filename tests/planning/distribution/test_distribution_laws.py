"""Whatever ranges arrive in whatever order, and however a version is cut and routed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import cut, depth, egress, ingress

from drlnb.planning.distribution import Chunk, Hop, Plan, RelayAssembly, Send, below, commands
from drlnb.planning.distribution.planner import DISTRIBUTION, DistributionView
from drlnb.planning.registry import Answer

TOTAL = 12
ROUTE = (("b", (("c", ()),)),)
ranges = st.tuples(st.integers(0, TOTAL - 1), st.integers(1, TOTAL)).filter(lambda pair: pair[0] < pair[1])


@given(st.lists(st.tuples(ranges, st.integers(1, 3), st.integers(1, 2)), max_size=25))
def test_an_assembly_is_a_set_of_bytes(arrivals):
    """A range is new if a byte of it was missing in the newest version; whole is said once, when none is."""
    relay, there, newest = RelayAssembly(), set(), (0, 0)
    for (start, stop), version, attempt in arrivals:
        key = (attempt, version)
        taken = relay.take(Chunk(attempt=attempt, version=version, start=start, stop=stop, total=TOTAL, children=ROUTE))
        if key < newest:
            assert (taken.new, taken.forward, taken.whole) == (False, (), False)
            assert taken.refused == f"attempt {attempt}, version {version} is older than {newest[0]}, {newest[1]}"
            continue
        if key > newest:
            newest, there = key, set()
        fresh = not set(range(start, stop)) <= there
        there |= set(range(start, stop))
        assert taken.refused is None
        assert taken.new == fresh
        assert taken.forward == (ROUTE if fresh else ())
        assert taken.whole == (fresh and len(there) == TOTAL)
        assert (relay.newest, relay.whole) == (newest, len(there) == TOTAL)


@st.composite
def plans(draw):
    """Return a plan whose every range travels along a random tree over all hosts."""
    n_hosts = draw(st.integers(1, 5))
    model_bytes = draw(st.integers(1, 40))
    sends = []
    for start, stop in cut(model_bytes, draw(st.integers(1, 4))):
        if start == stop:
            continue
        order = draw(st.permutations(range(n_hosts)))
        n_roots = draw(st.integers(1, n_hosts))
        children = {host: [] for host in order}
        for i, host in enumerate(order[n_roots:], n_roots):
            children[order[draw(st.integers(0, i - 1))]].append(host)

        def hop(host, children=children):
            return Hop(host, tuple(hop(each, children) for each in children[host]))

        sends += [Send(start, stop, hop(root)) for root in order[:n_roots]]
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, sends=tuple(sends))


@given(plans())
def test_a_plan_that_reaches_everybody_passes(plan):
    """What is sent is what is received; each host receives the version once."""
    plan.check()
    assert sum(egress(plan)) == sum(ingress(plan)) == plan.n_hosts * plan.model_bytes
    assert ingress(plan) == [0, *[plan.model_bytes] * plan.n_hosts]
    assert 1 <= depth(plan) <= plan.n_hosts
    assert plan.n_messages() >= plan.n_hosts


@given(plans(), st.data())
def test_a_plan_without_a_message_is_refused(plan, data):
    """Whichever of the learner's messages is left out or sent twice, a host misses a byte or has it twice."""
    i = data.draw(st.integers(0, len(plan.sends) - 1))
    for sends in (plan.sends[:i] + plan.sends[i + 1 :], (*plan.sends, plan.sends[i])):
        broken = Plan(n_hosts=plan.n_hosts, model_bytes=plan.model_bytes, sends=sends)
        with pytest.raises(ValueError, match=r"host \d must get"):
            broken.check()
        assert broken.digest() != plan.digest()


@given(plans())
def test_any_plan_comes_back_from_its_commands(plan):
    """Routes of any shape survive as nested names, of which each host of a message stands once."""
    hosts = tuple(f"h{i}" for i in range(plan.n_hosts))
    sent = commands(plan, hosts, 3)
    view = DistributionView(version=3, hosts=hosts, model_bytes=plan.model_bytes)
    assert DISTRIBUTION.recorded(view, Answer(sent)) == plan
    for command in sent:
        reached = [command.host, *below(command.children)]
        assert len(reached) == len(set(reached))
    assert sum(1 + len(list(below(command.children))) for command in sent) == plan.n_messages()

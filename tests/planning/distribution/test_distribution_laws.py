"""Whatever ranges arrive in whatever order, and however a version is cut and routed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import LEARNER, Chunk, Plan, RelayAssembly, Send, command, cut
from drlnb.planning.distribution.planner import DISTRIBUTION, DistributionView
from drlnb.planning.registry import Answer
from drlnb.records.columns.distribution import DistributionPlanned

TOTAL = 12
CHILDREN = (3, 1)
ranges = st.tuples(st.integers(0, TOTAL - 1), st.integers(1, TOTAL)).filter(lambda pair: pair[0] < pair[1])


@given(st.lists(st.tuples(ranges, st.integers(1, 3), st.integers(1, 2)), max_size=25))
def test_an_assembly_is_a_set_of_bytes(arrivals):
    """A range is new if a byte of it was missing in the newest version; whole is said once, when none is."""
    relay, there, newest = RelayAssembly(), set(), (0, 0)
    for (start, stop), version, attempt in arrivals:
        key = (attempt, version)
        taken = relay.take(
            Chunk(attempt=attempt, version=version, start=start, stop=stop, total=TOTAL, children=CHILDREN)
        )
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
        assert taken.forward == (CHILDREN if fresh else ())
        assert taken.whole == (fresh and len(there) == TOTAL)
        assert (relay.newest, relay.whole) == (newest, len(there) == TOTAL)


@st.composite
def plans(draw):
    """Return a plan whose every range travels along a random tree over all hosts."""
    n_hosts = draw(st.integers(1, 5))
    model_bytes = draw(st.integers(1, 40))
    routes, sends = [], []
    for start, stop in cut(model_bytes, draw(st.integers(1, 4))):
        order = draw(st.permutations(range(n_hosts)))
        n_roots = draw(st.integers(1, n_hosts))
        trees = {root: [(LEARNER, root)] for root in order[:n_roots]}
        root_of = {root: root for root in trees}
        for i, host in enumerate(order[n_roots:], n_roots):
            parent = order[draw(st.integers(0, i - 1))]
            root_of[host] = root_of[parent]
            trees[root_of[host]].append((parent, host))
        sends += [Send(start, stop, len(routes) + i) for i in range(n_roots)]
        routes += map(tuple, trees.values())
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, routes=tuple(routes), sends=tuple(sends))


@given(plans())
def test_a_plan_that_reaches_everybody_passes(plan):
    """What is sent is what is received; each host receives the version once."""
    plan.check()
    assert plan.egress_bytes().sum() == plan.n_hosts * plan.model_bytes
    assert plan.ingress_bytes().tolist() == [plan.model_bytes] * plan.n_hosts + [0]
    assert plan.n_messages() >= plan.n_hosts


@given(plans(), st.data())
def test_a_plan_without_a_message_is_refused(plan, data):
    """Whichever of the learner's messages is left out or sent twice, a host misses a byte or has it twice."""
    i = data.draw(st.integers(0, len(plan.sends) - 1))
    for sends in (plan.sends[:i] + plan.sends[i + 1 :], (*plan.sends, plan.sends[i])):
        broken = replace(plan, sends=sends)
        with pytest.raises(ValueError, match=r"host \d must get"):
            broken.check()
        assert broken.digest() != plan.digest()


@given(plans())
def test_any_plan_comes_back_from_its_command(plan):
    """Routes of any shape."""
    view = DistributionView(version=3, hosts=tuple(f"h{i}" for i in range(plan.n_hosts)), model_bytes=plan.model_bytes)
    said = DistributionPlanned(version=3, planner="p", hosts=view.hosts, n_bytes=1, n_messages=1, digest="")
    assert DISTRIBUTION.recorded(view, Answer([said, command(plan, view, 60.0)])) == plan

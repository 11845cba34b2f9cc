import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import cut, depth, egress, ingress

from drlnb.planning.distribution import Hop, Plan, Send, star

#: Hosts 0, 1, 2: the first range goes 0 -> 1 -> 2, the second 1 -> (0, 2).  By hand: the learner sends 10 bytes,
#: host 0 sends 6, host 1 sends 6 + 4 + 4, host 2 nothing; everybody receives 10.
CHAIN_AND_FORK = Plan(
    n_hosts=3,
    model_bytes=10,
    sends=(Send(0, 6, Hop(0, (Hop(1, (Hop(2),)),))), Send(6, 10, Hop(1, (Hop(0), Hop(2))))),
)


def plan_of(*sends, n_hosts=1, model_bytes=10):
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, sends=sends)


@given(total=st.integers(0, 1000), m=st.integers(1, 50))
def test_cut_covers_everything_once_and_evenly(total, m):
    """Ranges touch, begin at 0, end at the total, and differ by at most one byte, larger ones first."""
    ranges = cut(total, m)
    sizes = [stop - start for start, stop in ranges]
    assert len(ranges) == m
    assert [start for start, _ in ranges] == [0, *[stop for _, stop in ranges[:-1]]]
    assert ranges[-1][1] == total
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


def test_a_star_sends_the_whole_version_to_each_host():
    """The learner sends n x S, every host receives S and sends nothing, in one hop."""
    plan = star(3, 7)
    plan.check()
    assert plan.sends == (Send(0, 7, Hop(0)), Send(0, 7, Hop(1)), Send(0, 7, Hop(2)))
    assert egress(plan) == [21, 0, 0, 0]
    assert ingress(plan) == [0, 7, 7, 7]
    assert (depth(plan), plan.n_messages()) == (1, 3)


def test_a_star_without_hosts_sends_nothing():
    """A task whose hosts are all the learner's own has nobody to send to."""
    plan = star(0, 7)
    plan.check()
    assert (depth(plan), plan.n_messages(), egress(plan)) == (0, 0, [0])


@pytest.mark.parametrize(
    ("n_hosts", "model_bytes", "message"),
    [(-1, 7, "n_hosts must be >= 0, got -1"), (2, 0, "model_bytes must be >= 1, got 0")],
)
def test_a_star_refuses(n_hosts, model_bytes, message):
    """Argument, limit and value are named."""
    with pytest.raises(ValueError, match=message):
        star(n_hosts, model_bytes)


def test_routes_are_counted_by_hand():
    """Forwarded bytes are their forwarder's, and the depth is the longest route's."""
    CHAIN_AND_FORK.check()
    assert egress(CHAIN_AND_FORK) == [10, 6, 14, 0]
    assert ingress(CHAIN_AND_FORK) == [0, 10, 10, 10]
    assert (depth(CHAIN_AND_FORK), CHAIN_AND_FORK.n_messages()) == (3, 6)


def test_equal_plans_have_equal_digests():
    """The digest is short and tells plans apart."""
    assert star(3, 7).digest() == star(3, 7).digest()
    assert len({star(3, 7).digest(), star(4, 7).digest(), star(3, 8).digest(), CHAIN_AND_FORK.digest()}) == 4
    assert len(star(3, 7).digest()) == 12


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (plan_of(), "host 0 must get 10 bytes, got 0"),
        (plan_of(Send(0, 9, Hop(0))), "host 0 must get 10 bytes, got 9"),
        (plan_of(Send(0, 11, Hop(0))), "host 0 must get 10 bytes, got 11"),
        (plan_of(Send(0, 4, Hop(0)), Send(5, 10, Hop(0))), r"host 0 must get byte 4 next, got \[5, 10\)"),
        (plan_of(Send(0, 6, Hop(0)), Send(5, 10, Hop(0))), r"host 0 must get byte 6 next, got \[5, 10\)"),
        (plan_of(Send(0, 10, Hop(0)), Send(10, 10, Hop(0))), r"host 0 must get byte 10 next, got \[10, 10\)"),
        (plan_of(Send(0, 10, Hop(0, (Hop(1),)))), r"host must be in 0..0, got 1"),
    ],
)
def test_check_finds_each_broken_plan(plan, message):
    """A byte missing, a byte twice, an empty range and an unknown host are all found."""
    with pytest.raises(ValueError, match=message):
        plan.check()

"""What a plan is, counted by hand, and what is none."""

import pytest

from drlnb.planning.distribution import LEARNER, Plan, Send, star

#: Hosts 0, 1, 2: the first range goes 0 -> 1 -> 2, the second 1 -> (0, 2).  By hand: the learner sends 10 bytes,
#: host 0 sends 6, host 1 sends 6 + 4 + 4, host 2 nothing; everybody receives 10.
LINE_AND_FORK = Plan(
    n_hosts=3,
    model_bytes=10,
    routes=(((LEARNER, 0), (0, 1), (1, 2)), ((LEARNER, 1), (1, 0), (1, 2))),
    sends=(Send(0, 6, 0), Send(6, 10, 1)),
)


def plan_of(*sends, routes=(((LEARNER, 0),),), n_hosts=1, model_bytes=10, **more):
    return Plan(n_hosts=n_hosts, model_bytes=model_bytes, routes=routes, sends=sends, **more)


def test_messages_and_bytes_are_counted_by_hand():
    """Forwarded bytes are their forwarder's; the learner stands last."""
    LINE_AND_FORK.check()
    assert LINE_AND_FORK.egress_bytes().tolist() == [6, 14, 0, 10]
    assert LINE_AND_FORK.ingress_bytes().tolist() == [10, 10, 10, 0]
    assert LINE_AND_FORK.carried == (6, 4)
    assert LINE_AND_FORK.n_messages() == 6
    assert [pair for _, *pair in LINE_AND_FORK.messages()] == [[-1, 0], [0, 1], [1, 2], [-1, 1], [1, 0], [1, 2]]


def test_equal_plans_have_equal_digests():
    """The digest is short and tells plans apart."""
    assert star(3, 7).digest() == star(3, 7).digest()
    assert len({star(3, 7).digest(), star(4, 7).digest(), star(3, 8).digest(), LINE_AND_FORK.digest()}) == 4
    assert len(star(3, 7).digest()) == 12


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (plan_of(), "host 0 must get 10 bytes, got 0"),
        (plan_of(Send(0, 9, 0)), "host 0 must get 10 bytes, got 9"),
        (plan_of(Send(0, 11, 0)), "host 0 must get 10 bytes, got 11"),
        (plan_of(Send(0, 4, 0), Send(5, 10, 0)), r"host 0 must get byte 4 next, got \[5, 10\)"),
        (plan_of(Send(0, 6, 0), Send(5, 10, 0)), r"host 0 must get byte 6 next, got \[5, 10\)"),
        (plan_of(Send(0, 10, 0), Send(10, 10, 0)), r"host 0 must get byte 10 next, got \[10, 10\)"),
        (plan_of(Send(0, 10, 1)), r"route must be in 0..0, got 1"),
        (plan_of(Send(0, 10, 0), n_in_flight=0), "n_in_flight must be >= 1, got 0"),
        (plan_of(routes=(((LEARNER, 0), (0, 1)),)), r"host must be in 0..0, got 1"),
        (plan_of(routes=(((1, 0),),), n_hosts=2), "host 1 cannot send to host 0: a route begins at the learner"),
        (
            plan_of(routes=(((LEARNER, 0), (2, 1)),), n_hosts=3),
            "host 2 cannot send to host 1: it has not got that yet",
        ),
        (plan_of(routes=(((LEARNER, 0), (0, 1), (1, 0)),), n_hosts=2), "host 0 is on a route twice"),
    ],
)
def test_check_finds_each_broken_plan(plan, message):
    """A byte missing, a byte twice, an empty range, an unknown host or route, bytes from who has none."""
    with pytest.raises(ValueError, match=message):
        plan.check()

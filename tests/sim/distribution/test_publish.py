"""Versions over a simulated network: beside the closed forms, and whatever dies, stands still or is slow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import STRATEGIES, Link
from drlnb.planning.replay import replay
from drlnb.records.columns.distribution import HostCompleted, HostDropped, VersionPublished
from drlnb.sim.distribution.publish import simulate_publish

SIZE = 20_000_000
LIKE_PYTHON = Link.of(1.17e9, latency_s=300e-6, overhead_s=150e-6)
#: Largest deviation of the closed form from the messages, in the direction of being later.
LATER = {"star": 0.01, "binomial": 0.02, "relay": 0.01, "tree": 0.20, "kary": 0.34, "chain": 0.10, "multitree": 0.12}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("n", [8, 16, 100])
def test_messages_take_as_long_as_the_closed_form_says(name, n):
    """Within 1 % for star, relay and binomial; trees whose last level is not full, and chunks, are earlier."""
    published = simulate_publish(name, n, SIZE, LIKE_PYTHON)
    assert 1 - LATER[name] <= published.held_s / published.plan.predicted_s <= 1.03
    assert published.failed == ()


def test_times_by_hand():
    """Two hosts and two relays: half a version out, then half to the other one; the report comes a latency later."""
    link = Link.of(100.0, latency_s=0.5, overhead_s=0.25)
    published = simulate_publish("relay:m=2", 2, 400, link, validate=True)
    first, second = [(message.begun_t, message.done_t) for message in published.messages if not message.sender]
    assert (first, second) == ((0.0, 2.75), (2.0, 4.75))
    passed_on = [(m.sender, m.begun_t, m.done_t) for m in published.messages if m.sender]
    # The second host's card is busy with its own shard until 4.75.
    assert passed_on == [("h0", 2.75, 6.75), ("h1", 4.75, 7.5)]
    assert published.held_s == 7.5
    assert published.publish_s == 8.25


@given(
    name=st.sampled_from(["star", "binomial", "chain:c=6", "relay:m=3", "multitree:m=3,c=4", "kary:k=2"]),
    n=st.integers(1, 9),
    data=st.data(),
)
def test_whoever_lives_gets_the_version(name, n, data):
    """Hosts that die at any moment are dropped, the others hold it, and the journal replays."""
    hosts = st.sampled_from([f"h{i}" for i in range(n)])
    fails = data.draw(st.dictionaries(hosts, st.floats(0.0, 3.0), max_size=n))
    freezes = data.draw(st.dictionaries(hosts, st.floats(0.0, 3.0), max_size=1))
    slowness = data.draw(st.dictionaries(hosts, st.sampled_from([2.0, 5.0]), max_size=2))
    published = simulate_publish(
        name, n, SIZE, Link.of(25e6), fails=fails, freezes=freezes, slowness=slowness, validate=True
    )
    held = {event.host for event in published.stream.of(HostCompleted)}
    dropped = {record.host for record in published.stream.of(HostDropped)}
    lost = fails.keys() | freezes.keys()
    assert held | dropped == {f"h{i}" for i in range(n)}
    assert dropped <= lost or len(freezes) == 1, "who lives is not dropped"
    assert len(published.stream.of(VersionPublished)) == 1
    assert replay(published.stream).difference is None


def test_a_slow_card_takes_longer():
    """Twice as slow a host doubles its time under a star."""
    quick, slow = (simulate_publish("star", 1, SIZE, Link.of(2e7), slowness={"h0": x}) for x in (1.0, 2.0))
    assert slow.held_s / quick.held_s == pytest.approx(2.0, abs=0.01)


def test_a_relay_that_dies_costs_little_over_an_undisturbed_version():
    """Its shard comes from another host; nobody waits for a deadline."""
    link = Link.of(25e6)
    undisturbed = simulate_publish("relay:m=4", 16, SIZE, link)
    disturbed = simulate_publish("relay:m=4", 16, SIZE, link, fails={"h05": 0.4}, validate=True)
    assert disturbed.failed == ("h05",)
    assert disturbed.publish_s <= 2.5 * undisturbed.publish_s


def test_bytes_are_those_of_the_plan():
    """What each host sent, message by message."""
    published = simulate_publish("multitree:m=4,c=4", 16, SIZE, LIKE_PYTHON)
    sent = dict.fromkeys(["", *(f"h{i:02}" for i in range(16))], 0)
    for message in published.messages:
        sent[message.sender] += message.stop - message.start
    egress = published.plan.egress_bytes()
    assert [sent[f"h{i:02}"] for i in range(16)] == egress[:-1].tolist()
    assert sent[""] == egress[-1] == SIZE
    assert egress[:-1].max() <= SIZE + 16


def test_nothing_to_do():
    """No hosts."""
    assert simulate_publish("auto", 0, SIZE, LIKE_PYTHON).publish_s == 0.0

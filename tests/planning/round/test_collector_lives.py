"""The life of a collector as its task sees it: every status meets everything that may happen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drlnb.planning.distribution import Publication
from drlnb.planning.round.collectors import BACKOFF_MAX_S, BACKOFF_S, RESTART_WINDOW_S, Crew, Member

STATUSES = ["absent", "starting", "ready", "acting", "sent", "stopped"]


def crew_in(status, **changes):
    """Return a crew of one collector on n0, whose host holds version 3."""
    member = Member(env_indices=(0,), node=None if status == "absent" else "n0", status=status, **changes)
    return Crew(members={0: member}, publication=Publication(hosts={"n0": 3})), member


def all_stay(**but):
    """Return status -> status, the same but for some."""
    return {status: but.get(status, status) for status in STATUSES}


@pytest.mark.parametrize(
    ("happens", "after"),
    [
        (lambda crew: crew.sent(0), all_stay(acting="sent")),
        (lambda crew: crew.stopped(0), all_stay(sent="stopped", ready="stopped", acting="stopped")),
        (lambda crew: crew.starts(0, 4), all_stay(stopped="starting")),
        (lambda crew: crew.revoked(0), all_stay(starting="stopped", ready="stopped")),
        (lambda crew: crew.next_round(), all_stay(sent="ready")),
        (lambda crew: crew.ready(0, "n0"), all_stay(starting="ready")),
        (lambda crew: crew.ready(0, "n1"), all_stay()),
        (lambda crew: crew.ready(0, "n0", 4), all_stay()),
        (lambda crew: crew.ready(7, "n0"), all_stay()),
        (lambda crew: crew.lost(0, "n0", 1.0), dict.fromkeys(STATUSES, "starting") | {"absent": "absent"}),
        (lambda crew: crew.lost(0, "n1", 1.0), all_stay()),
        (lambda crew: crew.lost(7, "n0", 1.0), all_stay()),
        (lambda crew: crew.dropped("n0", 1.0), dict.fromkeys(STATUSES, "absent")),
        (lambda crew: crew.dropped("n1", 1.0), all_stay()),
        (lambda crew: crew.placed(["n0"]), all_stay(absent="starting")),
        (lambda crew: crew.placed(["n1"]), dict.fromkeys(STATUSES, "starting")),
        (lambda crew: crew.wake(3, ()), all_stay(ready="acting")),
        (lambda crew: crew.wake(4, ()), all_stay()),
        (lambda crew: crew.wake(2, ()), all_stay()),
        (lambda crew: crew.wake(3, [0]), all_stay()),
    ],
)
@pytest.mark.parametrize("status", STATUSES)
def test_what_happens_moves_a_collector_as_the_table_says(status, happens, after):
    """By hand; a status that is not named stays."""
    crew, member = crew_in(status)
    happens(crew)
    assert member.status == after[status]


@pytest.mark.parametrize(("status", "awaits", "awaited"), [
    ("stopped", 0, True), ("starting", 4, True), ("starting", 0, False), ("ready", 4, False), ("sent", 0, False),
])  # fmt: skip
def test_who_is_to_be_started_for_a_round_is_awaited(status, awaits, awaited):
    """Not who is started at once, whatever the round."""
    assert crew_in(status, awaits=awaits)[1].is_awaited == awaited


def test_a_start_for_a_round_is_answered_by_its_own_end_alone():
    """The end of an earlier start comes too late."""
    crew, member = crew_in("stopped")
    crew.starts(0, 4)
    assert not crew.ready(0, "n0", 3)
    assert not crew.ready(0, "n0", 0)
    assert crew.ready(0, "n0", 4)
    assert not crew.ready(0, "n0", 4)
    assert member.status == "ready"


def test_the_pause_before_a_restart_doubles_up_to_its_most_and_begins_anew_with_experience():
    """.5, 1, 2, ... 30 s; a fragment shows that the environment works."""
    crew, member = crew_in("acting")
    pauses = []
    for t in range(9):
        member.status = "acting"
        pauses.append(crew.lost(0, "n0", t))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert (pauses[0], pauses[-1]) == (BACKOFF_S, BACKOFF_MAX_S)
    member.status = "acting"
    crew.sent(0)
    assert (member.n_losses, member.n_restarts) == (0, 9)
    assert crew.lost(0, "n0", 9.0) == 0.0, "what it had sent stays good: it is started at once"


def test_a_loss_is_news_once():
    """The second word of it, or one about another node, changes nothing."""
    crew, member = crew_in("absent")
    assert crew.lost(0, "n0", 1.0) is None
    crew.placed(["n0"])
    assert crew.lost(0, "n0", 2.0) == 0.5
    assert crew.lost(0, "n9", 3.0) is None
    assert (member.n_restarts, member.status, member.awaits) == (1, "starting", 0)


def test_losses_are_counted_for_an_hour():
    """Those of the hour before the latest one; how often it was started in all is told, too."""
    crew, member = crew_in("acting")
    for t in (0.0, 1.0, 3600.0, 3601.0, 7000.0):
        member.status = "acting"
        crew.lost(0, "n0", t)
    assert (member.lost_t, member.n_restarts) == ([3600.0, 3601.0, 7000.0], 5)
    assert RESTART_WINDOW_S == 3600.0


def test_who_does_not_act_stands_still_on_a_node():
    """Only such environments can be asked for their states."""
    shown = {status: crew_in(status)[0].at_rest for status in STATUSES}
    assert shown == {status: () if status in {"absent", "acting"} else ((0, "n0"),) for status in STATUSES}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("placed"), st.tuples(*[st.sampled_from(["n0", "n1", "n2"])] * 3)),
            st.tuples(st.just("ready"), st.integers(0, 2)),
            st.tuples(st.just("lost"), st.integers(0, 2)),
            st.tuples(st.just("sent"), st.integers(0, 2)),
            st.tuples(st.just("stopped"), st.integers(0, 2)),
            st.tuples(st.just("completed"), st.sampled_from(["n0", "n1", "n2"])),
            st.tuples(st.just("dropped"), st.sampled_from(["n0", "n1", "n2"])),
            st.tuples(st.just("round"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_nobody_acts_below_the_version_whatever_happens(steps):
    """And whoever is woken was ready, once a round; hosts are those of the placement, and only go forward."""
    crew, version, done = Crew.of([(0,), (1,), (2,)]), 1, set()
    moves = {
        "placed": crew.placed,
        "ready": lambda i: crew.ready(i, crew.members[i].node),
        "lost": lambda i: crew.lost(i, crew.members[i].node, float(version)),
        "sent": lambda i: done.add(i) or crew.sent(i) if crew.members[i].status == "acting" else None,
        "stopped": crew.stopped,
        "completed": lambda host: crew.publication.hold(host, version),
        "dropped": lambda host: crew.dropped(host, float(version)),
        "round": lambda _: finish(crew, done),
    }
    for name, value in steps:
        held = dict(crew.hosts)
        version += name == "round"
        result = moves[name](value)
        if name == "completed":
            assert result == (held.get(value, version) < version)
        before = {i: replace(member) for i, member in crew.members.items()}
        woken = crew.wake(version, done)
        assert all(before[i].status == "ready" and i not in done for i in woken)
        assert all(crew.hosts[crew.members[i].node] == version for i in woken)
        assert {i for i, member in crew.members.items() if member != before[i]} == set(woken)
        assert crew.publication.behind(version) == tuple(host for host, has in crew.hosts.items() if has < version)
        assert all(held.get(host, 0) <= has <= version for host, has in crew.hosts.items() if host in held)


def finish(crew, done):
    """End a round: nobody acts any more."""
    for member in crew.members.values():
        member.status = "sent" if member.status == "acting" else member.status
    crew.next_round()
    done.clear()

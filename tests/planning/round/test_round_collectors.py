"""Collectors and hosts of one task."""

from drlnb.planning.round.collectors import BACKOFF_MAX_S, BACKOFF_S, Crew


def crew_on(*nodes):
    crew = Crew.of([(i,) for i in range(len(nodes))])
    crew.placed(nodes)
    return crew


def test_nobody_acts_below_the_version():
    """A ready collector is woken only on a host that holds exactly this version, and once."""
    crew = crew_on("n0", "n1")
    assert crew.ready(0, "n0")
    assert crew.ready(1, "n1")
    assert crew.wake(1, ()) == ()
    assert crew.publication.hold("n1", 1)
    assert crew.wake(1, ()) == (1,)
    assert crew.wake(1, ()) == ()
    assert crew.wake(2, ()) == ()


def test_who_has_acted_is_not_woken():
    """`done` names the collectors whose share is here."""
    crew = crew_on("n0", "n0")
    crew.ready(0, "n0")
    crew.ready(1, "n0")
    crew.publication.hold("n0", 1)
    assert crew.wake(1, {0}) == (1,)


def test_hosts_only_go_forward():
    """An older or repeated version, and one of a host that is not ours, changes nothing."""
    crew = crew_on("n0")
    assert crew.publication.hold("n0", 2)
    assert not crew.publication.hold("n0", 2)
    assert not crew.publication.hold("n0", 1)
    assert not crew.publication.hold("n9", 3)
    assert crew.publication.behind(2) == ()
    assert crew.publication.behind(3) == ("n0",)


def test_a_process_that_ends_between_two_rounds_is_started_by_its_round():
    """Who has sent is stopped; only the start that was asked for last makes it ready; a start may be taken back."""
    crew = crew_on("n0")
    crew.stopped(0)
    assert crew.members[0].status == "starting", "it was never up: there is nothing to end"
    crew.ready(0, "n0")
    crew.publication.hold("n0", 1)
    assert crew.wake(1, ()) == (0,)
    crew.revoked(0)
    assert crew.members[0].status == "acting", "nothing was started that could be taken back"
    crew.sent(0)
    crew.stopped(0)
    crew.next_round()
    assert crew.wake(1, ()) == ()
    crew.starts(0, 2)
    crew.revoked(0)
    assert not crew.ready(0, "n0", 2)
    crew.starts(0, 3)
    assert not crew.ready(0, "n0", 2)
    assert crew.ready(0, "n0", 3)
    crew.starts(0, 4)
    assert crew.members[0].status == "ready", "one process is enough"


def test_a_new_placement_starts_only_who_moved():
    """A host that stays keeps its version; one that comes has none; one that goes is forgotten."""
    crew = crew_on("n0", "n1")
    crew.publication.hold("n0", 5)
    crew.publication.hold("n1", 5)
    assert crew.placed(("n0", "n2")) == (1,)
    assert crew.hosts == {"n0": 5, "n2": 0}


def test_a_dropped_host_takes_its_collectors_along():
    """They are absent until they are placed again; a loss told later is old news."""
    crew = crew_on("n0", "n1")
    assert crew.dropped("n1", 1.0) == (1,)
    assert crew.members[1].status == "absent"
    assert crew.lost(1, "n1", 2.0) is None
    assert [member.n_restarts for member in crew.members.values()] == [0, 1]
    assert crew.placed(("n0", "n0")) == (1,)


def test_defaults():
    """Half a second first, half a minute at most."""
    assert (BACKOFF_S, BACKOFF_MAX_S) == (0.5, 30.0)

"""Nothing is left 5 s after SIGKILL of any party, nor after a cluster's stop while tasks train."""

import pytest

from tests.chaos.arena import left_over, open_arena

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_no_kill_leaves_an_orphan():
    """One party after the other is killed while tasks train, the supervisor last, with all that it holds."""
    with open_arena() as arena:
        arena.begin("orphans")
        parties = ("collector", "zygote", "executor", "worker", "supervisor")
        left = {party: arena.family.after_kill(party) for party in parties}
    assert not any(left.values()), left


def test_a_stop_leaves_no_orphan():
    """The same after a stop in good order."""
    with open_arena() as arena:
        arena.begin("orphans")
        arena.family.find("collector")
    assert left_over(arena) == []

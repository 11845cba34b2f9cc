"""Nothing is left 5 s after SIGKILL of any party, nor after a cluster's stop while a task trains."""

import time

import pytest

from drlnb.bench.stage import open_stage
from drlnb.bench.training import cartpole, start_run
from tests.chaos.family import COUNT_S, Family

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_ENDLESS = 10**9


def _family(stage):
    start_run(stage, cartpole(stage, n_collectors=2, steps=_ENDLESS), "orphans")
    return Family(stage.handle.pid, stage.client)


def test_no_kill_leaves_an_orphan():
    """One party after the other is killed while a task trains, the supervisor last, with all that it holds."""
    with open_stage(1) as stage:
        family = _family(stage)
        left = {
            party: family.after_kill(party) for party in ("collector", "zygote", "executor", "worker", "supervisor")
        }
    assert not any(left.values()), left


def test_a_stop_leaves_no_orphan():
    """The same after a stop in good order."""
    with open_stage(1) as stage:
        family = _family(stage)
        family.find("collector")
    time.sleep(COUNT_S)
    assert family.strays() == []

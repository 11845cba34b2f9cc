"""A gradient that was begun before anybody waited does not keep a slot from those who wait now."""

from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.sim.costs import Costs, RoundCosts
from drlnb.sim.driver import Clock
from drlnb.sim.training.fleet import _config
from drlnb.sim.training.pool import Pool
from drlnb.sim.training.task import Task


class Fixed:
    """A task whose every round takes the same time: half a second per gradient and per update."""

    def __init__(self, *collect_s):
        self.costs = Costs()
        self._round = RoundCosts(
            collect_s=collect_s, stage_s=(0.5,) * len(collect_s), finish_s=0.5, publish_s=0.0, rpc_s=0.0
        )

    def round(self, k):
        return self._round

    def start_s(self, command):
        return 0.0


def test_a_slot_whose_holder_waits_for_a_late_collector_is_lent_on():
    """One collector hangs for a minute; a task that comes meanwhile waits for no more than what is computed."""
    clock = Clock()
    pool = Pool(clock, slots={"n0/slot0": "n0"}, nodes=("n0",), settings=LeasingSettings(hold="yield"), validate=True)
    late, quick = (
        Task(
            clock, pool, Fixed(*collect_s), node="n0", validate=True,
            config=_config(f"sim{i}", len(collect_s), n_rounds, "yield") | {"streams": True, "switch_limit_frac": 1e6},
        )
        for i, (collect_s, n_rounds) in enumerate((((1.0, 60.0), 2), ((3.0, 3.0), 5)))
    )  # fmt: skip
    late.open()
    clock.after(0.5, quick.open)
    clock.run()
    assert [task.end.state for task in (late, quick)] == ["done"] * 2
    waits = [grant.waited_s for grant in pool.host.stream.of(leasing.LeaseGranted) if grant.task.endswith("sim1")]
    assert max(waits) <= 0.5 + 0.5, "a gradient, and an update"
    for task, n_rounds in ((late, 2), (quick, 5)):
        computed = [(one.round, one.collector) for one in task.streams[0].of(words.GradientComputed)]
        assert sorted(computed) == [(k, i) for k in range(1, n_rounds + 1) for i in (0, 1)], "each of them once"
        assert replay(task.streams[0]).difference is None

"""What becomes of a wish to change a setting: judged beside what is in force, told, remembered or forgotten."""

import asyncio
from types import SimpleNamespace

import pytest

from drlnb.planning.placement import Placement
from drlnb.planning.registry import Planners
from drlnb.planning.warmup import WarmupSettings
from drlnb.records.columns.leasing import RequestRefused, SlotAdded, SlotClosed, SlotFreed
from drlnb.records.columns.placement import NodeAdded, PlacementPlanned
from drlnb.records.common import LoopLagged, SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.spec import FitWork, RlWork
from drlnb.runtime.master.master import Master
from drlnb.runtime.node.masters import Masters
from drlnb.runtime.scheduler import run as run_module
from drlnb.runtime.scheduler.plugin import BrokerPlugin


async def _refusal(wish):
    """Return why a wish is refused, empty if it is not."""
    try:
        await wish
    except ConfigError as error:
        return str(error)
    return ""


NO_PLANNERS = {"planners": {}, "settings": {}}


class Cluster:
    """A broker with two slots and a run of two tasks, whose masters answer what a test lets them."""

    def __init__(self, out, **spec):
        self.out, self.spec = out, {**NO_PLANNERS, **spec}
        self.told, self.answers, self.records = [], {}, []

    async def __aenter__(self):
        self.broker = BrokerPlugin()
        await self.broker.start(SimpleNamespace(handlers={}))
        self.broker.ask_node = self._ask
        self.broker.host.sinks.append(self.records.append)
        for i in (0, 1):
            self.broker.nodes.pool.give("0", f"0/cpu{i}", "cpu")
            await self.broker.nodes.slot_up("0", f"0/cpu{i}", "cpu", "virtual", 1)
        tasks = [RlWork(name=name, env="CartPole-v1", total_timesteps=9, n_envs=1).to_plain() for name in "ab"]
        await self.broker.runs.run_create("r", {"out": str(self.out), "tasks": tasks, **self.spec})
        for name in "ab":
            await self.broker.runs.task_attach("r", name, "0", name)
        return self

    async def __aexit__(self, *error):
        await self.broker.close()

    async def _ask(self, node, op, timeout_s, /, **message):
        self.told.append((op, message.get("task") or message.get("slot"), message.get("key")))
        return self.answers.get(message.get("task"), {"ok": True})

    async def set(self, key, value, task=None, action="set"):
        """Return the refusal's message, or empty."""
        return await _refusal(self.broker.runs.run_control("r", action, task=task, key=key, value=value))

    async def pool(self, key, value):
        return await _refusal(self.broker.pool_set(key, value))

    def remembered(self, task):
        return self.broker.runs.live["r"].tasks[task]["scheduling"]

    def of(self, kind):
        return [record for record in self.records if isinstance(record, kind)]


def test_times_of_leases_change_in_an_order_that_keeps_theirs(tmp_path):
    """Each is judged beside the two others as they are now: in the right order all can be had, below and above."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            assert "got 2 s, 8 s, 5 s" in await cluster.pool("leasing.ttl_s", 5.0)
            for key, value in (("holder_ttl_s", 4.0), ("ttl_s", 5.0), ("renew_s", 0.5), ("holder_ttl_s", 1.0)):
                assert await cluster.pool(f"leasing.{key}", value) == ""
            assert "renew_s < holder_ttl_s < ttl_s must hold, got 2 s, 1 s, 5 s" in await cluster.set(
                "leasing.renew_s", 2
            )
            for key, value in (("ttl_s", 60.0), ("holder_ttl_s", 40.0), ("renew_s", 20.0)):
                assert await cluster.set(f"leasing.{key}", value) == ""
            now = cluster.broker.pool.settings
            assert (now.renew_s, now.holder_ttl_s, now.ttl_s) == (20.0, 40.0, 60.0)
            # What is refused is no event, so no picture shows it as a change.
            assert len(cluster.of(SettingChanged)) == 7
            assert cluster.of(RequestRefused) == []

    asyncio.run(go())


def test_a_placement_planner_that_a_task_takes_is_told_to_the_pool(tmp_path):
    """The pool asks it when slots come or go; what the task's master refuses, the pool never hears of."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            cluster.answers["b"] = {"refused": "not now"}
            assert await cluster.set("placement.planner", "pack") == "task b: not now"
            (told,) = cluster.of(SettingChanged)
            assert (told.key, told.value, told.task) == ("placement.planner", "pack", "r/a")
            assert told.counts == "from the next placement on"
            assert [cluster.remembered(name) for name in "ab"] == [{"placement.planner": "pack"}, {}]

    asyncio.run(go())


@pytest.mark.parametrize(("key", "decision"), [("placement.planner", "placement"), ("leasing.hold", "hold")])
def test_an_own_planner_that_the_run_does_not_have_is_refused_before_anybody_is_asked(tmp_path, key, decision):
    """A journal that said so could not be replayed, for that has no planners of users; the run's own one is taken."""

    async def go():
        async with Cluster(tmp_path, planners={decision: "own:mine"}) as cluster:
            assert await cluster.set(key, "own:typo") == f"this run has no {decision} planner 'own:typo'"
            assert (cluster.told, cluster.of(SettingChanged)) == ([], [])
            cluster.broker.runs.live["r"].planners = Planners({"placement": SimpleNamespace(name="mine")})
            assert await cluster.set(key, "own:mine") == ""

    asyncio.run(go())


def test_settings_of_a_task_are_judged_beside_those_it_has_now(tmp_path):
    """What the run began with and what was changed since: the caller hears at once of what would not fit."""

    async def go():
        async with Cluster(tmp_path, settings={"env_timeout_s": 60.0, "warmup": {"filter_window": 50}}) as cluster:
            assert await cluster.set("warmup.min_rounds", 40) == ""
            assert await cluster.set("warmup.min_rounds", 20, task="b") == ""
            cluster.told.clear()
            problem = await cluster.set("warmup.window", 30)
            assert problem == (
                "task a: warmup.window: min_rounds must be <= window and filter_window (30), got 40: "
                "nothing would ever be planned"
            )
            assert cluster.told == [], "nobody is told of what one cannot have"
            assert [cluster.remembered(name) for name in "ab"] == [
                {"warmup.min_rounds": 40}, {"warmup.min_rounds": 20},
            ]  # fmt: skip
            assert await cluster.set("warmup.window", 30, task="b") == ""
            attached = await cluster.broker.runs.task_attach("r", "b", "0", "again")
            assert attached["settings"]["warmup"] == {"filter_window": 50, "min_rounds": 20, "window": 30}
            WarmupSettings.from_mapping(attached["settings"]["warmup"])

    asyncio.run(go())


def test_whom_shared_steps_wait_for_is_judged_beside_the_learners(tmp_path):
    """A quorum that all of them make leaves nobody who could be late; a later attempt has what was changed."""
    fits = [FitWork(name=name, program="m:f", total_timesteps=9, n_learners=2).to_plain() for name in "ab"]

    async def go():
        async with Cluster(tmp_path, tasks=fits, settings={"batching": {"quorum": 0.5}}) as cluster:
            assert await cluster.set("batching.late", "drop", task="a") == ""
            all_of = "task a: batching.late has no effect while quorum is {}: {} are waited for"
            assert await cluster.set("batching.quorum", 1.0) == all_of.format(1.0, "all")
            assert await cluster.set("batching.quorum", 0.75) == all_of.format(0.75, "all 2")
            count = "batching.quorum must be a fraction above 0 and up to 1.0 (all), or a count from 2 to 2, got 3"
            assert await cluster.set("batching.quorum", 3) == count
            attached = await cluster.broker.runs.task_attach("r", "a", "0", "again")
            assert attached["settings"]["batching"] == {"quorum": 0.5, "late": "drop"}

    asyncio.run(go())


def test_what_a_master_refuses_is_forgotten_and_told(tmp_path):
    """Its next attempt begins with the value before; another task keeps what it has taken."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            assert await cluster.set("warmup.rho", 2.0) == ""
            cluster.answers["a"] = {"refused": "rho is too dear"}
            assert await cluster.set("warmup.rho", 3.0) == "task a: rho is too dear"
            assert await cluster.set("warmup.kappa", 3.0, task="a") == "task a: rho is too dear"
            assert cluster.remembered("a") == {"warmup.rho": 2.0}
            assert cluster.remembered("b") == {"warmup.rho": 3.0}

    asyncio.run(go())


def test_a_master_says_what_its_machine_refuses():
    """The refusal goes back over the node's agent to whoever asked."""

    async def go():
        heard = []

        class Host:
            def feed_for(self, wanted, kind, **fields):
                heard.append((kind, fields))
                return [RequestRefused(subject="warmup.rho", reason="no")]

        master = Master.__new__(Master)
        master.host, master.task, master.is_up = Host(), "a", True
        agent = Masters(None, {})
        agent.live["r", "a"] = master
        how = {"action": "set", "key": "warmup.rho", "value": 0, "reason": ""}
        assert await agent.control("r", "a", **how) == {"refused": "no"}
        assert await agent.control("r", "b", **how) == {"ok": True}
        counts = "from the next round on"
        assert heard == [(SettingChanged, {"key": "warmup.rho", "value": 0, "task": "a", "counts": counts})]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("warmup.rho", -3, "warmup.rho: rho must be a number from 1e-9 to 1e9, got -3"),
        ("warmup.collector_mode", "respawn", "needs environments that can be frozen and thawed exactly"),
        ("task.priority", 1.5, "task.priority must be a whole number in -100..100, got 1.5"),
        ("leasing.ttl_s", 0, "leasing.ttl_s: ttl_s must be a number of seconds from 0.001 to 1e7, got 0"),
        ("leasing.hold", "never", "hold planner must be one of round, yield, last, got 'never'"),
        ("warmup.lead", -1, "unknown setting 'warmup.lead'; did you mean 'warmup.planner' or 'warmup.kappa'"),
        ("learning_rate", 1e-4, "unknown setting 'learning_rate'; did you mean 'rl.learning_rate'?"),
        ("rl.gama", 0.9, "unknown setting 'rl.gama'; did you mean 'rl.gamma'?"),
        ("slot.drain", "0/cpu7", "slot.drain: the pool has no slot '0/cpu7'; it has 0/cpu0, 0/cpu1"),
        ("slot.undrain", ["0/cpu0"], "slot.undrain: the pool has no slot ['0/cpu0']; it has 0/cpu0, 0/cpu1"),
        ("slot.undrain", "0/cpu0", "slot 0/cpu0 is not closed"),
    ],
)
@pytest.mark.parametrize("action", ["set", "check"])
def test_a_wrong_wish_is_one_line_and_reaches_nobody(tmp_path, key, value, said, action):
    """From Python and from a terminal alike, for this is where both come to; a check says the same."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            problem = await cluster.set(key, value, action=action)
            if (key, value, action) == ("slot.undrain", "0/cpu0", "check"):
                assert problem == ""  # whether it is closed the pool says
            else:
                assert said in problem
            assert "\n" not in problem
            assert cluster.told == []
            assert [cluster.remembered(name) for name in "ab"] == [{}, {}]

    asyncio.run(go())


def test_a_check_changes_nothing(tmp_path):
    """Of a good value, of a task or of the pool."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            for key, value in (("warmup.rho", 3.0), ("leasing.ttl_s", 30.0), ("slot.drain", "0/cpu0")):
                assert await cluster.set(key, value, action="check") == ""
            assert (cluster.told, cluster.of(SettingChanged), cluster.remembered("a")) == ([], [], {})

    asyncio.run(go())


def test_a_setting_of_the_pool_is_no_tasks(tmp_path):
    """Whoever names one task does not change it for all."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            said = await cluster.set("leasing.ttl_s", 30.0, task="a")
            assert said == "leasing.ttl_s belongs to the pool, not to a task: leave task out"
            assert await cluster.set("slot.drain", "0/cpu0", task="a") == said.replace("leasing.ttl_s", "slot.drain")
            assert cluster.broker.pool.settings.ttl_s == 10.0
            assert cluster.of(SettingChanged) == []

    asyncio.run(go())


def test_a_slot_is_drained_and_taken_back(tmp_path):
    """Each is an event of the pool; an executor that rests after deaths is started at once, one that is up is not."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            assert await cluster.set("slot.drain", "0/cpu1") == ""
            assert cluster.of(SlotClosed) == [SlotClosed(slot="0/cpu1", reason="drained by hand")]
            assert await cluster.pool("slot.undrain", "0/cpu1") == ""
            assert cluster.of(SlotFreed) == [SlotFreed(slot="0/cpu1")]
            assert cluster.told == []
            await cluster.pool("slot.drain", "0/cpu1")
            await cluster.broker.nodes.slot_down("0", "0/cpu1", "killed by signal 9")
            assert await cluster.pool("slot.undrain", "0/cpu1") == ""
            assert cluster.told == [("drlnb_slot_hurry", "0/cpu1", None)]
            assert cluster.broker.pool.n_slots == 1
            await cluster.broker.nodes.slot_up("0", "0/cpu1", "cpu", "virtual", 2)
            assert cluster.broker.pool.n_slots == 2

    asyncio.run(go())


def test_what_may_serve_gangs_is_the_pools_to_say(tmp_path):
    """A wrong word changes nothing, in one line; a right one is in the journal and counts from the next plan on."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            wrong = "placement.allowed: allowed must be one of any, nodes, gang, got 'all'"
            assert await cluster.pool("placement.allowed", "all") == wrong
            assert await cluster.pool("placement.locality_frac", 2.0) != ""
            assert await cluster.pool("placement.allowed", "gang") == ""
            assert [(each.key, each.value, each.counts) for each in cluster.of(SettingChanged)] == [
                ("placement.allowed", "gang", "from the next placement on")
            ]
            cluster.broker.host.feed(NodeAdded, node="0", host="h", n_collector_slots=2)
            await cluster.broker.place("r/x", 1, "0", 1, n_learners=1)
            plan = cluster.of(PlacementPlanned)[-1]
            assert (plan.slots, plan.allowed) == (("0/cpu0",), ("0/cpu0",))

    asyncio.run(go())


def test_a_drain_is_not_refused_for_a_planner_that_fails_by_it(tmp_path):
    """The slot is drained; the line is of the task, which is refused at its next request."""

    class Fails:
        name = "fails"

        def plan(self, view):
            if view.slots:
                raise RuntimeError("no more")
            home = min(view.homes)
            return Placement(slots=(home,), allowed=(home,), collector_nodes=(view.node,) * view.n_collectors)

    async def go():
        async with Cluster(tmp_path) as cluster:
            pool = cluster.broker.pool
            pool.state.planners_of = lambda task: Planners({"placement": Fails()})
            cluster.broker.host.feed(NodeAdded, node="0", host="h", n_collector_slots=2)
            assert (await cluster.broker.place("r/x", 1, "0", 1, "own:fails"))["collector_nodes"] == ["0"]
            assert await cluster.pool("slot.drain", "0/cpu1") == ""
            assert cluster.of(SlotClosed) == [SlotClosed(slot="0/cpu1", reason="drained by hand")]
            reply = await cluster.broker.grants.acquire("r/x/1/1", task="r/x", attempt=1, round=1, node="0")
            assert reply == {"refused": "placement planner own:fails raised RuntimeError: no more", "final": True}

    asyncio.run(go())


def test_a_slot_on_which_executors_died_is_lent_again_and_its_strikes_start_anew(tmp_path):
    """Three deaths under nobody close it; taken back, it stands two more."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            nodes = cluster.broker.nodes

            async def dies(epoch):
                await nodes.slot_down("0", "0/cpu1", "killed by signal 9")
                await nodes.slot_up("0", "0/cpu1", "cpu", "virtual", epoch)

            for epoch in (2, 3, 4):
                await dies(epoch)
            assert cluster.of(SlotClosed) == [SlotClosed(slot="0/cpu1", reason="3 executors in a row died on it")]
            assert await cluster.pool("slot.undrain", "0/cpu1") == ""
            for epoch in (5, 6):
                await dies(epoch)
            assert (len(cluster.of(SlotClosed)), cluster.broker.pool.n_slots) == (1, 2)
            await dies(7)
            assert (len(cluster.of(SlotClosed)), cluster.broker.pool.n_slots) == (2, 1)

    asyncio.run(go())


def test_who_waits_for_any_slot_hears_of_one_that_is_taken_back(tmp_path):
    """A task that asks for its place while all slots are drained need not wait for its poll's end."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            for i in (0, 1):
                await cluster.pool("slot.drain", f"0/cpu{i}")
            asked = asyncio.ensure_future(cluster.broker.nodes.becomes(lambda: cluster.broker.pool.n_slots > 0, 60.0))
            await asyncio.sleep(0)
            assert not asked.done()
            await cluster.pool("slot.undrain", "0/cpu0")
            assert await asyncio.wait_for(asked, 1.0)

    asyncio.run(go())


def test_a_loop_that_stood_still_is_judged_by_what_is_in_force(tmp_path, monkeypatch):
    """Both times count as they are now: how often it is looked, and from how much on the loop is to blame."""
    looks, real = [], asyncio.sleep

    async def go():
        loop = asyncio.get_running_loop()
        clock = {"t": loop.time(), "late_s": 0.3}
        monkeypatch.setattr(loop, "time", lambda: clock["t"])

        async def sleep(delay_s):
            looks.append(delay_s)
            clock["t"] += delay_s + clock["late_s"]
            await real(0)

        async def looked():
            looks.clear()
            while len(looks) < 3:
                await real(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)
        monkeypatch.setattr(run_module, "_DISK_S", 1e9)
        async with Cluster(tmp_path) as cluster:
            await looked()
            assert (set(looks), cluster.of(LoopLagged)) == ({0.25}, [])
            await cluster.pool("leasing.lag_threshold_s", 0.1)
            await looked()
            assert {round(record.lag_s, 6) for record in cluster.of(LoopLagged)} == {0.3}
            await cluster.pool("leasing.reap_s", 0.05)
            await looked()
            assert set(looks) == {0.05}

    asyncio.run(go())


def test_a_new_time_between_looks_does_not_wait_for_the_look_that_was_due(tmp_path):
    """A watcher that would sleep for an hour is started anew."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            await cluster.pool("leasing.reap_s", 3600.0)
            former = cluster.broker._lag
            await cluster.pool("leasing.reap_s", 0.25)
            await asyncio.gather(former, return_exceptions=True)
            assert former.cancelled()
            assert cluster.broker._lag is not former

    asyncio.run(go())


def test_a_slot_that_no_executor_ever_served_cannot_be_drained_yet(tmp_path):
    """It was given to its node, and the pool does not know it."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            cluster.broker.nodes.pool.give("0", "0/cpu2", "cpu")
            said = "slot.drain: the executor of 0/cpu2 is not up yet; try again in a moment"
            assert await cluster.set("slot.drain", "0/cpu2") == said
            assert len(cluster.of(SlotAdded)) == 2

    asyncio.run(go())


def test_a_grant_that_is_repeated_has_the_times_it_was_made_with(tmp_path):
    """Its answer was lost, and times grew meanwhile: the lease has its own, so has its holder; the next new ones."""

    async def go():
        async with Cluster(tmp_path) as cluster:
            broker, ask = cluster.broker, {"task": "r/a", "attempt": 1, "node": "0"}
            first = await broker.grants.acquire("r/a/1", round=1, **ask)
            await cluster.pool("leasing.ttl_s", 60.0)
            await cluster.pool("leasing.holder_ttl_s", 40.0)
            again = await broker.grants.acquire("r/a/1", round=1, **ask)
            assert again["fence"] == first["fence"]
            assert (again["settings"]["ttl_s"], again["settings"]["holder_ttl_s"]) == (10.0, 8.0)
            await broker.grants.release(first["fence"], clean=True, computed_s=(0.0,))
            after = await broker.grants.acquire("r/a/2", round=2, **ask)
            assert (after["settings"]["ttl_s"], after["settings"]["holder_ttl_s"]) == (60.0, 40.0)

    asyncio.run(go())

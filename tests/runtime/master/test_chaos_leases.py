"""What the chaos found in how masters wait for slots, each in small: broker and clients in one loop, without a wire."""

import asyncio
import time
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from drlnb.planning.distribution import LEARNER
from drlnb.planning.leasing.fence import StoreGate
from drlnb.planning.leasing.settings import LeasingSettings
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.errors import PeerError
from drlnb.records.ids import Fence
from drlnb.runtime import lease
from drlnb.runtime.distribution.outbox import pack_hosts, ways
from drlnb.runtime.distribution.relay import HostRelay
from drlnb.runtime.master.checkpoint_effects import Committed
from drlnb.runtime.master.lease_client import LeaseClient
from drlnb.runtime.master.master import Master
from drlnb.runtime.master.slot_effects import SlotEffects
from drlnb.runtime.node.collector_host import CollectorHost
from drlnb.runtime.node.slots import Slots
from drlnb.runtime.scheduler import nodes
from drlnb.runtime.scheduler.plugin import BrokerPlugin
from drlnb.runtime.scheduler.runs import LiveRun, Runs
from tests.runtime.played_agent import SPEC, Agent, played_link, rows

TIMES = {"ttl_s": 0.06, "holder_ttl_s": 0.04, "renew_s": 0.01, "poll_s": 0.03, "reap_s": 0.005, "lost_polls": 2}


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Try again at once: nobody here is far away."""
    monkeypatch.setattr(lease, "RETRY_S", 0.005)


class Cluster:
    """A broker with one slot; every record of its pool."""

    async def __aenter__(self):
        self.broker = BrokerPlugin(TIMES)
        await self.broker.start(SimpleNamespace(handlers={}))
        self.records = []
        self.broker.host.sinks.append(self.records.append)
        self.broker.host.feed(leasing.SlotAdded, slot="n/cpu0", node="n", device="cpu", executor_epoch=1)
        self.tasks = []
        return self

    async def __aexit__(self, *error):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.broker.close()

    def keep(self, work):
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    def client(self, task, ask=None):
        async def direct(op, /, *, timeout_s=1.0, **message):
            return await asyncio.wait_for(getattr(self.broker.grants, op.removeprefix("drlnb_"))(**message), timeout_s)

        link = SimpleNamespace(node="n", keep=self.keep, ask_broker=ask or direct)
        return LeaseClient(
            link, f"r/{task}", 1, LeasingSettings.from_mapping(TIMES), lambda *lost: self.records.append(lost)
        )

    def of(self, kind):
        return [record for record in self.records if isinstance(record, kind)]


def test_who_goes_on_polling_keeps_its_place():
    """It waits three times as long as a silent requester would be waited for; it is next nevertheless."""

    async def go():
        async with Cluster() as cluster:
            holder, waiter = cluster.client("holder"), cluster.client("waiter")
            held = await holder.acquire("h", round=1)
            asked = cluster.keep(waiter.acquire("w", round=1))
            while len(cluster.of(leasing.SlotRequested)) < 2:
                await asyncio.sleep(0)
            await asyncio.sleep(3 * TIMES["lost_polls"] * TIMES["poll_s"])
            await holder.release(held["fence"], clean=True, computed_s=(0.0,))
            assert (await asyncio.wait_for(asked, 1.0))["waited_s"] > 0.15
            assert cluster.of(leasing.RequestRefused) == []

    asyncio.run(go())


def test_a_refusal_after_a_long_wait_is_not_the_last_word():
    """Refused once after it waited for longer than three times to live, a request is made anew and granted."""

    async def go():
        async with Cluster() as cluster:
            began_t, answers = time.monotonic(), []

            async def ask(op, /, **message):
                await asyncio.sleep(0.005)
                if op == "drlnb_renew":
                    return {"ok": True}
                if time.monotonic() - began_t < 3.2 * TIMES["ttl_s"]:
                    return {"pending": True}
                answers.append(message["request_id"])
                return (
                    {"refused": "place lost"}
                    if len(answers) == 1
                    else {"fence": Fence(1, 1), "slots": [], "settings": TIMES}
                )

            await cluster.client("a", ask).acquire("w", round=1)
            assert answers == ["r/a/w", "r/a/w+1"]

    asyncio.run(go())


def test_who_is_only_ever_refused_is_told():
    """After three times to live without another answer the master hears of it."""

    async def go():
        async with Cluster() as cluster:

            async def ask(op, /, **message):
                return {"refused": "for good"}

            client = cluster.client("a", ask)
            began_t = time.monotonic()
            with pytest.raises(PeerError, match="refuses request w: for good"):
                await client.acquire("w", round=1)
            assert time.monotonic() - began_t >= 3 * TIMES["ttl_s"]

    asyncio.run(go())


@pytest.mark.parametrize("arrives", [True, False])
def test_a_grant_that_expired_on_its_way_is_not_handed_out(arrives):
    """The answer came late (its receiver stood still), or never, and the lease has expired: a new one is taken."""

    async def go():
        async with Cluster() as cluster:
            lost = []

            async def ask(op, /, timeout_s, **message):
                if op == "drlnb_acquire" and not lost:
                    lost.append(await cluster.broker.grants.acquire(**message))
                    deadline = time.monotonic() + 1.0
                    while not cluster.of(leasing.LeaseExpired) and time.monotonic() < deadline:
                        await asyncio.sleep(0.005)
                    cluster.broker.host.feed(leasing.ExecutorIdled, slot="n/cpu0")
                    if arrives:
                        return lost[0]
                    raise TimeoutError
                return await getattr(cluster.broker.grants, op.removeprefix("drlnb_"))(**message)

            held = await cluster.client("a", ask).acquire("w", round=1)
            assert held["fence"] > lost[0]["fence"]

    asyncio.run(go())


def test_a_holder_that_stood_still_commits_nothing():
    """Stopped for longer than it may be silent, its loop goes on with the commit first: the lease may be another's."""
    made = Committed(published=b"parameters")

    async def go(stands_s):
        async with Cluster() as cluster:
            client = cluster.client("a")
            fence = (await client.acquire("w", round=1))["fence"]
            fed = []
            master = SimpleNamespace(
                made={"k": made},
                sender=SimpleNamespace(changes=lambda published: (0, ())),
                gate=StoreGate(),
                attempt=1,
                leases=client,
                committed=None,
                host=SimpleNamespace(feed=lambda kind, **fields: fed.append(kind)),
            )
            time.sleep(stands_s)  # as a stopped process: no renewal, no message
            command = words.CommitParameters(version=1, round=0, fence=fence, key="k")
            SlotEffects.commit(SimpleNamespace(m=master), command)
            return fed, master.committed

    assert asyncio.run(go(0.0)) == ([words.ParametersCommitted], made)
    assert asyncio.run(go(0.05)) == ([words.LeaseLost], None)


def test_the_pool_forgets_what_it_said_of_leases_that_are_over():
    """However many rounds a task trains, its scheduler keeps the answer of the lease that it holds, and no other."""

    async def go():
        async with Cluster() as cluster:
            client = cluster.client("a")
            for number in range(5):
                held = await client.acquire(f"w{number}", round=number)
                assert len(cluster.broker.grants._answers) == len(cluster.broker.grants._granted) == 1
                await client.release(held["fence"], clean=True, computed_s=(0.0,))
            return cluster.broker.grants._answers, cluster.broker.grants._granted

    assert asyncio.run(go()) == ({}, {})


def test_who_lost_the_lease_waits_for_no_answer():
    """The slot's node never answers; with its lease lost, the task goes on to the next one."""

    async def go():
        async with Cluster() as cluster:
            client = cluster.client("a")
            fence = (await client.acquire("w", round=1))["fence"]
            never = asyncio.get_running_loop().create_future()

            async def work():
                await never

            waiting = cluster.keep(client.unless_lost(fence, work()))
            await asyncio.sleep(0)
            client.lost(fence, "expired")
            with pytest.raises(ConnectionError, match="the lease was lost"):
                await asyncio.wait_for(waiting, 1.0)
            with pytest.raises(ConnectionError, match="the lease was lost"):
                await client.unless_lost(fence, work())
            assert never.cancelled()

    asyncio.run(go())


def test_a_node_that_stands_still_is_asked_again_for_its_slot(monkeypatch):
    """The slot of an expired lease drains until its executor says that it is idle, however late that answer is."""
    monkeypatch.setattr(nodes, "_REVOKE_AGAIN_S", 0.0)

    async def go():
        async with Cluster() as cluster:
            broker, asked = cluster.broker, []
            broker.nodes.rows["n"] = {"host": "h", "address": "a"}
            broker.nodes.given["n"] = {"n/cpu0": {"slot": "n/cpu0", "device": "cpu", "up": True}}

            async def ask_node(node, op, timeout_s, /, **message):
                asked.append(op)
                return {"idle": True} if asked.count("drlnb_revoke") == 3 else None

            broker.ask_node = ask_node
            broker.host.feed(
                leasing.SlotRequested, request_id="q", task="r/a", attempt=1, round=1, node="n", yields=False
            )
            while not cluster.of(leasing.ExecutorIdled):
                await asyncio.sleep(0.001)
            return asked.count("drlnb_revoke"), cluster.of(leasing.SlotDrained)

    n_asked, drained = asyncio.run(asyncio.wait_for(go(), 5.0))
    assert n_asked == 3
    assert len(drained) == 1


# ------------------------------------------------------------------ a second master of one task
def _two_attempts(folder):
    """Return a register of runs in which task a of run r has been attached twice."""
    (folder / "journal").mkdir(parents=True)
    pool = SimpleNamespace(settings=LeasingSettings.from_mapping(TIMES))
    runs = Runs(SimpleNamespace(pool=pool, epoch=1, nodes=SimpleNamespace(end_task=lambda *which: None)))
    spec = {"out": str(folder), "tasks": [{"name": "a"}]}
    runs.live["r"] = LiveRun("r", spec)
    return runs


def test_a_superseded_master_is_told_so(tmp_path):
    """Once attempt 2 is attached, rows of attempt 1 are shown, but its count of steps is not the task's any more."""

    async def go():
        runs = _two_attempts(tmp_path)
        for request in ("first", "second"):
            await runs.task_attach("r", "a", "n", request)
        message = {"run": "r", "task": "a", "rows": []}
        told = [await runs.task_rows(**message, n_timesteps=10 * attempt, attempt=attempt) for attempt in (2, 1)]
        await runs.close()
        return told, runs.live["r"].tasks["a"]["n_timesteps"]

    assert asyncio.run(go()) == ([{"ok": True}, {"stale": True}], 20)


def test_a_superseded_master_ends_without_a_word():
    """It neither fails the task nor ends the collectors, which are the later attempt's."""

    async def go():
        said = []

        async def ask_broker(op, /, **message):
            said.append(op)
            return {"stale": True}

        plain = {"attempt": 1, "spec": SPEC, "out": "", "settings": {}, "planners": {}, "resume": False}
        attached = {**plain, "leasing": asdict(LeasingSettings())}
        master = Master(SimpleNamespace(ask_broker=ask_broker), "r", "a", attached)
        master.rows.waiting.append({"s": "s"})
        await master.rows.flush()
        assert await asyncio.wait_for(master.done, 1.0) == "aborted: another attempt has begun"
        assert await master.rows.is_superseded()
        return said

    assert set(asyncio.run(go())) == {"drlnb_task_rows"}


def _relay(tmp_path):
    """Return a relay whose reports go nowhere."""

    async def call(address, op, **message):
        return {}

    tasks = set()
    keep = lambda coroutine: tasks.add(asyncio.ensure_future(coroutine))  # noqa: E731
    return HostRelay(SimpleNamespace(directory=tmp_path, node="n0", keep=keep, call=call))


async def _arrives(relay, attempt):
    chunk = {"attempt": attempt, "version": 3, "start": 0, "stop": 4, "total": 4, "again": False}
    (way,) = ways(((LEARNER, 0),), pack_hosts([("n0", "tcp://n0")]))
    where = {"hosts": way.hosts, "edges": way.edges, "report": "tcp://m", "left_s": 5.0, "n_in_flight": 4}
    await relay.chunk(("r", "a"), chunk, **where, payload=b"four")
    await asyncio.sleep(0)


def test_the_end_of_an_earlier_attempt_takes_no_parameters_along(tmp_path):
    """Attempt 2 has sent its parameters here: that attempt 1 ends drops nothing, that attempt 2 ends does."""

    async def go():
        relay = _relay(tmp_path)
        await _arrives(relay, 2)
        there = bool(relay.path("r", "a"))
        relay.drop("r", "a", 1)
        still = bool(relay.path("r", "a"))
        relay.drop("r", "a", 2)
        return there, still, bool(relay.path("r", "a"))

    assert asyncio.run(go()) == (True, True, False)


def test_parameters_that_arrive_after_the_end_are_not_kept(tmp_path):
    """A chunk was under way when the task ended: it makes no store that nobody would drop; a later attempt's does."""

    async def go():
        relay = _relay(tmp_path)
        relay.drop("r", "a", 2)
        with pytest.raises(ConnectionError) as late:
            await _arrives(relay, 2)
        kept = relay.path("r", "a")
        await _arrives(relay, 3)
        found = str(late.value), kept, bool(relay.path("r", "a"))
        relay.close()
        return found

    assert asyncio.run(go()) == ("attempt 2 of r/a is over", "", True)


# ------------------------------------------------------------------ ended before it has begun
def test_a_task_that_is_killed_before_it_is_placed_ends(tmp_path, monkeypatch):
    """The pool answers no question of a task that is over; its master ends all the same, and so does its anchor."""
    agent = Agent(tmp_path)
    answer = agent.ask_broker

    async def ask_broker(op, /, **message):
        if op == "drlnb_place":
            agent.masters["r", "a"].done.set_result("stopped")
            await asyncio.Event().wait()
        return await answer(op, **message)

    agent.ask_broker = ask_broker
    assert asyncio.run(agent.run(monkeypatch)) == "stopped"


def test_a_placement_that_comes_after_the_kill_starts_nothing(tmp_path, monkeypatch):
    """The kill was heard first, and knew of no node to tell: a collector that is started now would never be ended."""
    agent = Agent(tmp_path)
    answer = agent.ask_broker

    async def ask_broker(op, /, **message):
        if op == "drlnb_place":
            await agent.control("r", "a", action="kill")
        return await answer(op, **message)

    agent.ask_broker = ask_broker
    assert asyncio.run(agent.run(monkeypatch)) == "stopped"
    assert rows(agent, "PlacementReceived") == []
    assert agent.told("drlnb_collector_start") == []


class SlowHost(CollectorHost):
    """Its processes take until `forked` is set to start, and end as soon as they are told to."""

    def __init__(self):
        super().__init__(None)
        self.forked, self.ends, self.launched = asyncio.Event(), [], 0

    async def _launch(self, live, mode):
        self.launched += 1
        await self.forked.wait()

        async def aclose():
            self.ends.append(live.attempt)

        live.process = SimpleNamespace(end=lambda _: asyncio.sleep(0))
        live.channel = SimpleNamespace(aclose=aclose)

    async def _configure(self, live, header, state, quiet_s):
        return {"op": "ready", "event": {}}

    def begin(self, attempt):
        given = {"configuration": {}, "log": "", "mode": "spawn"}
        return asyncio.ensure_future(self.start(("r", "a", 0), attempt=attempt, **given))


def test_a_collector_that_starts_while_its_task_ends_is_ended():
    """The task ended between the fork and its answer: nobody would ever speak to that process again."""

    async def go():
        host = SlowHost()
        starting = host.begin(1)
        await asyncio.sleep(0.01)
        await host.stop_task("r", "a", below_attempt=2)
        host.forked.set()
        with pytest.raises(ConnectionError, match="is over"):
            await starting
        with pytest.raises(ConnectionError, match="is over"):
            await host.begin(1)
        assert host.launched == 1, "what is over from the start is not started at all"
        await host.begin(2)
        return host.ends, [live.attempt for live in host.live.values()]

    assert asyncio.run(go()) == ([1], [2])


def test_of_two_starts_of_one_collector_one_lives():
    """Commanded twice before the first one was up, there are two processes for a moment, then one."""

    async def go():
        host = SlowHost()
        both = host.begin(1), host.begin(1)
        await asyncio.sleep(0.01)
        host.forked.set()
        await asyncio.gather(*both, return_exceptions=True)
        return len(host.ends), len(host.live)

    assert asyncio.run(go()) == (1, 1)


def test_a_start_that_is_cancelled_leaves_no_process():
    """Its master ended in the middle of the fork, on the same node: the process comes up all the same, and is ended."""

    async def go():
        host = SlowHost()
        starting = host.begin(1)
        await asyncio.sleep(0.01)
        await host.stop_task("r", "a", below_attempt=2)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        host.forked.set()
        await asyncio.sleep(0.01)
        return host.ends, dict(host.live)

    assert asyncio.run(go()) == ([1], {})


# ------------------------------------------------------------------ slots
@pytest.mark.thorough
def test_a_death_never_overtakes_the_start_that_followed_it():
    """The scheduler stalls with the first message, and the second one would be heard first; a lost one comes again."""

    async def go():
        heard, calls = [], []

        async def ask_broker(op, /, **message):
            calls.append(op)
            await asyncio.sleep(0.03 if len(calls) == 1 else 0)
            if len(calls) == 1:
                raise TimeoutError
            heard.append(op)

        link = played_link(ask_broker=ask_broker)
        here = Slots(link)
        executor = SimpleNamespace(slot="n/cpu0", device="cpu", device_name="cpu", epoch=2)
        here._down(executor, "killed by signal 9")
        here._report_up(executor)
        await asyncio.wait_for(asyncio.gather(*link._background), 2.0)
        return heard

    assert asyncio.run(go()) == ["drlnb_slot_down", "drlnb_slot_up"]

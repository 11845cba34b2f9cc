"""Ends, attempts and lives of runs at the broker, in one loop without a wire: what is told to whom, and how often."""

import asyncio
import json
import pathlib
from types import SimpleNamespace

import pytest

from drlnb.records.errors import ConfigError, RunLocked
from drlnb.runtime.node.slots import Slots
from drlnb.runtime.protocol import Refusal
from drlnb.runtime.scheduler import nodes as broker_nodes
from drlnb.runtime.scheduler import run
from drlnb.runtime.scheduler import runs as broker_runs
from drlnb.runtime.scheduler.anchors import Anchors
from drlnb.runtime.scheduler.plugin import BrokerPlugin


class Cluster:
    """A broker with nodes that are played."""

    def __init__(self, folder, *nodes):
        self.folder, self.nodes = folder, nodes
        #: (node, operation, attempt or what else it is about) of each message that arrived.
        self.told = []
        #: (node, operation) -> how many messages are lost on the way.
        self.losses = {}

    async def __aenter__(self):
        self.broker = BrokerPlugin()
        await self.broker.start(SimpleNamespace(handlers={}, rpc=self.rpc))
        for node in self.nodes:
            await self.up(node)
        self.runs = self.broker.runs
        return self

    async def __aexit__(self, *error):
        await self.broker.close()
        await asyncio.gather(*self.broker.host._tasks, return_exceptions=True)

    async def up(self, node, server_id="first"):
        row = {"server_id": server_id, "host": "h", "n_cpus": 1, "devices": [], "why_no_cuda": ""}
        await self.broker.nodes.agent_up(node, f"tcp://{node}", **row)

    def rpc(self, address):
        return Wire(self, address.removeprefix("tcp://"))

    def spec(self, **more):
        out = self.folder / "out"
        (out / "journal").mkdir(parents=True, exist_ok=True)
        return {"out": str(out), "tasks": [{"name": "a"}], **more}

    def of(self, op):
        return sorted((node, about) for node, what, about in self.told if what == op)

    async def settled(self):
        """Wait until nobody is told anything any more."""
        while self.broker.host._tasks:
            await asyncio.gather(*self.broker.host._tasks)


class Wire:
    """The way to a node."""

    def __init__(self, cluster, node):
        self._cluster, self._node = cluster, node

    def __getattr__(self, op):
        async def ask(**message):
            losses = self._cluster.losses
            await asyncio.sleep(0)
            if losses.get((self._node, op), 0):
                losses[self._node, op] -= 1
                raise ConnectionError
            self._cluster.told.append((self._node, op, message.get("attempt", message.get("address"))))
            return {"ok": True}

        return ask


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Nobody here is far away."""
    monkeypatch.setattr(broker_nodes, "_AGAIN_S", (0.0, 0.0, 0.0))


def play(scene, folder, *nodes):
    """Play a scene with a cluster; return what it returns."""

    async def go():
        async with Cluster(folder, *nodes) as cluster:
            return await asyncio.wait_for(scene(cluster), 5.0)

    return asyncio.run(go())


# ------------------------------------------------------------------ how many tasks there may be
@pytest.mark.parametrize(
    ("limits", "refused"), [((1024, 500), True), ((1024, 1024), False), ((1024, 0), False), ((), False)]
)
def test_more_tasks_than_the_nodes_may_open_files_for_are_refused(tmp_path, limits, refused):
    """200 tasks of two collectors need 1,600 on all nodes together; 0 means that there is no limit."""

    async def scene(cluster):
        for n, limit in enumerate(limits):
            cluster.broker.nodes.rows[f"n{n}"] = {"n_descriptors": limit}
        spec = cluster.spec(tasks=[{"name": f"a{i}", "n_collectors": 2} for i in range(200)])
        if refused:
            with pytest.raises(
                ConfigError, match=r"200 tasks need about 1,600 open files, the nodes here may have 1,524"
            ):
                await cluster.runs.run_create("r", spec)
        else:
            await cluster.runs.run_create("r", spec)
        cluster.broker.nodes.rows.clear()
        assert ("r" in cluster.runs.live) != refused

    play(scene, tmp_path)


@pytest.mark.parametrize(
    ("made", "refused"), [({}, True), ({"can_grow": True}, False), ({"resume": True}, False), ({"n_slots": 3}, False)]
)
def test_more_learners_than_the_pool_has_slots_are_refused(tmp_path, made, refused):
    """In one line with both numbers, unless later workers may bring more; a run that goes on makes do."""

    async def scene(cluster):
        pool = cluster.broker.nodes.pool
        pool.given = {"n0": {f"n0/cpu{k}": {} for k in range(made.get("n_slots", 2))}}
        pool.shared, pool.counted = made.get("can_grow", False), False
        tasks = [{"name": "a", "n_learners": 3}, {"name": "b"}]
        spec = cluster.spec(tasks=tasks, resume=made.get("resume", False))
        if refused:
            with pytest.raises(ConfigError) as error:
                await cluster.runs.run_create("r", spec)
            assert str(error.value) == (
                "task a: n_learners = 3, but the pool has 2: ask for fewer learners, or for a fleet with more slots"
            )
        else:
            await cluster.runs.run_create("r", spec)
        assert ("r" in cluster.runs.live) != refused

    play(scene, tmp_path)


# ------------------------------------------------------------------ which streams a run has
def test_the_status_names_every_stream_of_the_run_with_its_length(tmp_path):
    """Those of former attempts and lives, too: whatever is deleted later is missed."""
    out = tmp_path / "out"

    def told():
        return json.loads((out / "status.json").read_text())["streams"]

    async def scene(cluster):
        before = {"broker-e1": 700, "task-a-a1": 80}
        await cluster.runs.run_create("r", cluster.spec(streams=before, attempts={"a": 1}, resume=True))
        await cluster.runs.task_attach("r", "a", "n0", "one")
        await cluster.runs.task_rows("r", "a", [], n_timesteps=1, attempt=2, n_bytes=90)
        await cluster.runs.task_attach("r", "a", "n0", "two")
        await cluster.runs.task_rows("r", "a", [], n_timesteps=1, attempt=3, n_bytes=50)
        live = cluster.runs.live["r"]
        name, writer = live.streams["pool"]
        writer.close()
        await cluster.runs.task_end("r", "a", 3, "stopped", "")
        ours = {name: (out / "journal" / f"{name}.jsonl").stat().st_size}
        assert ours[name] > 0
        assert told() == before | {"task-a-a2": 90, "task-a-a3": 50} | ours
        await cluster.runs.run_create("r", cluster.spec(resume=True))
        assert told().items() >= (before | {"task-a-a3": 50} | ours).items()

    play(scene, tmp_path, "n0")


@pytest.mark.parametrize("ends", [False, True])
def test_a_status_that_the_disk_refused_is_written_when_there_is_room(tmp_path, monkeypatch, ends):
    """Nobody reads later that a run goes on which is over; at the broker's end it is tried once more."""
    monkeypatch.setattr(run, "_STATUS_S", 0.2 if ends else 0.001)
    monkeypatch.setattr(run, "_SAID_S", 0.1)
    write_text = pathlib.Path.write_text
    (tmp_path / "out").mkdir()

    def full(path, *args, **kwargs):
        raise OSError(28, "No space left on device")

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        await cluster.runs.task_attach("r", "a", "n0", "one")
        await cluster.runs.live["r"].said()
        monkeypatch.setattr(pathlib.Path, "write_text", full)
        await cluster.runs.task_end("r", "a", 1, "done", "")
        assert json.loads((tmp_path / "out/status.json").read_text())["state"] == "running"
        await asyncio.sleep(0.005)
        monkeypatch.setattr(pathlib.Path, "write_text", write_text)
        monkeypatch.setattr(run, "_SAID_S", 10.0)
        if not ends:
            await cluster.runs.live["r"].said()

    play(scene, tmp_path, "n0")
    assert json.loads((tmp_path / "out/status.json").read_text())["state"] == "done"


# ------------------------------------------------------------------ what a task leaves on nodes
def test_every_node_ends_what_it_has_of_a_task_that_is_over(tmp_path):
    """Whoever ended it, the master or Dask, and whatever nodes its last attempt knew; a lost word is said again."""

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        await cluster.runs.task_attach("r", "a", "n0", "one")
        cluster.losses["n1", "drlnb_end_task"] = 3
        await cluster.runs.task_end("r", "a", 1, "done", "")
        await cluster.settled()
        return cluster.of("drlnb_end_task")

    assert play(scene, tmp_path, "n0", "n1") == [("n0", 1), ("n1", 1)]


def test_a_task_that_dask_gave_up_is_ended_everywhere(tmp_path):
    """Its master died for good: its collectors on other nodes would act and wait for ever."""

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        key = (await cluster.runs.run_anchors("r"))["a"]
        await cluster.runs.task_attach("r", "a", "n0", "one")
        cluster.broker.transition(key, "processing", "erred", exception=RuntimeError())
        await cluster.settled()
        assert cluster.runs.live["r"].tasks["a"]["state"] == "failed"
        return cluster.of("drlnb_end_task")

    assert play(scene, tmp_path, "n0", "n1") == [("n0", 1), ("n1", 1)]


def test_a_new_attempt_ends_the_former_one_on_every_node(tmp_path):
    """It need not use a node that the former one used."""

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        await cluster.runs.task_attach("r", "a", "n0", "one")
        assert cluster.of("drlnb_end_task") == []
        await cluster.runs.task_attach("r", "a", "n1", "two")
        await cluster.settled()
        return cluster.of("drlnb_end_task")

    assert play(scene, tmp_path, "n0", "n1", "n2") == [("n0", 1), ("n1", 1), ("n2", 1)]


def test_a_node_that_does_not_answer_is_not_told_for_ever(tmp_path):
    """Four times, and no more; one that was started anew has nothing of the task."""

    async def scene(cluster):
        cluster.losses = {("n0", "drlnb_end_task"): 9, ("n1", "drlnb_end_task"): 9}
        cluster.broker.nodes.end_task("r", "a", 1)
        await asyncio.sleep(0)
        await cluster.up("n1", "second")
        await cluster.settled()
        return 9 - cluster.losses["n0", "drlnb_end_task"], 9 - cluster.losses["n1", "drlnb_end_task"]

    n_told, n_told_anew = play(scene, tmp_path, "n0", "n1")
    assert n_told == 4
    assert n_told_anew < 4


def test_the_loss_of_a_node_is_told_again_with_its_address(tmp_path):
    """A word that was lost comes again; the address tells it from the same node that is back since."""

    async def scene(cluster):
        cluster.losses["n1", "drlnb_node_lost"] = 2
        cluster.broker.nodes.lost("tcp://n0", "the worker left the cluster")
        await cluster.settled()
        return cluster.of("drlnb_node_lost")

    assert play(scene, tmp_path, "n0", "n1") == [("n1", "tcp://n0")]


def test_the_end_of_an_earlier_attempt_takes_no_model_along():
    """Attempt 2 has computed here: what it has staged would be gone in the middle of its round."""

    async def go():
        evicted = []

        async def ask(header, *payloads, timeout_s):
            return {"op": "staged"}, b""

        node = Slots(SimpleNamespace(directory=None))
        node.executors = {"s": SimpleNamespace(ask=ask, forget=evicted.append)}
        for attempt in (1, 2):
            await node._compute(node.executors["s"], {"op": "stage", "task": "r/a", "attempt": attempt}, 1.0, b"", None)
        node.forget_model("r/a", 1)
        assert evicted == []
        node.forget_model("r/a", 2)
        return evicted

    assert asyncio.run(go()) == ["r/a"]


# ------------------------------------------------------------------ attempts
def test_a_repeated_registration_is_the_same_attempt(tmp_path):
    """The answer to the first one was lost; once another master has registered itself, a late copy is refused."""

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        attempts = []
        for node, request in (("n0", "one"), ("n0", "one"), ("n1", "two"), ("n0", "one"), ("n1", "two")):
            try:
                attempts.append((await cluster.runs.task_attach("r", "a", node, request))["attempt"])
            except Refusal:
                attempts.append("over")
        await cluster.settled()
        return attempts, cluster.runs.live["r"].tasks["a"]["node"]

    assert play(scene, tmp_path) == ([1, 1, 2, "over", 2], "n1")


# ------------------------------------------------------------------ lives
def test_a_run_is_resumed_once_its_last_task_has_ended_here_too(tmp_path):
    """Its journal has told the end while its master still ends its collectors: the new life waits for that."""

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        await cluster.runs.task_attach("r", "a", "n0", "one")
        former = cluster.runs.live["r"]
        resuming = asyncio.ensure_future(cluster.runs.run_create("r", cluster.spec(resume=True)))
        await asyncio.sleep(0.03)
        assert not resuming.done()
        await cluster.runs.task_end("r", "a", 1, "stopped", "asked for")
        await resuming
        live = cluster.runs.live["r"]
        assert live is not former
        await cluster.runs.run_create("r", cluster.spec(resume=True))  # the same message again
        assert cluster.runs.live["r"] is live
        await cluster.settled()
        return live.tasks["a"]["state"], (await cluster.runs.task_attach("r", "a", "n0", "two"))["attempt"]

    assert play(scene, tmp_path, "n0") == ("starting", 2)  # the journal knows of no attempt, the broker does


def test_an_anchor_of_the_former_life_that_comes_back_late_is_not_replaced(tmp_path, monkeypatch):
    """The run is resumed before its former master's Dask task has ended: the next one is the client's to submit."""
    submitted = []

    async def submit(anchors, tasks):
        submitted.extend(task for _, task in tasks)

    monkeypatch.setattr(Anchors, "_submit", submit)

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        former = (await cluster.runs.run_anchors("r"))["a"]
        await cluster.runs.task_attach("r", "a", "n0", "one")
        await cluster.runs.task_end("r", "a", 1, "stopped", "asked for")
        await cluster.runs.run_create("r", cluster.spec(resume=True))
        cluster.broker.transition(former, "processing", "memory")
        await cluster.settled()
        assert submitted == []
        latter = (await cluster.runs.run_anchors("r"))["a"]
        assert latter != former
        cluster.broker.transition(latter, "processing", "memory")
        await cluster.settled()

    play(scene, tmp_path, "n0")
    assert submitted == ["a"], "one that is lost is replaced"


def test_lives_that_follow_at_once_have_streams_of_their_own(tmp_path):
    """The former one has not written its first row yet: two headers in one file could not be replayed."""

    async def scene(cluster):
        names = []
        for _ in range(3):
            await cluster.runs.run_create("r", cluster.spec(resume=True))
            names.append(cluster.runs.live["r"].streams["pool"][0])
            await cluster.runs.run_control("r", "stop")
        await cluster.settled()
        return len(set(names))

    assert play(scene, tmp_path) == 3


def test_a_run_that_goes_on_is_not_resumed(tmp_path, monkeypatch):
    """It is said, instead of doing nothing."""
    monkeypatch.setattr(broker_runs, "_END_S", 0.0)

    async def scene(cluster):
        await cluster.runs.run_create("r", cluster.spec())
        with pytest.raises(RunLocked, match="run r goes on"):
            await cluster.runs.run_create("r", cluster.spec(resume=True))

    play(scene, tmp_path)


def test_rows_of_a_run_that_has_ended_are_forgotten_after_a_while(tmp_path, monkeypatch):
    """A scheduler that lives for long keeps no rows of every run that it has seen; a run that goes on keeps its own."""
    monkeypatch.setattr(broker_runs, "KEEP_S", 0.0)

    async def scene(cluster):
        runs = cluster.runs
        await runs.run_create("r", cluster.spec())
        former = runs.live["r"]
        former.add([{"r": "old"}])
        await runs.run_control("r", "stop")
        await runs.run_create("r", cluster.spec(resume=True))
        while former.ring:
            await asyncio.sleep(0)
        await cluster.settled()
        page = await runs.rows("r", 0, 0.0)
        return [row["r"] for row in page["rows"]], page["gap"]

    assert play(scene, tmp_path) == (["StreamOpened"], False)


def test_who_watched_a_run_sees_the_rest_of_it_and_its_next_life(tmp_path, monkeypatch):
    """Row numbers go on: a watcher misses nothing, a newcomer gets this life's rows, and both hear what is lost."""
    monkeypatch.setattr(run, "_RING", 5)

    async def scene(cluster):
        runs = cluster.runs
        await runs.run_create("r", cluster.spec())
        runs.live["r"].add([{"r": f"old {n}"} for n in range(9)])
        seen = (await runs.rows("r", 0, 0.0))["next"]
        assert seen == 10  # the stream's header is a row, too
        runs.live["r"].add([{"r": "last"}])
        await runs.run_control("r", "stop")
        await runs.run_create("r", cluster.spec(resume=True))
        runs.live["r"].add([{"r": "new"}])
        pages = [await runs.rows("r", since, 0.0) for since in (seen, 0, 2)]
        runs.live["r"].add([{"r": "more"}] * 9)
        pages.append(await runs.rows("r", 0, 0.0))
        await cluster.settled()
        return [([row["r"] for row in page["rows"]], page["next"], page["gap"]) for page in pages]

    watcher, newcomer, late, too_late = play(scene, tmp_path)
    assert watcher == (["last", "StreamOpened", "new"], 13, False)
    assert newcomer == (["StreamOpened", "new"], 13, False)
    assert late == (["old 7", "old 8", "last", "StreamOpened", "new"], 13, True)
    assert too_late == (["more"] * 5, 22, True)

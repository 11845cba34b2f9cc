"""What becomes of a task whose Dask task is gone: broker and a played scheduler in one loop, without a wire."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from distributed import Security

from drlnb.records.columns import placement
from drlnb.records.journal import Journal
from drlnb.runtime.machine_host import JournalWriter
from drlnb.runtime.protocol import Refusal
from drlnb.runtime.scheduler import anchors
from drlnb.runtime.scheduler.plugin import BrokerPlugin


class Scheduler(SimpleNamespace):
    """What the broker sees of a scheduler, and a client of it; what was submitted is in `tasks`."""

    def __init__(self):
        super().__init__(handlers={}, workers={}, tasks={}, address="tcp://here:1", security=Security())
        self.refusal = None
        self.deaf = False
        self.soft = {}

    def __call__(self, address, **how):
        assert (address, how["asynchronous"], how["set_as_default"]) == (self.address, True, False)
        return self

    async def __aenter__(self):
        if self.refusal is not None:
            raise self.refusal
        return self

    async def __aexit__(self, *error):
        pass

    def submit(self, function, *names, key, pure, retries, **soft):
        self.soft = soft
        assert (function.__name__, pure, retries) == ("anchor", False, 0)
        if not self.deaf:
            self.tasks[key] = names


class World:
    """A broker with one run of tasks a and b, and no worker."""

    def __init__(self, out, monkeypatch, n_tasks=1):
        self.out, self.names = out, ("a", "b")[:n_tasks]
        self.scheduler = Scheduler()
        self.n_masters = 0
        monkeypatch.setattr(anchors, "Client", self.scheduler)
        monkeypatch.setattr(anchors, "fire_and_forget", lambda future: None)
        monkeypatch.setattr(anchors, "_LOOK_S", 0.0)
        monkeypatch.setattr(anchors, "_NO_AGENT_S", 0.0)

    async def __aenter__(self):
        self.broker = BrokerPlugin()
        await self.broker.start(self.scheduler)
        self.runs = self.broker.runs
        tasks = [{"name": name} for name in self.names]
        await self.runs.run_create("r", {"run": "r", "out": str(self.out), "tasks": tasks})
        self.keys = await self.runs.run_anchors("r")
        return self

    async def __aexit__(self, *error):
        await self.broker.close()
        while self.broker.host._tasks:  # a stream that ended is closed by a thread
            await asyncio.gather(*self.broker.host._tasks, return_exceptions=True)

    async def attach(self, task, node):
        """Let a master register itself."""
        self.n_masters += 1
        return await self.runs.task_attach("r", task, node, f"request {self.n_masters}")

    def row(self, task="a"):
        return self.runs.live["r"].tasks[task]

    def says(self, key, finish, **more):
        """Let Dask say what became of a task."""
        self.broker.transition(key, "processing", finish, stimulus_id="s", **more)

    async def submitted(self):
        """Wait for the next anchor, and return its key."""
        before = set(self.scheduler.tasks)
        while not (new := set(self.scheduler.tasks) - before):
            await asyncio.sleep(0)
        return new.pop()

    async def over(self, task="a"):
        while not self.runs.live["r"].is_over(task):
            await asyncio.sleep(0)
        return self.row(task)["state"], self.row(task)["reason"]


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Run a scene in a world."""

    def go(scene, **how):
        async def within():
            async with World(tmp_path, monkeypatch, **how) as world:
                return await asyncio.wait_for(scene(world), 5.0)

        return asyncio.run(within())

    return go


@pytest.mark.parametrize("action", ["stop", "kill"])
def test_a_task_that_runs_nowhere_ends_when_it_is_told_to(play, action):
    """Its node is lost and no other has taken it on: it is stopped at once, and whoever takes it on later is told."""

    async def scene(world):
        await world.attach("a", "n0")
        world.runs.node_lost("n0")
        assert (world.row()["state"], world.row()["node"]) == ("running", "")
        await world.runs.run_control("r", action, reason="asked for")
        ended = await world.over()
        with pytest.raises(Refusal, match="task a is stopped"):
            await world.attach("a", "n1")
        return ended

    assert play(scene) == ("stopped", "asked for")


def test_after_a_restart_of_the_cluster_open_tasks_are_submitted_again(play):
    """Not before the workers of before are gone; under a key of the next attempt; what is over stays over."""

    async def scene(world):
        await world.attach("a", "n0")
        await world.attach("b", "n0")
        await world.runs.task_end("r", "b", 1, "done", "")
        world.scheduler.workers["tcp://w:1"] = None
        world.says(world.keys["a"], "forgotten")
        world.broker.restart(world.scheduler)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not world.scheduler.tasks, "the old workers are still there"
        world.runs.node_lost("n0")
        world.scheduler.workers = {"tcp://w:2": None}
        key = await world.submitted()
        assert world.scheduler.tasks == {key: ("r", "a")}
        assert (world.row()["state"], world.row()["wanted"]) == ("running", "")
        assert (await world.attach("a", "n1"))["attempt"] == 2
        return key

    assert play(scene, n_tasks=2) == "drlnb-r/a#2.1"


def test_two_restarts_in_a_row_submit_once(play):
    """The second one comes before the first one's workers are gone."""

    async def scene(world):
        world.scheduler.workers["tcp://w:1"] = None
        world.broker.restart(world.scheduler)
        await asyncio.sleep(0)
        world.broker.restart(world.scheduler)
        world.scheduler.workers.clear()
        await world.submitted()
        for _ in range(20):
            await asyncio.sleep(0)
        return list(world.scheduler.tasks)

    assert play(scene) == ["drlnb-r/a.1"]


@pytest.mark.parametrize("refusal", [OSError("no route"), TimeoutError("too late")])
def test_who_cannot_be_submitted_again_fails_in_one_line(play, refusal, tmp_path):
    """The line says what happened and how to go on."""

    async def scene(world):
        await world.attach("a", "n0")
        world.scheduler.refusal = refusal
        world.broker.restart(world.scheduler)
        return await world.over()

    said = f"Dask lost its master and takes no new one ({refusal}); go on with: drlnb resume {tmp_path}"
    assert play(scene) == ("failed", said)


def test_a_scheduler_that_takes_no_anchor_is_not_waited_for_for_ever(play, monkeypatch):
    """It answers, and the task is not among its tasks."""
    monkeypatch.setattr(anchors, "_ACCEPT_S", 0.0)

    async def scene(world):
        world.scheduler.deaf = True
        world.broker.restart(world.scheduler)
        return await world.over()

    state, reason = play(scene)
    assert (state, "1 tasks were not accepted in 0 s" in reason) == ("failed", True)


def test_a_master_that_ends_without_a_word_is_followed_by_another(play, tmp_path):
    """As long as steps are made in between; the sixth in a row without one fails the task."""

    async def scene(world):
        key = world.keys["a"]
        for n in range(1, 9):
            await world.attach("a", "n0")
            if n == 3:
                await world.runs.task_rows("r", "a", [], n_timesteps=64, attempt=n)
            world.says(key, "memory")
            world.says(key, "forgotten")
            if n < 8:
                key = await world.submitted()
                assert key == f"drlnb-r/a#{n + 1}.{n}"
        return await world.over()

    said = f"its master ended 6 times without a word; go on with: drlnb resume {tmp_path}"
    assert play(scene) == ("failed", said)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"exception": b"...", "exception_text": "KeyError('x')"}, "KeyError('x')"),
        ({"exception": b"..."}, "its workers died more often than allowed-failures permits"),
    ],
)
def test_dask_gives_up_on_an_anchor(play, tmp_path, more, why):
    """The task fails in words; that Dask gave up on the anchor of a former attempt is nobody's end."""

    async def scene(world):
        await world.attach("a", "n0")
        world.says(world.keys["a"], "memory")
        key = await world.submitted()
        world.says(world.keys["a"], "erred", exception=ValueError())
        world.says("another's key", "erred", exception=ValueError())
        assert world.row()["state"] == "running"
        world.says(key, "erred", **more)
        return world.row()["state"], world.row()["reason"]

    said = f"Dask gave up on its master ({why}); go on with: drlnb resume {tmp_path}"
    assert play(scene) == ("failed", said)


def test_an_anchor_that_is_cancelled_before_it_ran_ends_its_task(play, tmp_path):
    """Nobody would run it any more; a restart of the cluster that follows brings nothing back."""

    async def scene(world):
        world.says(world.keys["a"], "forgotten")
        assert world.row()["state"] == "starting", "it may be a restart, which is told in the same turn"
        ended = await world.over()
        world.broker.restart(world.scheduler)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not world.scheduler.tasks
        return ended

    assert play(scene) == ("stopped", f"its Dask task was cancelled; go on with: drlnb resume {tmp_path}")


def test_a_master_whose_anchor_is_cancelled_is_asked_to_stop(play):
    """It hears of it; if its node is lost before it has stopped, the task ends all the same."""

    async def scene(world):
        heard = []

        async def ask_node(node, op, timeout_s, /, **message):
            heard.append((node, op, message["task"], message["action"], message["reason"]))

        world.broker.ask_node = ask_node
        await world.attach("a", "n0")
        world.says(world.keys["a"], "forgotten")
        while not heard:
            await asyncio.sleep(0)
        assert world.row()["state"] == "running"
        world.runs.node_lost("n1")
        assert world.row()["state"] == "running"
        world.runs.node_lost("n0")
        return heard, await world.over()

    heard, (state, reason) = play(scene)
    assert heard == [("n0", "drlnb_control", "a", "stop", "its Dask task was cancelled")]
    assert state == "stopped"
    assert "its Dask task was cancelled, and the node of its master was lost" in reason


def test_the_normal_end_of_an_anchor_is_no_news(play):
    """The task is done before its Dask task is, which is then forgotten."""

    async def scene(world):
        await world.attach("a", "n0")
        await world.runs.task_end("r", "a", 1, "done", "")
        for finish in ("memory", "forgotten"):
            world.says(world.keys["a"], finish)
        for _ in range(20):
            await asyncio.sleep(0)
        return world.row()["state"], world.scheduler.tasks

    assert play(scene) == ("done", {})


def test_who_hears_that_a_run_is_over_finds_all_of_its_journal(play, monkeypatch):
    """Its streams are whole before its state says so, however slow the disk is; a restart opens another."""
    writes = JournalWriter._append

    def slowly(self, data):
        threading.Event().wait(0.2)
        writes(self, data)

    monkeypatch.setattr(JournalWriter, "_append", slowly)

    async def scene(world):
        await world.attach("a", "n0")
        end = asyncio.create_task(world.runs.task_end("r", "a", 1, "failed", "it broke"))
        while world.row()["state"] == "running":
            await asyncio.sleep(0)
        (stream,) = Journal.read(world.out).streams.values()
        await end
        await world.runs.run_restart("r", "a")
        return stream.of(placement.TaskStopped), len(Journal.read(world.out).streams), world.runs.live["r"].n_bytes

    left, n_streams, n_bytes = play(scene)
    assert [record.task for record in left] == ["r/a"]
    assert n_streams == 1
    assert min(n_bytes.values()) > 0


def test_tasks_that_end_at_once_leave_files_that_say_so(play):
    """Each waits for its files while the other ends; one message comes twice: the run is over once, and whole."""
    ends = []

    async def scene(world):
        live, ended = world.runs.live["r"], world.runs._ended
        world.runs._ended = lambda *end: (ends.append(end[1]), ended(*end))
        for task in ("a", "b"):
            await world.attach(task, "n0")
        told = [asyncio.create_task(world.runs.task_end("r", task, 1, "stopped", "asked for")) for task in "aab"]
        while live.state == "running":
            await asyncio.sleep(0)
        status = json.loads((world.out / "status.json").read_text())
        (stream,) = Journal.read(world.out).streams.values()
        await asyncio.gather(*told)
        return status, stream.of(placement.TaskStopped)

    status, left = play(scene, n_tasks=2)
    assert status["state"] == "stopped"
    assert {row["state"] for row in status["tasks"].values()} == {"stopped"}
    assert {record.task for record in left} == {"r/a", "r/b"}
    assert sorted(ends) == ["a", "b"]


def test_a_task_that_is_started_again_has_another_anchor(play):
    """The former one may still be closing: its late words count no more."""

    async def scene(world):
        await world.attach("a", "n0")
        await world.runs.task_end("r", "a", 1, "failed", "it broke")
        reply = await world.runs.run_restart("r", "a")
        world.says(world.keys["a"], "memory")
        world.says(world.keys["a"], "forgotten")
        for _ in range(20):
            await asyncio.sleep(0)
        return reply, world.row()["state"]

    assert play(scene) == ({"attempt": 2, "anchor": "drlnb-r/a#2"}, "starting")


def test_a_broker_asks_as_a_client_with_the_certificate_that_its_scheduler_has():
    """A scheduler that was started by hand has no client's certificate."""
    own = Security(require_encryption=True, tls_ca_file="ca", tls_scheduler_cert="cert", tls_scheduler_key="key")
    made = anchors._client_security(own)
    assert (made.tls_ca_file, made.tls_client_cert, made.tls_client_key) == ("ca", "cert", "key")
    assert made.require_encryption
    assert not anchors._client_security(Security()).require_encryption


@pytest.mark.parametrize("finish", ["erred", "memory"])
def test_an_anchor_that_came_to_a_worker_without_drlnb_is_started_on_one_with_an_agent(play, finish):
    """Whether it could be read there or not: it is no failure of the task, however often that happens."""

    async def scene(world):
        nodes = world.broker.nodes
        await world.broker.worker_unused("n1", "tcp://bare:1", "has no drlnb")
        key = world.keys["a"]
        for _ in range(8):
            world.says(key, finish, worker="tcp://bare:1", exception_text="ModuleNotFoundError")
            nodes.rows["n0"] = {"address": "tcp://good:1", "host": "h"}
            nodes.wake()
            key = await world.submitted()
            assert world.scheduler.soft == {"workers": ["tcp://good:1"], "allow_other_workers": True}
        await world.attach("a", "n0")
        world.runs.node_lost("n0")
        key = await world.submitted()  # for a worker that joins now Dask would not run the former one
        assert (await nodes.nodes())["notices"] == ["worker tcp://bare:1 has no drlnb: it is not used"]
        nodes.lost("tcp://bare:1", "it left")
        assert (await nodes.nodes())["unused"] == {}
        world.says(key, "erred", worker="tcp://bare:1", exception_text="killed")
        return await world.over()

    state, reason = play(scene)
    assert (state, "Dask gave up on its master (killed)" in reason) == ("failed", True)

"""Memory that an agent and its executors share."""

import asyncio
import errno
import gc
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from drlnb.runtime.children.device import Device
from drlnb.runtime.children.executor import ExecutorChild
from drlnb.runtime.ipc import shared_memory
from drlnb.runtime.ipc.shared_memory import Segments, attached
from drlnb.runtime.node.slots import Slots
from tests.runtime.learning import FENCE, Channel
from tests.runtime.played_agent import played_link


@pytest.fixture
def lender():
    """Return a node's segments."""
    made = Segments()
    yield made
    made.close()


def test_what_another_process_writes_is_seen(lender):
    """A child that has nothing but the path fills the segment."""
    segment, view = lender.lend(5000)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_fill, args=(segment.path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert bytes(view) == bytes([7]) * 5000


def _fill(path):
    with attached(path, 5000, write=True) as shared:
        shared[:] = 7


def test_a_segment_is_lent_as_long_as_anybody_looks(lender):
    """A part of the view, or an array of it, keeps it; then it is lent again."""
    segment, view = lender.lend(1000)
    part = np.frombuffer(view[10:20], dtype=np.uint8)
    del view
    other, its_view = lender.lend(1000)
    assert other is not segment
    del part
    assert lender.lend(1000)[0] is segment
    del its_view


def test_a_segment_serves_results_of_its_size(lender):
    """Not larger ones, and not those of less than half of it."""
    segment, view = lender.lend(1000)
    del view
    assert lender.lend(1001)[0] is not segment
    assert lender.lend(499)[0] is not segment
    again, view = lender.lend(500)
    assert again is segment
    assert len(view) == 500


def test_a_view_tells_where_it_begins(lender):
    """So that another process finds the same bytes; what is no segment's has no place."""
    segment, view = lender.lend(1000)
    assert lender.find(view[100:300]) == (segment.path, 100)
    assert lender.find(bytes(10)) is None
    assert lender.find(memoryview(bytes(10))) is None
    assert lender.find(memoryview(np.zeros(10, np.uint8))) is None


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed in /proc on Linux only")
def test_little_lies_ready(lender):
    """Of many that come back the last ones stay; nothing stays after the end, whoever looked longest."""
    before = _n_open()
    views = [lender.lend(1000)[1] for _ in range(10)]
    each = (_n_open() - before) // 10
    assert each >= 1
    kept = views.pop()
    views.clear()
    assert _n_open() == before + each * 5
    lender.close()
    assert _n_open() == before + each
    del kept
    assert _n_open() == before


def _n_open():
    return sum("drlnb-segment" in str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


def test_without_room_nothing_is_lent(lender, monkeypatch):
    """Then a result travels in its frame."""

    def refuse(*args):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert lender.lend(1000) is None


# ------------------------------------------------------------------ executors
def _finished(learning, state, frames, lender=None):
    """Let another executor compute the round from a state; return its answer, the result, and what was lent."""
    learning.child = ExecutorChild(Channel(), Device("cpu"))
    first, where = frames[0], lender.find(state) if lender else None
    facts = {"state": learning.facts, "spec": learning.spec.to_plain()}
    if where:
        told = learning.ask("stage", first[1], **first[0], **facts, state_in=[*where, len(state)])
    else:
        told = learning.ask("stage", bytes(state) + first[1], **{**first[0], **facts, "n_state": len(state)})
    assert told[0]["op"] == "staged"
    assert told[0]["event"]["moved_bytes"] == len(state)
    for header, data in frames[1:]:
        assert learning.ask("stage", data, **header)[0]["event"]["moved_bytes"] == 0
    lent = lender.lend(learning.n_made) if lender else None
    more = {"into": [lent[0].path, len(lent[1])]} if lent else {}
    answer, made = learning.ask("finish", round=first[0]["round"], **more)
    assert answer["op"] == "made"
    return answer, lent[1] if lent else made, made


def test_a_result_in_a_segment_is_the_one_that_would_have_travelled(child, lender):
    """State from a segment, result into another one: bitwise what comes with both in the frames."""
    meta, state = child.learner.state()
    child.facts, child.n_made = meta, child.learner.published().nbytes + state.nbytes
    frames = child.frames(2)
    _, view = lender.lend(state.nbytes)
    np.frombuffer(view, dtype=np.uint8)[:] = state
    plain_answer, plain_made, _ = _finished(child, state.data, frames)
    answer, made, sent = _finished(child, view, frames, lender)
    assert sent == b""
    assert answer["n_shared"] == len(plain_made)
    assert plain_answer["n_shared"] == 0
    assert bytes(made) == plain_made


def test_a_result_that_does_not_fit_travels(child, lender):
    """So does one whose segment is gone."""
    segment, view = lender.lend(10)
    child.stage(2)
    answer, made = child.ask("finish", round=2, into=[segment.path, len(view)])
    assert answer["n_shared"] == 0
    assert len(made) > answer["event"]["n_bytes"]
    child.version += 1
    child.stage(3)
    answer, made = child.ask("finish", round=3, into=["/nowhere/drlnb", 10**9])
    assert answer["n_shared"] == 0
    assert len(made) > answer["event"]["n_bytes"]


class _Executor:
    """Computes until it is told to stop."""

    def __init__(self):
        self.go = asyncio.Event()
        self.asked = []

    async def ask(self, header, *payloads, timeout_s):
        del timeout_s
        self.asked.append((header, payloads))
        await self.go.wait()
        if "into" not in header:
            return {"op": "made"}, bytes(shared_memory.LEAST_BYTES)
        return {"op": "made", "n_shared": header["into"][1]}, b""

    def forget(self, task):
        del task


class _Node(Slots):
    """A node with one played executor."""

    def __init__(self, tmp_path):
        super().__init__(played_link(tmp_path))
        self.executors["0/cpu0"] = _Executor()

    async def finish(self):
        return await self.compute("0/cpu0", FENCE, {"op": "finish", "task": "r/a"}, 1.0)


def test_who_goes_leaves_the_segment_to_the_executor_until_it_has_answered(tmp_path):
    """A master that ends while its round is computed: nobody else is lent the memory that is being written."""

    async def work():
        node = _Node(tmp_path)
        executor = node.executors["0/cpu0"]
        executor.go.set()
        assert isinstance((await node.finish())["payload"], bytes)  # its size was not known yet
        executor.go.clear()
        leaving = asyncio.ensure_future(node.finish())
        while len(executor.asked) < 2:
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        staying = asyncio.ensure_future(node.finish())
        while len(executor.asked) < 3:
            await asyncio.sleep(0)
        former, latter = (header["into"][0] for header, _ in executor.asked[1:])
        assert former != latter
        executor.go.set()
        answer = await staying
        assert len(answer["payload"]) == shared_memory.LEAST_BYTES
        await asyncio.gather(*node._link._background)
        del leaving  # its error shows the result
        gc.collect()
        assert (await node.finish())["payload"] is not None
        assert executor.asked[-1][0]["into"][0] == former
        node.forget_model("r/a", 1)
        assert "into" not in (await _last(node))
        node.segments.close()

    async def _last(node):
        await node.finish()
        return node.executors["0/cpu0"].asked[-1][0]

    asyncio.run(work())


def test_a_state_of_this_node_stays_where_it_is(tmp_path):
    """The executor is told where it lies; a state that came from elsewhere goes before the batch."""

    async def work():
        node = _Node(tmp_path)
        executor = node.executors["0/cpu0"]
        executor.go.set()
        segment, view = node.segments.lend(100)
        header = {"op": "stage", "task": "r/a", "n_state": 60}
        await node.compute("0/cpu0", FENCE, header, 1.0, payload=b"batch", state=view[40:])
        await node.compute("0/cpu0", FENCE, header, 1.0, payload=b"batch", state=bytes(60))
        (shared, its), (sent, theirs) = executor.asked
        assert (shared["state_in"], shared["n_state"], its) == ([segment.path, 40, 60], 0, (b"batch",))
        assert ("state_in" in sent, sent["n_state"], theirs) == (False, 60, (bytes(60), b"batch"))
        del view
        node.segments.close()

    asyncio.run(work())

"""The agent's end of a slot: fences outlive the process that they were for."""

import asyncio

import pytest

from drlnb.records.ids import Fence
from drlnb.runtime.node import executor_host
from drlnb.runtime.node.executor_host import Executor, WorkGate
from tests.runtime.played import Child

SPEC = {"op": "job", "slot": "0/cpu0", "name": "a", "rank": 0, "n_slots": 1}


@pytest.fixture
def act(monkeypatch, tmp_path):
    """Run a coroutine with an executor whose children are played."""
    monkeypatch.setattr(executor_host, "ChildProcess", Child)
    monkeypatch.setattr(executor_host, "_RESTART_S", 0.0)
    monkeypatch.setattr(Child, "made", [])

    def run(work):
        async def main():
            ups, downs = [], []
            log, gate = tmp_path / "log", WorkGate("0/cpu0")
            executor = Executor(
                "0/cpu0", "cpu", log, gate, lambda e: ups.append(e.epoch), lambda e, why: downs.append(why)
            )
            executor.start()
            await executor.wait_up(5.0)
            try:
                await asyncio.wait_for(work(executor), 5.0)
            finally:
                await executor.end()
            return ups, downs

        return asyncio.run(main())

    return run


async def _ask(executor, fence, op="stage"):
    answer, _ = await executor.ask({"op": op, "fence": fence}, timeout_s=5.0)
    return answer


async def _killed(executor):
    """End the child and wait for its successor."""
    former = executor.child
    former.kill()
    while executor.child is former:
        await asyncio.sleep(0)
    await executor.wait_up(5.0)


def test_a_stale_fence_is_refused_by_the_successor_of_the_process_that_saw_a_higher_one(act):
    """Fence 5 worked, its process dies: a late frame under 4 never reaches the new process; a later lease does."""

    async def work(executor):
        assert await _ask(executor, Fence(1, 5)) == {"op": "done"}
        await _killed(executor)
        assert await _ask(executor, Fence(1, 4)) == {
            "op": "refused",
            "reason": "fence #4 of epoch 1 is below the highest seen, #5 of epoch 1",
        }
        assert Child.made[1].frames == []
        assert await _ask(executor, Fence(1, 6)) == {"op": "done"}
        assert Child.made[1].frames == ["stage"]

    assert act(work) == ([1, 2], ["killed by signal 9"])


def test_a_child_that_cannot_be_started_is_tried_again(act, monkeypatch):
    """The machine was short of processes for a while: it is told, and the slot comes back by itself."""
    refusals = [OSError(11, "Resource temporarily unavailable"), OSError(24, "Too many open files")]

    class Scarce(Child):
        @classmethod
        def start(cls, module, *arguments, log, environment):
            if Child.made and refusals:
                raise refusals.pop(0)
            return super().start(module, *arguments, log=log, environment=environment)

    monkeypatch.setattr(executor_host, "ChildProcess", Scarce)

    async def work(executor):
        await _killed(executor)
        assert await _ask(executor, Fence(1, 5)) == {"op": "done"}

    ups, downs = act(work)
    assert ups == [1, 2]
    assert downs == [
        "killed by signal 9",
        "could not be started: [Errno 11] Resource temporarily unavailable",
        "could not be started: [Errno 24] Too many open files",
    ]


def test_a_lease_ends_with_the_process_that_it_worked_in(act):
    """What was staged under a fence died with its process: another frame under it is told so, and not computed."""

    async def work(executor):
        await _ask(executor, Fence(1, 5))
        await _killed(executor)
        with pytest.raises(ConnectionError, match="executor 0/cpu0 ended in the midst of this lease"):
            await _ask(executor, Fence(1, 5))
        assert await _ask(executor, Fence(1, 5), "job-end") == {"op": "done"}, "what frees memory does no harm"
        assert Child.made[1].frames == ["job-end"]

    act(work)


def test_a_lease_that_had_not_begun_goes_on_in_the_new_process(act):
    """A process that dies before the first frame of a lease takes nothing of it along."""

    async def work(executor):
        await _ask(executor, Fence(1, 5))
        await _killed(executor)
        await _ask(executor, Fence(1, 6))
        await _killed(executor)
        assert await _ask(executor, Fence(1, 7)) == {"op": "done"}

    act(work)


def test_a_stale_frame_does_not_wait_for_a_new_process(act, monkeypatch):
    """While the slot has no process, what is stale is refused at once, and what is not waits."""

    async def work(executor):
        await _ask(executor, Fence(1, 5))
        monkeypatch.setattr(executor_host, "_RESTART_S", 60.0)
        executor.child.kill()
        while executor._up.done():
            await asyncio.sleep(0)
        assert (await _ask(executor, Fence(1, 4)))["op"] == "refused"
        with pytest.raises(ConnectionError, match="in the midst"):
            await _ask(executor, Fence(1, 5))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_ask(executor, Fence(1, 6)), 0.01)

    act(work)


def test_an_executor_that_rests_after_deaths_can_be_started_now(act, monkeypatch):
    """Told to hurry, it does not wait for the end of its pause, and counts its deaths anew."""

    async def work(executor):
        monkeypatch.setattr(executor_host, "_RESTART_S", 60.0)
        executor.child.kill()
        while not executor._n_deaths:
            await asyncio.sleep(0)
        executor.hurry()
        await executor.wait_up(1.0)
        assert (executor.epoch, executor._n_deaths) == (2, 0)
        executor.hurry()  # of one that is up: the next death has its pause nevertheless
        executor.child.kill()
        while not executor._n_deaths:
            await asyncio.sleep(0)
        with pytest.raises(ConnectionError, match=r"not up after 0.05 s"):
            await executor.wait_up(0.05)

    act(work)


@pytest.mark.parametrize(
    ("n_signals", "interrupted", "stale"), [(0, False, False), (1, True, False), (1, False, True), (2, True, True)]
)
def test_a_signal_too_many_is_not_for_the_next_function(act, monkeypatch, n_signals, interrupted, stale):
    """Its holder interrupts a function, then the pool does: the second signal may come when it has ended.

    The next function is another holder's, for the first one's lease ends in between.
    """
    signals, jobs = [], []
    monkeypatch.setattr(executor_host, "signal_pid", lambda pid, name: signals.append((pid, name)))

    async def ask(self, header, *payloads):
        if header["op"] == "job-end":
            return {"op": "freed"}, b""
        jobs.append(header)
        if len(jobs) == 1:
            assert [executor_of[0].interrupt(Fence(1, 5)) for _ in range(n_signals)] == [True] * n_signals
        return {"op": "ran", "interrupted": interrupted and len(jobs) == 1}, b""

    async def work(executor):
        executor_of.append(executor)
        monkeypatch.setattr(Child, "ask", ask)
        for token in (5, 6):
            await executor.ask({**SPEC, "fence": Fence(1, token)}, timeout_s=5.0)
            await executor.ask({"op": "job-end", "fence": Fence(1, token)}, timeout_s=5.0)

    executor_of = []
    act(work)
    assert signals == [(1000, "SIGINT")] * n_signals
    assert [job["fresh"] for job in jobs] == [False, stale]


@pytest.mark.cluster
def test_a_real_executor_that_was_killed_takes_no_stale_work(tmp_path):
    """The same with real processes: after a SIGKILL the slot's next process computes for later leases only."""
    from drlnb.runtime.ipc.pickling import pack_call

    async def run(executor, fence):
        header = {**SPEC, "fence": fence}
        answer, _ = await executor.ask(header, pack_call(len, ((1,),), {}), timeout_s=60.0)
        return answer["op"]

    async def main():
        executor = Executor("0/cpu0", "cpu", tmp_path / "log", WorkGate("0/cpu0"), lambda e: None, lambda e, why: None)
        executor.start()
        try:
            await executor.wait_up(60.0)
            assert await run(executor, Fence(1, 5)) == "ran"
            former = executor.pids
            executor.child.kill()
            while executor.epoch == 1:
                await asyncio.sleep(0.01)
            assert executor.pids != former
            assert await run(executor, Fence(1, 4)) == "refused"
            with pytest.raises(ConnectionError):
                await run(executor, Fence(1, 5))
            assert await run(executor, Fence(1, 6)) == "ran"
        finally:
            await executor.end()

    asyncio.run(main())


@pytest.mark.parametrize(("stuck", "graces"), [(True, [0.0, 1.0]), (False, [1.0, 1.0])])
def test_a_child_that_still_imports_is_given_no_time_to_end(monkeypatch, tmp_path, stuck, graces):
    """It reads nothing before it is up; afterwards it may finish what it writes."""
    monkeypatch.setattr(executor_host, "ChildProcess", Child)
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(Child, "stuck", stuck)
    given = []

    async def main():
        executor = Executor("0/cpu0", "cpu", tmp_path / "log", WorkGate("0/cpu0"), lambda e: None, lambda e, why: None)
        executor.start()
        while not Child.made:
            await asyncio.sleep(0)
        if not stuck:
            await executor.wait_up(5.0)
        end = Child.end

        async def noted(child, grace_s):
            given.append(grace_s)
            await end(child, grace_s)

        monkeypatch.setattr(Child, "end", noted)
        await executor.end()

    asyncio.run(main())
    assert given == graces

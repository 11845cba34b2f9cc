"""Anyone's own loop on the pool: wrong words are told in one line, leases are used, freed and lost as they should."""

import asyncio
import os
import socket
import threading
import time

import pytest
import torch

import drlnb
from drlnb.fleet.cluster.user_lease import Leases
from drlnb.planning.replay import replay
from drlnb.records.columns import leasing, placement
from drlnb.records.errors import ConfigError, LeaseLost
from drlnb.records.ids import Fence
from drlnb.runtime.client.user_lease import LoopLease
from drlnb.runtime.ipc.pickling import pack_call
from drlnb.views.leasing.gantt import gantt
from tests.fleet.cluster.conftest import ends
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

# -- without a cluster -----------------------------------------------------------------------------------------------


class Held:
    """What a lease holds, without a pool."""

    def __init__(self):
        self.fence, self.lost = Fence(epoch=1, token=3), ""
        self.slots = ({"slot": "n0/gpu1", "device": "cuda:GPU-7"},)
        self.failure, self.asked = None, False
        self.n_released = 0

    async def acquire(self, wait_s):
        if self.failure:
            raise self.failure

    async def release(self):
        self.n_released += 1

    def check(self):
        if self.lost:
            raise LeaseLost(self.fence, self.lost)

    async def pool_size(self):
        return 1

    async def run(self, name, payload):
        return [(0, {"said": "", "payload": payload})]

    def result(self, rank, answer):
        return answer["payload"] is not None


class Loop:
    """A Dask client's loop: a thread."""

    def __init__(self):
        self.asyncio_loop = asyncio.new_event_loop()
        self.loop = self
        self.thread = threading.Thread(target=self.asyncio_loop.run_forever)
        self.thread.start()

    def close(self):
        self.asyncio_loop.call_soon_threadsafe(self.asyncio_loop.stop)
        self.thread.join()
        self.asyncio_loop.close()


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def leases(held, monkeypatch):
    """Make leases that are granted at once."""
    monkeypatch.setattr("drlnb.runtime.client.user_lease.LoopLease", lambda client, **asked: held)
    loop = Loop()
    yield Leases(loop)
    loop.close()


def make(leases, name="mine", **more):
    asked = {"n_slots": 1, "priority": 0, "wait_s": None, "timeout_s": None, **more}
    return leases.make(name, **asked)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"n_slots": 0}, "n_slots must be a whole number >= 1, got 0"),
        ({"n_slots": -2}, "n_slots must be a whole number >= 1, got -2"),
        ({"n_slots": True}, "n_slots must be a whole number >= 1, got True"),
        ({"n_slots": 1.5}, "n_slots must be a whole number >= 1, got 1.5"),
        ({"priority": "high"}, "priority must be a whole number in -100..100, got 'high'"),
        ({"priority": 101}, "priority must be a whole number in -100..100, got 101"),
        ({"wait_s": -1}, "wait_s must be None or a number of seconds from 0.001 to 1e7, got -1"),
        ({"timeout_s": float("nan")}, "timeout_s must be None or a number of seconds from 0.001 to 1e7, got nan"),
        ({"name": ""}, "name must be a text without '/', got ''"),
        ({"name": "a/b"}, "name must be a text without '/', got 'a/b'"),
    ],
)
def test_wrong_words_are_one_line_each(leases, wrong, line):
    """Each wrong argument is named with its limit and value, before anything is asked of the pool."""
    with pytest.raises(ConfigError) as error:
        make(leases, **wrong)
    assert str(error.value) == line


def test_all_that_is_wrong_is_told_at_once(leases):
    """Two mistakes are one error that lists both."""
    with pytest.raises(ConfigError, match=r"n_slots .*; wait_s "):
        make(leases, n_slots=0, wait_s=0)


def test_a_second_lease_of_an_open_name_is_refused(leases):
    """Nested leases of one name are refused; after the block the name is free again, also after an error in it."""
    with make(leases), pytest.raises(ConfigError, match="a lease 'mine' is open already"), make(leases):
        pass
    with pytest.raises(KeyError), make(leases):
        raise KeyError
    with make(leases) as lease:
        assert lease.name == "mine"


def test_a_lease_is_used_inside_its_block_only(leases, held):
    """Before and after its block a lease cannot be used, and it is taken once; closing twice is harmless."""
    lease = make(leases)
    with pytest.raises(ConfigError, match="lease 'mine' is not taken yet"):
        lease.run(len, ())
    with lease:
        assert lease.run(len, ()) is True
        lease.close()
    assert held.n_released == 1
    with pytest.raises(ConfigError, match="lease 'mine' is over: use it inside"):
        lease.run(len, ())
    with pytest.raises(ConfigError, match="was used before"), lease:
        pass


def test_a_lease_says_what_it_holds(leases):
    """Slots, fence and device as the slot's process sees it; what is on the slot only says so."""
    with make(leases) as lease:
        assert (lease.slots, str(lease.fence), lease.device, lease.n_slots) == (("n0/gpu1",), "#3", "cuda", 1)
        assert repr(lease) == "<Lease 'mine' #3: n0/gpu1, held>"
        for ask in (lambda: lease.state, lambda: lease.rank, lease.progress):
            with pytest.raises(ConfigError, match=r"is on the slot: use it in a function that lease\.run"):
                ask()
    assert repr(lease) == "<Lease 'mine': over>"


def test_a_lease_tells_that_somebody_waits(leases, held):
    """False until the pool has asked; outside of the block there is nothing to ask of."""
    lease = make(leases)
    with lease:
        assert lease.asked_to_yield is False
        held.asked = True
        assert lease.asked_to_yield is True
    with pytest.raises(ConfigError, match="lease 'mine' is over"):
        lease.asked_to_yield  # noqa: B018 - to look is to ask


def test_a_lost_lease_says_so_at_the_next_run(leases, held):
    """The error holds fence and reason; the block itself ends without another one."""
    with make(leases) as lease:
        held.lost = "its node left the cluster"
        with pytest.raises(LeaseLost, match="lease #3 is lost: its node left the cluster") as error:
            lease.run(len, ())
    assert (str(error.value.fence), error.value.reason) == ("#3", "its node left the cluster")


def test_waiting_in_vain_gives_the_name_back(leases, held):
    """A lease that is not granted in time raises TimeoutError, holds no name, and gives back what crossed it."""
    held.failure = TimeoutError()
    with pytest.raises(TimeoutError, match="lease 'mine' was not granted within wait_s = 3 s"), make(leases, wait_s=3):
        pass
    held.failure = None
    with make(leases):
        pass
    wait_until(lambda: held.n_released == 2, "given back twice", 1.0)


ENDLESS = "lease 'b' would wait for ever: this is inside the block of lease 'a', which holds 1 of the pool's 1 slots"


def test_a_lease_that_waits_for_the_block_around_it_is_refused(leases, held):
    """The same thread, or coroutine, can end the outer block only after this one; with wait_s it just waits so long."""
    with make(leases, "a"):
        with pytest.raises(ConfigError, match=ENDLESS):
            make(leases, "b").open()
        with pytest.raises(ConfigError, match="run r1 would wait for ever"):
            leases.refuse_endless_wait("run r1")
        make(leases, "b", wait_s=1.0).open().close()
        other = threading.Thread(target=lambda: make(leases, "b").open().close())
        other.start()
        other.join()
        held.lost = "its executor died"
        make(leases, "b").open().close()
    make(leases, "b").open().close()

    async def coroutines():
        held.lost = ""
        async with make(leases, "a"):
            with pytest.raises(ConfigError, match=ENDLESS):
                await make(leases, "b").__aenter__()

            async def another():
                async with make(leases, "b"):
                    pass

            await asyncio.create_task(another())

    asyncio.run(coroutines())


def test_a_pool_that_does_not_answer_refuses_no_wait(leases, held):
    """Whether the wait can end is not known then, and what waits hears of the cluster itself."""

    async def pool_size():
        raise TimeoutError

    held.pool_size = pool_size
    with make(leases, "a"), make(leases, "b"):
        assert set(leases.open) == {"a", "b"}


def test_a_lease_lost_in_its_block_is_told_at_the_end(leases, held, capsys):
    """Once: not again where LeaseLost has told it."""
    with make(leases, "a"):
        held.lost = "it was held for longer than leasing.max_hold_s = 120 s"
    assert capsys.readouterr().err == (
        "drlnb: lease 'a' was lost before its block ended: it was held for longer than leasing.max_hold_s = 120 s\n"
    )
    held.lost = ""

    def used():
        with make(leases, "a") as lease:
            held.lost = "its executor died"
            lease.run(len, ())

    with pytest.raises(LeaseLost):
        used()
    assert capsys.readouterr().err == ""


def test_await_is_the_same_without_blocking(leases, held):
    """`async with` and `await submit` do what `with` and `run` do."""

    async def main():
        async with make(leases) as lease:
            return await lease.submit(len, ())

    assert asyncio.run(main()) is True
    assert held.n_released == 1


# -- on clusters -----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_functions_share_a_slot_with_a_task(tmp_path, capsys):
    """Functions see device and state, print, raise; a task trains on the same slot; both are in the run's picture."""
    weights = torch.arange(6.0).reshape(2, 3).requires_grad_()
    factor = 2
    with drlnb.Fleet(slots=1) as fleet:
        run = fleet.train(drlnb.Task("CartPole-v1", total_timesteps=8192), out=tmp_path / "r")

        def double(name, *, add=0):
            print(f"{name} on {lease.device}")
            lease.state["n"] = lease.state.get("n", 0) + 1
            return factor * weights.to(lease.device) + add, lease.state["n"]

        for _ in range(3):
            with fleet.lease(name="mine") as lease:
                doubled, n = lease.run(double, "doubled", add=1)
                assert torch.equal(doubled, 2 * weights + 1)
                assert (n, lease.run(double, "again")[1]) == (1, 2), "what was kept is there, and only in this lease"
                with pytest.raises(ZeroDivisionError) as error:
                    lease.run(lambda: 1 // 0)
                assert "in <lambda>" in str(error.value.__cause__), "cloudpickle leaves the file out since 3.1.3"
                if not run.ended:
                    _waits_for_itself(run)
        assert capsys.readouterr().out == "doubled on cpu\nagain on cpu\n" * 3
        run.wait(timeout_s=90)
        assert run.status == "done"
        view = gantt(run.journal())
        assert {style["name"] for style in view.facts["series"]} == {"CartPole-v1", "mine"}
        mine = [style["name"] for style in view.facts["series"]].index("mine")
        assert view.columns["bars"]["series"].tolist().count(mine) == 3
        assert any(note.startswith("mine: no task of this run") for note in view.notes)
    check_laws(tmp_path / "r")


def _waits_for_itself(run):
    async def wait():
        await run

    for waiting in (run.wait, lambda: asyncio.run(wait())):
        with pytest.raises(ConfigError, match=f"run {run.id} would wait for ever: .*lease 'mine', which holds 1 of"):
            waiting()
    with pytest.raises(TimeoutError):
        run.wait(timeout_s=0.01)


@pytest.mark.cluster
def test_a_loop_gives_way_when_it_is_asked(quick):
    """A function looks between its batches and returns; a loop looks between its functions; both hear of a waiter."""
    fleet = quick()

    def batches():
        n = 0
        while not lease.asked_to_yield:
            lease.progress()
            n += 1
        return n

    def wait_for_a_slot():
        with fleet.lease(name="other", wait_s=60) as other:
            fences.append((other.fence, other.asked_to_yield))

    fences = []
    with fleet.lease(name="long") as lease:
        assert lease.run(lambda: lease.asked_to_yield) is False
        waiting = threading.Timer(0.5, wait_for_a_slot)
        waiting.start()
        assert lease.run(batches) > 0
        wait_until(lambda: lease.asked_to_yield, "the client to be told, too", 5.0)
        assert lease.run(lambda: lease.asked_to_yield) is True
        assert fences == []
        first = lease.fence
    waiting.join()
    assert [(fence > first, asked) for fence, asked in fences] == [(True, False)]
    _loops_take_turns(fleet)
    assert {reason for _, reason in ends(fleet)} == {"returned"}
    journal = fleet.journal()
    assert journal.of(leasing.AskYield)
    assert [replay(stream).difference for stream in journal.streams.values()] == [None]


def _loops_take_turns(fleet):
    """Two loops that look between their functions share a slot, whoever has it; each gets its turns."""
    turns = []

    def loop(name):
        for _ in range(3):
            with fleet.lease(name=name, wait_s=60) as lease:
                turns.append(name)
                for _ in range(50):
                    lease.run(len, ())
                    if lease.asked_to_yield:
                        break

    threads = [threading.Thread(target=loop, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == ["a"] * 3 + ["b"] * 3


@pytest.mark.cluster
def test_without_a_run_the_pool_keeps_its_journal():
    """Leases of loops alone are in the fleet's journal, which replays exactly and can be drawn; gangs among them."""
    with drlnb.Fleet(slots=2) as fleet:
        assert gantt(fleet.journal()).sentence.startswith("no leases yet")
        for name in ("a", "b", "a"):
            with fleet.lease(name=name) as lease:
                assert lease.run(lambda: lease.rank) == 0

        async def both():
            async with fleet.lease(name="a") as a, fleet.lease(name="b") as b:
                assert a.slots != b.slots
                return await asyncio.gather(a.submit(os.getpid), b.submit(os.getpid), a.submit(os.getpid))

        pids = asyncio.run(both())
        assert pids[0] == pids[2] != pids[1]
        _several_slots(fleet)
        _relayed(fleet)
        journal = fleet.journal()
    names = [r.task.partition("/")[2] for r in journal.of(leasing.LeaseGranted)]
    assert names == ["a", "b", "a", "a", "b", "one", "gang", "gang", "relay"]
    assert {r.reason for r in journal.of(leasing.LeaseReleased)} == {"returned"}
    assert [replay(stream).difference for stream in journal.streams.values()] == [None]
    assert gantt(journal).value("busy") == 0


@pytest.mark.cluster
def test_a_loop_that_has_ended_is_not_expected_any_more(quick):
    """The pool hears that a loop rests for long, and the loop is served as before when it comes back."""

    def soon():
        from drlnb.runtime.scheduler import user_leases

        user_leases._AWAY_S = user_leases._PAUSES = 0.0

    def turns(n):
        for _ in range(n):
            with fleet.lease(name="mine") as lease:
                assert lease.run(abs, -1) == 1

    def stops():
        return [record.attempt for record in fleet.journal().of(placement.TaskStopped)]

    fleet = quick()
    turns(3)
    assert stops() == []
    fleet.pool.link.client.run_on_scheduler(soon)
    turns(1)
    wait_until(lambda: stops()[:1] == [1], "the loop counts as ended")
    turns(2)
    wait_until(lambda: len(stops()) > 1, "it has come back and ended again")
    assert stops() == sorted(set(stops()))
    journal = fleet.journal()
    assert len(journal.of(leasing.LeaseGranted)) == 6
    assert {r.reason for r in journal.of(leasing.LeaseReleased)} == {"returned"}
    assert [replay(stream).difference for stream in journal.streams.values()] == [None]


def _several_slots(fleet):
    """All or none: two slots run the function at once; no more than the pool has; a failing rank is named."""
    with pytest.raises(ConfigError, match="n_slots = 3, but the pool has 2"), fleet.lease(3):
        pass
    with fleet.lease(name="one") as one:
        one.run(len, ())
        with (
            pytest.raises(TimeoutError, match="'gang' was not granted within"),
            fleet.lease(2, name="gang", wait_s=0.5),
        ):
            pass
    with fleet.lease(2, name="gang", priority=3) as gang:

        def who(a):
            if a and gang.rank:
                raise ValueError("not me")
            return gang.rank, gang.n_slots, os.getpid()

        (rank0, n0, pid0), (rank1, n1, pid1) = gang.run(who, 0)
        assert (rank0, n0, rank1, n1) == (0, 2, 1, 2)
        assert pid0 != pid1
        with pytest.raises(ValueError, match="not me") as error:
            gang.run(who, 1)
        assert error.value.__notes__ == [f"on slot {gang.slots[1]}, 1 of 2"]
        _collective(gang)
    with fleet.lease(2, name="gang", priority=3) as gang:
        assert gang.run(lambda: torch.distributed.is_initialized()) == [False, False]
        with pytest.raises(ConfigError, match="holds 2 of the pool's 2 slots"), fleet.lease(name="inner"):
            pass
        _collective(gang, keeps=True)


def _collective(gang, *, keeps=False):
    """Have one slot raise while the other waits for it in a collective: the caller gets that error, at once.

    Whoever keeps a model of the group cannot leave it: then the other slot's process is killed when the lease ends.
    """

    def train(port):
        import torch.distributed as dist

        store = dist.TCPStore("127.0.0.1", port, 2, is_master=not gang.rank, wait_for_workers=False)
        dist.init_process_group("gloo", store=store, rank=gang.rank, world_size=2)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        if keeps:
            gang.state["model"] = model
        if gang.rank:
            raise ValueError("a row without a label")
        model(torch.ones(1, 2)).sum().backward()
        return "never"

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(ValueError, match="a row without a label") as error:
        gang.run(train, port)
    assert error.value.__notes__ == [f"on slot {gang.slots[1]}, 1 of 2"]
    assert time.monotonic() - started < 20.0, "not after a time-out"


def _relayed(fleet):
    """Reach a node through the scheduler, as where a gateway is between, with some megabytes."""
    import numpy as np

    client = fleet.pool.link.client
    loop = client.loop.asyncio_loop
    lease = LoopLease(client, task="own-test/relay", round=1)
    lease._reached = dict.fromkeys(client.scheduler_info()["workers"], False)

    def wait(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    wait(lease.acquire())
    sent = np.arange(1_500_000)
    ((_, answer),) = wait(lease.run("relay", pack_call(np.flip, (sent,), {})))
    assert np.array_equal(lease.result(0, answer), sent[::-1])
    wait(lease.release())


@pytest.mark.cluster
def test_a_lease_is_kept_while_its_holder_computes_elsewhere(quick):
    """Renewals do not need the holder's thread; one held for too long is lost with the reason, and freed."""
    fleet = quick(max_hold_s=4.0)
    with fleet.lease() as lease:
        time.sleep(2.5)  # beyond the time to live
        assert lease.run(len, (1,)) == 1

        with pytest.raises(LeaseLost, match=r"held for longer than leasing\.max_hold_s = 4 s"):
            lease.run(time.sleep, 60)
    with fleet.lease(wait_s=20.0) as lease:
        assert lease.run(len, (1,)) == 1
    assert [reason for _, reason in ends(fleet)] == ["expired", "returned"]

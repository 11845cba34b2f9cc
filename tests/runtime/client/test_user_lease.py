"""A loop's lease from the client's side, against a scheduler and a node that say what a test tells them to say."""

import asyncio

import pytest

from drlnb.records.errors import ConfigError, LeaseLost, PeerError
from drlnb.records.ids import Fence
from drlnb.runtime import lease as protocol
from drlnb.runtime.client import user_lease
from drlnb.runtime.client.user_lease import LoopLease
from drlnb.runtime.ipc.pickling import pack_call, pack_error, pack_value, unpack

SETTINGS = {"renew_s": 0.01, "holder_ttl_s": 0.05, "ttl_s": 0.1, "kill_grace_s": 0.05, "compute_timeout_s": 60.0}
SETTINGS["max_hold_s"] = 120.0
GRANT = {
    "fence": (9, 4),
    "slots": [{"slot": "n0/cpu0", "node": "n0", "address": "tcp://n0", "device": "cpu"}],
    "waited_s": 0.0,
    "settings": SETTINGS,
}


class Peer:
    """Answers each message with the next of its answers (the last one for ever), and remembers what it heard."""

    def __init__(self, **answers):
        self.answers = {f"drlnb_{name}": list(said) for name, said in answers.items()}
        self.heard = []

    def __getattr__(self, op):
        async def handler(**message):
            self.heard.append((op, message))
            said = self.answers.get(op, [{"ok": True}])
            answer = said.pop(0) if len(said) > 1 else said[0]
            if isinstance(answer, BaseException):
                raise answer
            return await answer() if callable(answer) else answer

        return handler

    def asked(self, op):
        return [message for name, message in self.heard if name == f"drlnb_{op}"]


class Client:
    """A Dask client, as far as a lease needs one."""

    status = "running"

    def __init__(self, scheduler, node):
        self.scheduler, self.node = scheduler, node

    def rpc(self, address):
        assert address == "tcp://n0"
        return self.node


def ran(value, **more):
    packed = {"op": "ran", "ok": True, "interrupted": False, "said": "", "elapsed_s": 0.5, **more}
    return {"payload": pack_value(value), **packed}


def act(work, *, compute=(), **answers):
    """Run `work(lease, scheduler, node, said)` on a loop of its own."""
    scheduler = Peer(**{"loop_acquire": [GRANT], **answers})
    node = Peer(compute=compute or [{"op": "freed"}])

    async def main():
        said = []
        lease = LoopLease(Client(scheduler, node), task="own-1/a", round=3, n_slots=1, on_unmet=said.append)
        return await work(lease, scheduler, node, said)

    return asyncio.run(main())


CALL = pack_call(len, ((1, 2),), {})


def test_a_grant_that_was_read_late_is_asked_for_before_it_is_used():
    """The process stood still while its grant lay there: the slot is another's by now, and only the pool knows."""

    async def late():
        await asyncio.sleep(3 * SETTINGS["renew_s"])
        return GRANT

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        assert (lease.fence, lease.lost) == (Fence(9, 5), "")
        assert [message["fence"] for message in scheduler.asked("renew")][:1] == [(9, 4)]
        await lease.release()

    answers = {"loop_acquire": [late, GRANT | {"fence": (9, 5)}], "renew": [{"lost": "silent"}, {"ok": True}]}
    act(work, **answers)


def test_a_lease_is_asked_used_and_given_back():
    """One request by name and number; the frame has the fence; what was computed and that it is clean is told."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        ((_, answer),) = await lease.run("a", CALL)
        assert lease.result(0, answer) == 2
        await lease.release()
        (asked,) = scheduler.asked("loop_acquire")
        assert (asked["request_id"], asked["task"], asked["round"]) == ("own-1/a/3", "own-1/a", 3)
        job, end = (message["header"] for message in node.asked("compute"))
        assert (job["op"], job["rank"], job["n_slots"], end["op"]) == ("job", 0, 1, "job-end")
        assert [message["fence"] for message in node.asked("compute")] == [(9, 4)] * 2
        assert unpack(node.asked("compute")[0]["payload"].data)[0] is len
        assert scheduler.asked("release") == [{"fence": (9, 4), "clean": True, "computed_s": [0.5]}]
        assert said == []

    act(work, compute=[ran(2), {"op": "freed"}])


def test_who_cannot_be_satisfied_now_hears_it_once():
    """Fewer slots are up than wanted: said once, with their number; the request goes on waiting, and is granted."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        assert said == [0]
        assert len(scheduler.asked("loop_acquire")) == 3
        await lease.release()
        assert node.asked("compute") == [], "a slot that was not used has nothing to free"

    act(work, loop_acquire=[{"pending": True, "n_up": 0}, {"pending": True, "n_up": 0}, GRANT])


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ({"error": "ConfigError", "message": "n_slots = 3, but the pool has 2"}, "n_slots = 3, but the pool has 2"),
        ({"refused": "is over"}, "the pool refuses: is over"),
    ],
)
def test_what_the_pool_never_grants_is_one_line(reply, line):
    """A refusal ends the wait with the pool's words, and gives up the place."""

    async def work(lease, scheduler, node, said):
        with pytest.raises(ConfigError) as error:
            await lease.acquire()
        assert str(error.value) == line
        assert [one["request_id"] for one in scheduler.asked("loop_cancel")] == ["own-1/a/3"]

    act(work, loop_acquire=[reply])


def test_a_scheduler_that_is_gone_ends_the_wait(monkeypatch):
    """An unanswered request is asked again while there is a connection, and no longer."""
    monkeypatch.setattr(protocol, "RETRY_S", 0.001)

    async def work(lease, scheduler, node, said):
        lease.client.status = "running"
        asking = asyncio.create_task(lease.acquire())
        while len(scheduler.asked("loop_acquire")) < 3:
            await asyncio.sleep(0)
        lease.client.status = "closed"
        with pytest.raises(PeerError, match="scheduler: no connection"):
            await asking

    act(work, loop_acquire=[OSError()])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("silent", "the pool heard nothing of its holder for leasing.ttl_s = 0.1 s"),
        ("max-hold", "it was held for longer than leasing.max_hold_s = 120 s: lease for less work at a time"),
        ("slot-failed", "its executor died"),
        ("node-lost", "its node left the cluster"),
        ("something new", "something new"),
    ],
)
def test_the_pool_says_why_a_lease_is_lost(said, reason):
    """The next run raises LeaseLost with fence and reason; nothing is sent to the slot, nothing is given back."""

    async def work(lease, scheduler, node, _):
        await lease.acquire()
        while not lease.lost:
            await asyncio.sleep(0.001)
        with pytest.raises(LeaseLost) as error:
            await lease.run("a", CALL)
        assert (str(error.value.fence), error.value.reason) == ("#4", reason)
        await lease.release()
        assert node.asked("compute") == scheduler.asked("release") == []

    act(work, renew=[{"ok": True}, {"lost": said}])


def test_a_holder_that_nobody_answers_gives_up_by_its_own_clock():
    """Without an answer for holder_ttl_s the lease is lost, though nobody has said so."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        while not lease.lost:
            await asyncio.sleep(0.001)
        with pytest.raises(LeaseLost, match=r"it was not renewed for 0\.05 s"):
            lease.check()
        await lease.release()

    act(work, renew=[OSError()])


def test_a_process_that_stood_still_finds_out_first(monkeypatch):
    """After a pause longer than holder_ttl_s no frame leaves for the slot, before any renewal could tell."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        lease._held._good_t -= 1.0
        with pytest.raises(LeaseLost, match="this process stood still"):
            await lease.run("a", CALL)
        assert node.asked("compute") == []
        await lease.release()

    act(work)


def test_a_lease_lost_while_a_function_runs_is_told_at_once():
    """The caller does not wait for a node that may never answer."""

    async def never():
        await asyncio.Event().wait()

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        with pytest.raises(LeaseLost, match="its node left the cluster"):
            await lease.run("a", CALL)
        await lease.release()

    act(work, compute=[never], renew=[{"ok": True}, {"lost": "node-lost"}])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"op": "died", "reason": "executor n0/cpu0 ended (signal 9): the child is gone"}, "signal 9"),
        ({"op": "refused", "reason": "fence #4 of epoch 9 is below the highest seen"}, "below the highest seen"),
        (OSError("closed"), "its node n0 cannot be reached: closed"),
        (None, "its node n0 does not know drlnb any more"),
    ],
)
def test_a_slot_that_does_not_answer_is_a_lost_lease(answer, reason):
    """Dead executor, stale fence, node gone: all of them lose the lease, with the reason."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        with pytest.raises(LeaseLost, match=reason):
            await lease.run("a", CALL)
        await lease.release()

    act(work, compute=[answer])


def test_an_interrupted_function_was_late_unless_the_lease_is_over():
    """Interrupted with the lease alive: TimeoutError with the place.  Interrupted because it was revoked: LeaseLost."""

    def told(lost):
        async def work(lease, scheduler, node, said):
            await lease.acquire()
            lease._held._renewals.cancel()  # only what the interrupted call asks for counts
            try:
                ((_, answer),) = await lease.run("a", CALL)
                lease.result(0, answer)
            except (TimeoutError, LeaseLost) as error:
                return error
            finally:
                await lease.release()

        error = KeyboardInterrupt("where it hung")
        late = ran(0) | {"ok": False, "interrupted": True, "payload": pack_error(error)}
        return act(work, compute=[late, {"op": "freed"}], renew=[lost])

    late = told({"ok": True})
    assert isinstance(late, TimeoutError)
    assert "no sign of life for 60 s and was interrupted" in str(late)
    assert "where it hung" in str(late.__cause__)
    assert isinstance(told({"lost": "max-hold"}), LeaseLost)


def test_a_holder_hears_that_somebody_waits():
    """Asked again while nothing is new; the word comes once, and the next frame tells it to the slot, too."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        assert not lease.asked
        await lease.run("a", CALL)
        while not lease.asked:
            await asyncio.sleep(0)
        await lease.run("a", CALL)
        await lease.release()
        assert [one["fence"] for one in scheduler.asked("loop_asked")] == [(9, 4)] * 3
        assert [one["header"].get("asked") for one in node.asked("compute")] == [False, True, None]

    later = [{"pending": True}, OSError(), {"asked": True}]
    act(work, compute=[ran(2), ran(2), {"op": "freed"}], loop_asked=later)


def test_who_is_granted_a_slot_that_others_wait_for_is_asked_from_the_beginning():
    """The grant says so, and nothing more is asked of the pool."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        assert lease.asked
        await lease.release()
        assert scheduler.asked("loop_asked") == []

    act(work, loop_acquire=[GRANT | {"demand": True}])


@pytest.mark.parametrize("answer", [{"over": True}, {"ok": True}])
def test_a_lease_that_is_over_was_not_asked(answer):
    """The end of the lease, or another answer, ends the listening."""

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        await lease._listener
        assert (lease.asked, len(scheduler.asked("loop_asked"))) == (False, 1)
        await lease.release()

    act(work, loop_asked=[answer])


def test_a_lease_is_given_back_while_it_listens(monkeypatch):
    """A question that is never answered keeps no lease: it is cut off."""
    monkeypatch.setattr(user_lease, "_LAST_WORD_S", 0.001)

    async def never():
        await asyncio.Event().wait()

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        await lease.release()
        assert lease._listener.cancelled()
        assert len(scheduler.asked("release")) == 1

    act(work, loop_asked=[never])


def test_what_may_still_run_is_not_given_back_as_clean():
    """A cancelled function is interrupted; if it does not end in time the slot goes back to be drained."""

    async def never():
        await asyncio.Event().wait()

    async def work(lease, scheduler, node, said):
        await lease.acquire()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(lease.run("a", CALL), 0.01)
        await lease.release()
        assert node.asked("interrupt")[0]["fence"] == (9, 4)
        assert [one["clean"] for one in scheduler.asked("release")] == [False]

    act(work, compute=[never])


def test_what_ends_while_it_is_interrupted_is_given_back_as_clean():
    """Nothing is left to wait for then."""
    interrupted = asyncio.Event()

    async def until_interrupted():
        await interrupted.wait()
        return ran(0)

    async def interrupt():
        interrupted.set()
        while lease._calls:
            await asyncio.sleep(0)
        return {"ok": True}

    async def work(made, scheduler, node, said):
        nonlocal lease
        lease = made
        node.answers["drlnb_interrupt"] = [interrupt]
        await lease.acquire()
        call = lease._calls.go_on(lease._one(0, "a", CALL))
        while not node.asked("compute"):
            await asyncio.sleep(0)
        await lease.release()
        assert call.done()
        assert [one["clean"] for one in scheduler.asked("release")] == [True]

    lease = None
    act(work, compute=[until_interrupted, {"op": "freed"}])


def test_the_first_slot_that_fails_is_told_and_the_others_are_interrupted():
    """One of three raises: the others are interrupted, its error comes first, and who does not end is left out."""
    slots = [{"slot": f"n0/cpu{i}", "node": "n0", "address": "tcp://n0", "device": "cpu"} for i in range(3)]

    async def never():
        await asyncio.Event().wait()

    async def work(lease, scheduler, node, said):
        async def interrupted():
            while not node.asked("interrupt"):
                await asyncio.sleep(0)
            return ran(0) | {"ok": False, "interrupted": True, "payload": pack_error(KeyboardInterrupt())}

        failed = ran(0) | {"ok": False, "payload": pack_error(ValueError("mine"))}
        lease._reached["tcp://n0"] = True
        node.answers["drlnb_compute"] = [interrupted, never, failed, {"op": "freed"}]
        await lease.acquire()
        answers = await lease.run("a", CALL)
        assert [rank for rank, _ in answers] == [2, 0]
        with pytest.raises(ValueError, match="mine"):
            lease.result(*answers[0])
        assert sorted(message["slot"] for message in node.asked("interrupt")) == ["n0/cpu0", "n0/cpu1", "n0/cpu2"]
        leaving = [message["slot"] for message in node.asked("compute") if message["header"]["op"] == "job-leave"]
        assert leaving == ["n0/cpu2"]
        await lease.release()
        assert scheduler.asked("release")[0]["clean"] is False, "a function may still run on a slot"

    act(work, loop_acquire=[GRANT | {"slots": slots}])

"""Members of a gang that die in the midst of a round, and a gang that goes on with fewer slots, on real processes."""

import contextlib
import os
import signal
from collections import Counter
from statistics import median

import pytest

import drlnb
from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.columns.placement import PlacementPlanned, PlacementPostponed
from drlnb.records.columns.warmup import WakeCollector
from drlnb.records.errors import JournalError
from drlnb.sim.placement.history import history_of
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

#: Rounds of four fragments whose gradients are computed at arrival.
TASK = {"algo": "gpf", "n_envs": 4, "n_collectors": 4, "n_steps": 16, "n_epochs": 1, "total_timesteps": 60 * 4 * 16}


def task(n_learners):
    return drlnb.Task("CartPole-v1", name="a", n_learners=n_learners, eval_episodes=0, **TASK)


def parameters(out):
    """Return the bytes of a run's last checkpoint."""
    folder = out / "checkpoints" / "a"
    return (folder / (folder / "LATEST").read_text() / "model.safetensors").read_bytes()


def held(journal):
    """Return the lease of a round on both slots that is held now; None if there is none."""
    lent = [lease for lease in journal.of(leasing.LeaseGranted) if lease.round and len(lease.slots) == 2]
    over = {lease.fence for lease in journal.of(leasing.LeaseReleased, leasing.LeaseExpired)}
    return next((lease for lease in lent[::-1] if lease.fence not in over), None)


def kill_in_a_round(run, executors, rank):
    """Stop a member, wait until the other one has computed its part of a round, kill it; return that part's events."""
    slot = wait_until(lambda: held(run.journal()), "a lease of two slots").slots[rank]

    looks = Counter()

    def done_by_the_other():
        """Return what the other slot has answered under a lease under which nothing happens any more."""
        journal = run.journal()
        lease = held(journal)
        done = [one for one in journal.of(words.GradientComputed) if lease and one.fence == lease.fence]
        theirs = [one for one in done if one.slot != slot]
        looks[lease and lease.fence, len(done)] += len(theirs) == 2
        return theirs if looks.most_common(1)[0][1] >= 20 else []

    executors[slot].send_signal(signal.SIGSTOP)
    try:
        return wait_until(done_by_the_other, "the other member's part", 30.0)
    finally:
        executors[slot].kill()


@pytest.mark.slow
@pytest.mark.cluster
def test_members_that_die_cost_their_own_part_and_a_resume_needs_fewer_slots(tmp_path):
    """The lead is killed in the midst of a round, later the other member; then the run goes on with one slot.

    Parameters are bit by bit those of one learner that nobody disturbed; what lay at the master was not computed again,
    and the journal of every life replays.
    """
    with drlnb.Fleet(slots=2, n_workers=2) as fleet:
        run = fleet.train(task(2), out=tmp_path / "gang")
        parts = []
        for rank in (0, 1):
            both = wait_until(lambda: titled("drlnb executor", fleet.pool.handle.pid)[1:2], "two executors")
            both += titled("drlnb executor", fleet.pool.handle.pid)[:1]
            executors = {one.cmdline()[0].removeprefix("drlnb executor "): one for one in both}
            parts.append(kill_in_a_round(run, executors, rank))
            run.pause()
            n_added = 3 + rank
            wait_until(lambda n=n_added: len(run.journal().of(leasing.SlotAdded)) == n, "the slot's return")
            run.resume()
        run.stop()
        assert run.wait(timeout_s=60)["a"].state == "stopped"
        assert run.tasks["a"].n_timesteps < TASK["total_timesteps"]
    with drlnb.Fleet(slots=1, n_workers=1) as fleet:
        again = fleet.go_on(tmp_path / "gang")
        assert again.wait(timeout_s=120)["a"].state == "done"
        assert "computes on 1 of its 2 slots for now: no more can be lent" in " ".join(again.notices)
        fleet.train(task(1), out=tmp_path / "alone").wait(timeout_s=120)
    assert parameters(tmp_path / "gang") == parameters(tmp_path / "alone")
    journal = check_laws(tmp_path / "gang")
    computed = [(one.round, one.collector) for one in journal.of(words.GradientComputed)]
    of_member = parts[0]  # the lead died: what the other one had computed lay at the master
    assert all(one.key for one in of_member)
    assert [computed.count((one.round, one.collector)) for one in of_member] == [1, 1]
    assert not any(one.key for one in parts[1]), "of the lead nothing is sent to the master: it is computed again"
    assert {computed.count((one.round, one.collector)) for one in parts[1]} == {2}


# -------------------------------------------------------------------- where a gang computes
@pytest.fixture
def four_cores(tmp_path_factory, monkeypatch):
    """Have the workers of a cluster count four cores: there may be more virtual slots than this machine has."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text("import os\nos.sched_getaffinity = lambda pid: {0, 1, 2, 3}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def plans(run, task="a"):
    return [plan for plan in run.journal().of(PlacementPlanned) if plan.task.rpartition("/")[2] == task]


def kill(fleet, slot):
    (process,) = titled(f"drlnb executor {slot}", fleet.pool.handle.pid)
    process.kill()


def whole(run, n_slots):
    """Return the latest plan once a round is made, and the pool and the gang have all their slots."""
    wait_until(lambda: run.tasks["a"].n_timesteps, "a first round")
    wait_until(lambda: run.rows("pool")[-1]["slots"] == n_slots, "all slots")
    return wait_until(lambda: len(run.tasks["a"].gang) == 2 and plans(run)[-1], "a whole gang")


def replays(run):
    assert {name: replay(stream).difference for name, stream in run.journal().streams.items()} == dict.fromkeys(
        run.journal().streams
    )


@pytest.mark.cluster
def test_a_gang_whose_member_is_killed_gets_another_slot_and_keeps_its_lead(four_cores, tmp_path):
    """Two slots of the first node; one is killed: the second node's is taken, by another plan, and the round goes on.

    Parameters are bit by bit those of one learner that nobody disturbed, and the journal replays.
    """
    long = TASK | {"total_timesteps": 150 * 4 * 16}
    with drlnb.Fleet(slots=3, n_workers=2) as fleet:
        run = fleet.train(
            drlnb.Task("CartPole-v1", name="a", n_learners=2, eval_episodes=0, **long), out=tmp_path / "g"
        )
        before = whole(run, 3)
        lead, member = before.slots
        kill(fleet, member)
        after = wait_until(lambda: plans(run)[-1] != before and plans(run)[-1], "another plan")
        assert run.wait(timeout_s=60)["a"].state == "done"
        fleet.train(drlnb.Task("CartPole-v1", name="a", eval_episodes=0, **long), out=tmp_path / "alone").wait(60)
    assert (after.planner, after.gang_version, after.attempt) == ("ect", before.gang_version + 1, before.attempt)
    assert after.slots[0] == lead
    assert after.slots[1] not in {lead, member}
    assert after.candidates
    assert all(lead in each.slots and member not in each.slots for each in after.candidates)
    assert run.tasks["a"].gang == plans(run)[-1].slots
    lent = [lease for lease in run.journal().of(leasing.LeaseGranted) if lease.slots == after.slots]
    assert lent, "its rounds are computed there"
    assert not [said for said in run.journal().of(PlacementPostponed) if said.reason != "needs 2 slots, 1 alive"]
    assert parameters(tmp_path / "g") == parameters(tmp_path / "alone")
    check_laws(tmp_path / "g")
    replays(run)
    for past in (history_of(run), history_of(tmp_path / "g")):  # which training on a history begins with
        assert {slot for slot, some in zip(past.slots, past.outages, strict=True) if some} == {member}
        assert [job.n_slots for job in past.jobs] == [2]
        held_s = sum(lease.held_s for lease in run.journal().of(leasing.LeaseReleased) if lease.reason == "returned")
        assert past.jobs[0].work_s == pytest.approx(held_s, rel=0.05)  # some rounds were on two nodes


@pytest.mark.slow
@pytest.mark.cluster
def test_a_gang_outlives_its_node_all_its_slots_and_another_planner(four_cores, tmp_path):
    """The lead's node is killed; the planner is changed while the rest drains; then every executor is killed at once.

    It waits, says so once, and goes on; parameters are bit by bit those of one learner that nobody disturbed.
    """
    long = TASK | {"total_timesteps": 300 * 4 * 16}
    with drlnb.Fleet(slots=4, n_workers=2) as fleet:
        run = fleet.train(
            drlnb.Task("CartPole-v1", name="a", n_learners=2, eval_episodes=0, **long), out=tmp_path / "g"
        )
        before = whole(run, 4)
        node = before.slots[0].partition("/")[0]
        pids = dict(fleet.pool.link.client.run(lambda dask_worker: (str(dask_worker.name), os.getpid())).values())
        (worker,) = (each for each in titled("drlnb worker", fleet.pool.handle.pid) if each.pid == pids[node])
        worker.kill()
        run.set("placement.planner", "healthiest", task="a")
        after = wait_until(lambda: plans(run)[-1] != before and plans(run)[-1], "another plan", 30.0)
        assert node not in {slot.partition("/")[0] for slot in after.slots}
        assert after.gang_version > before.gang_version
        run.pause()
        whole(run, 4)
        for process in titled("drlnb executor", fleet.pool.handle.pid):
            process.kill()
        wait_until(lambda: any("needs 2 slots, 0 alive" in text for text in run.notices), "that none is left")
        run.resume()
        assert run.wait(timeout_s=120)["a"].state == "done"
        fleet.train(drlnb.Task("CartPole-v1", name="a", eval_episodes=0, **long), out=tmp_path / "alone").wait(60)
    assert [said.reason for said in run.journal().of(PlacementPostponed) if not said.n_alive] == [
        "needs 2 slots, 0 alive"
    ]
    assert plans(run)[-1].planner == "healthiest"
    assert parameters(tmp_path / "g") == parameters(tmp_path / "alone")
    check_laws(tmp_path / "g")
    replays(run)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_slow_learner_and_a_slow_collector_change_no_bit_and_a_resume_forgets_them(tmp_path):
    """Their shares take longer, as the journal has them; those of the next attempt are as usual."""
    with drlnb.Fleet(slots=2) as fleet:
        fleet.train(task(2), out=tmp_path / "usual").wait(timeout_s=60)
        run = fleet.train(task(2), out=tmp_path / "slowed")
        slots = wait_until(lambda: known(run, words.LeaseReceived)[5:6], "a few rounds")[0].slots
        run.slow_down(slots[1], 4.0, 10**6)
        run.slow_down(2, 5, 10**6)
        wait_until(
            lambda: len({each.round for each in known(run, WakeCollector) if each.slowed > 1}) > 12, "slow rounds"
        )
        run.stop()
        run.wait(timeout_s=60)
        run = fleet.go_on(tmp_path / "slowed")
        run.wait(timeout_s=60)
    assert parameters(tmp_path / "slowed") == parameters(tmp_path / "usual")
    check_laws(tmp_path / "slowed")
    rows = [row for row in run.rows("shares") if row["n_done"]]
    assert {row["slowed"] for row in rows if row["attempt"] == 2} == {1.0}
    for role, member, factor in (("update", slots[1], 4.0), ("collect", "2", 5.0)):
        seconds = {
            slowed: median(
                row["compute_s"] / row["n_done"]
                for row in rows
                if (row["role"], row["slowed"]) == (role, slowed) and (row["member"] == member) == (slowed > 1)
            )
            for slowed in (1.0, factor)
        }
        # Of milliseconds on a busy machine: who sleeps waits for a processor once more.
        assert seconds[factor] / seconds[1.0] > 0.6 * factor, role


def known(run, kind):
    """Return the records of a kind so far."""
    with contextlib.suppress(JournalError):  # it has none yet
        return run.journal().of(kind)
    return ()

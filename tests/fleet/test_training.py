import asyncio
import time

import pytest

from drlnb.fleet import follower as module
from drlnb.fleet.follower import Follower
from drlnb.fleet.training import Training
from drlnb.records.columns.leasing import LeaseReturned
from drlnb.records.errors import CheckpointError, ConfigError, JournalError, PeerError, TrainingFailed
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal
from drlnb.runtime.files import checkpoint
from drlnb.runtime.files.run_directory import RunDir
from tests.fleet.conftest import ended, finished, header, opened, row


@pytest.fixture
def out(tmp_path, specs):
    run = RunDir(tmp_path / "run")
    run.create({"run": "r1", "tasks": [spec.to_plain() for spec in specs]})
    return run


@pytest.fixture
def training(link, specs, out, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    made = Training(Follower(link, "r1", specs, out))
    yield made
    made.close()


def test_it_ends_when_every_task_has(training, link, out):
    """Waiting returns the last status of each task, and the lock of the run is gone."""
    out.write_lock(link.lock("r1"))
    link.say(opened("a"), finished("a", 10), ended("a"), opened("b"), finished("b", 9), ended("b"))
    tasks = training.wait(5)
    assert [(t.name, t.state, t.n_timesteps) for t in tasks.values()] == [("a", "done", 1000), ("b", "done", 900)]
    assert (training.status, training.ended) == ("done", True)
    assert out.read_lock() is None
    assert repr(training) == "<Training r1 done: a 1,000/1,000, b 900/1,000>"


def test_a_full_disk_is_told_once(training, link):
    """However often the checkpoint is tried again."""
    refused = {"version": 2, "failure": "disk full"}
    link.say(*(row("a", "CheckpointWritten", **refused) for _ in range(3)), row("a", "CheckpointWritten", version=2))
    link.say(ended("a"), ended("b"))
    training.wait(5)
    assert training.notices == (
        "a checkpoint cannot be written (disk full): the task rests after this round, and goes on by itself when there "
        "is room",
    )


def test_a_failed_task_is_named_with_its_cause(training, link):
    """The other tasks are waited for first; then the first failure is raised."""
    link.say(ended("a", "failed", "the env raised ZeroDivisionError"), ended("b"))
    with pytest.raises(TrainingFailed, match="task a failed: the env raised ZeroDivisionError"):
        training.wait(5)
    assert training.status == "failed"


def test_waiting_can_be_given_up(training):
    """The time is over, the training is not."""
    with pytest.raises(TimeoutError, match=r"run r1 is still running after 0\.01 s"):
        training.wait(0.01)


def test_it_can_be_awaited(training, link):
    """A coroutine that awaits does not block its loop: the loop itself says the last row."""

    async def cell():
        asyncio.get_running_loop().call_later(0.02, link.say, ended("a"), ended("b"))
        return await training

    assert set(asyncio.run(cell())) == {"a", "b"}


def test_an_end_that_only_the_pool_knows_is_heard(training, link):
    """A task whose master could never start ends by the register of runs."""
    link.known[0]["tasks"]["a"] = {"state": "failed", "reason": "no worker took it"}
    link.say(ended("b"))
    with pytest.raises(TrainingFailed, match="task a failed: no worker took it"):
        training.wait(5)


def test_a_cluster_that_is_gone_fails_the_tasks_with_the_way_out(training, link, out):
    """The reason tells the address and how to go on; it is not believed at the first silence."""
    link.failure = PeerError("scheduler", "not there")
    with pytest.raises(TrainingFailed) as error:
        training.wait(5)
    assert str(error.value) == (
        "task a failed (and 1 more): the cluster at tcp://nowhere:1 is gone (scheduler: not there); "
        f"go on with: drlnb resume {out.path}"
    )


def test_wishes_go_to_the_cluster(training, link):
    """Each steering method is one message; a task that is not there is refused here."""
    training.stop()
    training.pause("a")
    training.resume("a")
    training.checkpoint()
    training.stop("b", now=True)
    wishes = [("stop", None), ("pause", "a"), ("resume", "a"), ("checkpoint", None), ("kill", "b")]
    assert [wish for wish in link.asked if wish[0] != "probe"] == wishes
    with pytest.raises(ConfigError, match="this run has no task 'c'; it has a, b"):
        training.stop("c")


def test_metrics_reach_their_files(training, link, out):
    """metrics/<task>.csv is written while rows come, and whole when the training has ended."""
    link.say(opened("a"), finished("a", 1), ended("a"), ended("b"))
    training.wait(5)
    assert (out.metrics / "a.csv").read_text() == ("time/iterations,time/total_timesteps,round/time_s\n1,100,1.0\n")


def test_without_the_journals_files_the_rows_that_were_seen_are_the_journal(training, link):
    """On a cluster of other machines the summary still comes out."""
    link.say(header("a"), opened("a"), finished("a", 3), ended("a"), ended("b"))
    training.wait(5)
    assert list(training.journal().streams) == ["task-a-a1"]
    assert training.watch.summary()["tasks"][0]["timesteps"] == 300


def test_the_summary_reads_no_journal(training, link, monkeypatch):
    """However long the run was: it is made of the rows as they came; what was missed is not guessed at."""
    monkeypatch.setattr(Journal, "read", None)
    link.say(header("a"), opened("a"), finished("a", 3), ended("a"), ended("b"))
    training.wait(5)
    summary = training.watch.summary()
    assert [row["timesteps"] for row in summary["tasks"]] == [300, 0]
    assert summary["leases"]["grants"] == 0


def test_what_was_missed_is_not_summed_up(training, link):
    """The slots' figures are None, not those of the rows that came."""
    link.say(header("a"), opened("a"), finished("a", 3), ended("a"), ended("b"), gap=True)
    training.wait(5)
    assert set(training.watch.summary()["leases"].values()) == {None}


def test_a_journal_can_begin_later(training, link):
    """Answers go with their event: what came before `since` is left out."""
    late = LeaseReturned(t=9.0, fence=Fence(epoch=1, token=1), clean=True, computed_s=(0.0,))
    link.say(header("a"), opened("a"), finished("a", 3), {"s": "task-a-a1", **late.to_row()}, ended("a"), ended("b"))
    training.wait(5)
    records = training.journal(since=1.0).streams["task-a-a1"].records
    assert [type(record).__name__ for record in records] == ["LeaseReturned", "EndTask"]


def test_no_journal_is_told(training):
    """Nothing was said yet."""
    with pytest.raises(JournalError, match="no journal of this run can be seen from here yet"):
        training.journal()


def test_defects_of_the_broker_are_told(training, link):
    """A row that is no record becomes a notice."""
    link.say({"s": "broker-e1", "k": "n", "r": "Defect", "text": "it broke"}, ended("a"), ended("b"))
    training.wait(5)
    assert training.notices == ("it broke",)


def test_a_task_that_waits_for_more_slots_than_there_are_is_told_once(training, link):
    """However many of its rounds wait; those of other runs and users' loops are told where they belong."""
    unmet = {"s": "broker-e1", "k": "d", "r": "RequestUnmet", "request_id": "x", "n_slots": 2, "n_allowed": 1}
    link.say(*({**unmet, "task": task} for task in ("r1/a", "r1/a", "r2/a", "loop")), ended("a"), ended("b"))
    training.wait(5)
    assert training.notices == ("task r1/a waits: it wants 2 slots at once, and 1 may serve it now",)


def test_a_task_for_which_no_slot_is_left_is_told_once(training, link):
    """Not one that goes on with fewer: its lease tells of that; nor another run's."""
    row = {"s": "broker-e1", "k": "d", "r": "PlacementPostponed"}
    none = {**row, "task": "r1/a", "reason": "needs 2 slots, 0 alive", "n_alive": 0}
    fewer = {**row, "task": "r1/b", "reason": "needs 2 slots, 1 alive", "n_alive": 1}
    link.say(none, none, fewer, none | {"task": "r2/a"}, ended("a"), ended("b"))
    training.wait(5)
    assert training.notices == ("task r1/a waits: it needs 2 slots, 0 alive",)


def test_a_model_needs_a_checkpoint(training):
    """Before the first one the task is named; a run of two tasks asks which."""
    with pytest.raises(CheckpointError, match="task a has no checkpoint"):
        training.load("a")
    with pytest.raises(ConfigError, match="this run has no task None; it has a, b"):
        training.load()


def test_a_checkpoint_without_parameters_is_refused(training, out):
    """A folder that somebody made by hand is no model."""
    checkpoint.write(out.checkpoints / "a", n_rounds=16, facts={}, blobs={})
    with pytest.raises(CheckpointError, match="checkpoints/a/16"):
        training.load("a")


def test_a_defect_of_the_watcher_ends_the_waiting(training, link):
    """Nobody waits for ever because a row could not be read."""
    link.say({"s": "task-a-a1", "k": "d", "r": "PhaseEntered"})
    why = r"task a failed .and 1 more.: watching the run failed: TypeError: PhaseEntered.*missing"
    with pytest.raises(TrainingFailed, match=why):
        training.wait(5)


def test_rows_are_asked_for_ten_times_a_second_at_most(link, specs, out, monkeypatch):
    """However fast they come: each question costs the scheduler and the client."""
    times = []
    answer = link.rows
    monkeypatch.setattr(link, "rows", lambda *question: (times.append(time.monotonic()), answer(*question))[1])
    link.say(opened("a"), opened("b"))
    link.say(ended("a"), ended("b"))
    training = Training(Follower(link, "r1", specs, out))
    training.wait(5)
    training.close()
    assert times[1] - times[0] >= 0.1

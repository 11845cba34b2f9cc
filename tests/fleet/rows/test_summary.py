from dataclasses import replace
from pathlib import Path

import pytest

from drlnb.fleet.rows.board import Board
from drlnb.fleet.rows.summary import summarise
from drlnb.records import round as words
from drlnb.records.columns import leasing, warmup
from drlnb.records.ids import Fence
from drlnb.records.journal import Journal, Stream, StreamOpened
from drlnb.records.spec import RlWork
from drlnb.views.folds.entries import entries_of
from drlnb.views.leasing.gantt import gantt

JOURNALS = Path(__file__).parents[2] / "journals"

SPEC = RlWork(name="a", env="CartPole-v1", seed=4, total_timesteps=1000, n_envs=1)


def stream(name, machine, *records, snapshot=None):
    header = StreamOpened(
        stream=name, machine=machine, config={}, snapshot=snapshot, origin="measured", version="0.1.0"
    )
    return {name: Stream(header=header, records=records, torn=False, source=name)}


def opened(attempt, t=0.0):
    return words.TaskOpened(
        t=t, attempt=attempt, version=0, n_rounds=0, n_timesteps=0, elapsed_s=0.0, episodes=(), n_bytes=0
    )


def finished(n_timesteps, round_s, wait_s, update_s, elapsed_s=0.0):
    metrics = {"round/time_s": round_s, "round/wait_lease_s": wait_s, "round/update_s": update_s}
    metrics |= {"time/time_elapsed": elapsed_s, "rollout/ep_rew_mean": n_timesteps / 10}
    return words.MetricsRecorded(round=1, n_timesteps=n_timesteps, metrics=metrics)


def evaluated(mean, failure=""):
    return words.EvaluationFinished(t=9.0, version=3, mean_reward=mean, std_reward=0.0, n_episodes=20, failure=failure)


def requested(t, task):
    return leasing.SlotRequested(t=t, request_id="q", task=task, attempt=1, round=1, node="n0")


def granted(task, token=1):
    return leasing.LeaseGranted(
        fence=Fence(epoch=1, token=token), request_id="q", task=task, attempt=1, round=1, slots=("s0",), waited_s=0.0
    )


def returned(t):
    return leasing.LeaseReturned(t=t, fence=Fence(epoch=1, token=1), clean=True, computed_s=(0.0,))


def released(task, held_s, computed_s, token=1):
    return leasing.LeaseReleased(
        fence=Fence(epoch=1, token=token),
        task=task,
        slots=("s0",),
        held_s=held_s,
        computed_s=(computed_s,),
        reason="returned",
    )


def added(slot, t=0.0):
    return leasing.SlotAdded(t=t, slot=slot, node="n0", device="cpu", executor_epoch=1)


def summed(run, specs, journal):
    """Sum a journal up as who follows its run does."""
    board = Board(specs)
    board.feed(list(entries_of(journal)))
    return summarise(run, board)


def summary(*streams, specs=(SPEC,)):
    return summed("r1", specs, Journal(streams={k: v for one in streams for k, v in one.items()}))


def test_an_empty_run_says_nothing_that_it_does_not_know():
    """What cannot be said is None, never 0."""
    found = summary(stream("broker-e1", "pool", added("s0")))
    assert found["tasks"] == [
        {
            "name": "a", "env": "CartPole-v1", "seed": 4, "timesteps": 0, "ep_rew_mean": None,
            "eval_mean_reward": None, "seconds": 0.0, "steps_per_s": None, "restarts": 0,
        }
    ]  # fmt: skip
    assert found["leases"] == {
        "grants": 0, "utilisation": None, "held": None, "bound": None, "inflation": None,
        "expected_utilisation": None, "expected_inflation": None, "hold_planner": None,
    }  # fmt: skip


def test_a_task_is_told_by_its_last_round():
    """500 steps in 4 s are 125 steps per second; the evaluation that failed does not count."""
    found = summary(
        stream("task-a-a1", "round", opened(1), finished(200, 1, 0, 1, 2.0), finished(500, 1, 0, 1, 4.0),
               evaluated(77.0), evaluated(0.0, "env raised")),
    )  # fmt: skip
    task = found["tasks"][0]
    assert (task["timesteps"], task["seconds"], task["steps_per_s"]) == (500, 4.0, 125.0)
    assert (task["ep_rew_mean"], task["eval_mean_reward"]) == (50.0, 77.0)


def test_restarts_are_children_and_masters_that_were_lost():
    """One collector, one executor, and attempt 1 that never ended; attempt 2 ended in good order."""
    ended = words.EndTask(state="stopped", reason="asked for")
    lost = warmup.CollectorRestartPlanned(collector=0, node="n0", after_s=0.5, n_restarts=1)
    died = words.ExecutorDied(t=1.0, fence=Fence(epoch=1, token=1), slot="s0", reason="killed")
    found = summary(
        stream("task-a-a1", "round", opened(1), lost),
        stream("task-a-a2", "round", opened(2), died, ended),
        stream("task-a-a10", "round", opened(10), finished(900, 1, 0, 1, 3.0)),
    )
    assert found["tasks"][0]["restarts"] == 3
    assert found["tasks"][0]["timesteps"] == 900


def test_attempts_count_in_their_order():
    """Attempt 10 comes after attempt 9, as its numbers say and its file's name does not."""
    lost = warmup.CollectorRestartPlanned(collector=0, node="n0", after_s=0.5, n_restarts=1)
    task = summary(
        stream("task-a-a10", "round", opened(10), finished(900, 1, 0, 1, 3.0)),
        stream("task-a-a9", "round", opened(9), lost, finished(300, 1, 0, 1, 1.0)),
    )["tasks"][0]
    assert (task["timesteps"], task["restarts"]) == (900, 2)


def test_utilisation_is_computing_over_slots_times_the_span_of_leases():
    """2 slots, first grant at 10 s, last release at 20 s: 20 slot seconds, 8 of them held, 5 computed."""
    found = summary(
        stream(
            "broker-e1", "pool",
            added("s0"), added("s1"),
            requested(10.0, "r1/a"), granted("r1/a"), returned(13.0), released("r1/a", 3.0, 2.0),
            requested(15.0, "r1/a"), granted("r1/a", 2), returned(20.0), released("r1/a", 5.0, 3.0, 2),
            returned(99.0),
        )
    )["leases"]  # fmt: skip
    assert (found["grants"], found["utilisation"], found["held"]) == (2, 0.25, 0.4)


def test_leases_of_other_runs_are_not_ours():
    """A pool may serve many runs; a task of the same name in another run is another task."""
    found = summary(
        stream("broker-e1", "pool", added("s0"), requested(0.0, "r2/a"), granted("r2/a"), returned(4.0),
               released("r2/a", 4.0, 4.0)),
    )["leases"]  # fmt: skip
    assert (found["grants"], found["utilisation"]) == (0, None)


def test_slots_that_were_there_before_the_run_count():
    """A stream that begins with a snapshot knows its slots from there."""
    snapshot = {"leases": {"slots": {"s0": {"name": "s0"}, "s1": {"name": "s1"}}}}
    records = (requested(0.0, "r1/a"), granted("r1/a"), returned(4.0), released("r1/a", 4.0, 4.0))
    assert summary(stream("broker-e1", "pool", *records, snapshot=snapshot))["leases"]["utilisation"] == 0.5


def test_an_expired_lease_was_held_and_computed_nothing_that_counts():
    """Held for 4 of 4 s; what it computed is void."""
    expired = leasing.LeaseExpired(fence=Fence(epoch=1, token=1), task="r1/a", slots=("s0",), held_s=4.0, silent_s=3.0)
    records = (added("s0"), requested(0.0, "r1/a"), granted("r1/a"), returned(4.0), expired)
    leases = summary(stream("broker-e1", "pool", *records))["leases"]
    assert (leases["held"], leases["utilisation"]) == (1.0, 0.0)


def test_inflation_is_time_with_waits_over_time_without_them():
    """Task a: 3 of its 12 s waiting for its second lease, 12 / 9; task b: 4 of 8, 8 / 4; mean 5 / 3."""
    other = RlWork(name="b", env="CartPole-v1", total_timesteps=10, n_envs=1)

    def one(start, end, task, token):
        return granted(f"r1/{task}", token), returned(end), released(f"r1/{task}", end - start, 1.0, token)

    pool = (
        added("s0"), added("s1"),
        requested(0.0, "r1/a"), *one(0.0, 4.0, "a", 1), requested(5.0, "r1/a"), returned(8.0), *one(8.0, 12.0, "a", 2),
        requested(20.0, "r1/b"), *one(20.0, 22.0, "b", 3), requested(22.0, "r1/b"), returned(26.0),
        *one(26.0, 28.0, "b", 4),
    )  # fmt: skip
    found = summary(stream("broker-e1", "pool", *pool), specs=(SPEC, other))["leases"]
    assert found["inflation"] == pytest.approx(5 / 3)


def test_the_hold_planner_is_the_last_that_spoke():
    """A person may have changed it on the way."""
    said = [leasing.HoldPlanned(round=i, action="wait", planner=p, reason="") for i, p in enumerate(("round", "last"))]
    assert summary(stream("task-a-a1", "round", opened(1), *said))["leases"]["hold_planner"] == "last"


def estimated(utilisation, inflation, bound=0.8):
    return leasing.LoadEstimated(
        n_tasks=2, n_slots=1, d_mean=0.4, bound_frac=bound, expected_utilisation_frac=utilisation,
        expected_inflation=inflation,
    )  # fmt: skip


def test_what_theory_expected_is_weighed_by_the_time_for_which_it_held():
    """Leases from 2 to 10 s: .6 and 2x for 2 s of them, then .2 and 1.2x for 6 s: .3 and 1.4x; after 10 s, nothing.

    The bound is of the same estimates, .8 and then .4: .5, and not below what is expected.
    """
    leases = summary(
        stream(
            "broker-e1", "pool",
            added("s0"), estimated(0.6, 2.0),
            requested(2.0, "r1/a"), granted("r1/a"), requested(4.0, "r1/b"), estimated(0.2, 1.2, 0.4),
            returned(10.0), released("r1/a", 8.0, 3.0), requested(12.0, "r1/b"), estimated(0.9, 9.0),
            returned(99.0),
        )
    )["leases"]  # fmt: skip
    assert (leases["expected_utilisation"], leases["expected_inflation"]) == (pytest.approx(0.3), pytest.approx(1.4))
    assert leases["bound"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["three-tasks-last", "two-tasks-one-slot"])
def test_the_summary_says_what_the_pictures_say(name):
    """Utilisation, bound, price and what theory expects have one value each, in the terminal and in the report."""
    journal = Journal.read(JOURNALS / name)
    tasks = {str(s.header.config["task"]) for s in journal.streams.values() if s.header.machine == "round"}
    specs = [replace(SPEC, name=task) for task in tasks]
    leases, view = summed("", specs, journal)["leases"], gantt(journal)
    pairs = {
        "utilisation": "utilisation", "bound": "bound", "inflation": "inflation", "expected_utilisation": "expected",
        "expected_inflation": "expected_inflation",
    }  # fmt: skip
    assert {key: view.value(number) for key, number in pairs.items()} == pytest.approx({
        key: leases[key] for key in pairs
    })


def test_without_a_lease_nothing_is_expected():
    """An estimate before the run's first grant holds for no time of it."""
    leases = summary(stream("broker-e1", "pool", added("s0"), estimated(0.6, 2.0), returned(9.0)))["leases"]
    assert (leases["expected_utilisation"], leases["expected_inflation"]) == (None, None)

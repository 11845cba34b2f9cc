from dataclasses import replace

import pytest

from drlnb.fleet.rows.board import Board
from drlnb.records import round as words
from drlnb.records.spec import RlWork
from drlnb.views.folds.entries import decoded, entries_of, split_stream
from tests.fleet import conftest
from tests.views.journals import Run

SPEC = RlWork(name="a", env="CartPole-v1", seed=4, total_timesteps=1000, n_envs=1)


def row(kind, attempt=1, **fields):
    return conftest.row("a", kind, attempt, **fields)


def opened(attempt=1, n_timesteps=0):
    return row("TaskOpened", attempt, n_timesteps=n_timesteps, elapsed_s=0.0) | {"attempt": attempt}


def finished(n_timesteps, round_s, attempt=1, **metrics):
    metrics = {"round/time_s": round_s, **metrics}
    return row("MetricsRecorded", attempt, n_timesteps=n_timesteps, metrics=metrics)


class Fed(Board):
    """A board that is fed rows as they are streamed."""

    def feed(self, rows):
        super().feed(decoded(rows))


@pytest.fixture
def board():
    return Fed([SPEC])


def status(board):
    return board.statuses()["a"]


def test_a_task_is_queued_before_anything_was_heard(board):
    """No row yet: queued, nothing made, nothing known."""
    task = status(board)
    assert (task.state, task.doing, task.n_timesteps) == ("running", "queued", 0)
    assert (task.ep_rew_mean, task.eta_s) == (None, None)
    assert (task.name, task.env, task.seed, task.total_timesteps) == ("a", "CartPole-v1", 4, 1000)


@pytest.mark.parametrize(
    ("phase", "state", "doing"),
    [
        ("collecting", "running", "collecting"),
        ("waiting", "running", "waiting for a slot"),
        ("computing", "running", "computing"),
        ("publishing", "running", "publishing"),
        ("evaluating", "running", "evaluating"),
        ("paused", "paused", "paused"),
    ],
)
def test_phases_are_told_in_plain_words(board, phase, state, doing):
    """Each phase of the round has its word."""
    board.feed([opened(), row("PhaseEntered", phase=phase, round=1)])
    assert (status(board).state, status(board).doing) == (state, doing)


def test_who_computes_and_who_waits_is_the_pools_word():
    """With one slot, a computes from its grant to its return, and b waits: however late their own streams tell."""
    run, board = Run().slot().task("a").task("b"), Board([SPEC, replace(SPEC, name="b")])
    for name in ("a", "b"):
        run.say(f"task-{name}-a1", words.PhaseEntered(phase="waiting", round=1))
    run.grant("a", 1.0, 1.0, run.ask("a", 1.0))
    run.ask("b", 1.5)
    board.feed(list(entries_of(run.journal())))
    assert {name: task.doing for name, task in board.statuses().items()} == {
        "a": "computing",
        "b": "waiting for a slot",
    }


def test_without_some_of_the_pools_rows_a_tasks_own_word_counts():
    """A grant was missed: nobody knows who holds the slot but the task itself, and it computes."""
    run, board = Run().slot().task("a"), Board([SPEC])
    run.ask("a", 1.0)
    run.say("task-a-a1", words.PhaseEntered(phase="computing", round=1))
    entries = list(entries_of(run.journal()))
    board.feed(entries[:1])
    board.feed(entries[1:], gap=True)
    assert status(board).doing == "computing"


def test_what_is_restarted_is_starting_until_its_end_is_known():
    """Attempt 2 has no row yet: the end of attempt 1 counts no more, and what the cluster says of attempt 2 does."""
    board = Fed([SPEC])
    board.feed([opened(), row("EndTask", state="failed", reason="the env raised")])
    board.restarted("a", 2)
    assert (status(board).state, status(board).doing, status(board).failure) == ("running", "starting", "")
    board.end("a", "failed", "no worker")
    assert status(board).failure == "no worker"
    board.restarted("a", 3)
    board.feed([opened(3)])
    assert (status(board).doing, status(board).failure) == ("starting", "")


def test_a_pause_for_a_full_disk_says_why(board):
    """Until a checkpoint is on disk; a pause of the user's afterwards is just one."""
    written = {"t": 1.0, "version": 2, "elapsed_s": 0.1, "n_bytes": 9}
    board.feed([
        opened(),
        row("CheckpointWritten", failure="disk full", **written),
        row("PhaseEntered", phase="paused"),
    ])
    assert status(board).doing == "paused: no checkpoint can be written (disk full)"
    assert status(board).state == "paused"
    board.feed([row("CheckpointWritten", failure="", **written), row("PhaseEntered", phase="collecting")])
    assert status(board).doing == "collecting"
    board.feed([row("PhaseEntered", phase="paused")])
    assert status(board).doing == "paused"


def test_the_remaining_time_is_rounds_left_times_the_median_round(board):
    """Rounds of 100 steps: 7 are left of 1000 after 300; the median of 1, 9 and 2 s is 2 s, so 14 s."""
    board.feed([opened(), finished(100, 1.0), finished(200, 9.0)])
    assert status(board).eta_s is None
    board.feed([finished(300, 2.0)])
    assert status(board).eta_s == 14.0


def test_the_remaining_time_forgets_rounds_older_than_ten(board):
    """Ten rounds of 1 s after three of 50 s: 1000 - 650 steps at 50 per round are 7 rounds, so 7 s."""
    board.feed([opened(), *(finished(50 * i, 50.0 if i <= 3 else 1.0) for i in range(1, 14))])
    assert status(board).eta_s == 7.0


def test_steps_and_returns_come_from_the_rounds(board):
    """The last round counts; a round without an ended episode keeps the former mean."""
    board.feed([opened(), finished(100, 1.0, **{"rollout/ep_rew_mean": 21.5, "time/time_elapsed": 1.5})])
    board.feed([finished(200, 1.0)])
    task = status(board)
    assert (task.n_timesteps, task.ep_rew_mean, task.elapsed_s) == (200, 21.5, 1.5)


def test_a_new_attempt_takes_over_and_counts_as_a_restart(board):
    """Steps fall back to the checkpoint's; rows of the old attempt are not believed any more."""
    board.feed([opened(), finished(300, 1.0), opened(2, n_timesteps=200), finished(400, 1.0)])
    assert (status(board).n_timesteps, status(board).n_restarts) == (200, 1)


def test_going_on_after_an_end_is_no_restart(board):
    """A person who resumes a stopped task has not lost anything."""
    board.feed([opened(), row("EndTask", state="stopped", reason="asked for"), opened(2)])
    assert (status(board).state, status(board).n_restarts) == ("running", 0)


def test_lost_children_count_as_restarts(board):
    """Collectors and executors that were started again are counted; why the latest one was lost stands beside."""
    board.feed([opened(), row("CollectorLost", reason="killed by signal 9"), row("CollectorRestartPlanned")])
    assert (status(board).n_restarts, status(board).last_loss) == (1, "killed by signal 9")
    board.feed([row("CollectorUnanswered", reason="did not answer")])
    assert (status(board).n_restarts, status(board).last_loss) == (1, "killed by signal 9"), "nobody waited for it"
    board.feed([row("ExecutorDied", reason="out of memory")])
    assert (status(board).n_restarts, status(board).last_loss) == (2, "out of memory")


def test_a_failure_keeps_its_text(board):
    """The reason is the whole story; a later look at the cluster does not change it."""
    board.feed([opened(), row("EndTask", state="failed", reason="the env raised")])
    board.end("a", "stopped", "late")
    task = status(board)
    assert (task.state, task.failure, task.ended) == ("failed", "the env raised", True)
    assert board.ended


def test_an_end_that_no_row_told_counts(board):
    """The pool gave the task up before any master could speak."""
    board.end("a", "failed", "no worker")
    assert status(board).failure == "no worker"


def test_the_final_evaluation_is_kept_unless_it_failed(board):
    """A failed evaluation has no mean."""
    board.feed([row("EvaluationFinished", failure="env raised", mean_reward=0.0)])
    assert status(board).eval_mean_reward is None
    board.feed([row("EvaluationFinished", failure="", mean_reward=480.5)])
    assert status(board).eval_mean_reward == 480.5


def test_rows_of_others_are_skipped(board):
    """The pool's stream, unknown tasks and unknown records change nothing."""
    before, end = status(board), row("EndTask", state="done")
    board.feed([{**end, "s": "broker-e1"}, {**end, "s": "task-b-a1"}, {"s": "task-a-a1", "r": "NewRecord"}, {}])
    assert status(board) == before


def test_a_stream_of_a_task_is_split_at_its_last_mark():
    """Names may hold what looks like an attempt."""
    assert split_stream("task-x-a3-a12") == ("x-a3", 12)
    assert split_stream("task-x") is None
    assert split_stream("broker-e5-a1") is None


def test_asking_for_the_end_makes_no_status(board, monkeypatch):
    board.feed([opened(), finished(500, 1.0)])
    monkeypatch.setattr("drlnb.fleet.rows.board.statuses", lambda *given, **named: pytest.fail("statuses were made"))
    assert not board.ended
    board.end("a", "failed", "the cluster is gone")
    assert board.ended
    board.restarted("a", 2)
    assert not board.ended  # the end was of the former attempt

"""Evaluations while a task trains: when, who plays, what the best one leaves; episodes that a resume loses."""

import pytest
from round_words import Master, of, only

from drlnb.records import round as words
from drlnb.records.columns.distribution import SendParameters
from drlnb.records.columns.warmup import CollectorReady, WakeCollector
from tests.matches import like


def trained(n_rounds=6, **config):
    """Return a master with 1 collector of 8 steps per round whose first round is committed."""
    master = Master(n_collectors=1, n_rounds=n_rounds, eval_freq=16, **config)
    master.at_version_1()
    master.to_commit()
    return master


def to_evaluation(master):
    """Make the second round, after which 16 steps are done; return what its publication brings."""
    master.completed()
    master.to_commit()
    return master.completed()


def judged(master, mean):
    return master.feed(
        words.EvaluationFinished, version=master.version, mean_reward=mean, std_reward=0.0, n_episodes=5, failure=""
    )


def test_it_is_due_at_multiples_and_acting_waits_for_it():
    """After 8 steps collectors are woken, after 16 one plays 5 episodes first; then they are woken."""
    master = trained()
    assert of(WakeCollector, master.completed())
    master.to_commit()
    assert master.completed()[1:] == (
        words.PhaseEntered(phase="evaluating", round=3),
        like(words.Evaluate, collector=0, node="n0", version=3, n_episodes=5, deterministic=True),
    )
    assert of(WakeCollector, judged(master, 1.0)) == [like(WakeCollector, version=3)]
    master.to_commit()
    assert of(WakeCollector, master.completed())
    master.to_commit()
    assert of(words.Evaluate, master.completed()) == [like(words.Evaluate, version=5)]


def test_samples_and_their_number_are_the_callers_choice():
    """`eval_deterministic` and `eval_episodes` ride in the command; the last one of all is deterministic as ever."""
    master = trained(eval_deterministic=False, eval_episodes=3)
    assert only(words.Evaluate, to_evaluation(master)) == like(words.Evaluate, n_episodes=3, deterministic=False)
    judged(master, 1.0)
    for _ in range(4):
        master.to_commit()
        master.gathered()
        out = master.completed()
        if of(words.Evaluate, out) and master.machine.state.judging:
            judged(master, 1.0)
    assert only(words.Evaluate, out) == like(words.Evaluate, n_episodes=20, deterministic=True)


def test_the_best_one_is_kept_before_anybody_acts():
    """Returns 5, 4, 6: a checkpoint, reason `best`, after the first and third; acting waits for its copies."""
    master = trained(n_rounds=12, eval_keep_best=True)
    to_evaluation(master)
    out = judged(master, 5.0)
    assert out == (like(words.WriteCheckpoint, version=3, n_rounds=2, n_timesteps=16, reason="best"),)
    assert of(WakeCollector, master.gathered())
    master.written()
    master.to_commit()
    to_evaluation(master)
    assert of(words.WriteCheckpoint, judged(master, 4.0)) == []
    master.to_commit()
    to_evaluation(master)
    assert only(words.WriteCheckpoint, judged(master, 6.0)).reason == "best"


def test_a_resumed_task_knows_the_best_so_far():
    """With a best of 7 from before, 6 leaves no checkpoint, and the next one is due at a multiple, not at once."""
    master = Master(n_collectors=1, n_rounds=6, eval_freq=16, eval_keep_best=True)
    master.feed(
        words.TaskOpened, attempt=1, version=2, n_rounds=1, n_timesteps=8, elapsed_s=1.0, episodes=(), n_bytes=100,
        eval_best=7.0,
    )  # fmt: skip
    master.placed("n0")
    master.ready(0)
    assert of(WakeCollector, master.completed())
    master.to_commit()
    assert of(words.Evaluate, master.completed())
    assert of(words.WriteCheckpoint, judged(master, 6.0)) == []


def test_a_pause_comes_first():
    """Asked to pause, the task rests; the evaluation that was due is played when it goes on."""
    master = trained()
    master.completed()
    master.say(words.PauseAsked)
    master.to_commit()
    assert of(words.Evaluate, master.completed()) == []
    master.gathered()
    master.written()
    assert master.phase == "paused"
    assert of(words.Evaluate, master.say(words.ResumeAsked)) == [like(words.Evaluate, version=3)]
    assert of(WakeCollector, judged(master, 1.0))


def test_a_checkpoint_is_copied_first():
    """A periodic checkpoint of the same round is gathered before the collector that holds its state plays."""
    master = trained(checkpoint_every=2, checkpoint_min_s=0.0)
    assert of(words.Evaluate, to_evaluation(master)) == []
    assert of(words.Evaluate, master.gathered()) == [like(words.Evaluate, version=3)]
    assert of(words.Evaluate, master.written()) == []


def test_a_lost_evaluator_is_followed_by_another():
    """The restarted collector plays again; a late word of the dead one does not count."""
    master = trained()
    to_evaluation(master)
    master.lost(0)
    assert judged(master, 9.0) == ()
    assert of(words.Evaluate, master.ready(0)) == [like(words.Evaluate, collector=0)]
    assert of(WakeCollector, judged(master, 1.0))


def test_only_the_one_at_the_end_may_use_the_collectors_own_environments():
    """While training they hold running episodes; when the budget is made nobody needs them."""
    master = trained(n_rounds=2)
    (last,) = of(words.Evaluate, to_evaluation(master))
    assert (last.last, last.n_episodes) == (True, 20)
    assert not only(words.Evaluate, to_evaluation(trained())).last


def test_no_episodes_at_the_end_are_none():
    """The task is done with its last checkpoint, without a publication that nobody would use."""
    master = trained(n_rounds=2, n_eval_episodes=0)
    master.completed()
    out = master.to_commit()
    assert of(words.WriteCheckpoint, out) == [like(words.WriteCheckpoint, reason="end")]
    assert not of(SendParameters, out)
    assert master.gathered() == ()
    assert only(words.EndTask, master.written()) == words.EndTask(state="done", reason="16 steps made")


def test_a_task_that_had_only_its_evaluation_left_ends_without_it():
    """Resumed with no episodes to play, it is done at once."""
    master = Master(n_rounds=2, n_eval_episodes=0)
    assert only(words.EndTask, master.opened(version=3)).state == "done"


def test_one_that_fails_fails_the_task():
    """The reason says that it was an evaluation."""
    master = trained()
    to_evaluation(master)
    assert only(words.EndTask, master.evaluated(failure="no such env")).reason == "an evaluation failed: no such env"


@pytest.mark.parametrize(("lost", "said"), [((1, 0), "1 episode lost"), ((3, 2), "5 episodes lost")])
def test_lost_episodes_are_told_and_counted_once(lost, said):
    """Each collector's loss is a row in words with the sum so far; the next round's metrics hold the number."""
    master = Master(n_rounds=4)
    master.at_version_1("n0", "n0")
    for i, n in enumerate(lost):
        out = master.feed(
            CollectorReady, collector=i, node="n0", start_s=0.1, n_starting=1, start_mode="zygote", episodes_lost=n
        )
        assert [row.n_episodes for row in of(words.EpisodesLost, out)] == [n] * bool(n)
    assert [row.text for row in master.records if isinstance(row, words.EpisodesLost)][-1].startswith(said)
    metrics = only(words.MetricsRecorded, master.to_commit()).metrics
    assert metrics["resume/episodes_lost"] == sum(lost)
    master.completed()
    assert "resume/episodes_lost" not in only(words.MetricsRecorded, master.to_commit()).metrics

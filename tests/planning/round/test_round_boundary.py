"""Pause, resume, stop and checkpoints act between two rounds."""

import pytest
from round_words import Master, kinds, of, only

from drlnb.records import round as words
from drlnb.records.columns.distribution import SendParameters
from drlnb.records.columns.warmup import StartCollector, WakeCollector
from drlnb.records.common import DeadlinePassed, SetDeadline
from drlnb.records.replay import MinibatchesDrawn, ReplayReady
from tests.matches import like

#: A round may take so long once its task is to be stopped.
LATEST = SetDeadline(name="stop", after_s=5.0)
#: The disk is tried again after so long.
AGAIN = SetDeadline(name="checkpoint", after_s=5.0)


@pytest.fixture
def master():
    """Return a task with two collectors that act in round 1."""
    master = Master()
    master.at_version_1()
    return master


def pause(master):
    return master.say(words.PauseAsked)


def resume(master):
    return master.say(words.ResumeAsked)


def stop(master):
    return master.say(words.StopAsked, reason="enough")


def ask_checkpoint(master):
    return master.say(words.CheckpointAsked)


def trial(master):
    return master.feed(DeadlinePassed, name="checkpoint")


# ---------------------------------------------------------------------- pause
def test_a_pause_finishes_the_round_and_writes_a_checkpoint(master):
    """Parameters go out meanwhile, but nobody acts until the resume."""
    assert pause(master) == ()
    out = master.to_commit()
    assert only(words.WriteCheckpoint, out).reason == "pause"
    assert of(SendParameters, out)
    assert not of(WakeCollector, (*master.completed(), *master.gathered()))
    assert master.written() == (words.PhaseEntered(phase="paused", round=2),)
    assert kinds(resume(master)) == ["BatchPlanned", "WakeCollector", "WakeCollector", "PhaseEntered"]
    assert master.phase == "collecting"


def test_a_pause_between_commit_and_wake_acts_after_the_round_that_begins(master):
    """Half the collectors may act already: the round must be finished first."""
    master.to_commit()
    pause(master)
    assert len(of(WakeCollector, master.completed())) == 2
    assert only(words.WriteCheckpoint, master.to_commit()).reason == "pause"


def test_a_collector_lost_after_the_pause_was_asked_for_still_finishes_the_round(master):
    """Without its share there would be no boundary, and the task would hang."""
    pause(master)
    master.lost(0)
    assert of(WakeCollector, master.ready(0))


def test_a_pause_that_is_taken_back_in_time(master):
    """No checkpoint is written."""
    pause(master)
    assert resume(master) == ()
    assert not of(words.WriteCheckpoint, master.to_commit())
    assert of(WakeCollector, master.completed())


def test_a_resume_before_the_checkpoint_is_on_disk(master):
    """Collectors act once the copies are made, whatever the disk does."""
    pause(master)
    master.to_commit()
    master.completed()
    assert resume(master) == ()
    assert of(WakeCollector, master.gathered())
    assert master.written() == ()
    assert master.phase == "collecting"


def test_a_pause_asked_for_at_the_start():
    """The task rests once version 1 is made."""
    master = Master()
    master.opened()
    pause(master)
    master.placed("n0", "n0")
    master.granted()
    master.made()
    assert only(words.WriteCheckpoint, master.committed()).version == 1
    master.written()
    assert master.phase == "paused"
    assert pause(master) == ()


def test_a_node_lost_during_a_pause_leaves_the_task_paused(master):
    """Parameters travel to the new node; a stop still works."""
    pause(master)
    master.to_commit()
    master.completed()
    master.written()
    master.node_lost("n0")
    assert of(SendParameters, master.placed("n1", "n1"))
    assert master.phase == "paused"
    assert stop(master)[-1] == words.EndTask(state="stopped", reason="enough")


def test_a_pause_whose_checkpoint_fails_still_rests(master):
    """The state is in memory, and written once there is room; the user's pause goes on then."""
    pause(master)
    master.to_commit()
    assert master.written(failure="disk full") == (words.PhaseEntered(phase="paused", round=2), AGAIN)
    assert only(words.WriteCheckpoint, trial(master)).version == 2
    assert master.written() == ()
    assert master.phase == "paused"
    assert trial(master) == ()


def test_a_task_that_was_stopped_in_its_pause_ends_though_it_is_resumed(master):
    """The pause's checkpoint is being written when the user stops the task, and then asks it to go on."""
    pause(master)
    master.to_commit()
    assert master.say(words.StopAsked, reason="asked for") == ()
    assert not of(WakeCollector, resume(master))
    master.gathered()
    assert only(words.EndTask, master.written()).state == "stopped"


# ---------------------------------------------------------------------- stop
def test_a_stop_finishes_the_round_and_ends_with_a_checkpoint(master):
    """Nothing is published any more; a second wish puts the deadline off no further."""
    assert stop(master) == (LATEST,)
    assert stop(master) == ()
    out = master.to_commit()
    assert only(words.WriteCheckpoint, out).reason == "stop"
    assert not of(SendParameters, out)
    assert stop(master) == ()
    master.gathered()
    assert master.written() == (
        words.PhaseEntered(phase="ended", round=2),
        words.EndTask(state="stopped", reason="enough"),
    )


UNFINISHED = like(words.WriteCheckpoint, reason="stop", n_rounds=1, version=2, collectors=(), unfinished=True)


def late(master):
    return master.deadline("stop")


def ends_unfinished(master, out, why):
    """Check that a task leaves its second round, says why, and ends as of the first once that is on disk."""
    assert only(words.RoundUnfinished, out) == words.RoundUnfinished(
        round=2,
        reason=why,
        text=f"a: round 2 was left unfinished ({why}); the task ends as of the last commit, after 16 steps",
    )
    assert only(words.WriteCheckpoint, out) == UNFINISHED
    assert master.written() == (
        words.PhaseEntered(phase="ended", round=2),
        words.EndTask(state="stopped", reason="enough"),
    )


@pytest.fixture
def second(master):
    """Return a task whose collectors act in round 2."""
    master.to_commit()
    master.completed()
    return master


def test_a_round_that_takes_too_long_is_left_unfinished(second):
    """What has come of it is dropped, and what comes later, too; environments are saved as it found them."""
    stop(second)
    second.arrived(0)
    out = late(second)
    assert only(words.DropExperience, out).reason == "the task is stopped"
    assert only(words.DropExperience, second.arrived(1)).reason == "the round was left unfinished"
    assert second.lost(1) == ()
    ends_unfinished(second, out, "it takes longer than 5 s")


def test_a_gradient_that_takes_too_long_is_broken_off(second):
    """Its slot is returned as one where work is in flight; a late answer changes nothing."""
    stop(second)
    second.arrived(0), second.arrived(1), second.granted(), second.computed(0)
    out = late(second)
    assert only(words.ReturnLease, out).clean is False
    assert second.computed(1) == ()
    assert second.made() == ()
    ends_unfinished(second, out, "it takes longer than 5 s")


def test_a_commit_that_is_under_way_is_waited_for(second):
    """Nothing of that round is lost."""
    stop(second)
    second.arrived(0), second.arrived(1), second.granted(), second.computed(0), second.computed(1), second.made()
    assert late(second) == (SetDeadline(name="stop", after_s=1.0),)
    assert only(words.WriteCheckpoint, second.committed()) == like(words.WriteCheckpoint, version=3, unfinished=False)
    assert late(second) == ()
    assert second.written()[-1] == words.EndTask(state="stopped", reason="enough")


def test_a_round_with_a_lost_collector_is_left_at_once(second):
    """Whether it was lost before the stop, and starts again, or after it: nobody is started for it any more."""
    second.lost(1, reason="killed by signal 11")
    out = stop(second)
    assert not of(StartCollector, out)
    ends_unfinished(second, out, "collector 1 was lost")


def test_a_collector_that_is_lost_after_the_stop_ends_it(second):
    """Its reason is told; one that has sent its share already keeps nobody waiting."""
    stop(second)
    second.arrived(0)
    assert of(StartCollector, second.lost(0))
    ends_unfinished(second, second.lost(1, reason="killed by signal 9"), "collector 1 was lost: killed by signal 9")


def test_a_node_that_is_lost_after_the_stop_ends_it(second):
    """No other place is asked for."""
    stop(second)
    out = second.node_lost("n0")
    assert not of(words.AskPlacement, out)
    ends_unfinished(second, out, "collector 0 was lost: node n0 is gone: killed")


@pytest.mark.parametrize("behind", ["publishing", "evaluating"])
def test_between_two_rounds_a_stop_ends_at_once(behind):
    """Nobody acts: what was committed is saved with the environments as they rest, but for who plays an evaluation."""
    master = Master(eval_freq=16 if behind == "evaluating" else 0)
    master.at_version_1()
    master.to_commit()
    if behind == "evaluating":
        assert only(words.Evaluate, master.completed()).collector == 0
    out = stop(master)
    resting = ((0, "n0"), (1, "n0"))[behind == "evaluating" :]
    assert only(words.WriteCheckpoint, out) == like(
        words.WriteCheckpoint, version=2, collectors=resting, unfinished=False
    )
    assert not of(WakeCollector, master.completed())
    assert master.written()[-1] == words.EndTask(state="stopped", reason="enough")


def test_what_is_on_disk_is_not_written_again():
    """A task that has just been resumed ends with its stop; one whose checkpoint is being written, with that.

    Settings that a user changed under a former attempt may be in no checkpoint yet.
    """
    for settings in ({}, {"rl.ent_coef": 0.5}):
        master = Master()
        opened = {"attempt": 2, "version": 3, "n_rounds": 2, "n_timesteps": 32, "elapsed_s": 1.0, "n_bytes": 100}
        master.say(words.TaskOpened, **opened, episodes=(), settings=settings)
        master.placed("n0", "n0")
        out = stop(master)
        assert len(of(words.WriteCheckpoint, out)) == len(settings)
        assert ([*out, *master.written()])[-1] == words.EndTask(state="stopped", reason="enough")
    master = Master(checkpoint_every=1, checkpoint_min_s=0.0)
    master.at_version_1()
    assert of(words.WriteCheckpoint, master.to_commit())
    assert not of(words.WriteCheckpoint, stop(master))
    assert master.written()[-1] == words.EndTask(state="stopped", reason="enough")


def test_a_checkpoint_of_an_unfinished_round_that_the_disk_refuses_is_tried_again(second):
    """It is the same one: still without who acts."""
    stop(second)
    late(second)
    assert second.written(failure="disk full") == (words.PhaseEntered(phase="paused", round=2), AGAIN)
    assert only(words.WriteCheckpoint, trial(second)) == like(words.WriteCheckpoint, unfinished=True, collectors=())
    assert second.written()[-1] == words.EndTask(state="stopped", reason="enough")


def test_experience_that_is_in_the_ring_is_not_saved_with_an_older_version():
    """A stop while the ring's batch is computed ends as of the newest checkpoint: acting again would fill it twice."""
    master = Master(replay=True)
    master.at_version_1()
    master.say(ReplayReady, start_s=0.1, n_transitions=0, n_bytes_lost=0)
    stop(master)
    master.arrived(0), master.arrived(1)
    assert late(master) == (SetDeadline(name="stop", after_s=1.0),), "it is being drawn"
    master.say(
        MinibatchesDrawn, round=1, key="m", n_gradient_steps=1, n_samples=8, n_bytes=64, elapsed_s=0.1, metrics={}
    )
    master.granted()
    out = late(master)
    assert only(words.RoundUnfinished, out).text.endswith("the task ends as of its newest checkpoint")
    assert not of(words.WriteCheckpoint, out)
    assert out[-1] == words.EndTask(state="stopped", reason="enough")


def test_a_stop_before_there_are_parameters_ends_at_once():
    """There is nothing to save; the open request's grant is returned when it comes."""
    master = Master()
    master.opened()
    assert stop(master) == (
        words.PhaseEntered(phase="ended", round=0),
        words.EndTask(state="stopped", reason="enough"),
    )
    assert kinds(master.granted(request_id="a/1/0-1")) == ["ReturnLease"]


def test_a_stop_while_paused_ends_at_once(master):
    """The checkpoint is on disk already."""
    pause(master)
    master.to_commit()
    master.written()
    assert only(words.EndTask, stop(master)).state == "stopped"


def test_a_stop_while_the_checkpoint_of_a_pause_is_written(master):
    """The task ends when it is on disk."""
    pause(master)
    master.to_commit()
    assert stop(master) == ()
    assert kinds(master.written()) == ["PhaseEntered", "PhaseEntered", "EndTask"]


def test_a_pause_and_a_stop_are_a_stop(master):
    """Whoever asks for both wants the end."""
    pause(master)
    stop(master)
    master.to_commit()
    assert only(words.EndTask, master.written()).state == "stopped"


def test_a_stop_in_the_last_round_is_the_end():
    """All steps are made: the task is done once they are on disk, and nothing is played or published."""
    master = Master(n_rounds=1)
    master.at_version_1()
    stop(master)
    pause(master)
    assert not of(SendParameters, master.to_commit())
    assert stop(master) == ()
    assert master.gathered() == ()
    assert only(words.EndTask, master.written()) == words.EndTask(state="done", reason="16 steps made")
    assert not of(words.Evaluate, master.records)


def test_a_stop_ends_the_evaluation_at_the_end():
    """The budget is made: the task is done, and what was played counts for nothing."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.gathered()
    master.written()
    master.completed()
    assert stop(master)[-1] == words.EndTask(state="done", reason="16 steps made")
    assert master.evaluated() == ()


def test_a_stop_during_the_last_checkpoint_waits_for_it():
    """The evaluation that has begun beside it does not count any more."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.completed()
    master.gathered()
    assert stop(master) == ()
    assert master.evaluated() == ()
    assert only(words.EndTask, master.written()).state == "done"


def test_other_wishes_during_the_evaluation_change_nothing():
    """Pause, resume and checkpoint come too late: the task is done when its evaluation is."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.gathered()
    master.written()
    master.completed()
    assert master.phase == "evaluating"
    for wish in (pause, resume, ask_checkpoint):
        assert wish(master) == ()
    assert only(words.EndTask, master.evaluated()).state == "done"


# ---------------------------------------------------------------------- checkpoints
def test_a_checkpoint_that_was_asked_for_is_written_at_the_boundary(master):
    """The wake waits for the copies, not for the disk; one wish gives one checkpoint."""
    ask_checkpoint(master)
    assert only(words.WriteCheckpoint, master.to_commit()) == like(
        words.WriteCheckpoint, version=2, n_rounds=1, n_timesteps=16, reason="checkpoint"
    )
    assert not of(WakeCollector, master.completed())
    assert len(of(WakeCollector, master.gathered())) == 2
    assert master.written() == ()
    assert not of(words.WriteCheckpoint, master.to_commit())


def test_copies_that_fail_do_not_stop_the_task(master):
    """Without `CheckpointGathered`, the word that nothing was written lets the collectors act."""
    ask_checkpoint(master)
    master.to_commit()
    master.completed()
    assert len(of(WakeCollector, master.written(failure="collector gone"))) == 2


def test_a_checkpoint_asked_for_while_one_is_written_is_another_one(master):
    """The word that the older one is on disk does not answer the later wish."""
    ask_checkpoint(master)
    master.to_commit()
    master.completed()
    master.gathered()
    ask_checkpoint(master)
    master.written()
    assert of(words.WriteCheckpoint, master.to_commit())


def test_an_older_checkpoint_does_not_end_the_task():
    """A slow disk finishes round 1's checkpoint after the last round: the end waits for its own."""
    master = Master(n_rounds=2)
    master.at_version_1()
    ask_checkpoint(master)
    master.to_commit()
    master.gathered()
    master.completed()
    master.to_commit()
    assert master.written(version=2, failure="too slow") == ()
    assert master.gathered(version=2) == ()
    master.completed()
    assert master.evaluated() == ()
    assert only(words.EndTask, master.written()).state == "done"


@pytest.mark.parametrize("wish", [stop, None])
def test_a_last_checkpoint_that_cannot_be_written_is_waited_for(wish):
    """Neither a stop nor the end may lose the work: the task ends as it would have, once there is room."""
    master = Master(n_rounds=2 if wish else 1)
    master.at_version_1()
    if wish:
        wish(master)
    master.to_commit()
    master.gathered()
    for _ in range(2):
        assert AGAIN in master.written(failure="disk full")
        assert master.phase == "paused"
        assert only(words.WriteCheckpoint, trial(master)).n_rounds == 1
    last = master.written()
    if not wish:
        master.completed()
        last = master.evaluated()
    assert only(words.EndTask, last).state == ("stopped" if wish else "done")


def test_the_end_waits_for_the_disk_beside_its_evaluation():
    """The evaluation is played meanwhile; whichever comes last ends the task."""
    master = Master(n_rounds=1)
    master.at_version_1()
    master.to_commit()
    master.gathered()
    master.completed()
    assert master.phase == "evaluating"
    assert master.written(failure="disk full") == (words.PhaseEntered(phase="paused", round=2), AGAIN)
    assert not of(words.EndTask, master.evaluated())
    assert of(words.WriteCheckpoint, trial(master))
    assert only(words.EndTask, master.written()).state == "done"


# ---------------------------------------------------------------------- a disk that refuses
@pytest.fixture
def full():
    """Return a task whose periodic checkpoint of round 1 could not be written, while round 2 goes on."""
    master = Master(n_rounds=9)
    master.at_version_1()
    ask_checkpoint(master)
    master.to_commit()
    master.completed()
    master.gathered()
    master.written(failure="disk full")
    assert master.phase == "collecting"
    return master


def rest(full):
    """Finish the round; the boundary's checkpoint cannot be written either."""
    out = full.to_commit()
    assert only(words.WriteCheckpoint, out).n_rounds == 2
    assert not of(WakeCollector, (*full.completed(), *full.gathered()))
    return full.written(failure="disk full")


def test_a_task_rests_after_the_round_in_which_a_checkpoint_could_not_be_written(full):
    """It tries again every 5 s, and goes on by itself as soon as one is on disk."""
    assert rest(full) == (words.PhaseEntered(phase="paused", round=3), AGAIN)
    for _ in range(3):
        assert kinds(trial(full)) == ["WriteCheckpoint"]
        assert not of(WakeCollector, full.gathered())
        assert full.written(failure="disk full") == (AGAIN,)
    trial(full)
    full.gathered()
    assert len(of(WakeCollector, full.written())) == 2
    assert full.phase == "collecting"
    assert trial(full) == ()


def test_room_before_the_boundary_costs_no_pause(full):
    """The boundary's checkpoint is on disk: the next round begins, and no pause is left behind."""
    full.to_commit()
    full.completed()
    full.gathered()
    assert len(of(WakeCollector, full.written())) == 2
    assert "paused" not in [r.phase for r in of(words.PhaseEntered, full.records)]
    assert not of(words.WriteCheckpoint, full.to_commit())


def test_an_older_checkpoint_that_fails_later_rests_the_task_too():
    """A slow disk says so a round later: what counts is that nothing newer is saved."""
    master = Master(n_rounds=9)
    master.at_version_1()
    ask_checkpoint(master)
    master.to_commit()
    master.completed()
    master.gathered()
    master.to_commit()
    master.completed()
    assert master.written(version=2, failure="disk full") == ()
    out = master.to_commit()
    assert only(words.WriteCheckpoint, out).n_rounds == 3
    master.completed()
    assert only(words.PhaseEntered, master.written(failure="disk full")).phase == "paused"


def test_the_users_own_pause_outlasts_the_full_disk(full):
    """Whoever asks for a pause meanwhile has it until they resume."""
    rest(full)
    pause(full)
    trial(full)
    assert not of(WakeCollector, (*full.gathered(), *full.written()))
    assert full.phase == "paused"
    assert len(of(WakeCollector, resume(full))) == 2


def test_a_resume_on_a_full_disk_makes_another_round(full):
    """The user may go on without a checkpoint; the next boundary that needs one rests again."""
    rest(full)
    assert len(of(WakeCollector, resume(full))) == 2
    assert trial(full) == ()
    ask_checkpoint(full)
    full.to_commit()
    full.completed()
    full.gathered()
    assert full.written(failure="disk full") == ()


@pytest.mark.parametrize("tried", [False, True])
def test_a_stop_on_a_full_disk_waits_for_its_checkpoint(full, tried):
    """Whether or not one is being written just then, what was trained is saved before the end."""
    rest(full)
    if tried:
        trial(full)
        full.gathered()
    assert only(words.WriteCheckpoint, stop(full)).n_rounds == 2
    full.gathered()
    assert full.written(failure="disk full") == (AGAIN,)
    trial(full)
    assert only(words.EndTask, full.written()) == words.EndTask(state="stopped", reason="enough")


def test_a_stop_during_the_last_trial_ends_the_task(full):
    """The pause's checkpoint is the stop's, too."""
    full.to_commit()
    full.completed()
    stop(full)
    assert only(words.EndTask, full.written()).state == "stopped"


def test_periodic_checkpoints_by_rounds():
    """Each second round, since more than the shortest time has passed."""
    master = Master(n_rounds=9, checkpoint_every=2, checkpoint_min_s=5.0)
    master.at_version_1()
    found = []
    for _ in range(5):
        found += [r.n_rounds for r in of(words.WriteCheckpoint, master.to_commit())]
        master.completed()
        master.gathered()
    assert found == [2, 4]


def test_periodic_checkpoints_not_too_soon_and_not_too_late():
    """The round count counts only after `checkpoint_min_s`; age alone is enough after `checkpoint_max_s`."""
    often = Master(n_rounds=9, checkpoint_every=1, checkpoint_min_s=1e6)
    aged = Master(n_rounds=9, checkpoint_every=1000, checkpoint_max_s=5.0)
    for master, expected in ((often, 0), (aged, 1)):
        master.at_version_1()
        master.to_commit()
        assert len([r for r in of(words.WriteCheckpoint, master.records) if r.n_rounds == 1]) == expected

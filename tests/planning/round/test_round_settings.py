"""What a person changes while a task trains counts from the next round on, wherever that round is computed."""

import pytest

from drlnb.records import round as words
from drlnb.records.columns.leasing import HoldPlanned
from tests.matches import like
from tests.planning.round_words import Master, of, only


def settings(records):
    """Return the settings that each batch was sent with."""
    return [gradient.settings for gradient in of(words.ComputeGradient, records)]


def finish(master):
    """Compute and commit the round under the lease that is held."""
    for i in range(master.config["n_collectors"]):
        master.computed(i)
    master.made()
    return master.committed()


@pytest.fixture
def master():
    made = Master(n_collectors=1, n_rounds=9)
    made.at_version_1()
    return made


def test_a_setting_counts_from_the_next_round_on(master):
    """The round in which it was changed is computed as it began; later ones carry the newest value of each."""
    assert master.set("rl.learning_rate", 1e-4) == ()
    master.arrived(0)
    assert settings(master.granted()) == [{}]
    finish(master)
    master.completed()
    assert master.set("rl.learning_rate", 1e-5) == ()
    assert master.set("rl.ent_coef", 0.5) == ()
    master.arrived(0)
    assert settings(master.granted()) == [{"rl.learning_rate": 1e-4}]
    finish(master)
    master.completed()
    master.arrived(0)
    sent = settings(master.granted())
    assert sent == [{"rl.ent_coef": 0.5, "rl.learning_rate": 1e-5}]
    assert list(sent[0]) == ["rl.ent_coef", "rl.learning_rate"]


def test_a_round_that_is_computed_again_has_the_same_settings(master):
    """Whatever was changed meanwhile: another executor's result equals the lost one's."""
    master.set("rl.ent_coef", 0.25)
    master.arrived(0)
    master.granted()
    finish(master)
    master.completed()
    master.arrived(0)
    master.granted()
    master.set("rl.ent_coef", 0.75)
    master.lease_lost()
    assert settings(master.granted()) == [{"rl.ent_coef": 0.25}]


def test_a_collector_that_comes_back_begins_no_round(master):
    """It was lost while it acted and is woken a second time: the settings stay those of the first wake."""
    master.set("rl.ent_coef", 0.25)
    master.lost(0)
    master.ready(0)
    master.arrived(0)
    assert settings(master.granted()) == [{}]


def test_what_is_changed_while_a_task_rests_counts_when_it_goes_on(master):
    """A pause is between two rounds: the round after it has the new setting and the new hold planner."""
    master.say(words.PauseAsked)
    master.arrived(0)
    master.granted()
    finish(master)
    master.gathered()
    master.written()
    master.completed()
    assert master.phase == "paused"
    master.set("rl.n_epochs", 3)
    master.set("leasing.hold", "last")
    master.say(words.ResumeAsked)
    assert only(HoldPlanned, master.arrived(0)).planner == "last"
    assert settings(master.granted()) == [{"rl.n_epochs": 3}]
    assert master.machine.config["planners"]["hold"] == "round", "as the journal says first"


def test_a_pause_in_which_something_was_changed_is_stopped_with_another_checkpoint(master):
    """The one that the pause began with does not know of it."""
    master.say(words.PauseAsked)
    master.arrived(0)
    master.granted()
    finish(master)
    master.gathered()
    master.written()
    master.completed()
    master.set("rl.n_epochs", 3)
    (write,) = master.say(words.StopAsked, reason="enough")
    assert write == like(words.WriteCheckpoint, version=2, n_rounds=1, reason="stop")
    assert master.gathered() == ()
    assert only(words.EndTask, master.written()) == words.EndTask(state="stopped", reason="enough")


def test_an_attempt_begins_with_what_was_set_before_it():
    """They are in its first event, so a replay knows them; a later change replaces one and leaves the others."""
    master = Master(n_collectors=1, n_rounds=9)
    master.say(
        words.TaskOpened,
        attempt=2,
        version=3,
        n_rounds=2,
        n_timesteps=16,
        elapsed_s=1.0,
        episodes=(),
        n_bytes=100,
        settings={"rl.tau1": (0.5, 0.1), "rl.eps": 1.0},
    )
    master.placed("n0")
    master.ready(0)
    master.completed()
    master.set("rl.eps", 0.5)
    master.arrived(0, attempt=2)
    assert settings(master.granted()) == [{"rl.eps": 1.0, "rl.tau1": (0.5, 0.1)}]
    finish(master)
    master.completed()
    master.arrived(0, attempt=2)
    assert settings(master.granted()) == [{"rl.eps": 0.5, "rl.tau1": (0.5, 0.1)}]


def test_a_checkpoint_knows_settings_that_no_round_has_had_yet(master):
    """What was asked for in a task's last round is in the state that the checkpoint is written from."""
    master.set("rl.target_kl", None)
    master.say(words.StopAsked, reason="asked for")
    master.arrived(0)
    master.granted()
    assert only(words.WriteCheckpoint, finish(master))
    assert master.machine.state.settings == {"rl.target_kl": None}

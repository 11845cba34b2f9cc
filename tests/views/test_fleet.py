"""The table of tasks: states, progress, guesses worked by hand."""

import math

import pytest

from drlnb.records import round
from drlnb.records.columns.warmup import CollectorLost, CollectorRestartPlanned
from drlnb.views import fleet
from tests.views.journals import Run


def row_of(view, name):
    return next(row for row in view.rows() if row[0] == name)


def test_eta_by_hand():
    """12 rounds: the median of the last ten (five of 2 s, five of 4 s) is 3 s; 88 rounds are left."""
    run = Run().slot().task("a", total=1000)  # 1000 steps in rounds of 10
    for n, seconds in enumerate([100.0, 100.0] + [2.0] * 5 + [4.0] * 5, 1):
        run.metrics("a", float(n), n, 10 * n, round__time_s=seconds)
    row = row_of(fleet.tasks(run.journal()), "a")
    assert row[2:5] == [12.0, 100.0, 264.0]


def test_no_eta_before_three_rounds():
    """Two rounds are too few for a guess."""
    run = Run().task("a").metrics("a", 1.0, 1, 10, round__time_s=1.0).metrics("a", 2.0, 2, 20, round__time_s=1.0)
    assert row_of(fleet.tasks(run.journal()), "a")[4] is None


def test_waits_by_hand():
    """Of 0, 1, 2, 3, 4 s, half wait less than 2 s, and 95 % less than 3.8 s."""
    run = Run().task("a")
    for n in range(5):
        run.metrics("a", float(n), n + 1, 10 * n, round__wait_lease_s=float(n))
    assert row_of(fleet.tasks(run.journal()), "a")[6:8] == [2.0, pytest.approx(3.8)]


def test_only_the_last_hundred_waits_count():
    """An early long wait is forgotten."""
    assert fleet.wait_quantiles([1000.0] + [1.0] * 100) == (1.0, 1.0)
    assert fleet.wait_quantiles([]) == (None, None)


def test_a_resumed_task_goes_on_from_its_checkpoint():
    """Rounds that the second attempt did not go on from are lost; the death counts as a restart."""
    run = (
        Run().task("a").metrics("a", 1.0, 1, 10, x=1.0).metrics("a", 2.0, 2, 20, x=2.0).metrics("a", 3.0, 3, 30, x=3.0)
    )
    run.task("a", attempt=2, n_rounds=2).metrics("a", 4.0, 3, 30, attempt=2, x=33.0)
    view = fleet.tasks(run.journal())
    assert row_of(view, "a")[2] == 3.0
    assert row_of(view, "a")[8:] == [2.0, None, 1.0, ""]


def test_specs_name_seeds_and_tasks_that_wait_for_their_start():
    """A task that no row has named is queued, with its seed and rounds."""
    specs = [
        {"name": "a", "seed": 3},
        {"name": "z", "seed": 4, "n_envs": 2, "total_timesteps": 100, "hyperparameters": {"n_steps": 5}},
    ]
    view = fleet.tasks(Run().task("a").journal(), specs)
    assert row_of(view, "a")[9] == 3.0
    assert row_of(view, "z")[1:4] == ["queued", 0.0, 10.0]
    assert view.sentence == "2 tasks: 1 starting, 1 queued"


@pytest.mark.parametrize(
    ("phase", "said", "can"),
    [
        ("waiting", "waiting for a slot", {"pause", "stop"}),
        ("paused", "paused", {"resume", "stop"}),
        ("computing", "computing", {"pause", "stop"}),
    ],
)
def test_states_and_buttons(phase, said, can):
    """A row says what the task does, and which buttons make sense."""
    run = Run().task("a")
    run.say("task-a-a1", round.PhaseEntered(phase=phase, round=1))
    view = fleet.tasks(run.journal(), live=True)
    assert row_of(view, "a")[1] == said
    bits = int(view.columns["rows"]["can"][0])
    assert {a["name"] for i, a in enumerate(fleet.ACTIONS) if bits & 1 << i} == can


def test_a_button_that_is_off_has_a_reason():
    """Resume of a task that computes is off since it is not paused; a state never shows an action without a word."""
    run = Run().task("a")
    run.say("task-a-a1", round.PhaseEntered(phase="computing", round=1))
    view = fleet.tasks(run.journal(), live=True)
    assert view.facts["reasons"]["resume"]["computing"] == "it is not paused"
    assert view.facts["reasons"]["pause"]["paused"] == "it is paused already"
    assert all("done" not in why and "failed" not in why for why in view.facts["reasons"].values())


def kept(run, version, n_rounds, failure=""):
    run.say(
        "task-a-a1",
        round.WriteCheckpoint(version=version, n_rounds=n_rounds, n_timesteps=0, reason="every"),
        round.CheckpointWritten(t=float(version), version=version, elapsed_s=0.1, n_bytes=9, failure=failure),
    )


def test_a_task_that_cannot_save_its_work_is_noted_while_that_lasts():
    """The table's note names the task and the disk's reason; there is none once one is on disk, or at its end."""
    run = Run().task("a")
    assert fleet.tasks(run.journal()).notes == ()
    kept(run, 1, 7, "disk full")
    (note,) = fleet.tasks(run.journal()).notes
    assert note.startswith("a: a checkpoint cannot be written (disk full): the task rests")
    kept(run, 2, 9)
    assert fleet.tasks(run.journal()).notes == ()
    kept(run, 3, 11, "disk full")
    run.say("task-a-a1", round.EndTask(state="stopped", reason="x"))
    assert fleet.tasks(run.journal()).notes == ()


@pytest.mark.parametrize(
    ("checkpoints", "label"),
    [
        ([], "Restart from the start"),
        ([(1, 7, "")], "Restart from round 7"),
        ([(1, 7, ""), (2, 1200, "")], "Restart from round 1,200"),
        ([(1, 7, ""), (2, 9, "disk full")], "Restart from round 7"),
    ],
)
@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_an_ended_task_can_be_restarted_from_its_newest_checkpoint(state, checkpoints, label):
    """Its row has that one button, which says from where; a checkpoint that could not be written does not count."""
    run = Run().task("a")
    for version, n_rounds, failure in checkpoints:
        kept(run, version, n_rounds, failure)
    run.say("task-a-a1", round.EndTask(state=state, reason="x"))
    for over in (False, True):
        view = fleet.tasks(run.journal(), live=True, over=over)
        rows, actions = view.columns["rows"], [one["name"] for one in view.facts["actions"]]
        assert [name for bit, name in enumerate(actions) if int(rows["can"][0]) & 1 << bit] == ["restart"]
        assert view.names[int(rows["restart_label"][0])] == label
    assert actions == ["restart"]


def test_a_second_attempt_restarts_from_where_it_began():
    """Until it has written a checkpoint of its own."""
    run = Run().task("a").task("a", attempt=2, n_rounds=40)
    run.say("task-a-a2", round.EndTask(state="failed", reason="x"))
    view = fleet.tasks(run.journal(), live=True)
    assert view.names[int(view.columns["rows"]["restart_label"][0])] == "Restart from round 40"


def test_a_recording_has_no_buttons():
    """What cannot be steered offers nothing."""
    view = fleet.tasks(Run().task("a").journal())
    assert (view.facts["actions"], view.facts["reasons"]) == ([], {})
    assert view.columns["rows"]["can"].tolist() == [0]


def test_a_failed_task_tells_why():
    """The original traceback comes with the row, as text."""
    run = Run().task("a")
    run.say("task-a-a1", round.TaskFailed(t=1.0, reason="env broke", detail="Traceback: <b>boom</b>"),
            round.EndTask(state="failed", reason="env broke"))  # fmt: skip
    view = fleet.tasks(run.journal())
    assert view.sentence == "1 task: 1 failed"
    assert view.names[int(view.columns["rows"]["failure"][0])] == "env broke\nTraceback: <b>boom</b>"
    assert view.names[int(view.columns["rows"]["cause"][0])] == "env broke"


def test_restarts_count_collectors_and_executors():
    """Whatever was started again is counted, and why the latest one was lost stands beside the number."""
    run = Run().task("a")
    assert row_of(fleet.tasks(run.journal()), "a")[10:] == [0.0, ""]
    lost = {"collector": 0, "node": "n", "detail": ""}
    run.say("task-a-a1", CollectorLost(t=1.0, reason="killed by signal 9", **lost))
    run.say("task-a-a1", CollectorRestartPlanned(collector=0, node="n", after_s=1.0, n_restarts=1))
    run.say("task-a-a1", CollectorLost(t=2.0, reason="nobody waited for it", **lost))
    assert row_of(fleet.tasks(run.journal()), "a")[10:] == [1.0, "killed by signal 9"]


def test_sparkline_holds_forty_points():
    """However long the run, the little line stays little and ends at the latest return."""
    run = Run().task("a")
    for n in range(300):
        run.metrics("a", float(n), n + 1, 10 * n, rollout__ep_rew_mean=float(n) if n else math.nan)
    spark = fleet.tasks(run.journal()).columns["spark"]
    assert (len(spark["value"]), spark["value"][-1]) == (40, 299.0)


def test_no_tasks_yet():
    """An empty run is said in words."""
    assert fleet.tasks(Run().journal()).sentence == "no tasks yet"


def test_an_end_that_no_row_tells_is_shown():
    """With the cluster gone the journal stops in the middle of a round: what the watcher knows counts."""
    run = Run().task("a").metrics("a", 1.0, 1, 10)
    view = fleet.tasks(
        run.journal(), [{"name": "b"}], ends={"a": ("failed", "the cluster is gone"), "b": ("stopped", "")}
    )
    assert row_of(view, "a")[1] == "failed"
    assert row_of(view, "b")[1] == "stopped"
    assert "the cluster is gone" in view.names
    assert view.sentence == "2 tasks: 1 failed, 1 stopped"
    assert row_of(fleet.tasks(run.journal()), "a")[1] != "failed"


def test_others_of_the_pool_have_no_row():
    """A loop of somebody's own, first in the pool, has the first letter and no row; the task keeps its own letter."""
    run = Run().slot().task("a")
    run.give_back("mine", run.grant("mine", 0.0, 0.0, run.ask("mine", 0.0)), 2.0, 0.0, 1.0)
    run.lease("a", 2.0, 2.0, 4.0, computed=1.0)
    view = fleet.tasks(run.journal(), specs=[{"name": "a", "seed": 3}])
    assert [style["name"] for style in view.facts["series"]] == ["mine", "a"]
    assert view.columns["rows"]["task"].tolist() == [1]
    assert [row[0] for row in view.rows()] == ["a"]
    assert view.value("tasks") == 1


def test_supervised_work_by_hand():
    """Rounds of 10, 30 and 20 of 100 steps, 2 s each: 20 steps on the mean, so 40 left take 4 s, in two rounds."""
    run = Run().slot().task("a", total=100, n_collectors=0)
    for n, (steps, loss) in enumerate([(10, 3.0), (40, 2.0), (60, 1.0)], 1):
        run.metrics("a", float(n), n, steps, round__time_s=2.0, train__loss=loss)
    view = fleet.tasks(run.journal())
    row = row_of(view, "a")
    assert row[2:6] == [3.0, 5.0, 4.0, None]
    assert view.columns["spark"]["value"].tolist() == [3.0, 2.0, 1.0]


def test_supervised_work_collects_nothing():
    """Between two leases a task without collectors waits for the next one."""
    states = {}
    for n_collectors in (0, 1):
        run = Run().slot().task("a", n_collectors=n_collectors)
        run.say("task-a-a1", round.PhaseEntered(phase="computing", round=1))
        states[n_collectors] = row_of(fleet.tasks(run.journal()), "a")[1]
    assert states == {0: "waiting for a slot", 1: "collecting"}

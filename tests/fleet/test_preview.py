"""What a change would come to: told before it is made, with the error of the telling beside it."""

import pytest

from drlnb.fleet.preview import preview
from drlnb.records.errors import ConfigError
from tests.sim.test_recorded import journal_of

TASKS = ["sim0", "sim1", "sim2"]


@pytest.fixture(scope="module")
def journal():
    return journal_of("round")


def test_a_second_slot_is_worth_what_it_gives(journal):
    """More rounds per second, shorter waits, a smaller share held; the record is told beside it."""
    found = preview(journal, "slots", 2, tasks=TASKS)
    assert 1.2 < found.speedup < 2.0
    assert all(ratio < 1 for ratio in found.round_ratio.values())
    assert found.then.held_frac < found.now.held_frac
    assert abs(found.calibration_frac["round_s"]) < 0.05
    assert [row["task"] for row in found.rows()] == TASKS
    text = repr(found)
    assert text.startswith("if slots were 2: 1.")
    assert text.count("\n") == 3


def test_nothing_changes_where_nothing_is_changed(journal):
    """The rule that holds already gives a ratio of exactly 1."""
    assert preview(journal, "leasing.hold", "round", tasks=TASKS).speedup == 1.0


def test_a_change_for_one_task_is_for_that_task(journal):
    """The other tasks keep their rule, and only share what follows from it."""
    one = preview(journal, "leasing.hold", "last", "sim0", tasks=TASKS)
    all_ = preview(journal, "leasing.hold", "last", tasks=TASKS)
    assert one.task == "sim0"
    assert one.then != all_.then
    assert one.now == all_.now


@pytest.mark.parametrize(
    ("key", "value", "task", "said"),
    [
        ("leasing.hald", "last", None, "'leasing.hald' cannot be tried out; did you mean 'leasing.hold'?"),
        ("leasing.hold", "lest", None, "hold planner must be one of"),
        ("leasing.hold", "last", "nobody", "no task 'nobody' in this run; its tasks are sim0, sim1, sim2"),
        ("slots", 0, None, "slots must be a whole number from 1 to 1000, got 0"),
        ("slots", True, None, "slots must be a whole number from 1 to 1000, got True"),
        ("slots", 2, "sim0", "slots belongs to the pool, not to a task: leave task out"),
        ("leasing.ttl_s", -1, None, "ttl_s must be a finite number > 0 s, got -1"),
    ],
)
def test_wrong_wishes_are_one_clear_line(journal, key, value, task, said):
    """What, limit, value."""
    with pytest.raises(ConfigError) as error:
        preview(journal, key, value, task, tasks=TASKS)
    assert said in str(error.value)


def test_too_little_recorded_is_said():
    """A run that has just begun has nothing to play."""
    with pytest.raises(ConfigError, match=r"slots cannot be tried out: .*fewer than 5 rounds.*let them train on"):
        preview(journal_of("round", n_rounds=3), "slots", 2, tasks=TASKS)

"""What a change would come to: told before it is made, with the error of the telling beside it."""

import re
from dataclasses import replace

import pytest

from drlnb.fleet.whatif.preview import preview
from drlnb.records.columns.batching import MemberSlowed
from drlnb.records.columns.warmup import CollectorReady
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal
from drlnb.records.round import ExperienceArrived
from tests.sim.recorded.test_recorded import journal_of
from tests.sim.recorded.test_recorded_starts import respawned

TASKS = ["sim0", "sim1", "sim2"]


@pytest.fixture(scope="module")
def journal():
    return journal_of("round", n_rounds=12)


def test_a_second_slot_is_worth_what_it_gives(journal):
    """More rounds per second, shorter waits, a smaller share held; the record is told beside it."""
    found = preview(journal, "slots", 2, tasks=TASKS)
    assert 1.2 < found.speedup < 2.0
    assert all(row["round_s then"] < row["round_s now"] for row in found.rows())
    assert found.then.held_frac < found.now.held_frac
    assert abs(found.calibration_frac["round_s"]) < 0.05
    assert [row["task"] for row in found.rows()] == TASKS
    text = repr(found)
    assert text.startswith("if slots were 2: 1.")
    assert text.count("\n") == 3
    assert "emulated" not in text


def test_durations_of_members_that_were_slowed_down_are_called_that(journal):
    """Whoever looks at what a change would come to is told that it was emulated."""
    name, stream = next((name, each) for name, each in journal.streams.items() if name.startswith("task-sim0"))
    slowed = MemberSlowed(t=stream.records[-1].t, member="0", factor=2.0, n_rounds=3)
    other = replace(stream, records=(*stream.records, slowed))
    text = repr(preview(Journal(streams={**journal.streams, name: other}), "slots", 2, tasks=TASKS))
    assert " s of this run with emulated slow members; " in text


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
        ("leasing.hold", "lest", None, "leasing.hold: hold planner must be one of round, yield, last, got 'lest'"),
        ("leasing.hold", "last", "nobody", "no task 'nobody' in this run; its tasks are sim0, sim1, sim2"),
        ("slots", 0, None, "slots must be a whole number in 1..1000, got 0"),
        ("slots", True, None, "slots must be a whole number in 1..1000, got True"),
        ("slots", 2, "sim0", "slots belongs to the pool, not to a task: leave task out"),
        ("leasing.queue", "drr", "sim0", "leasing.queue belongs to the pool, not to a task: leave task out"),
        ("leasing.max_hold_s", -1, None, "max_hold_s must be a number of seconds from 0.001 to 1e7, got -1"),
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


# ------------------------------------------------------------------ warm-up
@pytest.fixture(scope="module")
def ended():
    """Return the journal of a task whose collectors are started at the arrival of the parameters."""
    return respawned(planner="cold")


def test_other_starts_are_told_beside_the_rounds(ended):
    """Waits for the last collector and idle collectors, recorded, now and then: started ahead, rounds are shorter."""
    found = preview(ended, "warmup.planner", "saa", tasks=["sim0"])
    (row,) = found.rows()
    assert row["late_s now"] == pytest.approx(row["late_s recorded"], rel=0.1) == pytest.approx(0.5, rel=0.1)
    assert row["late_s then"] < 0.6 * row["late_s now"]
    assert row["early_s now"] == 0.0 < row["early_s then"]
    assert found.speedup > 1.0
    assert abs(found.calibration_frac["round_s"]) < 0.05


def test_what_starts_come_to_is_said_before_and_after(ended):
    """Behind the rounds of each task: kept, nobody is waited for, and each collector idles."""
    lines = repr(preview(ended, "warmup.planner", "keep", "sim0", tasks=["sim0"])).splitlines()
    assert lines[0].startswith("if warmup.planner were 'keep' for sim0: 1.")
    assert re.search(r"; its last collector is waited for \d{3} ms -> 0 s, collectors idle 0 s -> \d\.\d+ s$", lines[1])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("warmup.rho", 10.0, None),
        ("warmup.kappa", 2.0, None),
        ("warmup.window", 16, None),
        ("warmup.filter_window", 16, None),
        ("warmup.min_rounds", 4, None),
        ("warmup.n_candidates", 5, None),
        ("warmup.collector_mode", "park", None),
        ("warmup.planner", "keep", None),
        ("warmup.window", 4, "warmup.window: min_rounds must be <= window and filter_window (4), got 8"),
        ("warmup.rho", -1, "warmup.rho: rho must be a number from 1e-9 to 1e9, got -1"),
        ("warmup.rha", 1, "'warmup.rha' cannot be tried out; did you mean 'warmup.rho'?"),
    ],
)
def test_every_key_of_warm_up_can_be_tried_out(ended, key, value, said):
    """Figures, or one clear line."""
    if said is None:
        assert preview(ended, key, value, tasks=["sim0"]).rows()
        return
    with pytest.raises(ConfigError) as error:
        preview(ended, key, value, tasks=["sim0"])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def with_starts(journal, mode):
    """Return the journal of a run whose starts were made in one mode."""
    streams = {
        name: replace(
            stream,
            records=tuple(
                replace(each, start_mode=mode) if isinstance(each, CollectorReady) else each for each in stream.records
            ),
        )
        for name, stream in journal.streams.items()
    }
    return Journal(streams=streams)


def test_starts_of_a_kind_that_the_run_has_not_seen_are_not_made_up(ended):
    """One line says what there is."""
    with pytest.raises(ConfigError, match=r"sim0 has no start by spawn in the journal; there are some by zygote$"):
        preview(with_starts(ended, "zygote"), "warmup.start_mode", "spawn", tasks=["sim0"])
    assert preview(with_starts(ended, "zygote"), "warmup.start_mode", "zygote", tasks=["sim0"]).speedup == 1.0


def changed(journal, key, value):
    """Return the journal of a task in which a user changed a setting before the first experience came."""
    streams = dict(journal.streams)
    stream = streams["task-sim0-a1"]
    i = next(i for i, record in enumerate(stream.records) if isinstance(record, ExperienceArrived))
    more = SettingChanged(t=stream.records[i].t, key=key, value=value, task=None)
    streams["task-sim0-a1"] = replace(stream, records=(*stream.records[:i], more, *stream.records[i:]))
    return Journal(streams=streams)


def test_a_windows_end_is_tried_out_beside_what_was_changed_since(ended):
    """A user asked for 20 rounds: 16 are too few for that."""
    with pytest.raises(
        ConfigError, match=r"warmup.window: min_rounds must be <= window and filter_window \(16\), got 20"
    ):
        preview(changed(ended, "warmup.min_rounds", 20), "warmup.window", 16, tasks=["sim0"])


def test_a_mode_that_the_environments_forbid_is_refused(journal):
    """Respawn needs environments that can be snapshot; those that rest have no starts to weigh."""
    with pytest.raises(ConfigError, match="'respawn' needs environments that can be frozen"):
        preview(journal, "warmup.collector_mode", "respawn", "sim0", tasks=TASKS)
    with pytest.raises(ConfigError, match="collectors of sim0 rest, and wake with the parameters: nothing is started"):
        preview(journal, "warmup.rho", 10.0, tasks=TASKS)
    resting = respawned(planner="cold", collector_mode="park")
    found = preview(resting, "warmup.collector_mode", "respawn", tasks=["sim0"])
    (row,) = found.rows()
    assert (row["late_s recorded"], row["late_s now"]) == (None, None)
    assert row["late_s then"] == pytest.approx(0.5, rel=0.1)
    assert "waited for" not in repr(found)

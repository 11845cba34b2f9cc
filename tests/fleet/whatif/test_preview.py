"""What a change would come to: told before it is made, with the error of the telling beside it."""

import re
from dataclasses import replace

import pytest

from drlnb.fleet.whatif.preview import preview
from drlnb.records.common import SettingChanged
from drlnb.records.errors import ConfigError
from drlnb.records.journal import Journal, Stream
from drlnb.records.round import ExperienceArrived
from tests.sim.recorded.test_recorded import journal_of
from tests.sim.recorded.test_recorded_starts import trained

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
    return Journal(streams={"task-sim0-a1": trained(planner="cold")})


def before_round(round_, stream):
    """Return a stream as it was before any collector had sent its share of a round."""
    records = stream.records
    first = next(i for i, r in enumerate(records) if isinstance(r, ExperienceArrived) and r.round == round_)
    return replace(stream, records=records[:first])


def test_other_starts_are_told_round_by_round(ended):
    """Plans and outcomes, recorded, now and then: cold waits for a start in each round, saa plans from the tenth on."""
    found = preview(ended, "warmup.planner", "saa", tasks=["sim0"])
    rows = found.rows()
    assert [row["round"] for row in rows] == list(range(1, 31))
    assert [row["action now"] for row in rows] == ["cold"] * 29 + ["end"]
    assert {row["action then"] for row in rows[9:-1]} == {"start"}
    assert all(row["start_after_s then"] > 1.0 and row["lead_s then"] > 0.0 for row in rows[9:-1])
    assert all(row["wait_s now"] == pytest.approx(row["wait_s recorded"], abs=1e-5) for row in rows[:-1])
    (before, after), (idle_before, idle_after) = found.wait_s["sim0"], found.idle_s["sim0"]
    assert before == pytest.approx(0.5, rel=0.1)
    assert after < 0.6 * before
    assert idle_before == 0.0 < idle_after
    assert found.calibration_s["sim0"] == pytest.approx((0.0, 0.0), abs=1e-5)


def test_what_starts_come_to_is_said_before_and_after(ended):
    """A headline, and two lines per task: waits and idle times, then the newest choice with its reason."""
    running = Journal(streams={name: before_round(30, stream) for name, stream in ended.streams.items()})
    lines = repr(preview(running, "warmup.planner", "keep", "sim0", tasks=["sim0"])).splitlines()
    assert lines[0] == (
        "if warmup.planner were 'keep' for sim0 (29 recorded rounds decided again; their gaps stay as they were):"
    )
    assert re.match(
        r"  sim0: rounds wait \d{3} ms -> 0 s for their last collector, collectors idle 0 s -> \d", lines[1]
    )
    assert lines[1].endswith(" off")
    assert lines[2] == "    round 29: cold -> keep: collectors are never stopped"
    lines = repr(preview(ended, "warmup.planner", "keep", "sim0", tasks=["sim0"])).splitlines()
    assert lines[2] == "    round 30: end -> end: no round follows this one: nobody rests"


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
        ("warmup.start_mode", "zygote", None),
        ("warmup.start_mode", "spawn", "warmup.start_mode cannot be tried out: no start by spawn on node n0 is in"),
        ("warmup.window", 4, "warmup.window: min_rounds must be <= window and filter_window (4), got 8"),
        ("warmup.rho", -1, "warmup.rho: rho must be a number from 1e-9 to 1e9, got -1"),
        ("warmup.rha", 1, "'warmup.rha' cannot be tried out; did you mean 'warmup.rho'?"),
    ],
)
def test_every_key_of_warm_up_can_be_tried_out(ended, key, value, said):
    """A figure for each round, or one clear line."""
    if said is None:
        assert len(preview(ended, key, value, tasks=["sim0"]).rows()) == 30
        return
    with pytest.raises(ConfigError) as error:
        preview(ended, key, value, tasks=["sim0"])
    assert str(error.value).startswith(said)


def changed(stream, key, value):
    """Return a stream in which a person changed a setting before the first experience came."""
    i = next(i for i, record in enumerate(stream.records) if isinstance(record, ExperienceArrived))
    more = SettingChanged(t=stream.records[i].t, key=key, value=value, task=None)
    return Stream(
        header=stream.header, records=(*stream.records[:i], more, *stream.records[i:]), torn=False, source=stream.source
    )


def test_a_windows_end_is_tried_out_beside_what_was_changed_since(ended):
    """A person asked for 20 rounds: 16 are too few for that."""
    stream = changed(ended.streams["task-sim0-a1"], "warmup.min_rounds", 20)
    with pytest.raises(
        ConfigError, match=r"warmup.window: min_rounds must be <= window and filter_window \(16\), got 20"
    ):
        preview(Journal(streams={"task-sim0-a1": stream}), "warmup.window", 16, tasks=["sim0"])


def test_a_mode_that_the_environments_forbid_is_refused(journal):
    """Respawn needs environments that can be snapshot; those that rest have no starts to weigh."""
    with pytest.raises(ConfigError, match="'respawn' needs environments that can be frozen"):
        preview(journal, "warmup.collector_mode", "respawn", "sim0", tasks=TASKS)
    running = Journal(
        streams={name: before_round(12, s) if name != "broker-e1" else s for name, s in journal.streams.items()}
    )
    found = preview(running, "warmup.rho", 10.0, tasks=TASKS)
    assert set(found.wait_s.values()) == {(0.0, 0.0)}
    assert "collectors that rest wake with the parameters: nothing to start" in repr(found)
    assert "off" not in repr(found), "nothing was measured, so nothing is said of it"


def test_a_run_that_has_just_begun_has_nothing_to_tell(ended):
    """No round has been sent: one line."""
    stream = ended.streams["task-sim0-a1"]
    short = Stream(header=stream.header, records=stream.records[:3], torn=False, source="here")
    with pytest.raises(ConfigError, match="no round of sim0 has been sent yet: let it train on"):
        preview(Journal(streams={"a": short}), "warmup.rho", 10.0, tasks=["sim0"])

"""Settings of a learner are changed while real processes train, move and resume."""

import pytest

from drlnb.records import common
from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.columns.warmup import WakeCollector
from drlnb.records.errors import ConfigError
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster


def rates(journal, stream):
    """Return round -> learning rate that it was computed with."""
    rows = journal.streams[stream].of(words.MetricsRecorded)
    return {row.round: row.metrics["train/learning_rate"] for row in rows}


def change(journal, stream):
    """Return the round that had begun when a setting was changed, as the journal orders it."""
    records = tuple(journal.streams[stream].records)
    at = next(i for i, record in enumerate(records) if isinstance(record, common.SettingChanged))
    return [record.round for record in records[:at] if isinstance(record, WakeCollector)][-1]


def test_a_learning_rate_outlives_its_executor_its_master_and_its_cluster(make_bench):
    """It counts from the round after the wish, in each later attempt from the first round, and in no other task."""
    bench = make_bench()
    more = {"settings": {"checkpoint_min_s": 0.0, "checkpoint_every": 5}}
    task = bench.spec("a", steps=200_000, learning_rate=0.5e-3)
    run = bench.start([task, bench.spec("b", steps=200_000, learning_rate=0.5e-3)], **more)
    run.round(3, "a")
    for key, value, said in (
        ("rl.learning_rate", -1.0, "rl.learning_rate must be"),
        ("rl.gamma", 0.5, "these can change: rl.clip_range"),
        ("warmup.rhoo", 0.5, "unknown setting 'warmup.rhoo'"),
        ("warmup.rho", -0.5, "rho must be a number from 1e-9 to 1e9, got -0.5"),
        ("warmup.lead", -1, r"unknown setting 'warmup.lead'; did you mean 'warmup.planner'"),
        ("leasing.ttl_s", 30.0, "leasing.ttl_s belongs to the pool, not to a task"),
    ):
        with pytest.raises(ConfigError, match=said):
            bench.link.set("r1", task="a", key=key, value=value)
    bench.link.set("r1", task="a", key="rl.learning_rate", value=1e-4)
    said = run.until(lambda row: row["r"] == "SettingChanged", "the setting in the journal")
    assert (said["key"], said["value"], said["task"]) == ("rl.learning_rate", 1e-4, "a")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 4, "a")
    titled("drlnb executor", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "ExecutorDied" or row["r"] == "SlotFailed", "the executor's death")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 4, "a")
    titled("drlnb worker", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "MetricsRecorded" and "task-a-a2" in row["s"], "a round of the next attempt")
    bench.note()
    bench.link.control("r1", "pause", task="a")
    run.until(lambda row: row["r"] == "PhaseEntered" and row["phase"] == "paused", "the pause")
    bench.link.set("r1", task="a", key="rl.learning_rate", value=2e-5)
    bench.link.control("r1", "stop")
    assert {row["state"] for row in run.end().values()} == {"stopped"}
    again = make_bench()
    n_rounds = int((run.out / "checkpoints" / "a" / "LATEST").read_text())
    rerun = again.start([task], resume=True, attempts={"a": 2})
    rerun.round(n_rounds + 2)
    again.link.control("r1", "stop")
    rerun.end()
    with pytest.raises(ConfigError, match="task a is stopped: nothing is left to change"):
        again.link.set("r1", task="a", key="rl.learning_rate", value=1e-5)

    journal = check_laws(run.out)
    wishes = {name: stream.of(common.SettingChanged) for name, stream in journal.streams.items() if "task" in name}
    assert {name: len(found) for name, found in wishes.items() if found} == {"task-a-a1": 1, "task-a-a2": 1}
    first = change(journal, "task-a-a1")
    assert all((rate == 1e-4) == (k > first) for k, rate in rates(journal, "task-a-a1").items())
    assert min(rates(journal, "task-a-a1")) <= first < max(rates(journal, "task-a-a1"))
    assert set(rates(journal, "task-a-a2").values()) == {1e-4}
    assert set(rates(journal, "task-a-a3").values()) == {2e-5}
    assert 1e-4 not in rates(journal, "task-b-a1").values()


def test_scheduling_changes_while_tasks_train(make_bench):
    """A priority, a rule and a time of the pool: each is an event in a journal, and a wrong one changes nothing."""
    bench = make_bench()
    urgent = {**bench.spec("b", steps=200_000), "priority": 2}
    run = bench.start([bench.spec("a", steps=200_000), urgent])
    run.round(3)
    for key, value, task in (
        ("task.priority", 5, "a"),
        ("leasing.age_quantum_s", 10.0, None),
        ("leasing.hold", "last", None),
    ):
        bench.link.set("r1", task=task, key=key, value=value)
    bench.link.set_pool("leasing.age_quantum_s", 5.0)
    for key, value, said in (
        ("leasing.ttl_s", 1.0, "renew_s < holder_ttl_s < ttl_s must hold"),
        ("task.priority", 10**9, "task.priority must be a whole number in"),
    ):
        with pytest.raises(ConfigError, match=said):
            bench.link.set("r1", task="a" if key[0] == "t" else None, key=key, value=value)
    with pytest.raises(ConfigError, match=r"unknown setting 'leasing.colour'"):
        bench.link.set_pool("leasing.colour", "red")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 3)
    bench.note()
    bench.link.control("r1", "stop")
    run.end()
    journal = check_laws(run.out)
    (pool,) = [one for name, one in journal.streams.items() if name.startswith("broker-")]
    told = [(one.key, one.value, one.task) for one in pool.of(common.SettingChanged)]
    assert told == [
        ("task.priority", 2, "r1/b"),
        ("task.priority", 5, "r1/a"),
        ("leasing.age_quantum_s", 10.0, None),
        ("leasing.age_quantum_s", 5.0, None),
    ]
    assert pool.of(leasing.RequestRefused) == ()
    (mine,) = [one for name, one in journal.streams.items() if name.startswith("task-a-")]
    assert ("leasing.hold", "last") in [(one.key, one.value) for one in mine.of(common.SettingChanged)]


def test_settings_are_judged_beside_those_in_force(make_bench):
    """Shorter times of leases, longer windows, and what would not fit is refused at once and never comes back."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=200_000)], settings={"warmup": {"filter_window": 50}})
    run.round(2)

    def wish(key, value):
        bench.link.set("r1", key=key, value=value)

    for key, value in (("leasing.holder_ttl_s", 4.0), ("leasing.ttl_s", 5.0), ("warmup.min_rounds", 40)):
        wish(key, value)
    with pytest.raises(ConfigError, match=r"must hold, got 2 s, 4 s, 3 s"):
        wish("leasing.ttl_s", 3.0)
    with pytest.raises(ConfigError, match=r"must be <= window and filter_window \(16\), got 40"):
        wish("warmup.window", 16)
    run.round(run.of("MetricsRecorded")[-1]["round"] + 2)
    titled("drlnb worker", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "MetricsRecorded" and "task-a-a2" in row["s"], "a round of the next attempt")
    bench.note()
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    second = journal.streams["task-a-a2"].header.config["warmup"]
    assert (second["filter_window"], second["min_rounds"], "window" in second) == (50, 40, False)
    (pool,) = [one for name, one in journal.streams.items() if name.startswith("broker-")]
    assert [one.key for one in pool.of(common.SettingChanged)] == ["leasing.holder_ttl_s", "leasing.ttl_s"]


def test_settings_that_cannot_be_used_together_fail_a_task_in_words(make_bench):
    """A run directory of an earlier version may hold such; its master says so instead of being given up on."""
    bench = make_bench()
    bad = {"a": {"warmup.min_rounds": 20, "warmup.window": 16}}
    run = bench.start([bench.spec("a"), bench.spec("b")], scheduling=bad)
    ended = run.end()
    assert ended["a"]["state"] == "failed"
    assert "its settings cannot be used together: min_rounds must be <= window" in ended["a"]["reason"]
    assert ended["b"]["state"] == "done"


def test_a_slot_is_drained_and_lent_again(make_bench):
    """Tasks go on on the other one meanwhile; a slot that struck out comes back by the same word."""
    bench = make_bench(n_slots=2)
    run = bench.start([bench.spec("a", steps=400_000)])
    names = sorted(slot.slot for slot in bench.pool.slots)

    def wish(key, value):
        bench.link.set("r1", key=key, value=value)

    def granted(slot, n=3):
        for _ in range(n):
            run.until(lambda row: row["r"] == "LeaseGranted" and slot in row["slots"], f"a lease of {slot}")

    wait_until(lambda: all(s.up for s in bench.link.open_pool(2, own_workers=1).slots), "both executors")
    busy = run.until(lambda row: row["r"] == "LeaseGranted" and row["round"] > 2, "a lease")["slots"][0]
    (idle,) = [name for name in names if name != busy]
    with pytest.raises(ConfigError, match=f"slot.drain: the pool has no slot '9/cpu9'; it has {', '.join(names)}"):
        wish("slot.drain", "9/cpu9")
    wish("slot.drain", busy)
    granted(idle)
    wish("slot.undrain", busy)
    wish("slot.drain", idle)
    granted(busy)
    wish("slot.undrain", idle)
    # One death with nobody there closes it; it is out though its next executor is up.
    wish("leasing.strikes", 1)
    titled(f"drlnb executor {idle}", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "SlotAdded" and row["slot"] == idle, "its next executor")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 2)
    wish("slot.undrain", idle)
    wish("slot.drain", busy)
    granted(idle)
    bench.note()
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"

    journal = check_laws(run.out)
    (pool,) = [one for name, one in journal.streams.items() if name.startswith("broker-")]
    wishes = [(one.key, one.value) for one in pool.of(common.SettingChanged)]
    assert wishes == [
        ("slot.drain", busy), ("slot.undrain", busy), ("slot.drain", idle), ("slot.undrain", idle),
        ("leasing.strikes", 1), ("slot.undrain", idle), ("slot.drain", busy),
    ]  # fmt: skip
    struck = "1 executors in a row died on it"
    assert [(one.slot, one.reason) for one in pool.of(leasing.SlotClosed)] == [
        (busy, "drained by hand"), (idle, "drained by hand"), (idle, struck), (busy, "drained by hand"),
    ]  # fmt: skip
    reasons = {one.reason for one in pool.of(leasing.LeaseReleased)}
    assert reasons <= {"returned", "yielded", "task-stopped"}, "who held a slot finished"
    closed = set()
    for record in pool.records:
        if isinstance(record, leasing.SlotClosed):
            closed.add(record.slot)
        elif isinstance(record, common.SettingChanged) and record.key == "slot.undrain":
            closed.discard(record.value)
        elif isinstance(record, leasing.LeaseGranted):
            assert not closed & set(record.slots), "no closed slot is lent"

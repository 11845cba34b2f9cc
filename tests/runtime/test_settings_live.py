"""Settings of a learner are changed while real processes train, move and resume."""

import pytest

from drlnb.records import common, leasing
from drlnb.records import round as words
from drlnb.records.errors import ConfigError
from tests.runtime.laws import check_laws
from tests.runtime.live import titled

pytestmark = pytest.mark.cluster


def rates(journal, stream):
    """Return round -> learning rate that it was computed with."""
    rows = journal.streams[stream].of(words.MetricsRecorded)
    return {row.round: row.metrics["train/learning_rate"] for row in rows}


def change(journal, stream):
    """Return the round in which a setting was changed, as the journal orders it."""
    records = journal.streams[stream].records
    at = next(i for i, record in enumerate(records) if isinstance(record, common.SettingChanged))
    woken = [r.version for r in records[:at] if isinstance(r, words.ParametersCommitted)]
    return woken[-1]


def test_a_learning_rate_outlives_its_executor_its_master_and_its_cluster(make_bench):
    """It counts from the round after the wish, in each later attempt from the first round, and in no other task."""
    bench = make_bench()
    more = {"settings": {"checkpoint_min_s": 0.0, "checkpoint_every": 5}}
    task = bench.spec("a", steps=200_000, learning_rate=0.5e-3)
    run = bench.start([task, bench.spec("b", steps=200_000, learning_rate=0.5e-3)], **more)
    run.round(3, "task-a-")
    for key, value, said in (
        ("rl.learning_rate", -1.0, "rl.learning_rate must be"),
        ("rl.gamma", 0.5, "these can change: rl.clip_range"),
        ("warmup.rhoo", 0.5, "unknown setting 'warmup.rhoo'"),
        ("warmup.rho", -0.5, "rho must be a finite number > 0, got -0.5"),
    ):
        with pytest.raises(ConfigError, match=said):
            bench.install.control(bench.client, "r1", "set", task="a", key=key, value=value)
    bench.install.control(bench.client, "r1", "set", task="a", key="rl.learning_rate", value=1e-4)
    said = run.until(lambda row: row["r"] == "SettingChanged", "the setting in the journal")
    assert (said["key"], said["value"], said["task"]) == ("rl.learning_rate", 1e-4, "a")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 4, "task-a-")
    titled("drlnb executor", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "ExecutorDied" or row["r"] == "SlotFailed", "the executor's death")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 4, "task-a-")
    titled("drlnb worker", bench.handle.pid)[0].kill()
    run.until(lambda row: row["r"] == "MetricsRecorded" and "task-a-a2" in row["s"], "a round of the next attempt")
    bench.note()
    bench.install.control(bench.client, "r1", "pause", task="a")
    run.until(lambda row: row["r"] == "PhaseEntered" and row["phase"] == "paused", "the pause")
    bench.install.control(bench.client, "r1", "set", task="a", key="rl.learning_rate", value=2e-5)
    bench.install.control(bench.client, "r1", "stop")
    assert {row["state"] for row in run.end().values()} == {"stopped"}
    again = make_bench()
    n_rounds = int((run.out / "checkpoints" / "a" / "LATEST").read_text())
    rerun = again.start([task], resume=True, attempts={"a": 2})
    rerun.round(n_rounds + 2)
    again.install.control(again.client, "r1", "stop")
    rerun.end()
    with pytest.raises(ConfigError, match="task a is stopped: nothing is left to change"):
        again.install.control(again.client, "r1", "set", task="a", key="rl.learning_rate", value=1e-5)

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
        bench.install.control(bench.client, "r1", "set", task=task, key=key, value=value)
    bench.install.set_pool(bench.client, "leasing.reserve_after_s", 5.0)
    for key, value, said in (
        ("leasing.ttl_s", 1.0, "renew_s < holder_ttl_s < ttl_s must hold"),
        ("task.priority", 10**9, "task.priority must be a whole number in"),
    ):
        with pytest.raises(ConfigError, match=said):
            bench.install.control(bench.client, "r1", "set", task="a" if key[0] == "t" else None, key=key, value=value)
    with pytest.raises(ConfigError, match="cannot be changed while tasks run"):
        bench.install.set_pool(bench.client, "leasing.colour", "red")
    run.round(run.of("MetricsRecorded")[-1]["round"] + 3)
    bench.note()
    bench.install.control(bench.client, "r1", "stop")
    run.end()
    journal = check_laws(run.out)
    (pool,) = [one for name, one in journal.streams.items() if name.startswith("broker-")]
    told = [(one.key, one.value, one.task) for one in pool.of(common.SettingChanged)]
    assert told == [
        ("task.priority", 2, "r1/b"),
        ("task.priority", 5, "r1/a"),
        ("leasing.age_quantum_s", 10.0, None),
        ("leasing.reserve_after_s", 5.0, None),
        ("leasing.colour", "red", None),
    ]
    assert [one.subject for one in pool.of(leasing.RequestRefused)] == ["leasing.colour"]
    (mine,) = [one for name, one in journal.streams.items() if name.startswith("task-a-")]
    assert ("leasing.hold", "last") in [(one.key, one.value) for one in mine.of(common.SettingChanged)]

"""Settings of a learner are changed while real processes train, move and resume."""

import pytest

from drlnb.records import common
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
        ("warmup.rho", 0.5, "unknown setting 'warmup.rho'"),
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

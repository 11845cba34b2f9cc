"""A cluster that is restarted, and Dask tasks that are taken away: no run trains nowhere."""

import pytest
from distributed import Future

from drlnb.records import round as words
from tests.runtime.laws import check_laws
from tests.runtime.live import wait_until

pytestmark = pytest.mark.cluster

OFTEN = {"checkpoint_min_s": 0.0, "checkpoint_every": 2}


def test_a_restarted_cluster_goes_on_from_the_newest_checkpoints(make_bench):
    """After `Client.restart()` both tasks are new attempts that go on where they were, and nobody had to ask."""
    bench = make_bench(n_workers=2)
    run = bench.start([bench.spec("a", steps=10**6), bench.spec("b", steps=10**6)], settings=OFTEN)
    latest = {task: run.out / "checkpoints" / task / "LATEST" for task in ("a", "b")}
    for task, file in latest.items():
        wait_until(lambda file=file: file.is_file() and int(file.read_text()), f"a round's checkpoint of {task}")
    kept = {task: int(file.read_text()) for task, file in latest.items()}
    bench.note()
    bench.client.restart(wait_for_workers=False)
    anew = {"task-a-a2", "task-b-a2"}
    run.until(lambda row: row["r"] == "MetricsRecorded" and (anew.discard(row["s"]) or not anew), "a round of each")
    bench.note()
    bench.link.control("r1", "stop")
    tasks = run.end()
    assert {(row["state"], row["attempt"]) for row in tasks.values()} == {("stopped", 2)}
    journal = check_laws(run.out)
    for task, n_rounds in kept.items():
        (again,) = journal.streams[f"task-{task}-a2"].of(words.TaskOpened)
        assert again.n_rounds >= n_rounds > 0, task


def test_who_cancels_the_dask_task_stops_the_training(make_bench):
    """The task ends as stopped, with a checkpoint and the way on; it does not run for ever with nobody behind it."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=10**6)])
    run.round(2)
    future = Future("drlnb-r1/a", bench.client)
    bench.client.cancel([future], force=True)
    row = run.end()["a"]
    assert (row["state"], row["reason"]) == ("stopped", "its Dask task was cancelled")
    assert (run.out / "checkpoints" / "a" / "LATEST").is_file()
    check_laws(run.out)

"""Ways between nodes that break, masters that die for good, runs that are resumed at once: on real clusters."""

import pytest

from drlnb.records import round as words
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster


def _break(dask_worker, others):
    """Close this worker's connections to others, with what is under way on them; both go on."""
    for address in others:
        if address != dask_worker.address:
            dask_worker.rpc.remove(address)


def _strict(dask_scheduler):
    """Give a Dask task up at the first death of its worker."""
    dask_scheduler.allowed_failures = 0


@pytest.mark.slow
def test_answers_that_are_lost_on_the_way_do_not_stop_a_task(make_bench):
    """Both nodes live and nobody reports a loss: what a collector has done is lost with the way to its node."""
    bench = make_bench(n_workers=2, n_slots=2)
    run = bench.start([bench.spec("a", steps=10**7, n_steps=2048, n_collectors=2)])
    run.round(2)
    addresses = list(bench.client.scheduler_info()["workers"])

    def lost():
        bench.client.run(_break, others=addresses)
        run.round(run.rows[-1].get("round", 0) + 1 if run.of("MetricsRecorded") else 1)
        return run.of("CollectorUnanswered")

    wait_until(lost, "an answer that was lost on the way")
    last = run.of("MetricsRecorded")[-1]["round"]
    run.round(last + 3)
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    check_laws(run.out)


def test_a_task_that_dask_gave_up_leaves_no_collector(make_bench):
    """Its master's worker dies and Dask does not run it again: the collectors of the other node end."""
    bench = make_bench(n_workers=2, n_slots=1)
    bench.client.run_on_scheduler(_strict)
    run = bench.start([bench.spec("a", steps=10**7, n_collectors=4)])
    run.round(3)
    bench.note()
    assert len(titled("drlnb collector a#", bench.handle.pid)) == 4
    (row,) = [row for row in bench.link.runs() if row["run"] == "r1"]
    node = row["tasks"]["a"]["node"]
    pids = bench.client.run(lambda dask_worker: (str(dask_worker.name), __import__("os").getpid()))
    victim = next(pid for name, pid in pids.values() if name == node)
    next(process for process in titled("drlnb worker", bench.handle.pid) if process.pid == victim).kill()
    assert run.end()["a"]["state"] == "failed"
    wait_until(lambda: not titled("drlnb collector a#", bench.handle.pid), "the end of every collector", 20.0)
    bench.note()


def test_a_run_is_resumed_as_soon_as_its_journal_tells_its_end(make_bench):
    """The former master still ends its collectors, and its anchor has not come back: the new life begins after that."""
    bench = make_bench()
    task = bench.spec("a", steps=10**7)
    run = bench.start([task])
    run.round(3)
    for attempt in (1, 2, 3):
        bench.link.control("r1", "stop")
        run.until(lambda row: row["r"] == "EndTask", f"end of attempt {attempt}")
        bench.start([task], resume=True, attempts={"a": attempt})
        run.until(lambda row: row["r"] == "TaskOpened", f"attempt {attempt + 1}")  # the same watcher sees on
    bench.link.control("r1", "kill")
    assert run.end()["a"]["state"] == "stopped"
    assert {record.attempt for record in check_laws(run.out).of(words.TaskOpened)} == {1, 2, 3, 4}

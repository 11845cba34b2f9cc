"""Real training on a real cluster: processes, leases, journals."""

import itertools
import os

import pytest

from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.journal import Journal
from tests.runtime.laws import check_laws
from tests.runtime.live import titled

pytestmark = pytest.mark.cluster


def _final_parameters(out, task):
    latest = (out / "checkpoints" / task / "LATEST").read_text()
    return (out / "checkpoints" / task / latest / "model.safetensors").read_bytes()


def test_two_tasks_take_turns_on_one_slot_and_learn_as_if_alone(make_bench):
    """Two tasks on one slot both reach their budget, with the same parameters, bitwise, as one that trains alone."""
    bench = make_bench(n_workers=1)
    run = bench.start([bench.spec("a"), bench.spec("b")])
    assert {row["state"] for row in run.end().values()} == {"done"}
    alone = bench.start([bench.spec("solo")], run="r2")
    alone.end()
    journal = check_laws(run.out)
    check_laws(alone.out)
    pool = next(stream for name, stream in journal.streams.items() if name.startswith("broker"))
    turns = [grant.task for grant in pool.of(leasing.LeaseGranted)]
    assert sum(x != y for x, y in itertools.pairwise(turns)) > 5
    assert turns.count("r1/a") == turns.count("r1/b") == 17  # 16 rounds of 256 steps and the initial parameters
    assert _final_parameters(run.out, "a") == _final_parameters(run.out, "b") == _final_parameters(alone.out, "solo")
    told = {row.round: row.metrics for row in journal.streams["task-a-a1"].of(words.MetricsRecorded)}
    granted = {grant.round: grant for grant in pool.of(leasing.LeaseGranted) if grant.task == "r1/a" and grant.round}
    hits = {k: metrics["lease/resident_hit"] for k, metrics in told.items()}
    assert hits == {k: float(grant.resident) for k, grant in granted.items()}, "the pool's word reaches the metrics"
    assert sum(hits.values()) >= 14, "both models stay on the slot"
    waits = {k: metrics["lease/wait_s"] for k, metrics in told.items()}
    assert waits == {k: pytest.approx(grant.waited_s) for k, grant in granted.items()}
    held = {one.fence: one.held_s for one in pool.of(leasing.LeaseReleased)}
    for k, metrics in told.items():  # on two clocks, with a message each way between
        assert 0.0 < metrics["lease/held_s"] <= held[granted[k].fence] + 0.05
    assert all(metrics["lease/moved_bytes"] == 0 for k, metrics in told.items() if hits[k]), "and is not brought again"


def test_titles_and_imports_of_the_processes(make_bench):
    """Each process shows its title, and no Dask process imports torch or gymnasium."""
    bench = make_bench(n_workers=1)
    run = bench.start([bench.spec("a", steps=200_000)])
    run.round(2)
    for title in (
        "drlnb worker",
        "drlnb zygote",
        "drlnb collector a#0",
        "drlnb collector a#1",
        "drlnb executor 0/cpu0",
    ):
        found = titled(title, bench.handle.pid)
        assert found, title
        assert {one.nice() for one in found} == {os.getpriority(os.PRIO_PROCESS, 0)}, "nothing gives way to a neighbour"

    def loaded() -> list[str]:
        import sys

        return [name for name in ("torch", "gymnasium") if name in sys.modules]

    assert bench.client.run(loaded) == {address: [] for address in bench.client.run(loaded)}
    assert bench.client.run_on_scheduler(loaded) == []
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    check_laws(run.out)


def test_experience_and_parameters_cross_nodes(make_bench):
    """With two nodes the collectors are spread, experience travels to the master, parameters to every node."""
    bench = make_bench(n_workers=2, n_slots=2)
    run = bench.start([bench.spec("a", n_collectors=4), bench.spec("b", n_collectors=4)])
    assert {row["state"] for row in run.end().values()} == {"done"}
    journal = check_laws(run.out)
    nodes = {record.node for record in journal.of(*_start_types())}
    assert nodes == {"0", "1"}
    assert _final_parameters(run.out, "a") == _final_parameters(run.out, "b")


def _start_types():
    from drlnb.records.columns.warmup import CollectorReady

    return (CollectorReady,)


def test_hold_last_asks_when_everything_is_there(make_bench):
    """Hold planner `last` trains to the same parameters and asks only after the last collector has sent."""
    bench = make_bench()
    first = bench.start([bench.spec("a")])
    first.end()
    second = bench.start([bench.spec("a")], run="r2", planners={"hold": "last"})
    second.end()
    check_laws(second.out)
    stream = Journal.read(second.out).streams["task-a-a1"]
    arrived = 0
    for record in stream.records:
        if isinstance(record, words.ExperienceArrived):
            arrived += 1
        elif isinstance(record, words.RequestSlot) and record.round:
            assert arrived == 2
            arrived = 0
    assert _final_parameters(first.out, "a") == _final_parameters(second.out, "a")


def test_pause_holds_nothing_and_resume_goes_on(make_bench):
    """A paused task rests with a checkpoint while the other goes on; resumed, it ends as if never paused."""
    bench = make_bench()
    run = bench.start([bench.spec("a"), bench.spec("b", steps=8192)])
    run.round(3, "a")
    bench.link.control("r1", "pause", task="a")
    run.until(lambda r: r["r"] == "PhaseEntered" and r["phase"] == "paused" and "task-a" in r["s"], "pause")
    run.until(lambda r: r["r"] == "MetricsRecorded" and "task-b" in r["s"], "the other task")
    bench.link.control("r1", "resume", task="a")
    assert {row["state"] for row in run.end().values()} == {"done"}
    check_laws(run.out)
    alone = bench.start([bench.spec("a")], run="r2")
    alone.end()
    assert _final_parameters(run.out, "a") == _final_parameters(alone.out, "a")

"""Collectors that share the CPU slots of their node, on a real cluster."""

import pytest

from drlnb.records import round as words
from drlnb.records.columns import warmup
from drlnb.records.common import SettingChanged
from drlnb.runtime.node.cpu_queue import n_cpus
from tests.runtime.laws import check_laws
from tests.runtime.live import titled
from tests.runtime.test_rounds_live import _final_parameters

pytestmark = pytest.mark.cluster

#: One gradient per collector as it arrives; 8 environments, 8 steps each.
GPF = {"algo": "gpf", "n_steps": 8, "n_collectors": 4}
N_ROUNDS = 12


def spans(journal):
    """Yield, per task and round: seconds from the wakes to the last experience, and those of all collectors' acting."""
    for name, stream in journal.streams.items():
        if not name.startswith("task-"):
            continue
        woken, acted, last = {}, {}, {}
        for event, answer in stream.answers():
            for wake in (one for one in answer if isinstance(one, warmup.WakeCollector)):
                woken.setdefault(wake.round, event.t)
            if isinstance(event, words.ExperienceArrived):
                acted.setdefault(event.round, []).append(event.collect_s)
                last[event.round] = event.t
        yield from ((last[k] - woken[k], sum(acted[k])) for k in acted if len(acted[k]) == 4)


def test_one_cpu_slot_serves_two_tasks_in_every_mode(make_bench):
    """1 slot, 4 collectors each, 2 tasks: all modes end, act one at a time, and make the same parameters bitwise."""
    bench = make_bench()
    finals, waits = {}, {}
    for n_slots, mode in ((8, "park"), (1, "park"), (1, "respawn"), (1, "keep"), (3, "keep")):
        bench.link.set_pool("agent.collector_slots", n_slots)
        tasks = [{**bench.spec(name, steps=N_ROUNDS * 8 * 8, **GPF), "seed": k} for k, name in enumerate("ab")]
        run = bench.start(tasks, run=f"{mode}-{n_slots}", settings={"warmup": {"collector_mode": mode}})
        ended = run.end()
        assert {row["state"] for row in ended.values()} == {"done"}, ended
        bench.note()
        journal = check_laws(run.out)
        arrived = journal.of(words.ExperienceArrived)
        assert {event.n_cpu_slots for event in arrived} == {n_slots}
        assert all(span_s >= acting_s / n_slots for span_s, acting_s in spans(journal)), "one after the other"
        waits[mode, n_slots] = sum(event.queued_s > 0 for event in arrived) / len(arrived)
        finals[mode, n_slots] = [_final_parameters(run.out, name) for name in "ab"]
    assert len({tuple(final) for final in finals.values()}) == 1, "whatever the mode and the slots"
    assert waits["park", 8] == 0.0, "a free slot costs no wait"
    assert waits["park", 1] > 0.3


def test_parked_collectors_are_planned_where_slots_are_few(make_bench):
    """With 1 slot waits are measured and planned for; with as many as collectors, saa answers event start."""
    bench = make_bench()
    bench.link.set_pool("agent.collector_slots", 1)
    run = bench.start([bench.spec("a", steps=400_000, **{**GPF, "n_steps": 32})])
    run.round(20)
    bench.link.set_pool("agent.collector_slots", 4)
    changed = run.until(lambda row: row["r"] == "ExperienceArrived" and row["n_cpu_slots"] == 4, "4 slots")["round"]
    run.round(changed + 12)
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    assert [event.value for event in journal.of(SettingChanged)] == [4], "the first change was before the run"
    parked = journal.of(warmup.ParkCollector)
    measured = journal.of(warmup.WarmupMeasured)
    assert parked, "with fewer slots than collectors they are parked"
    assert measured, "and what they waited is measured"
    assert max(max(one.late_s) for one in measured) > 0.0
    few = [plan for plan in journal.of(warmup.WarmupPlanned) if plan.round <= 20]
    assert any("needed" in plan.reason for plan in few)
    assert not all(plan.reason.startswith("parked collectors wake") for plan in few)
    roomy = [plan for plan in journal.of(warmup.WarmupPlanned) if plan.round > changed + 1]
    assert {(plan.action, plan.start_after_s) for plan in roomy} <= {("cold", None), ("end", None)}
    assert all(event.queued_s == 0.0 for event in journal.of(words.ExperienceArrived) if event.round > changed + 1)


@pytest.mark.slow
def test_slots_are_asked_for_ahead_and_taken_back(make_bench):
    """A planned start of a parked collector: a slot, used when the parameters are there; a pause takes it back."""
    bench = make_bench()
    bench.link.set_pool("agent.collector_slots", 1)
    run = bench.start([bench.spec("a", steps=400_000, **{**GPF, "n_steps": 32})], planners={"warmup": "saa"})
    for n in (14, 18, 22):
        run.round(n)
        bench.link.control("r1", "pause")
        run.until(lambda row: row["r"] == "PhaseEntered" and row["phase"] == "paused", "pause")
        bench.link.control("r1", "resume")
    run.round(26)
    bench.note()
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    starts = [start for start in journal.of(warmup.StartCollector) if start.round]
    assert starts
    assert all(start.parked for start in starts), "no process is started again"
    assert [one for one in journal.of(warmup.CollectorReady) if one.start_mode == "park"]
    assert not journal.of(warmup.CollectorLost)


def test_modes_change_where_slots_are_few(make_bench):
    """Two slots for four collectors; keepers that are parked later give theirs back, and nobody notices."""
    bench = make_bench()
    bench.link.set_pool("agent.collector_slots", 2)
    run = bench.start([bench.spec("a", steps=400_000, **GPF)])
    for n, mode in ((2, "keep"), (6, "park"), (9, "respawn"), (12, "keep"), (15, "respawn"), (18, "park")):
        run.round(n)
        bench.link.set("r1", key="warmup.collector_mode", value=mode)
    run.round(22)
    bench.note()
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    assert not journal.of(warmup.CollectorLost)
    kept = {event.round for event in journal.of(words.ExperienceArrived) if event.keeps_cpu}
    assert kept, "in mode keep some kept their slots"
    reasons = {plan.reason for plan in journal.of(warmup.WarmupPlanned)}
    assert any("has no CPU slot left to keep: parked" in reason for reason in reasons), reasons


def test_a_collector_that_dies_gives_its_cpu_slot_back(make_bench):
    """A kill -9 of one that acts or waits: the others of the node go on, and so does it."""
    bench = make_bench()
    bench.link.set_pool("agent.collector_slots", 1)
    run = bench.start([bench.spec(name, steps=400_000, **GPF) for name in "ab"])
    run.round(2, "a"), run.round(2, "b")
    for k in range(3):
        titled(f"drlnb collector {'ab'[k % 2]}#", bench.handle.pid)[0].kill()
        last = max(row["round"] for row in run.of("MetricsRecorded"))
        run.round(last + 3, "a"), run.round(last + 3, "b")
    bench.note()
    bench.link.control("r1", "stop")
    assert {row["state"] for row in run.end().values()} == {"stopped"}
    assert len(check_laws(run.out).of(warmup.CollectorLost)) == 3


def test_agents_of_one_host_share_its_cpus(make_bench):
    """Two agents: each lends half of the CPUs, at least one."""
    bench = make_bench(n_workers=2)
    run = bench.start([bench.spec("a", steps=4 * 8 * 8, **GPF)])
    assert run.end()["a"]["state"] == "done"
    arrived = check_laws(run.out).of(words.ExperienceArrived)
    assert {event.n_cpu_slots for event in arrived} == {max(1, n_cpus() // 2)}

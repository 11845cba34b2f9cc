"""Collectors whose processes end after each round (the leasing patent, claim 2), on a real cluster."""

import pytest

from drlnb.planning.replay import replay
from drlnb.records import round as words
from drlnb.records.columns import distribution, leasing, warmup
from drlnb.records.journal import Journal
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until
from tests.runtime.test_rounds_live import _final_parameters

pytestmark = pytest.mark.cluster

#: GPF computes one gradient per collector as it arrives (claim 6); 24 rounds.
GPF = {"algo": "gpf", "n_steps": 32}
SEED = {"planners": {"hold": "round", "warmup": "patent"}, "settings": {"warmup": {"collector_mode": "respawn"}}}


def answers(journal, task):
    (stream,) = [one for name, one in journal.streams.items() if name.startswith(f"task-{task}-")]
    return list(stream.answers())


def metrics_of(out):
    """Return the metrics of all rounds of a run."""
    return [row.metrics for row in Journal.read(out).of(words.MetricsRecorded)]


def test_the_seeds_round_by_the_letter(make_bench):
    """Hold `round`, gradients one after the other, collectors ended after sending, warm-up `patent`: what it claims.

    And the parameters are those of collectors that stay: a process goes on where the one before it was.
    """
    bench = make_bench()
    task = bench.spec("a", steps=24 * 8 * 32, **GPF)
    run = bench.start([task], **SEED)
    run.round(3)
    bench.note()
    assert run.end()["a"]["state"] == "done"
    journal = check_laws(run.out)
    assert all(replay(stream).difference is None for stream in journal.streams.values()), "decided again from events"
    stays = bench.start([task], run="r2", planners={"hold": "round", "warmup": "cold"})
    assert stays.end()["a"]["state"] == "done"
    check_laws(stays.out)

    (pool,) = [one for name, one in journal.streams.items() if name.startswith("broker-")]
    grants = [grant.round for grant in pool.of(leasing.LeaseGranted)]
    assert grants == list(range(25)), "claim 3: one lease per round, the initial parameters' included"

    arrived, computed = {}, {}
    for event, answer in answers(journal, "a"):
        if isinstance(event, words.ExperienceArrived):
            arrived.setdefault(event.round, []).append(event.collector)
        if isinstance(event, words.GradientComputed):
            computed.setdefault(event.round, []).append(event.collector)
        if any(isinstance(one, distribution.SendParameters) for one in answer) and isinstance(
            event, words.ParametersCommitted
        ):
            kinds = [type(one) for one in answer]
            assert kinds.index(words.ReturnLease) < kinds.index(distribution.SendParameters), (
                "claim 5: released, then sent"
            )
    assert computed == arrived, "claim 6: gradients one by one, in the order of arrival"

    stops = journal.of(warmup.StopCollector)
    assert len(stops) == 23 * 2, "claim 2: each process ends after it has sent; no round follows the 24th"
    starts = [start for start in journal.of(warmup.StartCollector) if start.round]
    assert len({(start.collector, start.round) for start in starts}) == 23 * 2, "and is started for the next round"
    plans = journal.of(warmup.WarmupPlanned)
    assert {plan.planner for plan in plans} == {"patent"}
    assert all(plan.reason for plan in plans), "claim 8: with a reason in words, whether stable or not"
    assert _final_parameters(run.out, "a") == _final_parameters(stays.out, "a")

    measured = {one.round: one for one in journal.of(warmup.WarmupMeasured)}
    told = {row.round: row.metrics for row in journal.of(words.MetricsRecorded)}
    assert {k for k, metrics in told.items() if "warmup/hit" in metrics} == set(measured) <= set(range(2, 25))
    assert len(measured) > 15
    for k, one in measured.items():
        assert told[k]["warmup/hit"] == sum(late == 0.0 for late in one.late_s) / 2
        assert told[k]["warmup/late_s"] == pytest.approx(sum(one.late_s) / 2, abs=1e-6)
        assert told[k]["warmup/early_s"] == pytest.approx(sum(one.early_s) / 2, abs=1e-6)
    assert not any(name.startswith("warmup/") for row in metrics_of(stays.out) for name in row), "nothing started"


def test_a_process_ends_and_another_one_goes_on(make_bench):
    """The pid is gone between two rounds, and no episode is lost by it."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=400_000, **GPF)], **SEED)
    run.round(2)
    first = {process.pid for process in titled("drlnb collector a#", bench.handle.pid)}
    run.round(4)
    bench.note()
    wait_until(
        lambda: not first & {process.pid for process in titled("drlnb collector a#", bench.handle.pid)},
        "the first processes are gone",
    )
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    assert not journal.of(words.EpisodesLost)


def test_modes_change_while_a_task_trains(make_bench):
    """From park to respawn and back, each from the next round on; the task never notices."""
    bench = make_bench()
    run = bench.start([bench.spec("a", steps=400_000, **GPF)])
    for n, mode in ((2, "respawn"), (6, "park"), (9, "respawn"), (12, "park")):
        run.round(n)
        bench.link.set("r1", key="warmup.collector_mode", value=mode)
    run.round(16)
    bench.link.control("r1", "pause")
    run.until(lambda row: row["r"] == "PhaseEntered" and row["phase"] == "paused", "pause")
    bench.link.set("r1", key="warmup.collector_mode", value="respawn")
    bench.link.control("r1", "resume")
    run.round(22)
    bench.note()
    bench.link.control("r1", "stop")
    assert run.end()["a"]["state"] == "stopped"
    journal = check_laws(run.out)
    assert len(journal.of(warmup.StopCollector)) > 6
    assert not journal.of(words.EpisodesLost)
    assert not journal.of(warmup.CollectorLost)


def test_a_cold_start_is_a_new_interpreter(make_bench):
    """Start mode `spawn`: the patent's cold start, under its own name in what is measured."""
    bench = make_bench()
    settings = {"warmup": {"collector_mode": "respawn", "start_mode": "spawn"}}
    run = bench.start([bench.spec("a", steps=4 * 8 * 32, **GPF)], **{**SEED, "settings": settings})
    assert run.end()["a"]["state"] == "done"
    bench.note()
    ready = [one for one in check_laws(run.out).of(warmup.CollectorReady) if one.round]
    assert {one.start_mode for one in ready} == {"spawn"}
    assert all(one.start_s > 0 and one.n_starting in {1, 2} for one in ready)

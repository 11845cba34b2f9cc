"""Slots that change hands in the midst of a round, on a real cluster."""

import pytest

from drlnb.records import round as words
from drlnb.records.columns import leasing
from tests.runtime.laws import check_laws
from tests.runtime.live import titled

pytestmark = pytest.mark.cluster

#: One pass over the whole round: gradients are computed as fragments arrive.
STREAM = {"n_steps": 256, "n_epochs": 1, "batch_size": 512}


def _final_parameters(out, task):
    latest = (out / "checkpoints" / task / "LATEST").read_text()
    return (out / "checkpoints" / task / latest / "model.safetensors").read_bytes()


def _yields(out, task):
    journal = check_laws(out)
    return [one for one in journal.streams[f"task-{task}-a1"].of(words.ReturnLease) if one.yielded]


def test_a_slot_changes_hands_in_a_round_and_the_parameters_are_those_of_a_task_alone(make_bench):
    """Two streams on one slot give way on demand, go on with kept gradients, and learn bitwise as one alone (S5)."""
    bench = make_bench(n_workers=1)
    more = {"algo": "ppo", "n_envs": 2, "n_collectors": 2, **STREAM, "steps": 256 * 2 * 60}
    # A switch on loopback is dear beside these small batches: what is tested is that nothing is lost by it.
    tasks = [bench.spec(name, **more) for name in "ab"]
    run = bench.start(tasks, settings={"switch_limit_frac": 1e6})
    run.round(2, "a")
    (slow, *_) = titled("drlnb collector a#1", bench.handle.pid)
    for n in (3, 5, 7):  # what its other collector has sent is computed, and then there is nothing to do but wait
        slow.suspend()
        run.until(lambda row: row["r"] == "ReturnLease" and row["s"] == "task-a-a1" and row["yielded"], "a way given")
        slow.resume()
        run.round(n, "a")
    assert {row["state"] for row in run.end().values()} == {"done"}
    alone = bench.start([bench.spec("solo", **more)], run="r2", planners={"hold": "round"})
    alone.end()
    journal = check_laws(run.out)
    restored = [one for name in "ab" for one in journal.streams[f"task-{name}-a1"].of(leasing.GradientsRestored)]
    assert restored
    wanted = _final_parameters(alone.out, "solo")
    assert [_final_parameters(run.out, name) == wanted for name in "ab"] == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_a_gradient_from_before_anybody_waited_goes_along(make_bench, algo):
    """A task alone holds the slot for a collector that hangs; another one comes, and gets it; bitwise as alone."""
    bench = make_bench(n_workers=1)
    shape = {"n_steps": 256, "n_epochs": 1} | (STREAM if algo == "ppo" else {})
    more = {"algo": algo, "n_envs": 2, "n_collectors": 2, **shape, "steps": 256 * 2 * 30}
    settings = {"switch_limit_frac": 1e6}
    run = bench.start([bench.spec("a", **more)], settings=settings)
    run.round(2)
    (slow,) = titled("drlnb collector a#1", bench.handle.pid)
    slow.suspend()
    run.until(lambda row: row["r"] == "LeaseRenewed", "a lease that is held for long")
    other = bench.start([bench.spec("b", **more)], run="r2", settings=settings)
    other.round(3)
    slow.resume()
    for each in (run, other):
        assert {row["state"] for row in each.end().values()} == {"done"}
    alone = bench.start([bench.spec("solo", **more)], run="r3", planners={"hold": "round"})
    alone.end()
    (fetched,) = check_laws(run.out).streams["task-a-a1"].of(leasing.GradientKept)
    assert fetched.collector == 0
    wanted = _final_parameters(alone.out, "solo")
    assert [_final_parameters(each.out, name) == wanted for each, name in ((run, "a"), (other, "b"))] == [True] * 2


@pytest.mark.slow
def test_gpf_keeps_its_gradients_over_a_yield_and_over_its_executors_death(make_bench):
    """On two slots what was kept goes to either; a killed executor costs no kept gradient; still bitwise as alone."""
    bench = make_bench(n_workers=1, n_slots=2)
    more = {"algo": "gpf", "n_envs": 8, "n_collectors": 4, "n_steps": 64, "n_epochs": 1, "steps": 64 * 8 * 20}
    run = bench.start([bench.spec(name, **more) for name in "abcd"], settings={"switch_limit_frac": 1e6})
    run.round(3)
    titled("drlnb executor", bench.handle.pid)[0].kill()
    assert {row["state"] for row in run.end().values()} == {"done"}
    alone = bench.start([bench.spec("solo", **more)], run="r2", planners={"hold": "last"})
    alone.end()
    wanted = _final_parameters(alone.out, "solo")
    assert [_final_parameters(run.out, name) == wanted for name in "abcd"] == [True] * 4
    check_laws(run.out)


def test_priority_and_the_pools_settings_change_while_tasks_train(make_bench):
    """A task's priority and a time of leasing are events in the pool's journal; a wrong value is refused in words."""
    bench = make_bench(n_workers=1)
    run = bench.start([bench.spec("a", steps=200_000), bench.spec("b", steps=200_000)])
    run.round(2)
    bench.link.set("r1", task="a", key="task.priority", value=3)
    bench.link.set("r1", key="leasing.max_hold_s", value=60.0)
    for key, value, task, message in (
        ("task.priority", 1000, "a", "task.priority must be a whole number in -100..100, got 1000"),
        ("leasing.ttl_s", 1.0, None, "renew_s < holder_ttl_s < ttl_s must hold"),
        ("leasing.max_hold_s", -9.0, None, "max_hold_s must be a number of seconds from 0.001 to 1e7, got -9"),
    ):
        with pytest.raises(Exception, match=message):
            bench.link.set("r1", task=task, key=key, value=value)
    run.round(6)
    bench.link.control("r1", "stop")
    run.end()
    journal = check_laws(run.out)
    pool = next(stream for name, stream in journal.streams.items() if name.startswith("broker"))
    changes = [(one.key, one.value, one.task) for one in pool.records if type(one).__name__ == "SettingChanged"]
    assert ("task.priority", 3, "r1/a") in changes
    assert ("leasing.max_hold_s", 60.0, None) in changes

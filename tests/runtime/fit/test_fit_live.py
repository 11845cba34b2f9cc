"""Supervised work on real processes: leases, journal, checkpoint, resume and replay, without any environment."""

import pytest
import torch
from safetensors.torch import load_file

from drlnb.records import round as words
from drlnb.records.columns import leasing, swapping
from drlnb.records.spec import FitWork
from tests.runtime.fit.programs import plain_loop, regression, wide
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

#: Budget; and one that is not made before a user can look.
N_STEPS, MANY_STEPS = 600, 8000
#: Of the wide program: bytes of parameters, gradients and buffers; of a layer's output; a budget for two and a half.
OWN = 8 * (10 * 128 + 128 + 2 * 128 + 2 * (128 * 128 + 128) + 128 + 1) + 2 * 4 * 128 + 8
ROW = 1024 * 128 * 4
BUDGET = OWN + 5 * ROW // 2


def fit(name, program="regression", **more):
    spec = {"total_timesteps": N_STEPS, "round_steps": 50, **more}
    return FitWork(name=name, program=f"tests.runtime.fit.programs:{program}", **spec).to_plain()


def parameters(out, task):
    folder = out / "checkpoints" / task
    return load_file(folder / (folder / "LATEST").read_text() / "model.safetensors")


def assert_plain(out, task, n_steps, program=regression):
    ours, wanted = parameters(out, task), plain_loop(program, n_steps)
    assert ours.keys() == wanted.keys()
    assert all(torch.equal(ours[name], value) for name, value in wanted.items())


def test_a_regression_trains_as_a_plain_loop_beside_one_that_fails_and_one_of_rl(make_bench):
    """Rounds lease the slot as others do; a data function that raises fails its task alone, in one line."""
    bench = make_bench()
    rl = bench.spec("rl", n_steps=64, batch_size=64, steps=3 * 8 * 64)
    run = bench.start([fit("reg"), fit("bad", "ends_early"), rl])
    ended = run.end()
    assert {name: row["state"] for name, row in ended.items()} == {"reg": "done", "bad": "failed", "rl": "done"}
    (reason,) = ended["bad"]["reason"].splitlines()[:1]
    assert reason == "RuntimeError: batches(120) raised IndexError: row 7680 is not there"
    assert ended["bad"]["n_timesteps"] == 110
    assert_plain(run.out, "reg", N_STEPS)
    journal = check_laws(run.out)
    stream = journal.streams["task-reg-a1"]
    grants = [grant for grant in journal.of(leasing.LeaseGranted) if grant.task == "r1/reg"]
    assert [grant.round for grant in grants] == list(range(14))
    assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)] == [*range(10, 600, 50), 600]
    last = stream.of(words.MetricsRecorded)[-1].metrics
    assert last["train/n_updates"] == N_STEPS
    assert last["train/loss"] < 20.0 < 100.0 < stream.of(words.MetricsRecorded)[0].metrics["train/loss"]
    assert not titled("drlnb collector reg", bench.handle.pid)


def test_killed_and_resumed_it_ends_with_the_same_parameters(make_bench):
    """The executor is killed in the midst of it, then the run at once; it goes on from its newest checkpoint."""
    bench = make_bench()
    often = {"settings": {"checkpoint_every": 2, "checkpoint_min_s": 0.0}}
    spec = fit("reg", total_timesteps=MANY_STEPS)
    run = bench.start([spec], **often)
    run.round(2)
    (executor,) = titled("drlnb executor", bench.handle.pid)
    executor.kill()
    run.until(lambda row: row["r"] == "ExecutorDied", "the executor's death")
    run.round(5)
    bench.link.control("r1", "kill", task=None, reason="enough")
    assert run.end()["reg"]["state"] == "stopped"
    wait_until(lambda: (run.out / "checkpoints" / "reg" / "LATEST").is_file(), "a checkpoint")
    again = bench.start([spec], resume=True, attempts={"reg": 1}, **often)
    assert again.end()["reg"]["state"] == "done"
    stream = check_laws(run.out).streams["task-reg-a2"]
    (opened,) = stream.of(words.TaskOpened)
    assert 0 < opened.n_timesteps < MANY_STEPS
    assert_plain(run.out, "reg", MANY_STEPS)


@pytest.mark.slow
def test_a_byte_budget_is_kept_and_changes_no_bit(make_bench):
    """Plans are tried out, the executor dies in a trial; a budget below the module's own size fails its task alone."""
    bench = make_bench()
    spec = fit("reg", "wide", total_timesteps=MANY_STEPS, round_steps=10, memory_budget_bytes=BUDGET)
    small = fit("small", "wide", memory_budget_bytes=1000)
    run = bench.start([spec, small])
    run.until(lambda row: row["r"] == "SwapTrialStarted", "a trial")
    titled("drlnb executor", bench.handle.pid)[0].kill()
    kept = run.until(lambda row: row["r"] == "SwapPlanKept", "the end of the trials")
    bench.link.control("r1", "stop")
    ended = run.end()
    assert {name: row["state"] for name, row in ended.items()} == {"reg": "stopped", "small": "failed"}
    assert ended["small"]["reason"].startswith("ConfigError: the budget must be above the ")
    n_rounds = int((run.out / "checkpoints" / "reg" / "LATEST").read_text())
    assert_plain(run.out, "reg", 10 * n_rounds, wide)
    stream = check_laws(run.out).streams["task-reg-a1"]
    steps = stream.of(swapping.SwapStepMeasured)
    assert max(step.peak_bytes for step in steps) <= BUDGET
    assert {step.plan_key for step in steps} >= {"all", kept["plan_key"]}
    assert steps[0].swapped_bytes >= 5 * ROW > BUDGET - OWN, "plain steps need more"

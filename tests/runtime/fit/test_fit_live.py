"""Supervised work on real processes: leases, journal, checkpoint, resume and replay, without any environment."""

import pytest
import torch
from safetensors.torch import load_file

from drlnb.records import round as words
from drlnb.records.columns import leasing
from drlnb.records.spec import FitWork
from tests.runtime.fit.programs import plain_loop, regression
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

N_STEPS = 600


def fit(name, program="regression", **more):
    spec = {"total_timesteps": N_STEPS, "round_steps": 50, **more}
    return FitWork(name=name, program=f"tests.runtime.fit.programs:{program}", **spec).to_plain()


def parameters(out, task):
    folder = out / "checkpoints" / task
    return load_file(folder / (folder / "LATEST").read_text() / "model.safetensors")


def assert_plain(out, task):
    ours, wanted = parameters(out, task), plain_loop(regression, N_STEPS)
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
    assert ended["bad"]["n_timesteps"] == 100
    assert_plain(run.out, "reg")
    journal = check_laws(run.out)
    stream = journal.streams["task-reg-a1"]
    grants = [grant for grant in journal.of(leasing.LeaseGranted) if grant.task == "r1/reg"]
    assert [grant.round for grant in grants] == list(range(13))
    assert [row.n_timesteps for row in stream.of(words.MetricsRecorded)] == list(range(50, 601, 50))
    last = stream.of(words.MetricsRecorded)[-1].metrics
    assert last["train/n_updates"] == N_STEPS
    assert last["train/loss"] < 60.0 < 300.0 < stream.of(words.MetricsRecorded)[0].metrics["train/loss"]
    assert not titled("drlnb collector reg", bench.handle.pid)


def test_killed_and_resumed_it_ends_with_the_same_parameters(make_bench):
    """The executor is killed in the midst of it, then the run at once; it goes on from its newest checkpoint."""
    bench = make_bench()
    often = {"settings": {"checkpoint_every": 2, "checkpoint_min_s": 0.0}}
    run = bench.start([fit("reg")], **often)
    run.round(2)
    (executor,) = titled("drlnb executor", bench.handle.pid)
    executor.kill()
    run.until(lambda row: row["r"] == "ExecutorDied", "the executor's death")
    run.round(5)
    bench.link.control("r1", "kill", task=None, reason="enough")
    assert run.end()["reg"]["state"] == "stopped"
    wait_until(lambda: (run.out / "checkpoints" / "reg" / "LATEST").is_file(), "a checkpoint")
    again = bench.start([fit("reg")], resume=True, attempts={"reg": 1}, **often)
    assert again.end()["reg"]["state"] == "done"
    stream = check_laws(run.out).streams["task-reg-a2"]
    (opened,) = stream.of(words.TaskOpened)
    assert 0 < opened.n_timesteps < N_STEPS
    assert_plain(run.out, "reg")

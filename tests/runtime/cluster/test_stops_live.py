"""Tasks whose environments die, hang, dawdle or take memory: they end within seconds, fail by name, and are resumed."""

import pytest

from drlnb.records import round as words
from drlnb.records.columns import warmup
from tests.runtime.laws import check_laws
from tests.runtime.test_rounds_live import _final_parameters

pytestmark = pytest.mark.cluster

#: A round of one environment.
SIZES = {"n_steps": 64, "n_envs": 1, "n_collectors": 1, "batch_size": 64, "steps": 6400}
#: Longest time from the wish to the end of a task, on its master's clock, in seconds: 5 for the round, 3 for answers.
SECONDS = 15.0


def spec(bench, name, **more):
    return bench.spec(name, env=f"tests.runtime.cruel_envs:{name}-v0", **{**SIZES, **more})


def stopped_after(stream):
    """Return the seconds from the wish to stop a task to its end."""
    ((asked_t, _),) = stream.timed(words.StopAsked)
    ((ended_t, _),) = stream.timed(words.EndTask)
    return ended_t - asked_t


def began(run, *names, version=1):
    """Wait until a round of each task has begun, or as far as its environments let it come."""
    waiting = {f"task-{name}-a1": "HostCompleted" if name.endswith("AtStart") else "WakeCollector" for name in names}

    def last(row):
        if row["r"] == "EndTask" or (row["r"] == waiting.get(row["s"]) and row["version"] == version):
            waiting.pop(row["s"], None)
        return not waiting

    run.until(last, f"round {version}")


def stopped(bench, *names):
    """Start tasks, stop them once a round has begun; return the broker's rows and the streams."""
    run = bench.start([spec(bench, name) for name in names])
    began(run, *names)
    bench.link.control("r1", "stop", task=None, reason="enough")
    ended = run.end()
    return run, ended, {name: check_laws(run.out).streams[f"task-{name}-a1"] for name in names}


def test_a_stop_does_not_wait_for_environments(make_bench):
    """One that hangs in a step: its round is left unfinished, and the task ends as of the last commit."""
    run, ended, streams = stopped(make_bench(), "Hanging")
    assert ended["Hanging"]["state"] == "stopped"
    assert stopped_after(streams["Hanging"]) < SECONDS
    (left,) = streams["Hanging"].of(words.RoundUnfinished)
    assert (left.round, left.reason) == (1, "it takes longer than 5 s")
    assert (run.out / "checkpoints" / "Hanging" / "LATEST").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Slow", "HangingAtStart", "Growing"])
def test_nor_for_others_of_their_kind(make_bench, name):
    """One that takes a second a step, one that is never made, one that takes memory in each step."""
    _, ended, streams = stopped(make_bench(), name)
    assert ended[name]["state"] == "stopped"
    assert stopped_after(streams[name]) < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "where"),
    [("Dying", "in step 30 since it was woken"), ("DyingAtStart", "while its environments were made")],
)
def test_three_deaths_at_one_place_fail_a_task(make_bench, name, where):
    """By a signal, so without a traceback; the reason names the place."""
    bench = make_bench()
    run = bench.start([spec(bench, name)])
    row = run.end()[name]
    assert (row["state"], row["reason"]) == ("failed", f"collector 0 was lost too often: killed by signal 9 {where}")
    losses = check_laws(run.out).of(warmup.CollectorLost)
    assert [loss.where for loss in losses] == [where] * 3


@pytest.mark.slow
def test_a_round_that_was_left_unfinished_is_made_again_with_the_same_bits(make_bench):
    """Its environments can be frozen: a resume begins the round with them as it had found them."""
    bench = make_bench()
    task = spec(bench, "Leisurely", n_steps=128, steps=256) | {"eval_episodes": 0}
    assert task["can_snapshot"]
    alone = bench.start([task], run="alone")
    assert alone.end()["Leisurely"]["state"] == "done"
    run = bench.start([task])
    began(run, "Leisurely", version=2)
    bench.link.control("r1", "stop", task=None, reason="enough")
    assert run.end()["Leisurely"]["state"] == "stopped"
    again = bench.start([task], run="r1", resume=True)
    assert again.end()["Leisurely"]["state"] == "done"
    journal = check_laws(run.out)
    (left,) = journal.of(words.RoundUnfinished)
    assert left.round == 2
    assert not journal.of(words.EpisodesLost)
    assert _final_parameters(run.out, "Leisurely") == _final_parameters(alone.out, "Leisurely")

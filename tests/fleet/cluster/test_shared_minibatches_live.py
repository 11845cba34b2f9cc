"""Rounds of epochs whose minibatches two slots compute together, on real processes: parameters are those of one."""

import pytest
from safetensors.numpy import load_file

import drlnb
from drlnb.records import round as words
from drlnb.records.columns import batching, leasing
from drlnb.records.errors import JournalError
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

#: Rounds of 128 samples, in minibatches of 64; 4 rounds.
TASK = {"n_envs": 4, "n_collectors": 2, "n_steps": 32, "batch_size": 64, "total_timesteps": 4 * 128}


def trained(fleet, out, n_learners, **more):
    """Start to train a task."""
    task = drlnb.Task(
        "CartPole-v1", name="a", n_learners=n_learners, deterministic=False, eval_episodes=0, **{**TASK, **more}
    )
    return fleet.train(task, out=out)


def of(run, kind):
    """Return the rows of a kind so far."""
    try:
        return run.journal().of(kind)
    except JournalError:  # it has none yet
        return ()


def assert_alike(out, other):
    """Compare the parameters of two runs."""
    ours, theirs = [load_file(next((each / "checkpoints/a").glob("*/model.safetensors"))) for each in (out, other)]
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert abs(value - theirs[name]).max() <= 1e-5, name


@pytest.mark.parametrize(
    ("algo", "n_workers"), [pytest.param("ppo", 1, marks=pytest.mark.slow), pytest.param("gpf", 2)]
)
def test_two_slots_make_the_steps_of_one(tmp_path, algo, n_workers):
    """On one node, and on two."""
    with drlnb.Fleet(slots=2, n_workers=n_workers) as fleet:
        for k in (1, 2):
            trained(fleet, tmp_path / str(k), k, algo=algo, n_epochs=4).wait(timeout_s=60)
    assert_alike(tmp_path / "2", tmp_path / "1")
    journal = check_laws(tmp_path / "2")
    joined, splits = journal.of(batching.RoundJoined), journal.of(batching.SplitPlanned)
    assert {sum(split.sizes) for split in splits} == {128}
    assert len(joined) == sum(min(split.sizes) > 0 for split in splits) > 0
    assert not journal.of(words.LeaseLost, words.ExecutorDied)
    assert not check_laws(tmp_path / "1").of(batching.SplitPlanned)


@pytest.mark.parametrize(
    ("who", "how"),
    [
        ("member", "kill"),
        pytest.param("lead", "kill", marks=pytest.mark.slow),
        pytest.param("lead", "suspend", marks=pytest.mark.slow),
        pytest.param("member", "suspend", marks=pytest.mark.slow),
    ],
)
def test_who_goes_in_the_midst_of_a_round_changes_no_step(tmp_path, who, how):
    """Killed, or stopped: the other one is not left waiting, and the round is made anew under the next lease."""
    slow = {"algo": "gpf", "n_epochs": 400, "reward_scale": 0.1}
    with drlnb.Fleet(slots=2, n_workers=1) as fleet:
        fleet.set("leasing.compute_timeout_s", 2.0)
        run = trained(fleet, tmp_path / "gang", 2, **slow)
        n_made = len(wait_until(lambda: of(run, batching.RoundJoined), "a round of both"))
        finish = wait_until(lambda: of(run, words.FinishRound)[n_made:], "another round")[0]
        slot = finish.members[who == "member"]
        (victim,) = titled(f"drlnb executor {slot}", fleet.pool.handle.pid)
        getattr(victim, how)()
        assert run.wait(timeout_s=60)["a"].state == "done"
        trained(fleet, tmp_path / "alone", 1, **slow).wait(timeout_s=60)
    assert_alike(tmp_path / "gang", tmp_path / "alone")
    journal = check_laws(tmp_path / "gang")
    lost = {event.fence for event in journal.of(words.ExecutorDied, words.LeaseLost)}
    assert lost
    assert len(journal.of(words.ParametersCommitted)) == 5
    assert {2} <= {len(lease.slots) for lease in journal.of(leasing.LeaseGranted)}

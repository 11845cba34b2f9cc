"""DQN on a real cluster: the ring is a process of its own, and what is learnt is what one process learns."""

import contextlib

import psutil
import pytest
import torch

from drlnb.records import replay
from drlnb.records import round as words
from drlnb.records.spec import RlWork
from drlnb.rl.local.train import train_local
from drlnb.runtime.master.checkpoint_effects import read_newest
from tests.runtime.laws import check_laws
from tests.runtime.live import titled, wait_until

pytestmark = pytest.mark.cluster

#: 40 rounds of 32 transitions; the first three are spent before learning starts.
HYPER = {
    "n_envs": 4,
    "train_freq": 8,
    "gradient_steps": 4,
    "learning_starts": 100,
    "buffer_size": 500,
    "target_update_interval": 100,
    "policy_kwargs": {"net_arch": [32, 32]},
}


@pytest.fixture
def local():
    """Train the same spec in this process, with one thread as in the executor."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield lambda plain: train_local(RlWork.from_plain(plain))
    torch.set_num_threads(before)


def _final(out, plain):
    found = read_newest(out / "checkpoints" / "a", RlWork.from_plain(plain))
    return found[0].state.published.tobytes()


def _libraries(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(region.path for region in psutil.Process(pid).memory_maps())
    return ""


def test_a_cluster_learns_what_one_process_learns(make_bench, local):
    """Bitwise the local run's parameters; no lease before learning starts; the ring's process loads no torch."""
    bench = make_bench()
    task = bench.spec("a", algo="dqn", steps=1280, **HYPER)
    run = bench.start([task])
    run.round(5)
    bench.note()
    (ring,) = titled("drlnb replay a", bench.handle.pid)
    assert "libtorch" not in _libraries(ring.pid)
    assert run.end()["a"]["state"] == "done"
    journal = check_laws(run.out)
    # Rounds 1 to 3 end with 32, 64 and 96 transitions, not more than 100.
    assert [r.round for r in journal.of(replay.UpdateSkipped)] == [1, 2, 3]
    assert [r.round for r in journal.of(words.RequestSlot)] == [0, *range(4, 41)]
    expected = local(task)
    assert _final(run.out, task) == expected.parameters.tobytes()
    told = journal.of(words.MetricsRecorded)
    for name in ("train/loss", "train/replay_ratio", "rollout/exploration_rate", "replay/size"):
        assert told[-1].metrics[name] == expected.metrics[-1][name], name


def test_a_killed_ring_restarts_the_task_from_its_checkpoint(make_bench, local):
    """After SIGKILL attempt 2 goes on from the checkpoint, ring included, to the parameters of no kill at all."""
    bench = make_bench(n_workers=2)
    task = bench.spec("a", algo="dqn", steps=1280, **HYPER)
    run = bench.start([task], settings={"checkpoint_min_s": 0.0, "checkpoint_every": 5})
    newest = run.out / "checkpoints" / "a" / "LATEST"
    wait_until(lambda: newest.is_file() and int(newest.read_text()) >= 15, "a checkpoint of round 15")
    bench.note()
    titled("drlnb replay a", bench.handle.pid)[0].kill()
    assert run.end()["a"]["state"] == "done"
    journal = check_laws(run.out)
    first, second = (journal.streams[f"task-a-a{attempt}"] for attempt in (1, 2))
    assert first.of(replay.ReplayLost)[0].reason == "killed by signal 9"
    assert first.of(replay.RestartTask)
    opened = second.of(words.TaskOpened)[0]
    assert opened.n_rounds % 5 == 0
    assert opened.n_rounds >= 15
    assert second.of(replay.ReplayReady)[0].n_transitions == min(500, 32 * opened.n_rounds)
    assert _final(run.out, task) == local(task).parameters.tobytes()

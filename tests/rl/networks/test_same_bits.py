"""What is set on CUDA while a task computes whose bits are promised, and that it is put back."""

import pytest
import torch

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms import learner
from drlnb.rl.algorithms.registry import make_learner
from drlnb.rl.collecting.collector import Collector
from drlnb.rl.networks.same_bits import same_kernels
from tests.fleet.conftest import small_task

KERNELS = torch.backends.cudnn


def modes():
    return (
        torch.get_deterministic_debug_mode(),
        torch.get_float32_matmul_precision(),
        (KERNELS.deterministic, KERNELS.benchmark, KERNELS.allow_tf32),
    )


@pytest.fixture
def users_own(monkeypatch):
    """Have the modes of a user who likes speed; they come back as they were."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with KERNELS.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        yield modes()
    torch.set_float32_matmul_precision(before)


def test_on_cuda_kernels_are_deterministic_and_whole_and_then_as_before(users_own):
    """Where there is no such kernel torch warns, by its name, instead of failing."""
    assert users_own == (0, "high", (False, True, True))
    with same_kernels(torch.device("cuda")):
        assert modes() == (1, "highest", (True, False, False))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert modes() == users_own
    with pytest.raises(KeyError), same_kernels(torch.device("cuda", 1)):
        raise KeyError
    assert modes() == users_own


@pytest.mark.parametrize(("device", "wanted"), [("cpu", True), ("cuda", False)])
def test_elsewhere_nothing_is_set(users_own, device, wanted):
    """A CPU computes the same bits anyway; a task that need not be deterministic keeps what the user likes."""
    with same_kernels(torch.device(device), wanted):
        assert modes() == users_own


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_round_computes_so_if_its_task_is_deterministic(monkeypatch, deterministic):
    """At the arrival of a fragment and in the steps."""
    spec = RlWork.from_plain(small_task().to_plain() | {"deterministic": deterministic})
    seen = []
    monkeypatch.setattr(learner, "same_kernels", lambda *how: seen.append(how) or same_kernels(*how))
    made = make_learner(spec)
    collector = Collector(spec, env_indices=tuple(range(spec.n_envs)))
    made.begin(1, 64)
    made.stage(0, collector.collect(made.published(), version=1, round=1, n_steps=16, n_timesteps=0))
    assert seen == [(made.device, deterministic)]
    made.finish()
    assert seen == [(made.device, deterministic)] * 2
    collector.close()


def test_a_round_that_fails_after_its_steps_is_undone_too(monkeypatch):
    """Its metrics cannot be computed: parameters, statistics and counts are those before, and it can be finished."""
    spec = RlWork.from_plain(small_task().to_plain())
    made = make_learner(spec)
    collector = Collector(spec, env_indices=tuple(range(spec.n_envs)))
    made.begin(1, 64)
    made.stage(0, collector.collect(made.published(), version=1, round=1, n_steps=16, n_timesteps=0))
    facts, before = made.state()

    def full(*_):
        raise torch.OutOfMemoryError

    with monkeypatch.context() as tight:
        tight.setattr(made, "_metrics", full)
        with pytest.raises(torch.OutOfMemoryError):
            made.finish()
    assert made.state()[0] == facts
    assert made.state()[1].tobytes() == before.tobytes()
    assert made.finish()["train/n_updates"] == facts["n_updates"] + made.settings.n_epochs
    collector.close()

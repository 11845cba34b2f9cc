"""Tests of half-done rounds: what is staged leaves one learner and goes on in another with the same bits."""

import numpy as np
import pytest

from drlnb.records.spec import RlWork
from drlnb.rl.algorithms.registry import make_learner, settings_of
from drlnb.rl.collecting.collector import Collector, split_envs
from drlnb.rl.fragments import Fragment

HYPER = {"n_epochs": 1, "batch_size": 64}


def fragments(spec: RlWork, parameters: np.ndarray) -> list[Fragment]:
    """Return a round's fragments of two collectors."""
    found = []
    for share in split_envs(spec.n_envs, 2):
        collector = Collector(spec, env_indices=share)
        found.append(collector.collect(parameters, version=1, round=1, n_steps=16))
        collector.close()
    return found


@pytest.fixture
def make_streaming(make_spec):
    """Build a task whose gradients are computed at arrival."""

    def make(algo: str, **given) -> RlWork:
        spec = make_spec(**HYPER, **given)
        more = {"reward_scale": 0.1, "n_action_samples": 5} if algo == "gpf" else {"ent_coef": 0.01}
        plain = spec.to_plain() | {"algo": algo, "hyperparameters": {**spec.hyperparameters, **more}}
        return RlWork.from_plain(plain)

    return make


@pytest.mark.parametrize(("n_epochs", "compute"), [(1, "stream"), (4, "epochs")])
@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_a_round_goes_on_elsewhere_with_the_same_bits(algo, n_epochs, compute, make_streaming):
    """Staged here, packed as bytes, staged there, normalised too: step and statistics are those of one learner.

    Also where a user has asked for more passes meanwhile: then gradients are computed at the end of the round.
    """
    spec = make_streaming(algo, normalize=True)
    assert settings_of(spec).streams(spec.n_envs)
    here, there, whole = (make_learner(spec) for _ in range(3))
    first, second = fragments(spec, whole.published())
    for learner in (here, there, whole):
        learner.set("n_epochs", n_epochs)
        learner.begin(1, 64)
        assert learner.compute == compute
    here.stage(0, first)
    part = here.export_partial(first.header["env_indices"]).to_bytes()
    assert isinstance(part, bytes)
    there.stage(1, second)
    there.import_partial(Fragment.from_bytes(part))
    whole.stage(0, first)
    whole.stage(1, second)
    assert there.finish() == whole.finish()
    assert there.state()[1].tobytes() == whole.state()[1].tobytes()


@pytest.mark.parametrize("algo", ["ppo", "gpf"])
def test_a_part_is_arrays_and_a_plain_header(algo, make_streaming):
    """Every array is numpy's own kind under INDEX/NAME; the header says round and environments."""
    spec = make_streaming(algo)
    learner = make_learner(spec)
    learner.begin(1, 64)
    (first, _) = fragments(spec, learner.published())
    learner.stage(0, first)
    part = learner.export_partial(first.header["env_indices"])
    assert part.header == {"round": 1, "env_indices": [0, 1]}
    assert {key.partition("/")[0] for key in part.arrays} == {"0", "1"}
    assert all(array.dtype.kind in "fiub" for array in part.arrays.values())


def test_a_part_is_staged_once(make_streaming):
    """Its environments are named when they are there already."""
    spec = make_streaming("ppo")
    learner = make_learner(spec)
    learner.begin(1, 64)
    first, _ = fragments(spec, learner.published())
    learner.stage(0, first)
    with pytest.raises(ValueError, match=r"environments \[0, 1\] again in round 1"):
        learner.import_partial(learner.export_partial([0, 1]))

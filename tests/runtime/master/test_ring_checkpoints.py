"""A replay ring is written in parts: each checkpoint writes what is new, and all of it can be read back from any."""

import asyncio

import numpy as np
import pytest
from safetensors.numpy import save

from drlnb.rl.algorithms.replay import ReplayRing
from drlnb.rl.checkpoints.files import REPLAY, _unpacked_replay
from drlnb.rl.fragments import Fragment
from drlnb.runtime.master.checkpoint_effects import CheckpointEffects

N_ROWS = 500


class Written:
    """What checkpoints of one attempt hold of a ring of 500 rows and two environments."""

    def __init__(self):
        self.ring, self.steps = ReplayRing(2 * N_ROWS, 2, (3,), np.float32), 0
        self.effects = CheckpointEffects(None, None, None, self._state)
        self.files, self.headers, self.bytes = {}, {}, {}

    async def _state(self, since):
        state = self.ring.state(since)
        return Fragment.unpack(*Fragment({**state.header, "target_step": self.steps}, state.arrays).pack())

    def play(self, n):
        obs = np.random.default_rng(self.steps).normal(size=(n + 1, 2, 3)).astype(np.float32)
        zeros = np.zeros((n, 2))
        arrays = {
            "obs": obs[:-1], "last_obs": obs[-1], "action": zeros.astype(int), "reward": zeros, "terminated": zeros > 0,
            "final_obs": obs[0, :0], "final_at": np.zeros((0, 2), np.int32),
        }  # fmt: skip
        self.ring.add(Fragment({"env_indices": [0, 1]}, arrays), first_step=self.steps)
        self.steps += n

    def checkpoint(self, n_rounds):
        fragment = asyncio.run(self.effects._replay(n_rounds))
        self.files[n_rounds] = save({name: np.ascontiguousarray(a) for name, a in fragment.arrays.items()})
        self.headers[n_rounds], self.bytes[n_rounds] = fragment.header, len(self.files[n_rounds])

    def needs(self, n_rounds):
        return [int(name.split("/")[1]) for name in self.headers[n_rounds]["before"]]

    def read(self, n_rounds):
        blobs = {f"../{n}/{REPLAY}": self.files[n] for n in self.needs(n_rounds)} | {REPLAY: self.files[n_rounds]}
        again = ReplayRing(2 * N_ROWS, 2, (3,), np.float32)
        again.restore(_unpacked_replay(self.headers[n_rounds], blobs))
        return again


def same(ring, other):
    """Whether two rings hold the same; the order of what was set aside is nobody's."""
    first, second = (each.state().arrays for each in (ring, other))
    order = [np.lexsort(arrays["aside_at"].T) for arrays in (first, second)]
    for name in ("aside_at", "aside"):
        first[name], second[name] = first[name][order[0]], second[name][order[1]]
    return all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.thorough
@pytest.mark.parametrize("full", [False, True])
def test_each_checkpoint_writes_what_is_new(full):
    """Of 64 checkpoints with 10 new rows each, two windows' worth: few files, a sixth of the bytes, all exact."""
    written = Written()
    written.play(N_ROWS if full else 200)
    for n in range(1, 65):
        written.checkpoint(n)
        assert len(written.needs(n)) <= 7
        if n % 9 == 0 or n > 60:
            assert same(written.read(n), written.ring)
        written.play(10)
    whole = 64 * max(written.bytes.values())
    assert sum(written.bytes.values()) < whole / 6
    assert written.bytes[2] < written.bytes[1] / 8


def test_the_same_round_again_replaces_its_own_part():
    """A best checkpoint follows the periodic one into the same folder: it needs nothing that lay there."""
    written = Written()
    for n in (1, 2, 3, 3, 4, 4, 4, 5):
        written.play(50)
        written.checkpoint(n)
        assert n not in written.needs(n)
        assert same(written.read(n), written.ring)


def test_what_could_not_be_written_is_no_part():
    """After a failure of the disk the next one is whole again."""
    written = Written()
    for n in (1, 2, 3):
        written.play(50)
        written.checkpoint(n)
    written.effects._parts.clear()
    written.play(50)
    written.checkpoint(4)
    assert written.needs(4) == []
    assert not written.headers[4]["part"]
    assert same(written.read(4), written.ring)


@pytest.mark.parametrize("header", [{"target_step": 0, "left_out_bytes": 5}])
def test_a_ring_that_is_left_out_has_no_parts(header):
    """Nor has a task without one."""
    for given in (Fragment(header, {}), None):

        async def state(since, given=given):
            assert since is None
            return given

        assert asyncio.run(CheckpointEffects(None, None, None, state)._replay(1)) is given

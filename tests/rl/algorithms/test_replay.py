"""The replay ring: it gives back what was put in, over every cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drlnb.rl.algorithms.replay import MAX_SAVED_BYTES, Replay, ReplayRing
from drlnb.rl.fragments import Fragment


class Story:
    """Environments whose every observation is a new number, so that each transition can be told from its values."""

    def __init__(self, n_envs: int) -> None:
        self.current = [1000.0 * env for env in range(n_envs)]
        #: Per environment, oldest first: observation, action, reward, end, next observation (None after a true end).
        self.transitions: list[list[tuple]] = [[] for _ in range(n_envs)]
        self.fresh = 1e6

    def jump(self, env: int) -> None:
        """Start an environment anew without an end, as a collector without a snapshot does."""
        self.fresh += 1000.0
        self.current[env] = self.fresh

    def play(self, envs: list[int], ends: list[list[str]]) -> Fragment:
        """Return a fragment; ``ends[t][column]`` is "", "terminated" or "truncated"."""
        n_steps, n = len(ends), len(envs)
        arrays = {
            "obs": np.zeros((n_steps, n, 1), np.float32),
            "action": np.zeros((n_steps, n), np.int64),
            "reward": np.zeros((n_steps, n), np.float32),
            "terminated": np.zeros((n_steps, n), np.bool_),
        }
        finals, places = [], []
        for t in range(n_steps):
            for column, env in enumerate(envs):
                obs, after, how = self.current[env], self.current[env] + 1.0, ends[t][column]
                action, reward = len(self.transitions[env]) % 3, obs / 7.0
                arrays["obs"][t, column], arrays["action"][t, column] = obs, action
                arrays["reward"][t, column], arrays["terminated"][t, column] = reward, how == "terminated"
                following = None if how == "terminated" else after
                self.transitions[env].append((obs, action, np.float32(reward), how == "terminated", following))
                self.current[env] = after
                if how:
                    self.jump(env)
                if how == "truncated":
                    finals.append([after])
                    places.append((t, column))
        arrays["last_obs"] = np.array([[self.current[env]] for env in envs], np.float32)
        arrays["final_obs"] = np.array(finals, np.float32).reshape(-1, 1)
        arrays["final_at"] = np.array(places, np.int32).reshape(-1, 2)
        return Fragment({"env_indices": envs, "n_samples": n_steps * n}, arrays)

    def latest(self, n_rows: int) -> set[tuple]:
        """Return what a ring of so many rows must hold."""
        return {transition for column in self.transitions for transition in column[-n_rows:]}


def drawn(ring: ReplayRing, n: int = 400) -> set[tuple]:
    rows = ring.draw((n,), np.random.default_rng(0))
    names = ("obs", "action", "reward", "terminated", "next_obs")
    found = set()
    for obs, action, reward, end, following in zip(*(rows[name] for name in names), strict=True):
        found.add((obs.item(), action.item(), reward, end.item(), None if end else following.item()))
    return found


HOW = st.sampled_from(["", "", "", "terminated", "truncated"])


@st.composite
def stories(draw):
    n_envs = draw(st.integers(1, 3))
    rounds = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    ends = [[[draw(HOW) for _ in range(n_envs)] for _ in range(n)] for n in rounds]
    jumps = [draw(st.booleans()) for _ in rounds]
    return n_envs, draw(st.integers(1, 8)), ends, jumps


@settings(max_examples=25, deadline=None)
@given(stories())
def test_the_ring_returns_exactly_the_latest_transitions(story):
    """Any ends, wraps and restarts: what is drawn is what was put in last, each with the observation it led to."""
    n_envs, n_rows, rounds, jumps = story
    told, ring, step = Story(n_envs), ReplayRing(n_rows * n_envs, n_envs, (1,), np.float32), 0
    for ends, jump in zip(rounds, jumps, strict=True):
        ring.add(told.play(list(range(n_envs)), ends), first_step=step)
        step += len(ends)
        assert drawn(ring) <= told.latest(n_rows)
        if jump:
            told.jump(0)
    assert ring.size == len(told.latest(n_rows))
    assert drawn(ring, 40 * ring.size) == told.latest(n_rows)


def test_a_time_limit_leads_to_its_last_observation_and_no_end_crosses_the_write_head():
    """By hand, ring of 3: 10 -> 11 (cut at 11), 20 -> 21, 21 -> 22 (newest); its next row in memory holds 10."""
    ring = ReplayRing(3, 1, (1,), np.float32)
    arrays = {
        "obs": np.array([[[10.0]], [[20.0]], [[21.0]]], np.float32),
        "action": np.zeros((3, 1), np.int64),
        "reward": np.ones((3, 1), np.float32),
        "terminated": np.zeros((3, 1), np.bool_),
        "last_obs": np.array([[22.0]], np.float32),
        "final_obs": np.array([[11.0]], np.float32),
        "final_at": np.array([[0, 0]], np.int32),
    }
    ring.add(Fragment({"env_indices": [0]}, arrays), first_step=0)
    assert {(a, d) for a, _, _, _, d in drawn(ring)} == {(10.0, 11.0), (20.0, 21.0), (21.0, 22.0)}


def test_draws_are_uniform_and_keyed():
    """4000 draws of 8 transitions in 2 columns: each 400 to 600 times; the same key gives the same draws."""
    told, ring = Story(2), ReplayRing(8, 2, (1,), np.float32)
    ring.add(told.play([0, 1], [["", ""]] * 4), first_step=0)
    obs = ring.draw((4000,), np.random.default_rng(1))["obs"]
    _, counts = np.unique(obs, return_counts=True)
    assert len(counts) == 8
    assert counts.min() >= 400
    assert counts.max() <= 600
    assert np.array_equal(ring.draw((4000,), np.random.default_rng(1))["obs"], obs)


def test_the_split_over_fragments_does_not_matter():
    """One fragment of 3 environments, or two in either order: the same draws, bit for bit."""
    results = []
    for shares in ([[0, 1, 2]], [[0, 1], [2]], [[2], [0, 1]]):
        ring, told = ReplayRing(12, 3, (1,), np.float32), Story(3)
        for share in shares:
            ring.add(told.play(share, [["", "truncated", ""][: len(share)]] * 3), first_step=0)
        results.append(ring.draw((50,), np.random.default_rng(2)))
    # Fresh observations after a cut are numbered in the order of play: compare what does not depend on it.
    for name in ("action", "terminated", "made"):
        assert all(np.array_equal(found[name], results[0][name]) for found in results)


def test_a_restored_ring_draws_the_same():
    """State through its packed bytes, then more experience on both sides: equal draws."""
    told, ring = Story(2), ReplayRing(10, 2, (1,), np.float32)
    ring.add(told.play([0, 1], [["", "truncated"], ["truncated", ""]] * 3), first_step=0)
    other = ReplayRing(10, 2, (1,), np.float32)
    other.restore(Fragment.unpack(*ring.state().pack()))
    more = told.play([0, 1], [["truncated", ""]] * 4)
    for each in (ring, other):
        each.add(more, first_step=6)
    first, second = (each.draw((64,), np.random.default_rng(3)) for each in (ring, other))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@given(st.data())
def test_parts_one_over_the_other_are_the_whole(data):
    """Whatever came between them, jumps included: a ring that loads them in order draws as the one that was saved."""
    n_rows, told = data.draw(st.integers(1, 12)), Story(2)
    ring, parts, steps = ReplayRing(2 * n_rows, 2, (1,), np.float32), [], 0
    ends = st.lists(st.lists(st.sampled_from(["", "", "terminated", "truncated"]), min_size=2, max_size=2), min_size=1)
    for played in data.draw(st.lists(ends, min_size=1, max_size=5)):
        if data.draw(st.booleans()):
            told.jump(data.draw(st.integers(0, 1)))
        ring.add(told.play([0, 1], played), first_step=steps)
        steps += len(played)
        part = ring.state(parts[-1].arrays["put"].tolist() if parts else None)
        assert part.header["part"] == (bool(parts) and len(played) + 1 < min(steps, n_rows))
        assert len(part.arrays["made"]) <= (len(played) + 1 if part.header["part"] else n_rows)
        parts = [*(parts if part.header["part"] else []), Fragment.unpack(*part.pack())]
    again = ReplayRing(2 * n_rows, 2, (1,), np.float32)
    for part in parts:
        again.restore(part)
    whole, other = ring.state().arrays, again.state().arrays
    for name in ("obs", "action", "reward", "terminated", "cut", "made", "last", "put"):
        np.testing.assert_array_equal(whole[name], other[name])
    first, second = (
        dict(zip(map(tuple, of["aside_at"].tolist()), of["aside"].tolist(), strict=True)) for of in (whole, other)
    )
    assert first == second


def test_environments_that_advance_unequally_lose_nothing():
    """A part goes back as far as the one that has most that is new."""
    told, ring = Story(2), ReplayRing(20, 2, (1,), np.float32)
    ring.add(told.play([0, 1], [["", ""]] * 6), first_step=0)
    first = Fragment.unpack(*ring.state().pack())
    ring.add(told.play([1], [["truncated"]] * 3), first_step=6)
    second = ring.state(first.arrays["put"].tolist())
    assert (second.header["part"], len(second.arrays["made"])) == (True, 4)
    again = ReplayRing(20, 2, (1,), np.float32)
    for part in (first, second):
        again.restore(part)
    assert drawn(again) == drawn(ring) == told.latest(10)


def test_images_keep_their_type_and_the_state_holds_written_rows_only():
    """uint8 stays uint8; 3 of 1000 rows written: the state holds 3."""
    ring = ReplayRing(1000, 1, (2, 2), np.uint8)
    arrays = {
        "obs": np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2),
        "action": np.zeros((3, 1), np.int64),
        "reward": np.ones((3, 1), np.float32),
        "terminated": np.zeros((3, 1), np.bool_),
        "last_obs": np.full((1, 2, 2), 99, np.uint8),
        "final_obs": np.zeros((0, 2, 2), np.uint8),
        "final_at": np.zeros((0, 2), np.int32),
    }
    ring.add(Fragment({"env_indices": [0]}, arrays), first_step=0)
    rows = ring.draw((9,), np.random.default_rng(0))
    assert rows["obs"].dtype == rows["next_obs"].dtype == np.uint8
    assert ring.state().arrays["obs"].shape == (3, 1, 2, 2)


def test_what_cannot_be_is_refused():
    """An empty ring, an environment out of range, another ring's state: each says what it holds."""
    ring = ReplayRing(4, 2, (1,), np.float32)
    with pytest.raises(ValueError, match="ring is empty"):
        ring.draw((1,), np.random.default_rng(0))
    with pytest.raises(ValueError, match="environments 0 to 1, got 2"):
        ring.add(Story(3).play([2], [[""]]), first_step=0)
    with pytest.raises(ValueError, match=r"\(4, 1\) rows and environments .* needs \(2, 2\)"):
        ring.restore(ReplayRing(4, 1, (1,), np.float32).state())


@pytest.fixture
def spec(make_dqn_spec):
    return make_dqn_spec("rl/Clock-v0", n_envs=2, train_freq=4, learning_starts=8, target_update_interval=6)


def test_a_round_learns_only_after_learning_starts(spec):
    """8 transitions per round, learning starts after 8: round 1 makes no gradient step, round 2 makes one."""
    replay, told = Replay(spec), Story(2)
    first = replay.take([told.play([0, 1], [["", ""]] * 4)], round=1, n_timesteps=0)
    assert first.header["n_gradient_steps"] == 0
    assert not first.arrays
    second = replay.take([told.play([0, 1], [["", ""]] * 4)], round=2, n_timesteps=8)
    assert second.header["n_gradient_steps"] == 1
    assert second.header["n_timesteps"] == 16
    # Every max(6 // 2, 1) = 3 vector steps: 2 in the first 8, none of them told before.
    assert second.header["n_target_updates"] == 2
    assert second.header["metrics"]["train/replay_ratio"] == 1 / 8
    assert second.arrays["obs"].shape == (1, 16, 1)


def test_a_ring_that_is_not_saved_is_filled_again(spec, monkeypatch):
    """Too large to be saved: the state says how much is missing, and learning waits for learning_starts once more."""
    replay, told = Replay(spec), Story(2)
    for number in (1, 2):
        replay.take([told.play([0, 1], [["", ""]] * 4)], round=number, n_timesteps=8 * (number - 1))
    monkeypatch.setattr("drlnb.rl.algorithms.replay.MAX_SAVED_BYTES", 10)
    state = Fragment.unpack(*replay.state().pack())
    assert not state.arrays
    again = Replay(spec)
    assert again.restore(state) == replay.ring.n_bytes > 10
    third = again.take([told.play([0, 1], [["", ""]] * 4)], round=3, n_timesteps=16)
    assert third.header["n_gradient_steps"] == 0
    fourth = again.take([told.play([0, 1], [["", ""]] * 4)], round=4, n_timesteps=24)
    assert fourth.header["n_gradient_steps"] == 1
    assert fourth.header["n_target_updates"] == 16 // 3 - 8 // 3
    assert MAX_SAVED_BYTES == 1 << 30

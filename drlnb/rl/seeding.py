"""Draw random numbers from counters, never from a place or an order.

Every draw belongs to a key ``(seed, stream, counters...)``: environment index, round, epoch or episode.  Neither the
name of a task nor the split of environments over collectors enters, so neither changes a result, and a resumed run
needs counters only.
"""

import random

import numpy as np

from drlnb.rl.heads import Noise

__all__ = [
    "ACT",
    "ENV",
    "EVAL",
    "EXPLORE",
    "INIT",
    "NETWORK",
    "REPLAY",
    "SHUFFLE",
    "NoiseStreams",
    "generator",
    "reset_seed",
    "seed_globals",
]

#: Streams; numbers are part of the meaning of a seed: append only.
ENV, ACT, EXPLORE, SHUFFLE, REPLAY, EVAL, INIT, _GLOBAL, NETWORK = range(9)

#: Smallest exponential deviate: its Gumbel value stays finite (690) and below float32's limit.
_LEAST = 1e-300


def _sequence(seed: int, stream: int, *counters: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(stream, *counters))


def reset_seed(seed: int, stream: int, *counters: int) -> int:
    """Return the 32-bit seed of one environment reset.

    Parameters
    ----------
    seed
        The task's seed.
    stream
        One of this module's streams.
    *counters
        Environment index, round, episode, ...

    Returns
    -------
    int
        In ``[0, 2**32)``.
    """
    return int(_sequence(seed, stream, *counters).generate_state(1)[0])


def generator(seed: int, stream: int, *counters: int) -> np.random.Generator:
    """Return a fresh counter-based generator for one key (Philox)."""
    return np.random.Generator(np.random.Philox(_sequence(seed, stream, *counters)))


def seed_globals(seed: int, *counters: int) -> None:
    """Seed the global generators of numpy and :mod:`random`, which some environments draw from.

    Only for processes that hold nothing but environments: processes of one fork begin with equal generators.

    Parameters
    ----------
    seed
        The task's seed.
    *counters
        First environment index, attempt, number of the process.
    """
    drawn = _sequence(seed, _GLOBAL, *counters).generate_state(8)
    random.seed(drawn.tobytes())
    np.random.seed(drawn)  # noqa: NPY002 - the old interface is the one that has a global generator


class NoiseStreams:
    """Acting noise of several environments, one block per environment and round.

    A block's first rows do not depend on how many rows are drawn, and nothing is kept between rounds.

    Parameters
    ----------
    seed
        The task's seed.
    stream
        `ACT` in training, `EVAL` in evaluation.
    indices
        Environment (or episode) numbers, one stream each.
    """

    def __init__(self, seed: int, stream: int, indices: tuple[int, ...]) -> None:
        self._keys = [np.asarray(_sequence(seed, stream, i).generate_state(2, np.uint64), np.uint64) for i in indices]
        self._bits = np.random.Philox(0)
        self._fresh, self._rng = self._bits.state, np.random.Generator(self._bits)

    def block(self, position: int, round: int, shape: tuple[int, int], *, noise: Noise) -> np.ndarray:
        """Return the noise of one environment for one round.

        Parameters
        ----------
        position
            Place of the environment in `indices`.
        round
            Number of the round, at least 0.
        shape
            Steps of the round and width: one number per output of the policy.
        noise
            Gumbel(0, 1), logistic(0, 1) or standard normal deviates.

        Returns
        -------
        ndarray
            float32, of `shape`, dimensionless.
        """
        counter = np.array([0, 0, 0, round], np.uint64)  # word 3 = round: blocks of two rounds cannot overlap
        self._bits.state = {**self._fresh, "state": {"counter": counter, "key": self._keys[position]}}
        if noise == "gumbel":
            return -np.log(_exponential(self._rng, shape)).astype(np.float32)
        if noise == "logistic":  # the difference of two Gumbel deviates; drawn in pairs, so that rows come in order
            pairs = np.log(_exponential(self._rng, (*shape, 2)))
            return (pairs[..., 0] - pairs[..., 1]).astype(np.float32)
        return self._rng.standard_normal(shape).astype(np.float32)


def _exponential(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.maximum(rng.standard_exponential(shape), _LEAST)

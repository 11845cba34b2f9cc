"""Train the network that travels with :mod:`drlnb.learned.batching`, and write it beside how it was made.

``python -m benchmarks.batching.weights [--seed S]`` takes half a minute on a quiet core.  Training draws gangs of 6, 8
or 10 members; one episode in seven has no contention, two each are memoryless, periodic and correlated.  Its traces
have seeds from 1,000,000 on: benchmarks have 0 to 4, and periods that training has not.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import drlnb.learned.batching
from drlnb.learned.batching.features import features
from drlnb.learned.batching.network import Array
from drlnb.learned.batching.planner import after_report, histories
from drlnb.learned.batching.train import Weights, train
from drlnb.planning.batching import BatchReport
from drlnb.sim.batching.traces import Contention

__all__ = ["FAMILIES", "FIRST_SEED", "MEMBERS", "PERIODS", "SPLITS", "Foreseen", "episodes", "main", "trained"]

#: Splits of all training, and of one episode.
SPLITS, EPISODE = 24_000, 600
#: Members of an episode.
MEMBERS = (6, 8, 10)
#: Families by weight.
FAMILIES = {"static": 1, "memoryless": 2, "periodic": 2, "correlated": 2}
#: Splits of a period.
PERIODS = (8, 9, 11, 12, 14, 15, 16)
#: Mean splits of a memoryless burst, and what is left of a speed: limits of what is drawn.
DWELL, SLOW = (2.0, 50.0), (0.25, 0.5)
#: Traces of training have seeds from here on.
FIRST_SEED = 1_000_000
#: Price of foreseeing too much, which makes everybody wait, and too little: per unit of the speed's logarithm.
OVER, UNDER = 3.0, 0.6
#: Where the weights of the package are.
FOLDER = Path(drlnb.learned.batching.__path__[0]) / "weights"


def drawn(rng: np.random.Generator) -> Contention:
    """Return the contention of one episode."""
    chance = np.array(list(FAMILIES.values())) / sum(FAMILIES.values())
    return Contention(
        family=str(rng.choice(list(FAMILIES), p=chance)),
        speeds=(100.0,) * int(rng.choice(MEMBERS)),
        n_splits=EPISODE,
        dwell=float(np.exp(rng.uniform(*np.log(DWELL)))),
        periods=PERIODS,
        slow_frac=float(rng.uniform(*SLOW)),
        seed=int(rng.integers(FIRST_SEED, 2**31)),
    )


class Foreseen:
    """An episode that rewards each member by how well its own speed was foreseen."""

    def __init__(self, trace: Contention) -> None:
        self.n_splits = trace.n_splits
        self._trace, self._split = trace, 0
        self._names = tuple(str(i) for i in range(len(trace.speeds)))
        self._memory: object = after_report(None, self._report(np.array(trace.speeds)))  # what a probe says

    def seen(self) -> Array:
        """Return the features of the splits so far."""
        return features(histories(self._memory, self._names))

    def split(self, performance: Array) -> Array:
        """Return each member's reward for the factor of its long-run speed that it was planned at."""
        self._memory = after_report(self._memory, self._report(self._trace.speeds_hz[self._split]))
        self._split += 1
        over = np.log(performance) - histories(self._memory, self._names)[-1]
        reward: Array = -(OVER * np.maximum(over, 0.0) + UNDER * np.maximum(-over, 0.0))
        return reward

    def _report(self, speeds_hz: Array) -> BatchReport:
        """Return a report of shares that took a second each."""
        n = len(self._names)
        return BatchReport(
            round=self._split,
            members=self._names,
            sizes=(100,) * n,
            n_done=(100,) * n,
            compute_s=tuple((100 / speeds_hz).tolist()),
            elapsed_s=(None,) * n,
            duration_s=1.0,
        )


def episodes(seed: int) -> Iterator[Foreseen]:
    """Yield episodes without end."""
    rng = np.random.default_rng([seed, 1])
    while True:
        yield Foreseen(drawn(rng))


def trained(seed: int) -> Weights:
    """Return the weights of a network of this seed."""
    return train(episodes(seed), SPLITS, seed)


def main(argv: list[str] | None = None) -> None:
    """Train a network and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batching.weights", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the network and of training (default 0)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: the package's)")
    args = parser.parse_args(argv)
    np.savez_compressed(args.out / "ddqn.npz", **trained(args.seed))  # type: ignore[arg-type]  # no array is called allow_pickle
    made = {
        "made_by": "python -m benchmarks.batching.weights",
        "seed": args.seed,
        "splits": SPLITS,
        "episode_splits": EPISODE,
        "members": MEMBERS,
        "families": FAMILIES,
        "periods": PERIODS,
        "dwell": DWELL,
        "slow_frac": SLOW,
        "reward": {"over": OVER, "under": UNDER},
        "trace_seeds_from": FIRST_SEED,
    }
    (args.out / "ddqn.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

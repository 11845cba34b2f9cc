"""Train the networks that travel with :mod:`drlnb.learned.batching`, and write each beside how it was made.

``python -m benchmarks.batching.weights [ddqn|patent] [--seed S]`` takes half a minute on a quiet core, or three.
Training draws gangs of 6, 8 or 10 members; one episode in seven has no contention, two each are memoryless, periodic
and correlated.  Its traces have seeds from 1,000,000 on: benchmarks have 0 to 4, and periods that training has not.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

import drlnb.learned.batching
from benchmarks.batching.episodes import OVER, QUORUM, REWARDS, UNDER, WEIGHTS, Foreseen, Gathered
from benchmarks.batching.training import Episode, Weights, train
from drlnb.sim.batching.play import Gang
from drlnb.sim.batching.traces import Contention

__all__ = ["FAMILIES", "FIRST_SEED", "MEMBERS", "PERIODS", "SPLITS", "drawn", "episodes", "main", "trained"]

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
#: Gradient noise scale in samples, of which a split has a hundred per member: limits of what is drawn.
NOISE = (64.0, 16_384.0)
UNITS_PER_MEMBER = 100
#: Traces of training have seeds from here on.
FIRST_SEED = 1_000_000
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


def episodes(seed: int, reward: str | None = None) -> Iterator[Episode]:
    """Yield episodes without end: of planner `ddqn`, or of `patent` with one of :data:`REWARDS`."""
    rng = np.random.default_rng([seed, 1])
    while True:
        trace = drawn(rng)
        if reward is None:
            yield Foreseen(trace)
            continue
        noise_scale = float(np.exp(rng.uniform(*np.log(NOISE))))
        n_units = UNITS_PER_MEMBER * len(trace.speeds)
        gang = Gang(n_units=n_units, quorum=QUORUM, late="drop", noise_scale=noise_scale)
        yield Gathered(trace, gang, REWARDS[reward])


def trained(seed: int, reward: str | None = None) -> Weights:
    """Return the weights of a network of this seed."""
    return train(episodes(seed, reward), SPLITS, seed)


#: Network -> what is special about how it was made.
_OWN: Mapping[str, dict[str, object]] = {
    "ddqn": {"reward": {"over": OVER, "under": UNDER}},
    "patent": {
        "reward": dict(zip(("time", "unused", "age"), WEIGHTS, strict=True)),
        "quorum": QUORUM,
        "late": "drop",
        "noise_scale": NOISE,
        "gradients": "drlnb.sim.batching.gradients",
    },
}


def main(argv: list[str] | None = None) -> None:
    """Train a network and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batching.weights", description=main.__doc__)
    parser.add_argument("name", nargs="?", choices=tuple(_OWN), default="ddqn", help="which network (default ddqn)")
    parser.add_argument("--seed", type=int, default=0, help="of the network and of training (default 0)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: the package's)")
    args = parser.parse_args(argv)
    weights = trained(args.seed, None if args.name == "ddqn" else "objectives")
    np.savez_compressed(args.out / f"{args.name}.npz", **weights)  # type: ignore[arg-type]  # no array is called allow_pickle
    made = {
        "made_by": f"python -m benchmarks.batching.weights{' patent' * (args.name == 'patent')}",
        "seed": args.seed,
        "splits": SPLITS,
        "episode_splits": EPISODE,
        "members": MEMBERS,
        "families": FAMILIES,
        "periods": PERIODS,
        "dwell": DWELL,
        "slow_frac": SLOW,
        **_OWN[args.name],
        "trace_seeds_from": FIRST_SEED,
    }
    (args.out / f"{args.name}.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

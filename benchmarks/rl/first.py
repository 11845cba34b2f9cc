"""Measure a user's first minutes: until a first round is learnt, and from which budget on a cluster pays."""

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.efforts import Peers
from benchmarks.frame.rows import Bar, Row, in_turn, pair_up
from benchmarks.rl.peers import WORKS, require_peer

__all__ = ["budget", "first_round"]

#: Steps of Stable-Baselines3's default round.
_ROUND = 2048
#: Budgets whose trainings are compared, in environment steps.
_BUDGETS = (25_000, 100_000, 200_000, 400_000)
_LONGEST_S = 900.0
_SCRIPT = 'from {package} import PPO\nPPO("MlpPolicy", "CartPole-v1", seed=0).learn({steps})\n'
_LEARN = """
import drlnb
if __name__ == "__main__":
    drlnb.PPO("MlpPolicy", {env!r}, seed=0, **{settings!r}).learn({steps}, local={local})
"""


def first_round(effort: Peers) -> Iterator[Row]:
    """Compare a script of two lines with the same of Stable-Baselines3, from the interpreter's start to its end."""
    require_peer()
    ways = {name: partial(_run, _SCRIPT.format(package=name, steps=_ROUND)) for name in ("drlnb", "stable_baselines3")}
    took = in_turn(effort.pairs, ways)
    yield Row(
        "first-round",
        'PPO("MlpPolicy", "CartPole-v1").learn(2048) in a fresh interpreter, start to exit',
        against="the same line of Stable-Baselines3",
        bar=Bar("ratio", 1.3),
        **pair_up(took["drlnb"], took["stable_baselines3"]),
    )


def budget(effort: Peers) -> Iterator[Row]:
    """Compare budgets that are trained in one process with the same on a cluster of two collectors."""
    work = {key: value for key, value in WORKS["cartpole"].items() if key != "total_timesteps"}
    env = work.pop("env")
    for steps in [effort.steps] if effort.steps else _BUDGETS:
        script = partial(_LEARN.format, env=env, settings=work, steps=steps)
        took = in_turn(
            min(effort.pairs, 3), {way: partial(_run, script(local=way == "local")) for way in ("local", "cluster")}
        )
        yield Row(
            f"budget-{steps}",
            f"{env}, {steps} steps in one process, start to exit",
            against="the same on a cluster: one slot, two collectors",
            **pair_up(took["local"], took["cluster"]),
        )


def _run(script: str) -> float:
    """Return the seconds that a script takes in a fresh interpreter."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=_LONGEST_S)
    return time.monotonic() - began

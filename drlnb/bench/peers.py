"""Which trainings are compared with Stable-Baselines3, under which settings, and how does one such process run?

Every setting is written out, so that no side falls back on a default of its own.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from drlnb.records.errors import MissingExtra, TrainingFailed
from drlnb.records.spec import TaskSpec
from drlnb.runtime.ipc.start_modes import child_environment

__all__ = ["WORKS", "Work", "own_spec", "permutation_p", "require_peer", "run_own", "run_peer", "start"]

#: Longest training of one process, in seconds.
_LONGEST_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One training, as both sides understand it."""

    env: str
    algo: str
    n_envs: int
    total_timesteps: int
    #: Under Stable-Baselines3's names; schedules as ``lin_x``.
    settings: Mapping[str, Any]
    seed: int = 0
    #: Deterministic episodes at the end.
    n_eval_episodes: int = 40

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "settings": dict(self.settings)}


#: What Stable-Baselines3's PPO does where an entry says nothing.
_PPO = {
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "n_epochs": 10,
    "batch_size": 64,
    "n_steps": 2048,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip_range": 0.2,
    "learning_rate": 3e-4,
    "normalize_advantage": True,
}

#: Row -> the training; settings are rl-baselines3-zoo's (hyperparams/ppo.yml), but for what a comment says.
WORKS: dict[str, Work] = {
    "cartpole": Work(
        env="CartPole-v1",
        algo="ppo",
        n_envs=8,
        total_timesteps=100_000,
        settings={
            **_PPO,
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 20,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
        },
    ),
    # A tenth of the zoo's million steps: returns are those of an unfinished training on both sides.
    "acrobot": Work(
        env="Acrobot-v1",
        algo="ppo",
        n_envs=16,
        total_timesteps=100_000,
        settings={**_PPO, "n_steps": 256, "n_epochs": 4, "gae_lambda": 0.94, "normalize": True},
    ),
    # Without state-dependent exploration, and 100,000 steps.
    "pendulum": Work(
        env="Pendulum-v1",
        algo="ppo",
        n_envs=4,
        total_timesteps=100_000,
        settings={**_PPO, "n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3},
    ),
}


def own_spec(work: Mapping[str, Any]) -> TaskSpec:
    """Return a piece of work as a task of ours, its spaces filled in."""
    from drlnb.rl.algorithms.resolve import resolve
    from drlnb.rl.envs.make import probe

    found = resolve(
        work["env"],
        work["algo"],
        overrides=work["settings"],
        n_envs=work["n_envs"],
        total_timesteps=work["total_timesteps"],
    )
    return TaskSpec(
        name=work["env"],
        env=work["env"],
        algo=work["algo"],
        seed=work["seed"],
        total_timesteps=found.total_timesteps,
        n_envs=found.n_envs,
        hyperparameters=found.hyperparameters,
        origin=found.origin,
        **probe(work["env"]),
    )


def require_peer() -> None:
    """Refuse to go on without Stable-Baselines3.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    from importlib.util import find_spec

    if find_spec("stable_baselines3") is None:
        raise MissingExtra('this row compares with stable-baselines3; install it with: pip install "drlnb[bench]"')


def start(module: str, work: Work) -> "subprocess.Popen[bytes]":
    """Start one side's process with one thread per library; its answer comes on standard output."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"drlnb.bench.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(CUDA_VISIBLE_DEVICES=""),
        start_new_session=True,  # Ctrl-C is ours to hear; the children are killed where they are awaited
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(work.to_plain()).encode())
    process.stdin.close()
    process.stdin = None
    return process


def answer(process: "subprocess.Popen[bytes]", longest_s: float = _LONGEST_S) -> dict[str, float]:
    """Wait so many seconds for a process and return what it measured.

    Raises
    ------
    TrainingFailed
        If it fails, or takes longer.
    """
    try:
        out, err = process.communicate(timeout=longest_s)
    except BaseException as error:
        process.kill()
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise TrainingFailed(f"{process.args[-1]} took more than {longest_s:.0f} s and was stopped") from None  # type: ignore[index]
        raise
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        raise TrainingFailed(f"{process.args[-1]} exited with {process.returncode}: {lines[-1] if lines else ''}")  # type: ignore[index]
    found: dict[str, float] = json.loads(out.decode().strip().splitlines()[-1])
    return found


def run_own(work: Work, longest_s: float = _LONGEST_S) -> dict[str, float]:
    """Train by drlnb in a fresh process, for so many seconds at most."""
    return answer(start("own_child", work), longest_s)


def run_peer(work: Work) -> dict[str, float]:
    """Train by Stable-Baselines3 in a fresh process."""
    return answer(start("sb3_child", work))


def permutation_p(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the two-sided p value of the difference of means under every relabelling (Fisher's exact test).

    Parameters
    ----------
    mine, theirs
        At least one value each; at most 20 together (184,756 relabellings).

    Raises
    ------
    ValueError
        If a side is empty, or there are too many values.

    Examples
    --------
    >>> permutation_p([1.0, 2.0], [3.0, 4.0])  # 2 of 6 relabellings are as far apart
    0.3333333333333333
    """
    pooled = [*mine, *theirs]
    if not mine or not theirs or len(pooled) > 20:
        raise ValueError(f"needs 1 value a side and at most 20 in all, got {len(mine)} and {len(theirs)}")
    total, n = sum(pooled), len(mine)

    def apart(part: float) -> float:
        return abs(part / n - (total - part) / (len(pooled) - n))

    seen = apart(sum(mine))
    all_ = [apart(sum(rows)) for rows in combinations(pooled, n)]
    return sum(one >= seen - 1e-9 for one in all_) / len(all_)

"""The other side of ``drlnb bench rl``: one Stable-Baselines3 training in one process, as its own users run it.

Reads a :class:`~drlnb.bench.peers.Work` as JSON from standard input, trains, evaluates, and prints what it measured.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["main"]


class _Clock:
    """Seconds spent in a method, summed over its calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return run(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def _value(value: Any) -> Any:
    """Return ``lin_x`` as the function that rl-baselines3-zoo makes of it."""
    if isinstance(value, str) and value.startswith("lin_"):
        start = float(value.removeprefix("lin_"))
        return lambda remaining: remaining * start
    return value


def main() -> None:
    """Train and evaluate."""
    work = json.loads(sys.stdin.read())
    import torch

    torch.set_num_threads(1)
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    settings = {name: _value(value) for name, value in work["settings"].items()}
    normalize = settings.pop("normalize", False)
    envs: Any = make_vec_env(work["env"], n_envs=work["n_envs"], seed=work["seed"])
    if normalize:
        envs = VecNormalize(envs, gamma=settings.get("gamma", 0.99))
    made = {"ppo": PPO, "dqn": DQN}[work["algo"]]
    model = made("MlpPolicy", envs, seed=work["seed"], device="cpu", **settings)
    collecting, updating = _Clock(), _Clock()
    model.collect_rollouts = collecting.around(model.collect_rollouts)
    model.train = updating.around(model.train)
    began = time.perf_counter()
    model.learn(work["total_timesteps"])
    seconds = time.perf_counter() - began
    n_timesteps = model.num_timesteps
    seen: Any = make_vec_env(work["env"], n_envs=1, seed=10_000 + work["seed"])
    if normalize:
        seen = VecNormalize(seen, training=False, norm_reward=False)
        seen.obs_rms = envs.obs_rms
    mean, _ = evaluate_policy(model, seen, n_eval_episodes=work["n_eval_episodes"], deterministic=True)
    said = {
        "seconds": seconds,
        "n_timesteps": n_timesteps,
        "collect_s": collecting.seconds,
        "update_s": updating.seconds,
        "mean_reward": float(mean),  # type: ignore[arg-type]
    }
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
